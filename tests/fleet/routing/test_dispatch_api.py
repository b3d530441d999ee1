"""Work over HTTP: who does it, what is refused, what is known again, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Shelf
from tests.fleet.routing.fleet import Hub, hub


@pytest.fixture
def store(shelf: Shelf, tmp_path: Path) -> str:
    return shelf.store(f"sqlite:///{tmp_path}/tasks.db")


def test_work_is_dispatched_awaited_and_explained(store: str) -> None:
    async def work(at: Hub) -> None:
        status, said = await at.post("dispatch", {"skill": "work", "message": "tidy up", "wait": 30})
        assert status == 200
        (task,) = said["tasks"]
        assert (task["agent"], task["skill"], task["state"]) == ("desk", "work", "completed")
        assert task["text"] == "did tidy up"
        _, why = await at.get(f"tasks/{task['taskId']}/route")
        assert (why["winner"], why["skill"]) == ("desk", "work")
        assert [(one["agent"], one.get("excluded", "")) for one in why["candidates"]] == [
            ("desk", ""),
            ("off", "it is disabled"),
        ]
        assert (await at.get(f"tasks/{task['taskId']}/route", "bob"))[0] == 404
        _, log = await at.get(f"tasks/{task['taskId']}/log")
        assert log["items"][1]["kind"] == "routed" and log["items"][1]["candidates"][0]["agent"] == "desk"

    hub(work, store=store)


def test_hb07_refusals_are_rejected_tasks_with_a_reason() -> None:
    async def work(at: Hub) -> None:
        for body, refusal, told in (
            ({}, "no_skill", "names a skill"),
            ({"skill": "fly"}, "unknown_skill", "'fly'"),
            ({"skill": "work", "agent": "desc"}, "unknown_target", "'desc'"),
            ({"agent": "off"}, "unavailable", "it is disabled"),
        ):
            status, said = await at.post("dispatch", {"message": "x", **body})
            (task,) = said["tasks"]
            assert (status, task["state"], task["agent"]) == (200, "rejected", "hub")
            assert told in task["error"]
            _, why = await at.get(f"tasks/{task['taskId']}/route")
            assert (why["refusal"], why["reason"]) == (refusal, task["error"])
        _, listed = await at.get("tasks?state=rejected")
        assert len(listed["items"]) == 4

    hub(work)


def test_what_is_asked_for_twice_is_done_once() -> None:
    async def work(at: Hub) -> None:
        body = {"skill": "work", "message": "once"}
        key = {"Idempotency-Key": "k1"}
        made = [(await at.post("dispatch", body, **key))[1]["tasks"][0]["taskId"] for _ in range(3)]
        made += [
            (await at.post("dispatch", {**body, "correlationId": "c"}))[1]["tasks"][0]["taskId"]
            for _ in range(3)
        ]
        assert [len({*made[:3]}), len({*made[3:]}), len({*made})] == [1, 1, 2]
        for other, headers in (({"message": "other"}, key), ({"message": "other", "correlationId": "c"}, {})):
            status, said = await at.post("dispatch", {**body, **other}, **headers)
            assert (status, said["code"]) == (409, "DUPLICATE_ID")
            assert said["field"] == ("Idempotency-Key" if headers else "correlationId")
        # Another caller's key is another key.
        assert (await at.post("dispatch", body, "bob", **key))[1]["tasks"][0]["taskId"] != made[0]
        status, said = await at.post("dispatch", body, **{"Idempotency-Key": "k" * 257})
        assert (status, said["field"]) == (400, "Idempotency-Key")

    hub(work)


def test_several_agents_and_a_task_that_goes_on() -> None:
    async def work(at: Hub) -> None:
        _, said = await at.post(
            "dispatch", {"skill": "work", "targets": ["all"], "message": "ask", "wait": 30}
        )
        asked, refused = said["tasks"]
        assert (asked["state"], refused["state"]) == ("input-required", "rejected")
        _, said = await at.post("dispatch", {"taskId": asked["taskId"], "message": "red", "wait": 30})
        assert [(one["taskId"], one["text"]) for one in said["tasks"]] == [(asked["taskId"], "heard red")]
        assert (await at.post("dispatch", {"taskId": asked["taskId"], "message": "x"}, "bob"))[0] == 404
        _, said = await at.post("dispatch", {"agent": "desk", "data": {"a": 1}, "wait": 30})
        (untaken,) = said["tasks"]
        assert (untaken["state"], "desk does not take it" in untaken["error"]) == ("rejected", True)

    hub(work)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"skill": "work"}, "message"),
        ({"message": "x", "agent": "desk", "targets": ["desk"]}, "targets"),
        ({"message": "x", "targets": ["a"] * 101}, "targets"),
        ({"message": "x", "wait": 301}, "wait"),
        ({"message": "x", "nonsense": 1}, "nonsense"),
        ({"message": "x", "taskId": "t", "skill": "work"}, "taskId"),
        ({"message": "x", "contextId": "a\x00b"}, "contextId"),
        ({"message": "x", "contextId": "a\n"}, "contextId"),
        # It becomes a header.
        ({"message": "x", "correlationId": "a\n"}, "correlationId"),
    ],
)
def test_what_does_not_fit_is_400_with_its_field(body: dict[str, object], field: str) -> None:
    async def work(at: Hub) -> None:
        status, said = await at.post("dispatch", body)
        assert (status, said["field"]) == (400, field), said

    hub(work)


def test_route_tells_who_would_be_chosen() -> None:
    async def work(at: Hub) -> None:
        status, said = await at.get("route?skill=work")
        assert (status, said["winner"]) == (200, "desk")
        assert said["candidates"][0]["parts"]["weight"] == 1.0
        assert (await at.get("route"))[1]["refusal"] == "no_skill"
        assert (await at.get("route?skill=fly"))[1]["refusal"] == "unknown_skill"
        assert (await at.get("route?skill=work&agent=x"))[1]["refusal"] == "unknown_target"
        assert (await at.get("tasks"))[1]["items"] == []
        sent = await at.at.send("alice", "ping")
        assert (await at.get(f"tasks/{sent['id']}/route"))[1] == {
            "winner": "desk",
            "reason": "desk does it: it was sent there.",
            "candidates": [],
        }

    hub(work)
