"""`trunkline dispatch` and `trunkline route`: what they ask the hub for, and what they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from trunkline.cli import routing as module
from trunkline.cli.admin import Operator

__all__ = ["trunkline"]
STORE = ("--store", "sqlite:///hub.db")
TASK = "019a0000-0000-7000-8000-000000000000"
ITEM = {"taskId": TASK, "contextId": "c", "agent": "ann", "state": "working"}
ROUTE: dict[str, Any] = {
    "winner": "ann",
    "reason": "ann does it: drawn by weight.",
    "candidates": [
        {"agent": "ann", "score": 1.9, "parts": {"weight": 0.9}},
        {"agent": "ben", "score": 0.0, "parts": {}, "excluded": "it is disabled"},
    ],
}


class Asked:
    """The hub that answers, and what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.end: dict[str, Any] = {"state": "completed", "text": "done\nit"}

    def ask(self, method: str, path: str, form: Any = None, **query: str) -> Any:
        self.calls.append((method, path, form or {k: v for k, v in query.items() if v}))
        if path.endswith("route"):
            return ROUTE
        if path == "/api/agents":
            return {"items": [{"name": "ann", "skills": [{"id": "work"}]}]}
        return {"tasks": [ITEM]} if method == "POST" else {**ITEM, **self.end}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    made = Asked()
    monkeypatch.setattr(Operator, "ask", lambda _, *words, **query: made.ask(*words, **query))
    monkeypatch.setattr(module, "EVERY_S", 0.001)
    return made


def test_work_is_dispatched_and_awaited(trunkline: Run, asked: Asked) -> None:
    code, out, _ = trunkline("dispatch", "tidy up", "--skill", "work", "--agent", "ann", *STORE)
    shown = f"Task: {TASK}\nContext: c\nState: completed\nAgent: ann\nText:\n  done\n  it\n\n"
    assert (code, out) == (0, shown)
    assert asked.calls == [
        ("POST", "/api/dispatch", {"message": "tidy up", "skill": "work", "targets": ["ann"]}),
        ("GET", f"/api/tasks/{TASK}", {}),
    ]
    code, out, _ = trunkline("dispatch", "tidy up", "--wait", "0", "--json", *STORE)
    assert (code, json.loads(out)) == (0, {"tasks": [{**ITEM, **asked.end}]})
    asked.end = {"state": "completed"}
    asked.calls.clear()
    Path("trip.json").write_text('{"city": "Rome"}')
    for words, form in (
        (("--data", '{"city": "Rome"}'), {"data": {"city": "Rome"}}),
        (("plan it", "--data", "@trip.json"), {"message": "plan it", "data": {"city": "Rome"}}),
        (("--data", "0"), {"data": 0}),
    ):
        assert trunkline("dispatch", *words, "--wait", "0", *STORE)[0] == 0
        assert asked.calls[-2] == ("POST", "/api/dispatch", form)
    for words, said in (((), "there is nothing to dispatch"), (("--data", "{"), "invalid JSON")):
        code, _, error = trunkline("dispatch", *words, *STORE)
        assert code == 2 and said in error
    asked.end = {"state": "completed", "data": [{"text": "hi"}], "files": [{"name": "a.png", "size": 3}]}
    out = trunkline("dispatch", "x", *STORE)[1]
    assert 'Data:\n  {\n    "text": "hi"\n  }\n\nFile: a.png, (no type), 3 bytes\n' in out
    for question, reply in (
        ({"schema": {"type": "object"}}, "--data '<json>' "),
        ({"choices": ["red", "blue"]}, "'<red|blue>' "),
        ({}, "'<reply>' "),
    ):
        asked.end = {"state": "input-required", "question": {"text": "Which?", **question}}
        out = trunkline("dispatch", "x", *STORE)[1]
        assert out.endswith(f"Next: trunkline inbox answer {TASK} {reply}--store sqlite:///hub.db\n")
        assert ("Schema:" in out, "Choices: red, blue" in out) == (
            "schema" in question,
            "choices" in question,
        )
    asked.end = {"state": "rejected", "error": "There is no agent 'anm' here."}
    code, out, _ = trunkline("dispatch", "x", *STORE)
    assert code == 1 and "no agent 'anm'" in out
    for words, near in (
        (("--agent", "anm"), "agent 'anm'; did you mean 'ann'"),
        (("--skill", "wrk"), "skill 'wrk'"),
    ):
        error = trunkline("dispatch", "x", *words, *STORE)[2]
        assert error.startswith(f"Warning: the hub lists no {near}") and "did you mean" in error


def test_a_route_is_explained(trunkline: Run, asked: Asked) -> None:
    code, out, _ = trunkline("route", "explain", "--skill", "work", *STORE)
    assert code == 0
    assert out.splitlines() == [
        "ann does it: drawn by weight.",
        "  ann  1.900  weight 0.9",
        "  ben  0.000  not now: it is disabled",
    ]
    assert json.loads(trunkline("route", "explain", TASK, "--json", *STORE)[1]) == ROUTE
    assert asked.calls == [
        ("GET", "/api/route", {"skill": "work"}),
        ("GET", f"/api/tasks/{TASK}/route", {}),
    ]
    for wrong in ((), (TASK, "--skill", "x"), ("a/b",)):
        assert trunkline("route", "explain", *wrong, *STORE)[0] == 2


def test_what_an_agent_elsewhere_says_reaches_no_terminal_as_it_is(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\x1b[31mred\x1b]0;title\x07\u202e\nERR: no error"
    agent, task = {"name": "ann", "state": "ready"}, {**ITEM, "state": "completed", "text": said}

    def answer(_: Operator, method: str, *__: object, **___: object) -> dict[str, object]:
        return agent if method == "GET" else {"tasks": [task]}

    monkeypatch.setattr(Operator, "ask", answer)
    code, out, _ = trunkline("a2a", "call", "ann", "go", *STORE)
    assert (code, out) == (
        0,
        "[/a2a call ann]\n\\x1b[31mred\\x1b]0;title\\x07\\u202e\nERR: no error\n[END A2A]\n",
    )
