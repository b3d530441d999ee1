"""`trunkline flow run|status|resume|submit|signal|cancel|list|events`, right on a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.flow.surfaces import ASK, DELEGATE, SIGNAL, TOOL, workflow

STORE = ("--store", "sqlite:///runs.db")


def written(document: dict[str, Any]) -> str:
    Path("flow.json").write_text(json.dumps(document))
    return "flow.json"


def told(found: tuple[int, str, str]) -> dict[str, Any]:
    assert found[0] == 0, found[2]
    return json.loads(found[1])


def test_a_run_is_started_looked_at_answered_and_listed(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(workflow(TOOL, ASK, SIGNAL))
    code, out, _ = trunkline("flow", "run", file, *STORE)
    assert (code, "Code: COMPOSITE_EXECUTOR_NOT_CONFIGURED" in out) == (1, True)
    monkeypatch.setenv("WORKFLOW_ENGINE_PROFILE", "demo")
    code, out, _ = trunkline("flow", "run", file, "--id", "r1", "--input", '{"a": 1}', *STORE)
    assert code == 0
    assert out.startswith("Run: r1\nStatus: interrupted\nNode: ask\nQuestion: May it go out?\nSchema: {")
    assert "Next: trunkline flow resume r1" in out
    assert told(trunkline("flow", "status", "r1", *STORE, "--json"))["phase"] == "interrupted"
    code, out, _ = trunkline("flow", "graph", file, "--run", "r1", *STORE)
    assert "✓ work (tool_call)  done" in out
    assert "… ask (interrupt)  waiting" in out
    code, _, error = trunkline("flow", "resume", "r1", "--payload", "{}", *STORE)
    assert code == 2
    assert "INVALID_RESUME_PAYLOAD" in error
    answered = told(trunkline("flow", "resume", "r1", "--payload", '{"ok": true}', *STORE, "--json"))
    assert (answered["status"], answered["signal_name"]) == ("awaiting_signal", "approved")
    ended = told(trunkline("flow", "signal", "r1", "approved", "--payload", '{"by": "x"}', *STORE, "--json"))
    assert ended["result"] == {"a": 1, "ok": True, "by": "x"}
    out = trunkline("flow", "status", "r1", *STORE)[1]
    assert out == 'Run: r1\nStatus: completed\nResult: {"a":1,"ok":true,"by":"x"}\n'
    code, out, _ = trunkline("flow", "list", "--phase", "completed", *STORE)
    assert out.endswith("completed  r1  Small one\n")
    code, out, _ = trunkline("flow", "events", "r1", "--limit", "2", *STORE)
    assert [line.split()[3] for line in out.splitlines()] == ["ExecutionStarted", "ScheduleNode"]


def test_a_host_submits_what_it_did_and_a_run_that_failed_ends_with_one(trunkline: Run) -> None:
    file = written(workflow(TOOL))
    mediated = ("--mode", "host_mediated", *STORE)
    assert "submit h1 work" in trunkline("flow", "run", file, "--id", "h1", *mediated)[1]
    found = told(trunkline("flow", "submit", "h1", "work", "--result", '{"n": 2}', *STORE, "--json"))
    assert found["result"] == {"n": 2}
    trunkline("flow", "run", file, "--id", "h2", *mediated)
    code, out, _ = trunkline("flow", "submit", "h2", "work", "--error", "it broke", "--code", "ODD", *STORE)
    assert code == 1
    assert "Error: it broke\nCode: ODD\n" in out
    trunkline("flow", "run", file, "--id", "h3", *mediated)
    code, out, _ = trunkline("flow", "cancel", "h3", "--reason", "not needed", *STORE)
    assert (code, "Reason: not needed" in out) == (0, True)


def test_input_of_a_delegation_is_shown_to_the_host(trunkline: Run) -> None:
    file = written(workflow(DELEGATE))
    mediated = ("--input", '{"task": "t"}', "--mode", "host_mediated", *STORE)
    for words in (("flow", "run", file, "--id", "h1", *mediated), ("flow", "status", "h1", *STORE)):
        assert 'Input: {"task":"t"}\n' in trunkline(*words)[1]


def test_result_that_breaks_the_state_schema_is_refused_and_the_run_still_waits(trunkline: Run) -> None:
    counted = {"type": "object", "properties": {"n": {"type": "integer"}}}
    file = written(workflow(TOOL, state_schema=counted))
    trunkline("flow", "run", file, "--id", "h1", "--mode", "host_mediated", *STORE)
    code, _, error = trunkline("flow", "submit", "h1", "work", "--result", '{"n": "two"}', *STORE)
    assert code == 2
    assert "state_schema: /n" in error and "SUBMIT_VALIDATION_ERROR" in error
    found = told(trunkline("flow", "submit", "h1", "work", "--result", '{"n": 2}', *STORE, "--json"))
    assert found["result"] == {"n": 2}


def test_refused_operations_on_a_run_name_the_next_command(trunkline: Run) -> None:
    file = written(workflow(ASK))
    started = ("flow", "run", file, "--id", "r1", *STORE)
    trunkline(*started)
    listing, status = (f"trunkline flow {name} --store sqlite:///runs.db" for name in ("list", "status r1"))
    for words, hint in (
        (("flow", "status", "r9", *STORE), listing),
        (("flow", "events", "r9", *STORE), listing),
        (("flow", "cancel", "r9", *STORE), listing),
        (started, listing),
        (("flow", "resume", "r1", "--payload", "{}", *STORE), status),
        (("flow", "submit", "r1", "ask", *STORE), status),
        (("flow", "signal", "r1", "sent", *STORE), status),
    ):
        code, _, error = trunkline(*words)
        assert (code, error.splitlines()[-1]) == (2, f"Hint: {hint}")
        assert trunkline(*hint.split()[1:])[0] == 0


def test_input_that_breaks_the_state_schema_is_named_as_the_input(trunkline: Run) -> None:
    schema = {"type": "object", "required": ["text"]}
    file = written(workflow(TOOL, state_schema=schema))
    code, out, error = trunkline("flow", "run", file, "--id", "h1", "--mode", "host_mediated", *STORE)
    assert code == 1
    assert "the input of the run does not fit state_schema: /: " in out + error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("status", "none"), "EXECUTION_NOT_FOUND"),
        (("cancel", "none"), "EXECUTION_NOT_FOUND"),
        (("submit", "none", "work"), "ACTIVITY_SUBMIT_NOT_AWAITING"),
        (("resume", "none", "--payload", "7"), "--payload requires a JSON object"),
        (("run", "flow.json", "--id", "e"), "DUPLICATE_EXECUTION_ID"),
        (("run", "flow.json", "--input", "[]"), "--input requires a JSON object"),
        (("run", "flow.json", "--input", "@none.json"), "--input none.json: no such file"),
        (("run", "flow.json", "--mode", "odd"), "activity_execution_mode"),
        (("list", "--phase", "odd"), "VALIDATION_ERROR"),
        (("list", "--cursor", "odd"), "INVALID_LIST_CURSOR"),
    ],
)
def test_mistakes_end_with_two_and_say_what_is_wrong(trunkline: Run, words: Any, said: str) -> None:
    trunkline("flow", "run", written(workflow()), "--id", "e", *STORE)
    code, _, error = trunkline("flow", *words, *STORE)
    assert code == 2
    assert said in error


def test_delegates_of_the_operator_execute_delegations(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("run_delegates.py").write_text('agents = {"coder": lambda order: {"patch": order.input["task"]}}\n')
    delegate = {**DELEGATE, "config": {**DELEGATE["config"], "protocol": "sdk"}}
    words = ("flow", "run", written(workflow(delegate)), "--input", '{"task": "t"}', *STORE)
    code, out, _ = trunkline(*words)
    assert code == 1 and "nothing is configured for delegations by 'sdk'; set flow_delegates" in out
    monkeypatch.setenv("TRUNKLINE_FLOW_DELEGATES", "sdk=run_delegates:agents")
    assert told(trunkline(*words, "--json"))["result"] == {"task": "t", "patch": "t"}
    assert trunkline("flow", "validate", "flow.json")[2] == ""
    monkeypatch.setenv("TRUNKLINE_FLOW_DELEGATES", "sdk=run_delegates:gone")
    code, _, error = trunkline(*words)
    assert code == 2 and "flow_delegates: sdk=run_delegates:gone: AttributeError" in error


def test_late_duplicate_of_an_earlier_round_is_refused(trunkline: Run) -> None:
    loop = [("__start__", "start"), ("start", "implement"), ("implement", "enough")]
    cases = [{"when": ".n == 2", "target": "end"}]
    enough = {"id": "enough", "type": "switch", "config": {"cases": cases, "default": "implement"}}
    edges = [{"source": source, "target": target} for source, target in loop]
    file = written(workflow(DELEGATE, enough, edges=edges))
    given = ("--id", "h1", "--input", '{"task": "t"}', "--mode", "host_mediated", "--json", *STORE)
    first = told(trunkline("flow", "run", file, *given))
    submit = ("flow", "submit", "h1", "implement", "--correlation", "h1:delegate:implement", *STORE)
    second = told(trunkline(*submit, "--result", '{"n": 1}', "--json"))
    for late in ((), ("--activity", first["activity_id"])):
        code, _, error = trunkline(*submit, "--result", '{"n": 1}', *late)
        assert code == 2 and "ACTIVITY_SUBMIT_NOT_AWAITING" in error
    right = ("--result", '{"n": 2}', "--activity", second["activity_id"])
    assert told(trunkline(*submit, *right, "--json"))["result"] == {"task": "t", "n": 2}
