"""What a stranger's card makes a model read: nothing that a person would not see, and not too much of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from trunkline.bridge.sanitize import sanitize
from trunkline.bridge.schema import SCHEMA_LIMIT
from trunkline.bridge.tools import tools
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
