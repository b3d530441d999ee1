"""The page on tools: its code, its file of agents and its commands, as printed."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from tests.harness import ServerProcess
from trunkline.bridge.registry import AgentEntry

__all__ = ["trunkline"]

PAGE = "docs/tools.md"
CODE = blocks(PAGE, "python")
LINES = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
(FILE,) = blocks(PAGE, "yaml")
SERVED = "http://127.0.0.1:8000"


def test_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    for block in CODE:
        exec(compile(block, PAGE, "exec"), space)
    checks = [name for name in space if name.startswith("test_") and name != "test_file"]
    assert len(checks) == 6
    for name in checks:
        asyncio.run(asyncio.wait_for(space[name](), 30))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("KITCHEN_KEY", "CELLAR_TOKEN", "CELLAR_TENANT"):
        monkeypatch.setenv(name, "a-key-of-this-agent")
    (tmp_path / "kitchen.py").write_text(CODE[0])
    with ServerProcess(tmp_path, "kitchen:kitchen", store="memory:") as server:
        # Nobody is at the second address, which is why it says what it can.
        (tmp_path / "agents.yaml").write_text(
            FILE.replace(SERVED, server.base).replace("https://cellar.example", "http://127.0.0.1:9")
        )
        yield server, tmp_path


def test_the_file_and_the_commands(served: Any, trunkline: Run) -> None:
    server, folder = served
    space: dict[str, Any] = {}
    for block in CODE:
        exec(compile(block, PAGE, "exec"), space)
    asyncio.run(asyncio.wait_for(space["test_file"](str(folder / "agents.yaml")), 30))
    done = [trunkline(*shlex.split(line.replace(SERVED, server.base))[1:]) for line in LINES]
    assert [code for code, _, _ in done] == [0] * len(LINES), done
    said = [out for _, out, _ in done]
    assert [tool["name"] for tool in json.loads(said[0])] == ["a2a__kitchen__cook", "a2a__kitchen__bake"]
    assert said[1] == "Result:\n  soup for 2\n\n"
    assert [tool["function"]["name"] for tool in json.loads(said[2])] == ["a2a__kitchen__cook"]


def test_every_key_of_the_file_is_on_the_page() -> None:
    text = (
        Path(__file__)
        .parents[2]
        .joinpath(PAGE)
        .read_text(encoding="utf-8")
        .replace("apiKeyEnv", "api_key_env")
    )
    assert [name for name in AgentEntry.__struct_fields__ if f"`{name}`" not in text] == []
