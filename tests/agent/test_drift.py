"""Declared against done: what is said when they differ, and that nothing is said when they do not."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.agent.drive import drive, state
from trunkline import Agent, Effect, Turn
from trunkline.agent.drift import KEPT, Drift, Drifted, compare
from trunkline.agent.extensions import Change, RunReport
from trunkline.agent.testing import TestClient

UP, DOWN = Effect("shop", "open", 1, 0.5), Effect("shop", "stock", -2)


@pytest.mark.parametrize(
    ("changes", "missing", "undeclared"),
    [
        ([("open", 1, "inc"), ("stock", -7, "inc")], [], []),
        ([("stock", -0.5, "inc"), ("open", 1, "inc"), ("open", 3, "inc")], [], []),
        ([], ["shop:open+", "shop:stock-"], []),
        ([("open", 1, "inc")], ["shop:stock-"], []),
        ([("open", -1, "inc"), ("stock", -1, "inc")], ["shop:open+"], ["shop:open-"]),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("sold", 1, "inc")], [], ["shop:sold+"]),
        ([("open", "yes", "set"), ("stock", "x", "push")], [], []),
        ([("open", -1, "inc"), ("open", 5, "set"), ("stock", -1, "inc")], [], []),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("labels", "x", "push")], [], ["shop:labels"]),
        # Back and forth is no change.
        ([("open", 1, "inc"), ("open", -1, "inc"), ("stock", -1, "inc")], ["shop:open+"], []),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("sold", 0, "inc")], [], []),
    ],
)
def test_compare(changes: list[tuple[str, Any, str]], missing: list[str], undeclared: list[str]) -> None:
    made = [Change("shop", path, value, op) for path, value, op in changes]
    assert compare([UP, DOWN], made) == (tuple(missing), tuple(undeclared))


def test_the_domain_counts() -> None:
    assert compare([UP], [Change("mill", "open", 1)]) == (("shop:open+",), ("mill:open+",))


def shop() -> Agent:
    agent = Agent("shop")

    @agent.skill(effects=[UP, DOWN], default=True)
    async def sell(turn: Turn) -> str:
        for path, value in (word.split("=") for word in turn.text.split()):
            turn.effect("shop", path, int(value))
        if turn.metadata.get("fail"):
            turn.fail("sold out")
        if turn.metadata.get("finish"):
            turn.finish("sold")
        return "sold"

    @agent.skill
    async def give(turn: Turn) -> str:
        turn.effect("shop", "given")
        return "given"

    return agent


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith(event)]


def test_a_run_that_does_what_is_declared(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: TestClient) -> None:
        await client.send("open=1 stock=-1")
        await client.send("open=1 stock=-1", metadata={"finish": True})
        assert client.drift == []

    drive(shop(), talk)
    assert lines(caplog, "effects.drift") == []


@pytest.mark.parametrize("how", [{}, {"finish": True}])
def test_a_run_that_does_not(caplog: pytest.LogCaptureFixture, how: dict[str, Any]) -> None:
    async def talk(client: TestClient) -> tuple[Any, list[Drifted]]:
        return await client.send("open=-1 stock=-1", metadata=how), client.drift

    task, (drifted,) = drive(shop(), talk)
    assert state(task) == "completed", "a warning, nothing more"
    assert drifted == Drifted(task["id"], "sell", ("shop:open+",), ("shop:open-",))
    assert lines(caplog, "effects.drift") == [
        f"effects.drift task={task['id']} skill=sell missing='shop:open+' undeclared='shop:open-'"
    ]


def test_it_is_judged_by_what_was_done_whatever_the_caller_wants_to_hear() -> None:
    async def talk(client: TestClient) -> None:
        client.headers["A2A-Extensions"] = "https://proto-labs.ai/a2a/ext/cost-v1"
        task = await client.send("open=1 stock=-1")
        assert "extensions" not in task["artifacts"][0]
        assert client.drift == []
        await client.send("open=1")
        assert [one.missing for one in client.drift] == [("shop:stock-",)]

    drive(shop(), talk)


def test_failed_runs_and_skills_without_a_declaration_do_not_drift() -> None:
    async def talk(client: TestClient) -> list[Drifted]:
        assert state(await client.send("open=1", metadata={"fail": True})) == "failed"
        assert state(await client.send("go", metadata={"skill": "give"})) == "completed"
        return client.drift

    assert drive(shop(), talk) == []


def test_it_is_counted_by_skill() -> None:
    agent, counted = shop(), list[str]()
    drift = Drift(counted.append)
    for number in range(KEPT + 5):
        drift.look(agent.skills["sell"], f"task-{number}", RunReport(), success=True)
    assert counted == ["sell"] * (KEPT + 5)
    assert len(drift.found) == KEPT
    assert drift.found[-1].task_id == f"task-{KEPT + 4}"


def _pay(turn: Turn) -> None:
    turn.usage(input_tokens=1)
    turn.confidence(1)


def test_what_a_helper_emits_is_sent_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("under test")

    @agent.skill(emits=["confidence-v1"])
    async def act(turn: Turn) -> str:
        _pay(turn)
        if turn.text == "fail":
            turn.fail("no")
        return "paid"

    @agent.skill
    async def other(turn: Turn) -> str:
        _pay(turn)
        return "paid"

    async def talk(client: TestClient) -> list[Any]:
        tasks = [await client.send(text) for text in ("fail", "go", "go")]
        return [*tasks, await client.send("go", metadata={"skill": "other"})]

    with caplog.at_level(logging.WARNING, "trunkline.agent"):
        tasks = drive(agent, talk)
    assert all(len(task["artifacts"][0]["extensions"]) == 2 for task in tasks)
    said = lines(caplog, "extension.undeclared")
    assert [line.split(" fix=")[0] for line in said] == [
        "extension.undeclared skill=act extension=cost-v1",
        "extension.undeclared skill=other extension=cost-v1",
        "extension.undeclared skill=other extension=confidence-v1",
    ]
    assert all("@agent.skill(emits=['" in line for line in said)
