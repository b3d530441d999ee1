"""The command as a whole: help, version, which commands there are, what starting it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

import trunkline.cli as trunkline_cli
from tests.cli.conftest import Run
from trunkline import __version__
from trunkline.cli.main import app
from trunkline.cli.options import CALLING, OPTIONS, SENDING

COMMANDS = """
card|card get|send|stream|chat|get|list|cancel|watch|push|push create|doctor|mock|new|serve|demo|keys|store|tools
task get|task cancel|task list|task subscribe|task push-config|task push-config create|task download
auth login|auth logout|config show|completion|conformance|help
"""


@pytest.mark.parametrize("words", [("--version",), ("-v",)])
def test_version(trunkline: Run, words: tuple[str, ...]) -> None:
    assert trunkline(*words) == (0, f"trunkline {__version__}\n", "")


@pytest.mark.parametrize("command", [each for each in re.split(r"[|\n]", COMMANDS) if each])
def test_every_command_has_help(trunkline: Run, command: str) -> None:
    code, out, _ = trunkline(*command.split(), "--help")
    assert code == 0
    assert f"Usage: trunkline {command}" in out


@pytest.mark.parametrize("words", [("task", "get", "-h"), ("help", "task", "get"), ("task", "get", "--help")])
def test_help_has_three_spellings(trunkline: Run, words: tuple[str, ...]) -> None:
    code, out, _ = trunkline(*words)
    assert code == 0
    assert "Usage: trunkline task get" in out and "--wait" in out


def test_help_of_nothing_is_that_of_the_tool(trunkline: Run) -> None:
    assert "Usage: trunkline [OPTIONS] COMMAND" in trunkline("help")[1]
    assert trunkline("help", "nothing")[0] == 2


def test_help_shows_defaults_and_variables(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for words, names in ((("send",), (*SENDING, "wait", "async", "stream")), (("card", "get"), CALLING)):
        out = trunkline(*words, "--help")[1]
        for name in names:
            option = OPTIONS[name]
            assert f"--{name}" in out
            assert option.variable in out
            assert not option.default or f"default: {option.default}" in out
    assert "Prefer the variable: other users can read flags" in out


_DIALECT = re.compile(
    r"unless told|elsewhere|whoever|\banew\b|\btold\b|asked for|\bstands?\b|go(es)? on\b|let\b.* in\b"
    r"|\brests\b|beside|^(What|Who|Whose|Where|It|Its|How|As|Not|That|Those|And|Nothing)\b",
    re.IGNORECASE,
)


def test_help_texts_follow_the_writing_guide() -> None:
    """Each text is one or two short sentences in the terms of the field."""
    root: Any = typer.main.get_command(app)
    texts: dict[str, str] = {}

    def collect(command: Any, path: str) -> None:
        texts[path] = command.help or ""
        for one in command.params:
            texts[f"{path} {one.opts[0]}"] = getattr(one, "help", None) or ""
        for name in getattr(command, "commands", {}):
            inner = root.loaded(name) if command is root else command.commands[name]
            collect(inner, f"{path} {name}")

    collect(root, "trunkline")
    assert len(texts) > 500
    for place, text in texts.items():
        assert text and text[0].isupper() | (text[0] in "'."), place
        assert not _DIALECT.search(text), (place, text)
        assert all(len(one.split()) <= 25 for one in re.split(r"[.;:](?:\s|$)", text)), (place, text)


def test_no_help_calls_a_service_parameter_a_credential() -> None:
    assert not re.search(r"auth|credential|token|key", OPTIONS["svc-param"].help)


def test_starting_imports_nothing_of_what_commands_need() -> None:
    """Every command is paid for by `trunkline serve` too."""
    code = (
        "import sys, trunkline; before = set(sys.modules);"
        "import trunkline.cli.main as m, typer.main as t; t.get_command(m.app);"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    ours = [name for name in done.stdout.split() if name.startswith(("trunkline.", "rich", "httpx2"))]
    ours_too = ("main", "parsing", "options", "console")
    light = (*(f"trunkline.cli.{name}" for name in ours_too), "trunkline.config")
    assert [name for name in ours if name != "trunkline.cli" and not name.startswith(light)] == []


def test_an_agent_starts_without_what_a_hub_needs() -> None:
    code = "import sys, trunkline.cli.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    hub = (
        "trunkline.hub",
        "trunkline.gateway",
        "trunkline.flow",
        "ruamel",
        "cronsim",
        "mcp",
    )
    assert [name for name in done.stdout.split() if name.startswith(hub)] == []


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, listed in group.commands.items():
        command = listed if path else group.loaded(name)
        if hasattr(command, "commands"):
            yield from _commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def test_json_is_asked_for_in_one_way_everywhere() -> None:
    ways: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, command in _commands(typer.main.get_command(app)):
        params = command.get_params(typer.Context(command))
        spelled = {word: p.help for p in params for word in p.opts if word in {"--json", "--output", "-o"}}
        # The one other `-o` names the file of `mock record`.
        ways.setdefault(tuple(sorted(spelled.items())) if "--json" in spelled else (), []).append(name)
    silent = ways.pop(())
    assert len(ways) == 1
    (speaking,) = ways.values()
    assert {"doctor", "store check", "keys list", "deliveries show", "inbox answer", "send"} <= {*speaking}
    assert {"serve", "new", "store migrate", "keys revoke"} <= {*silent}


def test_commands_without_an_agent_take_both_spellings(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("keys", "list", "--store", "sqlite:///tasks.db")
    assert trunkline("store", "migrate", *keys[2:])[0] == 0
    assert trunkline(*keys)[1] != "[]\n"
    for words in (("--json",), ("-o", "json"), ("--output=json",), ("-ojson",)):
        assert trunkline(*keys, *words) == (0, "[]\n", "")
    code, _, said = trunkline(*keys, "-o", "xml")
    assert code == 2 and "xml" in said and "text" in said
    monkeypatch.setenv("A2ACLI_OUTPUT", "json")
    assert trunkline(*keys) == (0, "[]\n", "")
    assert trunkline(*keys, "-o", "text")[1] != "[]\n"


def test_a_server_reads_its_command_line_without_pydantic() -> None:
    """Loading it takes a sixth of a start."""
    typed = [
        "trunkline",
        "serve",
        "trunkline.demo:agent",
        "--port",
        "80",
        "--host",
        "::1",
        "--set",
        "push=no",
    ]
    # The whole line, as the groups above a command have flags of their own.
    code = (
        "import sys, trunkline.cli.serve as serve; from trunkline.cli.main import main;"
        "serve._run = lambda targets, given: print("
        "*targets, given['port'], given['host'], f\"push={given['push']}\", 'pydantic' in sys.modules);"
        f"sys.argv = {typed!r}; main()"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "trunkline.demo:agent 80 ::1 push=no False\n"


def test_commands_rely_on_no_internals_of_typer() -> None:
    """An upstream release may rename what Typer does not document."""
    internals = ("type_descriptor", "get_runtime_param", "_coercion", "_click", "coerce(")
    folder = Path(trunkline_cli.__file__).parent
    found = [
        (path.name, word) for path in folder.glob("*.py") for word in internals if word in path.read_text()
    ]
    assert found == []


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("a:b", "--port", "80", "--no-dev"), {"port": 80, "dev": False}),
        (("a:b", "--key", "one", "--key", "two"), {"keys": ["one", "two"]}),
        (("a:b", "--port", " 80"), {"port": 80}),
        (("a:b", "--metrics", "--host", "::1"), {"metrics": True, "host": "::1"}),
    ],
)
def test_values_are_the_same_with_and_without_the_conversion_of_typer(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], given: dict[str, Any]
) -> None:
    found: list[dict[str, Any]] = []
    monkeypatch.setattr("trunkline.cli.serve._run", lambda _targets, given: found.append(given))
    assert trunkline("serve", *words)[0] == 0
    monkeypatch.setattr("trunkline.cli.parsing.UsageCommand._read_plain_values", lambda *_: None)
    assert trunkline("serve", *words)[0] == 0
    assert found == [given, given]
