"""`trunkline ceremony`: what it asks the hub for, and what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline
from trunkline.cli.admin import Operator
from trunkline.errors import Misuse

__all__ = ["trunkline"]
STORE = ("--store", "sqlite:///hub.db")
ITEM = {
    "id": "standup", "name": "Stand-up", "state": "ready", "owner": "api", "schedule": "0 9 * * *",
    "skill": "report", "targets": ["all"], "enabled": True, "nextFires": ["2030-01-01T09:00:00.000Z"],
}  # fmt: skip
RUNS = [
    {"status": "missed", "since": "2030-01-02T09:00:00.000Z", "count": 2},
    {"status": "success", "runId": "r1", "taskId": "t1", "startedAt": "2030-01-01T09:00:00.000Z"},
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    calls: list[tuple[str, str, Any]] = []

    def ask(operator: Operator, method: str, path: str, form: Any = None, **query: str) -> Any:
        calls.append((method, path, form))
        if method == "GET":
            return {"items": RUNS if path.endswith("/runs") else [ITEM], "next": None}
        return {"runId": "r2", "taskId": "t2"} if path.endswith("/run") else {**ITEM, **form}

    monkeypatch.setattr(Operator, "ask", ask)
    return calls


def test_what_is_printed(trunkline: Run, asked: list[tuple[str, str, Any]]) -> None:
    for words, expected in (
        (("list",), "standup  ready  0 9 * * *  2030-01-01T09:00:00.000Z  Stand-up"),
        (("show", "standup"), "2030-01-01T09:00:00.000Z"),
        (("run", "standup"), "run r2 has begun: task t2"),
        (("history", "standup"), "2030-01-02T09:00:00.000Z  missed  2 times"),
        (("history", "standup"), "2030-01-01T09:00:00.000Z  success  r1  t1"),
    ):
        code, out, _ = trunkline("ceremony", *words, *STORE)
        assert code == 0 and expected in out, words
    assert json.loads(trunkline("ceremony", "list", *STORE, "--json")[1]) == [ITEM]
    assert trunkline("ceremony", "show", "other", *STORE)[0] == 2


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("schedule: the minute '61' is not valid", "ceremony create c '0 9 * * 1-5' report --store STORE"),
        ("id: ceremony 'c' already exists", "ceremony show c --store STORE"),
        ("targts: unknown field", "help ceremony create"),
    ],
)
def test_error_of_create_names_the_next_command(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch, error: str, hint: str
) -> None:
    def ask(operator: Operator, method: str, path: str, form: Any = None, **query: str) -> Any:
        raise Misuse(error)

    monkeypatch.setattr(Operator, "ask", ask)
    said = trunkline("ceremony", "create", "c", "61 * * * *", "report", *STORE)[2]
    assert said.splitlines()[-1] == f"Hint: trunkline {hint.replace('STORE', STORE[1])}"


def test_what_is_asked_for(trunkline: Run, asked: list[tuple[str, str, Any]]) -> None:
    words = (
        "create",
        "standup",
        "0 9 * * *",
        "report",
        "--set",
        "timeoutMs=60000",
        "--set",
        "timezone=Europe/Berlin",
    )
    assert trunkline("ceremony", *words, *STORE)[0] == 0
    assert trunkline("ceremony", "update", "standup", "--set", 'targets=["a"]', *STORE)[0] == 0
    assert trunkline("ceremony", "pause", "standup", *STORE)[0] == 0
    assert trunkline("ceremony", "delete", "standup", *STORE)[1] == "deleted standup\n"
    form = {"id": "standup", "name": "standup", "schedule": "0 9 * * *", "skill": "report"}
    assert asked == [
        ("POST", "/api/ceremonies/create", {**form, "timeoutMs": 60000, "timezone": "Europe/Berlin"}),
        ("POST", "/api/ceremonies/standup/update", {"targets": ["a"]}),
        ("POST", "/api/ceremonies/standup/update", {"enabled": False}),
        ("POST", "/api/ceremonies/standup/delete", {}),
    ]
    for wrong in (
        ("update", "standup"),
        ("update", "standup", "--set", "x"),
        ("run", "a/b"),
        ("history", "größe"),
    ):
        assert trunkline("ceremony", *wrong, *STORE)[0] == 2
