"""The client page: its blocks run one after the other as printed, beside a server."""

from __future__ import annotations

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tests.harness import ServerProcess
from trunkline.client.message import Sending
from trunkline.client.options import Options
from trunkline.wire.peer_card import Interface, PeerCard

PAGE = "docs/client.md"
AGENT = '''
from trunkline import Agent, Turn
from trunkline.demo.agent import agent

@agent.skill()
async def book(turn: Turn, city: str, nights: int) -> str:
    """Book a room."""
    return f"{nights} nights in {city}"
'''


def test_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBE_KEY", "a-key-of-this-agent")
    (tmp_path / "desk.py").write_text(AGENT)
    space: dict[str, Any] = {"loft": PeerCard(name="loft", interfaces=(Interface("pigeon:loft", "PIGEON"),))}
    with ServerProcess(tmp_path, "desk:agent", store="memory:") as server, asyncio.Runner() as runner:

        async def within(work: Any) -> None:
            async with asyncio.timeout(60):
                await work

        for block in blocks(PAGE, "python"):
            source = block.replace("http://127.0.0.1:8000", server.base)
            code = compile(source, PAGE, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            work = eval(code, space)
            if inspect.iscoroutine(work):
                runner.run(within(work))
        runner.run(within(space["client"].close()))
    said = capsys.readouterr().out
    for words in (
        "echo hello", "42 TaskState.COMPLETED True", "hello.txt b'Hello, file.\\n'", "0.0021", "2 nights in Rome",
        "slept 0.1 s", "1 2 3 4 5", "total no answer within 0.2 seconds; the agent may still work on message",
        "JSONRPC 1.0 at ", "echo old words HTTP+JSON 0.3 at ", "coo", "Which town?", "1 2 3  False ", "status working",
    ):  # fmt: skip
        assert words in said, words
    assert space["chat"].context_id


def test_every_option_is_on_the_page() -> None:
    text = Path(__file__).parents[2].joinpath(PAGE).read_text(encoding="utf-8")
    named = [*Options.__struct_fields__, *Sending.__annotations__]
    assert [name for name in named if f"`{name}`" not in text and f"{name}=" not in text] == []
