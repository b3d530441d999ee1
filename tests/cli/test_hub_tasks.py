"""`trunkline task …` on a hub: tasks by id alone, the order of places, and what it prints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from tests.cli.peers import Scripted
from tests.cli.test_main_page import run_lines
from tests.docs.pages import blocks
from tests.hub.test_hub import HubProcess
from trunkline.cli import hub_tasks
from trunkline.cli.configuration import load_configuration
from trunkline.cli.hub_tasks import AbsenceNotices, HubTasks, absence_of, watch_task
from trunkline.cli.parsing import Invocation
from trunkline.errors import Misuse
from trunkline.hub.template import write_workspace

__all__ = ["trunkline"]
TASK = "019a0000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    workspace = tmp_path_factory.mktemp("tasks") / "demo"
    write_workspace(workspace)
    with HubProcess(workspace) as process:
        process.folder = workspace
        yield process


def fields(out: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in out.splitlines() if ": " in line and line[0] != " ")


@pytest.mark.slow
def test_a_dispatched_task_is_shown_by_its_id_in_the_folder_of_the_hub(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hub.folder)
    _, out, _ = trunkline("dispatch", "Send it", "--agent", "approver", "--json")
    task_id = json.loads(out)["tasks"][0]["taskId"]
    code, out, said = trunkline("task", "get", task_id)
    assert code == 0 and said == f"Hub: {hub.base} (this folder)\n"
    shown = fields(out)
    assert (shown["Task"], shown["Agent"], shown["State"]) == (task_id, "approver", "input-required")
    assert shown["Next"] == f"trunkline inbox answer {task_id} '<reply>'"
    code, out, said = trunkline("task", "list", "--agent", "aprover")
    assert (code, out) == (0, "Tasks: 0\n")
    assert "the hub lists no agent 'aprover'; did you mean 'approver'?" in said
    assert "did you mean" not in trunkline("task", "list", "--agent", "reviewer")[2]
    code, _, said = trunkline("dispatch", "A note", "--skill", "drft")
    assert (code, "skill 'drft'; did you mean 'draft'?" in said) == (1, True)
    # It asks something, so watching it ends at once.
    assert fields(trunkline("task", "watch", task_id)[1])["State"] == "input-required"
    assert task_id in trunkline("task", "list", "--agent", "approver")[1]
    assert task_id not in trunkline("list", "--agent", "writer", "--json")[1]
    for _ in range(2):
        code, out, _ = trunkline("task", "cancel", task_id)
        assert (code, fields(out)["State"]) == (0, "canceled")


@pytest.mark.slow
def test_the_commands_of_the_page_run_in_the_folder_of_a_hub(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hub.folder)
    (block,) = [block for block in blocks("docs/cli.md", "sh") if "dispatch" in block]
    run_lines(trunkline, block, hub.base)


@pytest.mark.slow
def test_question_and_data_of_a_workflow_are_printed(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hub.folder)
    _, out, _ = trunkline("dispatch", "--data", '{"text": "hi"}', "--agent", "publisher")
    asked = fields(out)
    task_id = asked["Task"]
    assert (asked["State"], asked["Next"]) == (
        "input-required",
        f"trunkline inbox answer {task_id} --data '<json>'",
    )
    assert 'Schema:\n  {\n    "type": "object"' in out
    # A caller at another machine answers by `send`.
    _, out, _ = trunkline("task", "get", task_id, "--hub", hub.base, "-o", "json")
    assert json.loads(out)["question"]["schema"]["type"] == "object"
    assert trunkline("inbox", "answer", task_id, "--data", '{"approved": true}')[0] == 0
    for command in ("watch", "get"):
        _, out, _ = trunkline("task", command, task_id)
        assert fields(out)["State"] == "completed" and "Data:\n  {\n" in out, out


@pytest.mark.slow
def test_a_hub_is_named_by_folder_address_or_variable(
    hub: HubProcess, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = trunkline(
        "dispatch", "Write a note", "--skill", "draft", "--json", "--store", str(hub.folder)
    )
    task_id = json.loads(out)["tasks"][0]["taskId"]
    for place in (str(hub.folder), hub.base):
        code, out, said = trunkline("task", "get", task_id, "--hub", place)
        assert (code, fields(out)["State"], said) == (0, "completed", ""), place
        code, out, _ = trunkline("task", "get", TASK, "--hub", place, "-o", "json")
        assert code == 1 and json.loads(out)["error"]["code"] == "TaskNotFoundError"
    monkeypatch.chdir(hub.folder)
    # The address of the hub of this folder means the hub, however loopback is spelled.
    monkeypatch.setenv("A2ACLI_AGENT_CARD", hub.base.replace("127.0.0.1", "localhost"))
    code, out, said = trunkline("task", "get", task_id)
    assert code == 0 and fields(out)["Task"] == task_id
    # The short forms, with the address as the first argument.
    for words in (("get", hub.base, task_id), ("watch", hub.base, task_id)):
        code, out, said = trunkline(*words)
        assert (code, fields(out)["Task"], said) == (0, task_id, ""), words
    assert task_id in trunkline("list", hub.base)[1]
    code, out, said = trunkline("task", "get", task_id)
    assert said.startswith("Hub: http://localhost") and "A2ACLI_AGENT_CARD, environment" in said


def test_an_agent_that_is_named_comes_before_the_hub_of_the_folder(
    trunkline: Run, scripted: Callable[..., Scripted], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub.yaml").write_text("name: here\n")
    agent = scripted()
    agent.methods["GetTask"] = lambda _: {
        "id": TASK, "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}
    }  # fmt: skip
    code, out, said = trunkline("task", "get", TASK, "-a", agent.url)
    assert (code, fields(out)["State"], said) == (0, "TASK_STATE_COMPLETED", "")
    monkeypatch.setenv("A2ACLI_AGENT_CARD", agent.url)
    code, out, said = trunkline("task", "get", TASK)
    assert code == 0 and said == f"Agent: {agent.url} (A2ACLI_AGENT_CARD, environment)\n"
    code, _, said = trunkline("task", "list", "--tenant", "acme", "-a", agent.url)
    assert code == 2 and "--tenant" in said
    code, _, said = trunkline("task", "list", "--hub", ".", "-a", agent.url)
    assert code == 2 and "give one of them" in said
    monkeypatch.delenv("A2ACLI_AGENT_CARD")
    code, _, said = trunkline("task", "list")
    assert code == 2 and "no server has this store" in said and "Hint: trunkline hub ." in said
    os.unlink("hub.yaml")
    for place, why in (("wrong", "there is no such folder"), (".", "it contains neither hub.yaml nor")):
        for words in (("task", "list", "--hub", place), ("inbox", "list", "--store", place)):
            code, _, said = trunkline(*words)
            assert code == 2 and f"'{place}' is neither a store URL nor the folder of a hub: {why}" in said
    assert "no agent is named" in trunkline("task", "list")[2]


AWAY: dict[str, Any] = {
    "kind": "status",
    "message": {
        "parts": [{"text": "ann cannot be reached now; the task waits."}],
        "metadata": {"trunkline.away": True},
    },
}


@pytest.mark.slow
def test_typed_key_decides_whose_tasks_are_listed_in_the_folder_of_the_hub(
    tmp_path: Path, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "demo"
    write_workspace(workspace)
    monkeypatch.chdir(workspace)
    with HubProcess(workspace) as process:
        trunkline("dispatch", "A note", "--agent", "writer")
        token = json.loads(trunkline("tenant", "create", "Acme", "--json")[1])["token"]
        assert trunkline("task", "list")[1].endswith("Tasks: 1\n")
        for place in ((), ("--hub", process.base), ("-a", process.base)):
            assert trunkline("task", "list", *place, "--api-key", token)[1] == "Tasks: 0\n"
            code, _, error = trunkline("task", "list", *place, "--api-key", "wrong")
            assert (code, "Code: A2ACLI_ERR_AUTH_FAILED" in error) == (4, True)
            assert "Hint: export A2ACLI_API_KEY=KEY" in error


def test_an_absent_agent_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    task = {"taskId": TASK, "agent": "ann", "state": "working", "events": [{"kind": "status"}, AWAY]}
    assert absence_of(task) == "ann cannot be reached now; the task waits."
    assert not absence_of({"events": [AWAY, {"kind": "status"}]})
    listed = {"state": "ready", "reason": ""}
    notices = AbsenceNotices()
    for events in ([], task["events"], task["events"]):
        notices.report({**task, "events": events}, lambda *_: listed)
    assert capsys.readouterr().err == "Waiting: ann cannot be reached now; the task waits.\n"


def test_watch_prints_each_state_once_and_the_text_as_it_grows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [("working", ""), ("working", "one "), ("working", "one two"), ("completed", "one two")]
    tasks = iter(
        [{"taskId": TASK, "contextId": TASK, "agent": "ann", "state": s, "text": t} for s, t in steps]
    )
    monkeypatch.setattr(hub_tasks, "EVERY_S", 0)
    monkeypatch.setattr(HubTasks, "get", lambda *_: next(tasks))
    monkeypatch.setattr(HubTasks, "ask", lambda *_, **__: {"state": "ready", "reason": ""})
    watch_task(HubTasks("http://127.0.0.1:1", load_configuration({}), ""), Invocation((TASK,), {}))
    out = capsys.readouterr().out
    assert out.startswith("State: working\nText:\n  one \n\nText:\n  two\n\nState: completed\nTask: "), out


def test_an_agent_that_the_catalogue_cannot_reach_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def ask(method: str, path: str) -> dict[str, str]:
        asked.append(f"{method} {path}")
        if len(asked) == 1:
            raise Misuse("no catalogue here")
        return {"state": "unreachable", "reason": "127.0.0.1:1: nobody answers there"}

    notices = AbsenceNotices()
    for _ in range(4):
        notices.report({"taskId": TASK, "agent": "a/b", "state": "submitted"}, ask)
    assert asked == ["GET /api/agents/a%2Fb"] * 2
    said = capsys.readouterr().err
    assert said.count("Waiting:") == 1 and "nobody answers there" in said and TASK in said
