"""The first five minutes, exactly as printed: both agents served, every command run, the loop with three models."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import blocks
from tests.harness import ServerProcess

PAGE = "docs/start.md"
WEATHER, PACKING, LOOP, OPENAI, CLAUDE = blocks(PAGE, "python")
LINES = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
OUTPUTS = blocks(PAGE, "text")
TRUNKLINE = [sys.executable, "-c", "from trunkline.cli.main import main; main()"]


class World:
    """The folder of the page and its two servers, on ports that are free."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        for name, code in {"weather": WEATHER, "packing": PACKING}.items():
            (folder / f"{name}.py").write_text(code)
        served = [shlex.split(line) for line in LINES if line.startswith("trunkline serve")]
        self.bases: dict[str, str] = {}
        for words in served:
            store = words[words.index("--store") + 1]
            server = stack.enter_context(ServerProcess(folder, words[2], store=store))
            self.bases[f"http://127.0.0.1:{words[words.index('--port') + 1]}"] = server.base
        (folder / "loop.py").write_text(self.here(LOOP))

    def here(self, text: str) -> str:
        for printed, base in self.bases.items():
            text = text.replace(printed, base)
        return text

    def run(self, line: str) -> str:
        words = shlex.split(self.here(line))
        programs = {"trunkline": TRUNKLINE, "python": [sys.executable]}
        command = [*programs[words[0]], *words[1:]]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def space(self) -> dict[str, Any]:
        found: dict[str, Any] = {"__name__": "loop"}
        exec(compile(self.here(LOOP), PAGE, "exec"), found)
        return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("start"), stack)


def test_the_commands(world: World) -> None:
    talk = [line for line in LINES if line.startswith(("trunkline", "python")) and " serve " not in line]
    said = {line: world.run(line) for line in talk}
    card, sent, listed, called, looped = said.values()
    assert "weather" in card and "forecast" in card
    assert "Is the bag small or large?" in sent and "--task-id" in sent
    tools = {tool["function"]["name"]: tool["function"]["parameters"] for tool in json.loads(listed)}
    assert list(tools) == ["a2a__weather__forecast", "a2a__packing__pack"]
    assert tools["a2a__weather__forecast"]["properties"]["days"] == {"type": "integer", "default": 1}
    assert [called.rstrip(), looped.rstrip()] == [text.rstrip() for text in OUTPUTS]


def test_openai_in_place_of_the_rules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is played; what it is given and what it gives back have its shapes."""
    space = world.space()

    class Message(dict[str, Any]):
        def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
            assert exclude_none
            return dict(self)

    async def create(*, model: str, messages: Any, tools: Any) -> Any:
        assert model and all(tool["type"] == "function" for tool in tools)
        said = Message(await space["rules"](messages, tools))
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=said)])

    module = types.ModuleType("openai")
    completions = types.SimpleNamespace(completions=types.SimpleNamespace(create=create))
    vars(module)["AsyncOpenAI"] = lambda: types.SimpleNamespace(chat=completions)
    monkeypatch.setitem(sys.modules, "openai", module)
    exec(compile(OPENAI, PAGE, "exec"), space)
    answer = asyncio.run(asyncio.wait_for(space["loop"](space["openai"], "Bergen?"), 30))
    assert answer == "Take along: umbrella, book"


def test_claude_in_place_of_the_rules(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client is played: the rules answer in its shapes."""
    space = world.space()

    class Client:
        def __init__(self) -> None:
            self.messages = types.SimpleNamespace(create=self._create)

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def _create(self, *, model: str, max_tokens: int, messages: Any, tools: Any) -> Any:
            assert model and max_tokens and all("input_schema" in tool for tool in tools)
            results = [one for message in messages[2::2] for one in message["content"]]
            heard = [{"role": "tool", "content": one["content"][0]["text"]} for one in results]
            said = await space["rules"](heard, tools)
            if "content" in said:
                return types.SimpleNamespace(
                    content=[types.SimpleNamespace(type="text", text=said["content"])]
                )
            wanted = said["tool_calls"][0]["function"]
            block = types.SimpleNamespace(
                type="tool_use", id="1", name=wanted["name"], input=json.loads(wanted["arguments"])
            )
            return types.SimpleNamespace(content=[block])

    module = types.ModuleType("anthropic")
    vars(module)["AsyncAnthropic"] = Client
    monkeypatch.setitem(sys.modules, "anthropic", module)
    exec(compile(CLAUDE, PAGE, "exec"), space)
    answer = asyncio.run(asyncio.wait_for(space["claude"]("Bergen?"), 30))
    assert answer == "Take along: umbrella, book"
