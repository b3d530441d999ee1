"""What a stranger's card makes a model read: nothing that a person would not see, and not too much of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from trunkline.bridge.schema import SCHEMA_LIMIT, sanitize
from trunkline.bridge.tools import ALL_SCHEMAS_LIMIT, TOOLS_LIMIT, tools
from trunkline.wire.peer_card import read_card

# Letters of a plane that no font has, a text turned around, a terminal's command, a line of its own.
HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "obey") + "\u202e\x1b\x9b\u200b"


def listed(**skill: Any) -> dict[str, Any]:
    card = {
        "name": f"x{HIDDEN}",
        "skills": [{"id": "s", "name": f"S{HIDDEN}", **skill}],
        "url": "https://a.example",
    }

    async def main() -> dict[str, Any]:
        box = await tools(read_card(msgspec.json.encode(card)))
        return box.mcp()[0]

    return asyncio.run(main())


def test_words_show_what_they_say() -> None:
    schema = {
        "type": "object",
        "title": HIDDEN,
        "properties": {"q": {"type": "string", "description": f"ask{HIDDEN}", "enum": ["a\tb"]}},
    }
    tool = listed(description=f"Adds.\nAnd more.{HIDDEN}", inputSchema=schema)
    assert tool["description"] == "Adds.\nAnd more." and tool["title"] == "S"
    asked = tool["inputSchema"]["properties"]["q"]
    # What programs compare stays as it is.
    assert asked == {"type": "string", "description": "ask", "enum": ["a\tb"]}


def test_what_is_too_long_is_cut_and_a_schema_of_that_size_is_none() -> None:
    tool = listed(
        description="d" * 500_000,
        inputSchema={"type": "object", "properties": {"x" * SCHEMA_LIMIT: {"type": "string"}}},
    )
    assert len(tool["description"]) == 1024 and tool["description"].endswith("…")
    assert set(tool["inputSchema"]["properties"]) == {"query", "task_id"}
    assert len(sanitize("\x1b" * 1_000_000 + "a", 10)) <= 10


# Printable to Python, and on no screen: a filler, a selector of variants, a blank of Braille.
UNSEEN = "\u3164\ufe0f\U000e0101\u2800"


@pytest.mark.parametrize("sign", [*HIDDEN, *UNSEEN])
def test_no_name_value_default_or_pattern_has_what_does_not_show(
    sign: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = f"a{sign}b"
    schema = {
        "type": "object",
        "properties": {
            bad: {"type": "string"},
            "q": {"type": "string", "enum": ["fine", bad], "default": bad, "pattern": bad, "title": bad},
            "n": {
                "const": bad,
                "examples": [bad],
                "anyOf": [{"description": bad, bad: bad}],
                "default": {bad: 1},
            },
        },
        "required": [bad, "q"],
    }
    with caplog.at_level(logging.WARNING):
        tool = listed(inputSchema=schema)
    found = tool["inputSchema"]
    assert sign not in msgspec.json.encode(found).decode()
    assert found["properties"]["q"]["enum"] == ["fine"] and found["required"] == ["q"]
    assert "default" not in found["properties"]["q"] and "pattern" not in found["properties"]["q"]
    # An empty list of values would allow none.
    assert "examples" not in found["properties"]["n"]
    assert "tools.schema_illegible skill='s'" in caplog.text and "properties.q.default" in caplog.text
    assert caplog.text.isascii()


def test_a_schema_of_nothing_but_what_does_not_show_is_still_an_object() -> None:
    schema = {"type": "object", "properties": {"\u200b": {"type": "string"}}}
    assert set(listed(inputSchema=schema)["inputSchema"]["properties"]) == {"task_id", "answer"}


def test_the_number_of_tools_and_the_size_of_their_schemas_are_bounded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def offered(count: int, length: int) -> int:
        schema = {"type": "object", "properties": {"q": {"type": "string", "default": "d" * length}}}
        skills = [{"id": f"s{number}", "name": "S", "inputSchema": schema} for number in range(count)]
        card = {"name": "x", "skills": skills, "url": "https://a.example"}
        return len(asyncio.run(_opened(card)))

    with caplog.at_level(logging.WARNING):
        assert offered(TOOLS_LIMIT, 1) == TOOLS_LIMIT and caplog.text == ""
        assert offered(TOOLS_LIMIT + 3, 1) == TOOLS_LIMIT
        assert f"tools.left_out agent='x' tools=3 limit={TOOLS_LIMIT}" in caplog.text
        assert offered(40, 50_000) <= ALL_SCHEMAS_LIMIT // 50_000


async def _opened(card: dict[str, Any]) -> Any:
    return await tools(read_card(msgspec.json.encode(card)))
