"""`trunkline fleet`: through a running server, and on the store of one that is down."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Run, trunkline
from tests.harness import Agent, ServerProcess
from trunkline.cli import fleet
from trunkline.cli.console import watch_page
from trunkline.cli.fleet import spark

__all__ = ["trunkline"]


def test_health_by_the_command_line_beside_a_server_and_without_one(
    tmp_path: Path, trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with ServerProcess(tmp_path, store=url) as server:
        agent = Agent(server.base)
        for _ in range(3):
            agent.send("echo hello")
        code, out, said = trunkline("fleet", "--store", url, "--json")
        assert code == 0, said
        before = json.loads(out)["agents"]
        assert [one["totalOutcomes"] for one in before] == [3]
        agent.send("echo again")
        agent.close()
        server.stop()
    # What was not counted when the server ended is counted now, and what was is not counted twice.
    after = json.loads(trunkline("fleet", "--store", url, "--json")[1])["agents"]
    assert [(one["agent"], one["totalOutcomes"]) for one in after] == [(before[0]["agent"], 4)]
    table = trunkline("fleet", "--store", url)[1]
    assert before[0]["agent"] in table and "100%" in table and "█" in table
    assert "no agent" in trunkline("fleet", "--store", url, "--agent", "nobody")[1]
    assert trunkline("fleet", "--watch", "--json", "--store", url)[0] == 2

    shown = io.StringIO()
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    terminal = Console(file=shown, force_terminal=True, width=160)
    monkeypatch.setattr(fleet, "watch_page", partial(watch_page, console=terminal, sleep=sleep))
    assert trunkline("fleet", "--watch", "--store", url)[0] == 0
    assert len(rounds) == 2 and before[0]["agent"] in shown.getvalue()


def test_a_spark_line_rises_with_its_values() -> None:
    assert spark([0, 1, 4, 8]) == " ▁▄█"
    assert spark([3, 3]) == "██"
    assert spark([0, 1000, 1]) == " █▁"
    assert spark([]) == ""
