"""Each error of the command line says what is wrong, where, and which command to run next."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

from tests.cli.conftest import Run
from tests.cli.peers import served
from trunkline import store
from trunkline.cli import admin
from trunkline.cli.admin import refusal_of
from trunkline.cli.failure import EXITS
from trunkline.cli.main import app
from trunkline.demo.agent import agent as demo
from trunkline.store import postgres
from trunkline.store.sqlite.database import FileLock

AGENT = """
from trunkline import Agent, Turn
agent = Agent("scribe")
@agent.skill
async def count(turn: Turn) -> str:
    return turn.text
"""

FLOW = """
document: {schema: https://agent-workflow.dev/schemas/workflow-definition.json, name: a, version: 1.0.0}
nodes:
  - {id: start, type: strat}
state_schema: {type: object}
edges: [{source: __start__, target: start}]
"""


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("serve scrib:agent", "no module 'scrib' here", "trunkline serve scribe:agent"),
        ("serve scribe:agnt", "scribe has no Agent named 'agnt'", "trunkline serve scribe:agent"),
        ("serve scribe", "'scribe' should be MODULE:AGENT", "trunkline serve scribe:AGENT"),
        ("serve scribe.py", "'scribe.py' names a file", "trunkline serve scribe:AGENT"),
        ("serve :agent", "':agent' should be MODULE:AGENT", "trunkline serve MODULE:agent"),
        ("serve zzz.zzz:agent", "there is no module 'zzz.zzz' here", "trunkline new NAME"),
        ("serve json:loads", "json has no Agent named 'loads'", "trunkline new NAME"),
        ("serve empty:agent", "empty:agent has no skill", "trunkline new NAME"),
        (
            "serve scribe:agent --workers 2",
            "--workers 2 needs a store that processes share",
            "trunkline serve scribe:agent --workers 1",
        ),
        ("serve scribe.py:agent", "names a file", "trunkline serve scribe:agent"),
        ("serve broken:agent", "broken does not import at broken.py:1", "pip install nosuchlib"),
        ("serve torn:agent", "torn does not import", "python -m torn"),
        (
            "serve scribe:agent --set retnetion=5",
            "did you mean 'retention'?",
            "trunkline config show --server",
        ),
        (
            "serve scribe:agent --retnetion 5",
            "did you mean --set retention=…?",
            "trunkline serve scribe:agent --set retention=5",
        ),
        ("hub none", "none: no such folder", "trunkline hub init none"),
        ("hub check none", "none: no such folder", "trunkline hub init none"),
        ("hub work", "work/hub.yaml, line 2: nmae: unknown field", "trunkline hub check work"),
        ("hub torn", "torn/hub.yaml, line 2: ", "sed -n 2p torn/hub.yaml"),
        (
            "mock none.yaml",
            "none.yaml: no such file or directory",
            "trunkline mock record URL --output none.yaml",
        ),
        (
            "mock model.yaml --openai",
            "model.yaml, line 3: rules[0].when.contins: unknown field; did you mean 'contains'?",
            "sed -n 3p model.yaml",
        ),
        ("mock torn/hub.yaml", "torn/hub.yaml, line 2: ", "sed -n 2p torn/hub.yaml"),
        ("flow validate none.yaml", "none.yaml: no such file or directory", "ls -l ."),
        (
            "flow run note",
            "note: no such file or directory; did you mean workflows/note.yaml?",
            "ls -l workflows",
        ),
        ("flow validate torn/hub.yaml", "torn/hub.yaml, line 2: ", "sed -n 2p torn/hub.yaml"),
        (
            "flow validate bad.json",
            "bad.json: invalid JSON at line 2, column 2: ",
            "python -m json.tool bad.json",
        ),
        (
            "task list --hub work",
            "work/hub.yaml, line 2: nmae: unknown field",
            "sed -n 2p work/hub.yaml",
        ),
        (
            "flow run flow.yaml --store s.db",
            "flow.yaml, line 4: /nodes/0/type: must be one of ",
            "trunkline flow validate flow.yaml",
        ),
        (
            "keys create --owner ann --scope answr",
            "there is no scope 'answr': choose tasks:read",
            "trunkline keys create --owner ann --scope answer",
        ),
        ("inbox list", "trunkline.db cannot be opened", "trunkline inbox list --store DIR"),
        ("ceremony list", "trunkline.db cannot be opened", "trunkline ceremony list --store DIR"),
        ("tenant list", "trunkline.db cannot be opened", "trunkline tenant list --store DIR"),
        ("keys list", "trunkline.db cannot be opened", "trunkline keys list --store DIR"),
        ("deliveries list", "trunkline.db cannot be opened", "trunkline deliveries list --store DIR"),
        ("task get nothing --hub good", "no server has this store", "trunkline hub good"),
        (
            "task get nothing --hub http://127.0.0.1:1",
            "127.0.0.1:1: connection refused",
            "trunkline hub DIR --port 1",
        ),
        ("task get nothing --hub none", "there is no such folder", "trunkline hub init none"),
        ("fleet --store good/deep", "there is no such folder", "trunkline hub init good/deep"),
        ("inbox list --store .", "it contains neither hub.yaml nor", "trunkline help inbox list"),
        (
            "serve scribe:agent --port x",
            "--port: expected an integer, not 'x'",
            "trunkline serve scribe:agent --port NUMBER",
        ),
        (
            "flow list --limit=0",
            "--limit: expected a number greater than or equal to 1, not '0'",
            "trunkline flow list --limit NUMBER",
        ),
        (
            "serve scribe:agent --prot 8000",
            "No such option: --prot; did you mean --port?",
            "trunkline serve scribe:agent --port 8000",
        ),
        (
            "keys create --ower=ann",
            "No such option: --ower; did you mean --owner?",
            "trunkline keys create --owner=ann",
        ),
        ("--frob", "No such option: --frob", "trunkline help"),
        ("keys --frob", "No such option: --frob", "trunkline help keys"),
        ("send --frob", "No such option: --frob", "trunkline help send"),
        ("task list --hub", "'--hub' requires an argument", "trunkline task list --hub VALUE"),
        ("serve", "Missing argument 'MODULE:AGENT...'", "trunkline serve MODULE:AGENT"),
        ("agent add", "Missing argument 'NAME'", "trunkline agent add NAME URL"),
        ("agent add scribe", "Missing argument 'URL'", "trunkline agent add scribe URL"),
        ("completion", "Missing argument 'bash|zsh|fish'", "trunkline completion bash"),
        ("keys create", "Missing option '--owner'", "trunkline keys create --owner OWNER"),
        ("flow resume r1", "Missing option '--payload'", "trunkline flow resume r1 --payload JSON"),
        ("sned x", "No such command 'sned'", "trunkline send x"),
        ("task lits", "No such command 'lits'", "trunkline task list"),
        ("task list", "no hub and no agent is named", "trunkline task list --hub DIR"),
        ("send 127.0.0.1:1 hi", "is no whole URL", "trunkline card get -a 127.0.0.1:1"),
        (
            "send http://127.0.0.1:1 --data {bad",
            "--data: invalid JSON at column 2: ",
            """trunkline send http://127.0.0.1:1 --data '{"name": "value"}'""",
        ),
        (
            "send http://127.0.0.1:1 --data bad.json",
            "--data bad.json: invalid JSON at line 2, column 2: ",
            "python -m json.tool bad.json",
        ),
        ("send http://127.0.0.1:1 --file no.txt", "--file no.txt: no such file or directory", "ls -l ."),
        (
            "send http://127.0.0.1:1 hi --metadata {bad",
            "--metadata: invalid JSON object at column 2: ",
            """trunkline send http://127.0.0.1:1 hi --metadata '{"name": "value"}'""",
        ),
        (
            "send http://127.0.0.1:1 hi --timeout x",
            "--timeout: expected a duration such as 500ms, 2s, 5m or 1h30m, not 'x'",
            "trunkline send http://127.0.0.1:1 hi --timeout 5m",
        ),
        ("send http://127.0.0.1:1", "nothing to send", "trunkline send http://127.0.0.1:1 --text TEXT"),
        (
            "send http://127.0.0.1:1 hi",
            "127.0.0.1:1: connection refused",
            "trunkline serve MODULE:AGENT --port 1",
        ),
        ("tools http://127.0.0.1:1", "connection refused", "trunkline serve MODULE:AGENT --port 1"),
        ("tools", "no agent", "trunkline tools URL"),
        ("chat", "no agent is named", "trunkline chat URL"),
        ("card none.json", "none.json: ", "trunkline card get -a https://HOST/.well-known/agent-card.json"),
        (
            "dispatch hi --skill x",
            "trunkline.db cannot be opened",
            "trunkline dispatch hi --skill x --store DIR",
        ),
        ("store check", "trunkline.db cannot be opened", "trunkline store check --store DIR"),
        (
            "store check --store sqlite:///text.db",
            "file is not a database",
            "trunkline store check --store URL",
        ),
        (
            "keys list --store sqlite:///text.db",
            "/text.db cannot be opened: file is not",
            "trunkline keys list --store URL",
        ),
        ("serve ./scribe.py:agent", "did you mean scribe:agent?", "trunkline serve scribe:agent"),
        (
            "serve ../up/scribe.py:agent",
            "did you mean scribe:agent?",
            "cd ../up && trunkline serve scribe:agent",
        ),
        ("serve scribe.agent", "'scribe.agent' should be MODULE:AGENT", "trunkline serve scribe:agent"),
        ("serve leaves:agent", "leaves does not import at leaves.py:1: SystemExit: 3", "python -m leaves"),
        (
            "serve scribe:agent --key short",
            "setting 'keys' (--key or TRUNKLINE_KEYS): ",
            "openssl rand -hex 16",
        ),
        (
            "serve scribe:agent --store my.db",
            "no store at 'my.db'",
            "trunkline serve scribe:agent --store sqlite:///my.db",
        ),
        (
            "serve scribe:agent --log-level loud",
            "invalid value 'loud'; choose debug, info",
            "trunkline config show --server",
        ),
        (
            "mcp scribe:agent",
            "'scribe:agent' is neither the URL of an agent",
            "trunkline mcp http://HOST:PORT",
        ),
        (
            "task list --store good",
            "No such option: --store; did you mean --hub?",
            "trunkline task list --hub good",
        ),
        (
            "inbox list --hub good",
            "No such option: --hub; did you mean --store?",
            "trunkline inbox list --store good",
        ),
        (
            "task list --hub sqlite:///s.db",
            "no server has this store",
            "trunkline hub --store sqlite:///s.db",
        ),
        (
            "task list --hub good -a http://127.0.0.1:1",
            "are both named: give one of them",
            "trunkline task list --hub good",
        ),
        (
            "task list --hub http://127.0.0.1:1/nope",
            "is not the address of a hub",
            "trunkline task list --hub http://127.0.0.1:1",
        ),
        (
            "conformance http://127.0.0.1:1",
            "--kit names a checkout",
            "git clone --branch 1.0-dev https://github.com/a2aproject/a2a-tck tck",
        ),
        ("tools --agents none.yaml", "--agents none.yaml: no such file", "ls -l ."),
        ("doctor nope", "'nope' is not the URL of an agent", "trunkline doctor http://HOST:PORT"),
        ("doctor http://127.0.0.1:1 --only nope", "no check or family 'nope'", "trunkline doctor --list"),
        ("mock record nope", "'nope' is not the URL", "trunkline mock record http://HOST:PORT"),
        (
            "mcp config http://127.0.0.1:1 --client clade",
            "not 'clade'",
            "trunkline mcp config http://127.0.0.1:1 --client claude",
        ),
        (
            "store prune --older-than soon",
            "--older-than takes a number and s, m, h or d",
            "trunkline store prune --older-than 7d",
        ),
        (
            "agent add a http://127.0.0.1:1 --bearer env:NOT_SET",
            "variable 'NOT_SET' is not set",
            "export NOT_SET=VALUE",
        ),
        (
            "flow graph flow.yaml --format svg",
            "--format is tree or mermaid",
            "trunkline flow graph flow.yaml --format tree",
        ),
        (
            "serve scribe:agent --set retention=5d --announce http://127.0.0.1:2 --workers 2",
            "--workers 2 needs a store",
            "trunkline serve scribe:agent --set retention=5d --announce http://127.0.0.1:2 --workers 1",
        ),
        (
            "serve scribe:agent --set announce_key=planted-key --workers 2",
            "--workers 2 needs a store",
            "trunkline serve … --workers 1",
        ),
        ("completion fsh", "no completion for 'fsh'", "trunkline completion fish"),
        ("help sned", "there is no command 'sned'; did you mean 'send'?", "trunkline help send"),
        ("help task gte", "there is no command 'gte'; did you mean 'get'?", "trunkline help task get"),
        ("new 1bad", "'1bad' is not a valid project name", "trunkline new NAME"),
        ("hub init good", "good/hub.yaml already exists", "trunkline hub good"),
        ("dispatch", "there is nothing to dispatch", "trunkline dispatch TEXT"),
        ("route explain", "give either the ID of a task", "trunkline route explain --skill SKILL"),
        (
            "send http://127.0.0.1:1 hi you",
            "2 words where one text is expected",
            "trunkline send -a URL 'hi you'",
        ),
        (
            "send http://127.0.0.1:1 hi --transport JSNRPC",
            "transport 'JSNRPC' is unknown",
            "trunkline send http://127.0.0.1:1 hi --transport JSONRPC",
        ),
    ],
)
def test_an_error_names_the_next_command(
    trunkline: Run, tmp_path: Path, words: str, error: str, hint: str
) -> None:
    (tmp_path / "scribe.py").write_text(AGENT)
    (tmp_path / "empty.py").write_text("from trunkline import Agent\nagent = Agent('empty')\n")
    (tmp_path / "model.yaml").write_text("rules:\n- when:\n    contins: hello\n  reply: Hi\n")
    (tmp_path / "broken.py").write_text("import nosuchlib\n")
    (tmp_path / "torn.py").write_text("def f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "bad.json").write_text('{"a": 1,\n b}\n')
    for name, text in (("good", "name: a\n"), ("work", "name: a\nnmae: b\n"), ("torn", "name: [a\nb: c\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hub.yaml").write_text(text)
    (tmp_path / "workflows").mkdir()
    for file in ("flow.yaml", "workflows/note.yaml"):
        (tmp_path / file).write_text(FLOW)
    (tmp_path / "text.db").write_text("hello, this is a text and no database of any kind\n" * 20)
    code, _, said = trunkline(*words.split())
    lines = [line for line in said.splitlines() if line.startswith(("Error: ", "Code: ", "Hint: "))]
    assert [line.partition(":")[0] for line in lines] == ["Error", "Code", "Hint"]
    assert code == EXITS.get(lines[1].removeprefix("Code: "), 1)
    assert error in lines[0]
    assert lines[2] == f"Hint: {hint}"
    check_runs(hint)


def check_runs(hint: str) -> None:
    """Check that a hint is a command: one of the shell, or one that `trunkline` parses."""
    words = shlex.split(hint.replace("NUMBER", "1"))
    if words[0] != "trunkline":
        assert words[0] in (
            "cd",
            "createdb",
            "createuser",
            "export",
            "git",
            "grep",
            "ls",
            "mkdir",
            "openssl",
            "pg_isready",
            "pip",
            "python",
            "sed",
            "tail",
            "unset",
        )
        return
    command: Any = typer.main.get_command(app)
    context = command.make_context("trunkline", words[1:])
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


SERVED = (
    AGENT
    + """
@agent.skill
async def order(city: str, nights: int = 1) -> str:
    return city
"""
)


@pytest.fixture(scope="module")
def guarded_url() -> Iterator[str]:
    """Return the URL of the demo agent behind a key."""
    with served(demo.asgi(store="memory:", dev=True, log_level="error", keys=["planted-key"])) as url:
        yield url


@pytest.fixture(scope="module")
def scribe_url() -> Iterator[str]:
    """Return the URL of an agent with two skills, one of which has parameters."""
    names: dict[str, Any] = {}
    exec(SERVED, names)
    with served(names["agent"].asgi(store="memory:", dev=True, log_level="error")) as url:
        yield url


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("", "no credentials were sent; the agent requires ", "export A2ACLI_API_KEY=KEY"),
        (
            "--api-key wrong",
            "the agent refused the credentials: the key is not known here; it accepts ",
            "export A2ACLI_API_KEY=KEY",
        ),
        ("--bearer wrong", "the agent refused the credentials: ", "export A2ACLI_BEARER=TOKEN"),
    ],
)
def test_missing_and_wrong_key_differ(
    trunkline: Run, guarded_url: str, words: str, error: str, hint: str
) -> None:
    code, _, said = trunkline("send", guarded_url, "hi", *words.split())
    lines = said.splitlines()
    assert code == 4 and lines[0].startswith(f"Error: {error}") and lines[-1] == f"Hint: {hint}"
    assert lines[0].count("X-API-Key") == 1
    check_runs(hint)


def test_https_to_a_server_without_tls_names_the_scheme(trunkline: Run, scribe_url: str) -> None:
    for words in (("send", "hi", "-a"), ("tools",)):
        code, _, said = trunkline(*words, scribe_url.replace("http:", "https:"))
        lines = said.splitlines()
        assert (code, "does not use TLS; its URL begins with http://" in lines[0]) == (3, True)
        assert lines[-1] == f"Hint: trunkline card get -a {scribe_url}"
    assert trunkline(*lines[-1].split()[2:])[0] == 0


def test_misspelt_tool_names_the_closest_one(trunkline: Run, scribe_url: str) -> None:
    code, _, said = trunkline("tools", scribe_url, "--call", "cuont")
    lines = said.splitlines()
    assert code == 2 and lines[0] == "Error: there is no tool 'cuont'; did you mean 'a2a__scribe__count'?"
    assert lines[-1] == f"Hint: trunkline tools {scribe_url} --call a2a__scribe__count"


def test_tools_of_a_wrong_path_name_the_next_command(trunkline: Run, scribe_url: str) -> None:
    for url, hint in (
        (f"{scribe_url}/nowhere", f"trunkline card get -a {scribe_url}"),
        (f"{scribe_url}/no.json", f"trunkline doctor {scribe_url}/no.json"),
    ):
        code, _, said = trunkline("tools", url)
        assert (code, said.splitlines()[-1]) == (3, f"Hint: {hint}")
        check_runs(hint)


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("/nowhere hi", "no agent has the path '/nowhere'", "trunkline card get -a {url}"),
        ("/no.json hi", "no agent card is there", "trunkline doctor {url}/no.json"),
        (" hi --skill cuont", "no skill 'cuont'; did you mean 'count'?", "trunkline tools {url}"),
        (' --data {"nights":2} --skill order', "missing parameter 'city'", "trunkline tools {url}"),
        (
            ' --data {"citi":"Rome"} --skill order',
            "unknown parameter 'citi'; did you mean 'city'?",
            "trunkline tools {url}",
        ),
        (
            ' --data {"city":3} --skill order',
            "data.city: expected string, got integer",
            "trunkline tools {url}",
        ),
        (
            ' --data {"a":1} --skill count',
            "skill count reads text/plain, not application/json",
            "trunkline tools {url}",
        ),
        (" hi --task-id none", "task 'none' was not found", "trunkline task list -a {url}"),
    ],
)
def test_a_refused_message_names_the_next_command(
    trunkline: Run, scribe_url: str, words: str, error: str, hint: str
) -> None:
    code, _, said = trunkline("send", *f"{scribe_url}{words}".split())
    lines = said.splitlines()
    assert code in (1, 3) and lines[0].startswith("Error: ") and error in lines[0]
    assert lines[-1] == f"Hint: {hint.format(url=scribe_url)}"
    check_runs(lines[-1].removeprefix("Hint: "))


@pytest.mark.parametrize(
    ("variable", "value", "file", "error", "hint"),
    [
        ("TRUNKLINE_PORT", "abc", "", "(from TRUNKLINE_PORT): expected an integer", "unset TRUNKLINE_PORT"),
        ("TRUNKLINE_ISSUERS", "[", "", "(from TRUNKLINE_ISSUERS): expected a JSON", "unset TRUNKLINE_ISSUERS"),
        ("", "", 'port = "abc"', "(from trunkline.toml): expected an", "grep -n port trunkline.toml"),
        ("", "", "prot = 8000", "'prot' (from trunkline.toml); did you", "grep -n prot trunkline.toml"),
        (
            "", "", "port = 1\nhost = \n",
            "trunkline.toml, line 2: invalid TOML at column 8: Invalid value",
            "sed -n 2p trunkline.toml",
        ),
        ("", "", 'host = """', "trunkline.toml: invalid TOML: ", "tail -n 1 trunkline.toml"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["serve scribe:agent", "config show --server"])
def test_hint_for_a_wrong_setting_works_while_it_is_wrong(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: str, variable: str, value: str, file: str, error: str, hint: str,
) -> None:  # fmt: skip
    (tmp_path / "scribe.py").write_text(AGENT)
    if variable:
        monkeypatch.setenv(variable, value)
    if file:
        (tmp_path / "trunkline.toml").write_text(file)
    code, _, said = trunkline(*command.split())
    lines = said.splitlines()
    assert code == 2 and error in lines[0]
    assert lines[-1] == f"Hint: {hint}"
    check_runs(hint)


def test_missing_module_with_a_similar_name_is_not_installed(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "scribe.py").write_text(AGENT)
    for name, near in (("scrbe", "scribe"), ("trunklin", "trunkline"), ("asynci", "asyncio")):
        (tmp_path / "caller.py").write_text(f"\nimport {name}\n")
        code, _, said = trunkline("serve", "caller:agent")
        lines = said.splitlines()
        assert code == 2 and lines[-3].endswith(f"No module named {name!r}; did you mean {near!r}?")
        assert lines[-1] == f"Hint: sed -n 2p {tmp_path / 'caller.py'}"
        check_runs(lines[-1].removeprefix("Hint: "))


def test_line_of_an_env_file_is_printed_by_the_hint(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A2ACLI_TIMEOUT=5s\nnot an assignment\n")
    for words in ("send http://127.0.0.1:1 hi", "inbox list"):
        code, _, said = trunkline(*words.split())
        assert code == 2 and said.splitlines()[-1] == f"Hint: sed -n 2p {tmp_path / '.env'}"


@pytest.mark.parametrize("command", ["hub", "hub check", "inbox list --store", "task list --hub"])
def test_error_of_a_variable_does_not_name_the_hub_file(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hub.yaml").write_text("settings:\n  retention: 7d\n")
    monkeypatch.setenv("TRUNKLINE_PORT", "abc")
    code, out, said = trunkline(*command.split(), "work")
    assert code == 2 and "setting 'port' (from TRUNKLINE_PORT): expected an integer" in out + said
    assert "hub.yaml" not in out + said
    if command != "hub check":
        assert said.splitlines()[-1] == "Hint: unset TRUNKLINE_PORT"


def test_wrong_setting_in_the_hub_file_is_located_by_its_line_alone(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text("name: a\nsettings:\n  retnetion: 7d\n")
    said = trunkline("hub", ".")[2]
    assert "Error: hub.yaml, line 3: unknown setting 'retnetion'; did you mean 'retention'?\n" in said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "this agent needs a key"),
        ("--api-key wrong-key-1", "the key is not known here"),
    ],
)
def test_missing_and_wrong_key_of_a_hub_have_a_hint(
    trunkline: Run, guarded_url: str, words: str, error: str
) -> None:
    code, _, said = trunkline("task", "list", "--hub", guarded_url, *words.split())
    lines = said.splitlines()
    assert code == 4 and lines[0].startswith(f"Error: {error}")
    name = "AUTH_FAILED" if words else "CREDENTIALS_MISSING"
    assert lines[-2:] == [f"Code: A2ACLI_ERR_{name}", "Hint: export A2ACLI_API_KEY=KEY"]


def test_commands_on_a_store_that_a_server_has_say_how_to_stop_it(trunkline: Run, tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "s.db"))
    lock.acquire()
    try:
        said = trunkline("store", "migrate", "--store", "sqlite:///s.db")[2]
        assert said.splitlines()[-1] == f"Hint: kill {os.getpid()}"
    finally:
        lock.release()


def test_mock_on_a_port_in_use_suggests_any_free_one(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "mock.yaml").write_text("agent: {name: A}\notherwise: hi\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words in (("mock", "mock.yaml"), ("mock", "record", "http://127.0.0.1:1")):
            said = trunkline(*words, "--port", port)[2]
            error = f"Error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another"
            assert said.startswith(error)
            assert said.splitlines()[-1] == f"Hint: trunkline {' '.join(words)} --port 0"


def test_a_port_in_use_suggests_any_free_one(trunkline: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, said = trunkline("serve", "trunkline.demo:agent", "--port", str(port), "--store", "memory:")
    assert code == 2 and f"cannot listen on 127.0.0.1:{port}" in said
    assert "Hint: trunkline serve trunkline.demo:agent --store memory: --port 0" in said


@pytest.mark.parametrize(
    "words",
    ["dispatch hi", "agent list", "ceremony list", "route explain --skill x", "ceremony create a 1 b"],
)
def test_command_for_a_hub_that_does_not_run_names_its_folder(
    trunkline: Run, tmp_path: Path, words: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "hub.yaml").write_text("name: a\n")
    assert trunkline("keys", "create", "--owner", "ann", "--store", "other")[0] == 0
    said = trunkline(*words.split(), "--store", "other")[2]
    lines = said.splitlines()
    assert lines[0].startswith("Error: no server has this store: sqlite:///")
    assert lines[-1] == "Hint: trunkline hub other"


@pytest.mark.parametrize(
    ("status", "error", "hint"),
    [
        (429, "too much; try again in 7 s", "sleep 7 && trunkline"),
        (503, "the store cannot answer now", "sleep 1 && trunkline"),
    ],
)
@pytest.mark.parametrize("words", ["dispatch hi --store work", "task list --hub work"])
def test_refusal_for_the_moment_has_the_command_that_waits(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    words: str, status: int, error: str, hint: str,
) -> None:  # fmt: skip
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hub.yaml").write_text("name: a\n")

    async def refuse(*_: object) -> bytes:
        raise refusal_of(status, msgspec.json.encode({"detail": error.partition(";")[0]}), 7.0)

    monkeypatch.setattr(admin, "_performed", refuse)
    monkeypatch.setattr("trunkline.cli.hub_tasks.read_admin_endpoint", lambda _: object())
    code, _, said = trunkline(*words.split())
    lines = said.splitlines()
    assert (code, lines[0], lines[-1]) == (1, f"Error: {error}", f"Hint: {hint} {words}")


def test_url_of_a_stopped_hub_names_the_hub_of_this_folder(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text("name: a\n")
    assert "Hint: trunkline hub --port 1\n" in trunkline("send", "http://127.0.0.1:1", "hi")[2]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        ("keys revoke nope", "there is no key 'nope'", "trunkline keys list"),
        ("deliveries show nope", "there is no delivery 'nope'", "trunkline deliveries list"),
        ("inbox show nope", "task 'nope' has no open question", "trunkline inbox list"),
    ],
)
def test_hint_to_list_names_the_store_that_was_typed(
    trunkline: Run, words: str, error: str, hint: str
) -> None:
    trunkline("keys", "create", "--owner", "ann", "--store", "sqlite:///runs.db")
    for place in (("--store", "sqlite:///runs.db"), ("--store=sqlite:///runs.db",)):
        code, _, said = trunkline(*words.split(), *place)
        lines = said.splitlines()
        assert (lines[0], lines[-1]) == (f"Error: {error}", f"Hint: {hint} --store sqlite:///runs.db")
        assert code == EXITS.get(lines[1].removeprefix("Code: "), 1)
    check_runs(lines[-1].removeprefix("Hint: "))
    assert trunkline(*lines[-1].removeprefix("Hint: trunkline ").split())[0] == 0


def test_missing_extra_is_the_hint_wherever_it_is_missing(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Importing a package again sets the attribute of its parent as well, which has to be restored too.
    monkeypatch.setattr(store, "postgres", postgres)
    hidden = ("asyncpg", "apprise", "trunkline.store.postgres")
    for name in [name for name in sys.modules if name.startswith(hidden)]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("asyncpg", "apprise"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/hub.yaml").write_text("notify:\n  - {name: a, apprise: 'mailto://x'}\n")
    for words, extra in (
        (("keys", "list", "--store", "postgresql://ann@127.0.0.1:1/runs"), "postgres"),
        (("hub", "work"), "notify"),
    ):
        said = trunkline(*words)[2]
        assert said.splitlines()[-1] == f"Hint: pip install 'trunkline[{extra}]'"


def test_a_hint_repeats_no_password_of_a_store(trunkline: Run) -> None:
    url = "postgresql://ann:planted-password@127.0.0.1:1/runs"
    for words in (("serve", "a:b", "--prot", "8000"), ("inbox", "show", "x"), ("inbox", "answer", "x", "y")):
        said = trunkline(*words, "--store", url)[2]
        assert "\nHint: " in said and "planted" not in said


def test_a_hint_repeats_no_secret(trunkline: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = trunkline("serve", "trunkline.demo:agent", "--port", port, "--key", "planted-key-1")[2]
    assert "Hint: trunkline serve … --port 0" in said and "planted" not in said
