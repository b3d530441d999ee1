"""`trunkline inbox`: through a running server, and on the store of one that is down."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Run, trunkline
from tests.harness import Agent, ServerProcess
from trunkline.cli import inbox
from trunkline.cli.console import watch_page

__all__ = ["trunkline"]


@pytest.fixture
def watched(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a terminal shows of the open questions, at two looks."""
    return partial(_watched, trunkline, monkeypatch)


def _watched(trunkline: Run, monkeypatch: pytest.MonkeyPatch, url: str, width: int = 160) -> str:
    shown, rounds = io.StringIO(), list[float]()

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    terminal = Console(file=shown, force_terminal=True, width=width)
    monkeypatch.setattr(inbox, "watch_page", partial(watch_page, console=terminal, sleep=sleep))
    assert trunkline("inbox", "list", "--watch", "--limit", "10", "--store", url)[0] == 0
    return shown.getvalue()


def test_an_answer_by_the_command_line_ends_the_task(
    tmp_path: Path, trunkline: Run, watched: Callable[..., str]
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with ServerProcess(tmp_path, store=url) as server:
        agent = Agent(server.base)
        task = agent.send("ask Which one?")["id"]
        code, out, _ = trunkline("inbox", "list", "--store", url, "--json")
        (asked,) = json.loads(out)
        assert (code, asked["taskId"]) == (0, task)
        assert asked["question"] in trunkline("inbox", "show", task, "--store", url)[1]
        assert "Which one?" in watched(url) and asked["taskId"] in watched(url)
        # Also where there is little room, as the answer is addressed to it.
        assert asked["taskId"] in watched(url, 80)
        code, _, said = trunkline("inbox", "answer", task, "x", "--question", "older", "--store", url)
        assert code == 2 and "does not ask this now" in said
        code, out, _ = trunkline("inbox", "answer", task, "red", "--store", url, "--json")
        assert (code, json.loads(out)["answeredBy"]) == (0, "operator")
        assert "no open questions" in trunkline("inbox", "list", "--store", url)[1]
        assert "no open questions" in watched(url)
        assert trunkline("inbox", "list", "--watch", "--closed", "--store", url)[0] == 2
        shown = trunkline("inbox", "show", task, "--store", url)[1]
        assert "outcome: answered" in shown and "state:" not in shown
        (closed,) = json.loads(trunkline("inbox", "list", "--closed", "--store", url, "--json")[1])
        assert (closed["taskId"], closed["outcome"]) == (task, "answered")
        assert "answered by operator" in trunkline("inbox", "list", "--closed", "--store", url)[1]
        other = agent.send("ask Which one?")["id"]
        agent.close()
        server.stop()
    assert trunkline("inbox", "answer", other, "--reject", "not now", "--store", url)[0] == 0
    assert trunkline("inbox", "answer", other, "again", "--store", url)[0] == 1


def test_a_login_is_listed_as_one_and_answered(
    tmp_path: Path, trunkline: Run, watched: Callable[..., str]
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with ServerProcess(tmp_path, store=url) as server:
        agent = Agent(server.base)
        task = agent.send("auth Log in at https://login.example")["id"]
        line = "login: Log in at https://login.example"
        assert line in trunkline("inbox", "list", "--store", url)[1] and line in watched(url)
        code, out, _ = trunkline("inbox", "show", task, "--store", url)
        assert code == 0 and "auth-required" in out
        assert trunkline("inbox", "answer", task, "done", "--store", url)[0] == 0
        (closed,) = json.loads(trunkline("inbox", "list", "--closed", "--store", url, "--json")[1])
        assert (closed["taskId"], closed["state"], closed["outcome"]) == (task, "auth-required", "answered")
        agent.close()


def test_an_answer_is_one_thing(trunkline: Run) -> None:
    for words in ((), ("x", "--accept"), ("--data", "1", "--reject"), ("--data", "{")):
        assert trunkline("inbox", "answer", "t1", *words)[0] == 2
