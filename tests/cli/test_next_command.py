"""Every `Next:` line of the CLI, executed as it is printed; the table on top names the tests of each."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from tests.cli.peers import Scripted, task
from tests.cli.test_chat import Terminal
from tests.flow.surfaces import ASK, DELEGATE, SIGNAL, TOOL, workflow
from tests.harness import ServerProcess
from tests.hub.test_hub import HubProcess
from trunkline.cli.next_command import JSON_REPLY, REPLY, TEXT, command_line
from trunkline.flow.local import LocalFlows

__all__ = ["trunkline"]
Make = Callable[..., Scripted]
SOURCE = Path(__file__).parents[2] / "src/trunkline"
# For each function that prints such lines, a test per line.
TESTS = {
    "card.get": ["test_agent_of_a_card_is_sent_a_message"],
    "chat.chat": ["test_conversation_of_a_terminal_continues"],
    "command._say_interrupted": [
        "test_interrupted_wait_continues",
        "test_message_whose_answer_was_lost_is_found",
    ],
    "flow_runs._show_next": [
        "test_interrupted_run_is_answered",
        "test_awaited_signal_is_delivered",
        "test_awaited_activity_is_submitted",
        "test_running_run_is_shown",
    ],
    "flow_runs.list_": ["test_next_page_of_runs_has_the_same_filters"],
    "hub.init": ["test_new_workspace_is_served"],
    "hub_tasks._show": ["test_task_of_a_hub_is_watched", "test_question_of_a_hub_is_answered"],
    "hub_tasks.list_tasks": ["test_next_page_of_a_hub_has_the_same_filters"],
    "project.begin": ["test_new_project_is_served"],
    "results._show_next": [
        "test_question_of_an_agent_is_answered",
        "test_task_at_work_is_waited_for",
        "test_conversation_with_an_agent_continues",
    ],
    "routing._print_next": [
        "test_task_of_a_hub_is_watched",
        "test_question_of_a_dispatched_task_is_answered",
    ],
    "tenant.create": ["test_first_tenant_is_followed_by_a_key"],
    "task.list_": ["test_next_page_of_an_agent_has_the_same_filters"],
}


def calls(file: Path) -> Iterator[str]:
    """Yield the place of each call of `print_next` in a module."""
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id == "print_next"
                ):
                    yield f"{file.stem}.{function.name}"


def test_every_next_line_has_a_test() -> None:
    found = Counter([place for file in (SOURCE / "cli").glob("*.py") for place in calls(file)])
    assert found == {place: len(tests) for place, tests in TESTS.items()}
    assert {name for tests in TESTS.values() for name in tests} <= globals().keys()


def test_next_lines_are_printed_by_one_function() -> None:
    label = ("Next", "Next:", "Next: ")
    places = {
        file.name
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip() in label
    }
    assert places == {"next_command.py"}


def next_line(*texts: str) -> str:
    """Return the one suggested command of what a command printed."""
    (line,) = [line for text in texts for line in text.splitlines() if line.startswith("Next: ")]
    return line.removeprefix("Next: ")


def words_of(line: str, said: str = "blue") -> list[str]:
    """Return the words of a suggested command, with an answer where the user has to write one."""
    name, *words = shlex.split(line)
    assert name == "trunkline"
    return [said if one in (TEXT, JSON_REPLY) else one.replace(REPLY, said) for one in words]


def follow(run: Run, line: str, said: str = "blue") -> str:
    """Execute a suggested command; return what it printed on both streams."""
    code, out, error = run(*words_of(line, said))
    assert code == 0, (line, out, error)
    return out + error


def test_command_line_quotes_and_marks_what_looks_like_an_option() -> None:
    assert command_line("task get", "a b", target={"-a": "x", "--tenant": ""}, options={"--dir": "y"}) == (
        "trunkline task get -a x 'a b' --dir y"
    )
    assert command_line(
        "task get", "-x", target={"-a": "-y"}, options={"--store": "-z"}, flags=["--wait"]
    ) == ("trunkline task get --agent-card=-y --store=-z --wait -- -x")
    assert command_line("send", "a\x1b[2J") == "trunkline send 'a\\x1b[2J'"


# One agent.


def test_agent_of_a_card_is_sent_a_message(trunkline: Run, demo_url: str) -> None:
    _, out, _ = trunkline("card", "get", demo_url)
    assert "State: TASK_STATE_COMPLETED" in follow(trunkline, next_line(out))


def test_question_of_an_agent_is_answered(trunkline: Run, demo_url: str) -> None:
    _, out, _ = trunkline("send", demo_url, "ask which colour")
    assert "State: TASK_STATE_COMPLETED" in follow(trunkline, next_line(out))


def test_question_with_a_schema_is_answered(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    wanted = {"data": {"schema": {"type": "integer"}}, "mediaType": "application/vnd.trunkline.question+json"}
    message = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "How many?"}, wanted]}
    asked = {**task("INPUT_REQUIRED"), "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}}
    answers = iter([asked, task("COMPLETED")])
    peer.methods["SendMessage"] = lambda _: {"task": next(answers)}
    _, out, _ = trunkline("send", peer.url, "hi")
    assert "State: TASK_STATE_COMPLETED" in follow(trunkline, next_line(out), "7")
    assert peer.params("SendMessage")[-1]["message"]["parts"] == [
        {"data": 7, "mediaType": "application/json"}
    ]


def test_task_at_work_is_waited_for(trunkline: Run, demo_url: str) -> None:
    _, out, _ = trunkline("send", demo_url, "ask which colour", "--async")
    assert "State: TASK_STATE_INPUT_REQUIRED" in follow(trunkline, next_line(out))


def test_conversation_with_an_agent_continues(trunkline: Run, demo_url: str) -> None:
    _, out, _ = trunkline("send", demo_url, "hello")
    context = next(line for line in out.splitlines() if line.startswith("Context: "))
    assert context in follow(trunkline, next_line(out))


def test_next_page_of_an_agent_has_the_same_filters(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    page = {"tasks": [task("FAILED")], "totalSize": 2, "pageSize": 1, "nextPageToken": "two"}
    peer.methods["ListTasks"] = lambda _: page
    filters = ("--status", "failed", "--context-id", "c1", "--page-size", "1", "--history", "0")
    _, out, _ = trunkline("task", "list", peer.url, *filters, "--artifacts")
    follow(trunkline, next_line(out))
    first, second = peer.params("ListTasks")
    assert second == {**first, "pageToken": "two"}


@pytest.mark.slow
def test_conversation_of_a_terminal_continues(demo_url: str, tmp_path: Path) -> None:
    talk = Terminal("chat", demo_url, home=tmp_path)
    talk.until("you> ")
    talk.say("hello")
    talk.until("you> ")
    talk.say("/quit")
    words = words_of(next_line(talk.rest().replace("\r", "")))
    again = Terminal(*words, home=tmp_path)
    again.until("you> ")
    again.say("/ids")
    assert f"Context: {words[-1]}" in again.until("you> ")
    again.say("/quit")
    assert (talk.close(), again.close()) == (0, 0)


def interrupted(url: str, home: Path, is_sent: Callable[[subprocess.Popen[str]], object]) -> str:
    """Return what `send` prints when it is interrupted once its message was sent."""
    command = [sys.executable, "-m", "trunkline.cli", "send", url, "sleep 60", "--debug"]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        is_sent(process)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    return error


@pytest.mark.slow
def test_interrupted_wait_continues(trunkline: Run, demo_url: str, tmp_path: Path) -> None:
    def is_at_work(process: subprocess.Popen[str]) -> object:
        assert process.stderr is not None
        return next(line for line in process.stderr if "TASK_STATE_WORKING" in line)

    words = words_of(next_line(interrupted(demo_url, tmp_path, is_at_work)))
    trunkline("task", "cancel", demo_url, next(one for one in words[::-1] if not one.startswith("-")))
    assert "State: TASK_STATE_CANCELED" in trunkline(*words)[1]


@pytest.mark.slow
def test_message_whose_answer_was_lost_is_found(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer, has_come, may_answer = scripted(), threading.Event(), threading.Event()

    def answer_late(_: Any) -> Any:
        has_come.set()
        may_answer.wait(60)
        return {"task": task("COMPLETED")}

    peer.methods["SendMessage"] = answer_late
    peer.methods["ListTasks"] = lambda _: {"tasks": [task("COMPLETED")], "totalSize": 1, "nextPageToken": ""}
    line = next_line(interrupted(peer.url, tmp_path, lambda _: has_come.wait(60)))
    may_answer.set()
    assert "Task: t1" in follow(trunkline, line)


# Workflows.


@pytest.fixture(params=["sqlite:///runs.db", "sqlite:///a folder/runs.db"])
def store(trunkline: Run, request: pytest.FixtureRequest) -> tuple[str, str]:
    Path("a folder").mkdir()
    return "--store", request.param


def flow_file(*nodes: dict[str, Any], **more: Any) -> str:
    Path("flow.json").write_text(json.dumps(workflow(*nodes, **more)))
    return "flow.json"


@pytest.mark.parametrize("run_id", ["r1", "-r 1"])
def test_interrupted_run_is_answered(trunkline: Run, store: tuple[str, str], run_id: str) -> None:
    _, out, _ = trunkline("flow", "run", flow_file(ASK), f"--id={run_id}", *store)
    assert "Status: completed" in follow(trunkline, next_line(out), '{"ok": true}')


def test_awaited_signal_is_delivered(trunkline: Run, store: tuple[str, str]) -> None:
    _, out, _ = trunkline("flow", "run", flow_file(SIGNAL), *store)
    assert "Status: completed" in follow(trunkline, next_line(out))


def test_command_that_continues_a_mediated_run_keeps_it_mediated(
    trunkline: Run, store: tuple[str, str]
) -> None:
    file = flow_file(SIGNAL, ASK, TOOL)
    _, said, _ = trunkline("flow", "run", file, "--mode", "host_mediated", *store)
    for answer, status in (("", "interrupted"), ('{"ok": true}', "awaiting_activity"), ("{}", "completed")):
        said = follow(trunkline, next_line(said), answer)
        assert f"Status: {status}" in said


def test_command_that_continues_a_run_keeps_its_tools(trunkline: Run, store: tuple[str, str]) -> None:
    Path("tools.json").write_text('{"mcpServers": {"files": {"command": "true"}}}')
    file = flow_file(ASK, SIGNAL)
    _, said, _ = trunkline("flow", "run", file, "--mcp-config", "tools.json", *store)
    assert "--mcp-config tools.json" in next_line(said)
    assert "--mcp-config tools.json" in next_line(follow(trunkline, next_line(said), '{"ok": true}'))


LOOP = workflow(
    DELEGATE,
    {
        "id": "enough",
        "type": "switch",
        "config": {"cases": [{"when": ".n == 2", "target": "end"}], "default": "implement"},
    },
    edges=[
        {"source": source, "target": target}
        for source, target in (("__start__", "start"), ("start", "implement"), ("implement", "enough"))
    ],
)
BRANCHES = {
    "id": "both",
    "type": "parallel",
    "config": {
        "join": "all",
        "branches": [{"name": "one", "entry": "work"}, {"name": "two", "entry": "implement"}],
    },
}
PARALLEL = workflow(
    BRANCHES,
    TOOL,
    DELEGATE,
    edges=[
        {"source": source, "target": target}
        for source, target in (
            ("__start__", "start"), ("start", "both"), ("work", "end"), ("implement", "end"), ("both", "end"),
        )
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "outcomes"),
    [
        (workflow(TOOL), ['{"n": 2}']),
        (workflow(DELEGATE), ['{"n": 2}']),
        (LOOP, ['{"n": 1}', '{"n": 2}']),
        (PARALLEL, ['{"n": 1}', '{"m": 2}']),
        (workflow(DELEGATE, TOOL), ["{}", "{}"]),
    ],
    ids=["tool", "delegate", "loop", "parallel", "after a delegate"],
)
@pytest.mark.parametrize("from_status", [False, True])
def test_awaited_activity_is_submitted(
    trunkline: Run, document: dict[str, Any], outcomes: list[str], from_status: bool
) -> None:
    store = ("--store", "sqlite:///runs.db")
    Path("flow.json").write_text(json.dumps(document))
    mediated = ("--mode", "host_mediated", "--input", '{"task": "t"}')
    _, said, _ = trunkline("flow", "run", "flow.json", "--id", "r1", *mediated, *store)
    for outcome in outcomes:
        if from_status:
            _, said, _ = trunkline("flow", "status", "r1", *store)
        assert "awaiting_activity" in said
        said = follow(trunkline, next_line(said), outcome)
    assert "Status: completed" in said


def test_running_run_is_shown(trunkline: Run, store: tuple[str, str]) -> None:
    timer = {"id": "hold", "type": "wait", "config": {"kind": "duration", "duration": "1h"}}

    async def start() -> None:
        async with LocalFlows(store[1]) as flows:
            await flows.start(workflow(timer), {}, execution_id="r1")

    asyncio.run(start())
    _, out, _ = trunkline("flow", "status", "r1", *store)
    assert "Status: running" in follow(trunkline, next_line(out))


def test_next_page_of_runs_has_the_same_filters(trunkline: Run, store: tuple[str, str]) -> None:
    for name in ("Small one", "Other one"):
        for number in range(2):
            file = flow_file(name=name)
            trunkline("flow", "run", file, "--id", f"{name[:2]}{number}", *store)
    filters = ("--phase", "completed", "--name", "Small one", "--limit", "1")
    _, out, _ = trunkline("flow", "list", *filters, *store)
    pages = out, follow(trunkline, next_line(out))
    assert [next(one for one in page.split() if one.startswith("Sm")) for page in pages] == ["Sm1", "Sm0"]


# Hubs and projects.

AGENTS = """
agents:
  - {name: asker, import: "next_agents:asker"}
  - {name: waiter, import: "next_agents:waiter"}
"""
MODULE = """
import asyncio
from pathlib import Path
from trunkline import Agent, Turn

asker, waiter = Agent("Asker", on_crash="resume"), Agent("Waiter")

@asker.skill
async def ask(turn: Turn) -> str:
    return await turn.ask("Which colour?")

@waiter.skill
async def wait(turn: Turn) -> str:
    while not Path(turn.text).exists():
        await asyncio.sleep(0.05)
    return "there"
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    folder = tmp_path_factory.mktemp("next hub")
    (folder / "hub.yaml").write_text("name: here\n")
    (folder / "agents.yaml").write_text(AGENTS)
    (folder / "next_agents.py").write_text(MODULE)
    with HubProcess(folder) as process:
        yield process


@pytest.fixture(params=["here", "folder", "address"])
def named(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[str, ...]:
    """The option by which a command finds the hub; the test runs in its folder or in another one."""
    if request.param == "here":
        monkeypatch.chdir(hub.directory)
        return ()
    return "--hub", str(hub.directory) if request.param == "folder" else hub.base


def dispatched(run: Run, hub: HubProcess, agent: str, message: str, wait: str = "0") -> str:
    words = ("dispatch", message, "--agent", agent, "--wait", wait, "--store", str(hub.directory))
    code, out, error = run(*words)
    assert code == 0, error
    return out


def test_first_tenant_is_followed_by_a_key(trunkline: Run) -> None:
    store = ("--store", "sqlite:///hub.db")
    trunkline("store", "migrate", *store)
    _, out, error = trunkline("tenant", "create", "Acme", *store)
    assert "of me (tenant default)" in follow(trunkline, next_line(out, error))


@pytest.mark.slow
def test_task_of_a_hub_is_watched(
    hub: HubProcess, named: tuple[str, ...], trunkline: Run, tmp_path: Path
) -> None:
    file = tmp_path / "there"
    out = dispatched(trunkline, hub, "waiter", str(file))
    _, shown, _ = trunkline("task", "get", out.split()[1], *named)
    file.touch()
    for line in (next_line(out), next_line(shown)):
        assert "State: completed" in follow(trunkline, line)


@pytest.mark.slow
def test_question_of_a_hub_is_answered(hub: HubProcess, named: tuple[str, ...], trunkline: Run) -> None:
    task_id = dispatched(trunkline, hub, "asker", "paint").split()[1]
    _, out, _ = trunkline("task", "watch", task_id, *named)
    follow(trunkline, next_line(out))
    assert "State: completed" in trunkline("task", "watch", task_id, *named)[1]


@pytest.mark.slow
def test_question_of_a_dispatched_task_is_answered(hub: HubProcess, trunkline: Run) -> None:
    out = dispatched(trunkline, hub, "asker", "paint", wait="30")
    assert "has its answer" in follow(trunkline, next_line(out))


@pytest.mark.slow
def test_question_of_a_delegated_agent_is_answered(hub: HubProcess, trunkline: Run) -> None:
    delegate = {**DELEGATE, "config": {**DELEGATE["config"], "agent_id": "asker"}}
    words = ("--input", '{"task": "t"}', "--store", str(hub.directory))
    _, out, error = trunkline("flow", "run", flow_file(delegate), *words)
    assert "Question: Which colour?\nAgent: asker\n" in out.replace("Correlation", "-"), error
    assert '"text":"blue"' in follow(trunkline, next_line(out))


@pytest.mark.slow
def test_next_page_of_a_hub_has_the_same_filters(
    hub: HubProcess, named: tuple[str, ...], trunkline: Run
) -> None:
    for _ in range(2):
        dispatched(trunkline, hub, "asker", "paint")
        dispatched(trunkline, hub, "waiter", "/")
    filters = ("--agent", "asker", "--page-size", "1")
    _, out, error = trunkline("task", "list", *filters, *named)
    assert " asker " in out, error
    assert " asker " in follow(trunkline, next_line(out))


def serve(folder: Path, line: str) -> ServerProcess:
    """Execute a suggested command that serves, on a free port."""
    server = ServerProcess(folder)
    server._env |= {  # noqa: SLF001 - the harness has no other way to run a line of a shell
        "TRUNKLINE_PORT": str(server.port),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    # One process, so that stopping it stops the server.
    server._command = ["sh", "-c", line.replace("trunkline ", "exec trunkline ", 1)]  # noqa: SLF001
    return server


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["demo", "my demo"])
def test_new_workspace_is_served(trunkline: Run, tmp_path: Path, folder: str) -> None:
    line = next_line(trunkline("hub", "init", folder)[1])
    with serve(tmp_path, line) as server:
        assert server.stop() == 0


@pytest.mark.slow
def test_new_project_is_served(trunkline: Run, tmp_path: Path) -> None:
    line = next_line(trunkline("new", "word-desk")[1])
    with serve(tmp_path, line) as server:
        assert server.stop() == 0
