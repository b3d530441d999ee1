"""The health of a fleet over HTTP, by what its agents did."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.fleet.office import Office, office
from trunkline.fleet.health.health_records import KIND

PATHS = ("fleet/health", "series", "cost-summaries", "confidence-summaries", "calls")


def test_HB_23_what_ended_is_counted_at_once_under_the_agent_that_did_it() -> None:
    async def work(at: Office) -> None:
        for text in ("one", "two", "report", "fail", "fail"):
            await at.send("alice", text)
        held = await at.send("bob", "hold", wait=False)
        await at.ask("bob", "POST", f"/api/tasks/{held['id']}/cancel")
        await at.until(held["id"], "canceled")
        asked = await at.send("bob", "ask")
        visitor = await at.application.host.key_store.create("visitor", tenant="south", scopes=())
        at.keys["visitor"] = visitor.token
        await at.send("visitor", "south")

        found = await at.get("alice", "/api/fleet/health")
        (desk,) = found["agents"]
        assert (desk["agent"], desk["totalOutcomes"]) == ("desk", 6)
        assert desk["classes"] == {
            "completed": 3, "failed": 2, "canceled": 1, "rejected": 0, "input-required": 1,
        }  # fmt: skip
        assert (desk["successRate"], desk["failureRate1h"]) == (3 / 6, 2 / 6)
        assert (desk["totalCostUsd"], desk["costPerSuccessfulOutcome"]) == (0.25, 0.25 / 3)
        items = (await at.get("root", "/api/tasks?limit=200"))["items"]
        assert {one["taskId"] for one in items if one["state"] == "failed"} == {
            one["taskId"] for one in desk["recentFailures"]
        }
        assert [one["failureReason"] for one in desk["recentFailures"]] == ["it broke", "it broke"]
        assert sum(desk["hourly"]) == 6 and len(desk["hourly"]) == 24
        assert (found["windowHours"], found["maxFailureRate1h"], found["totalCostUsd1d"]) == (24, 2 / 6, 0.25)
        assert (found["orphanedSkillCount"], found["alerts"], found["systemActors"]) == (0, [], [])
        # The question is not the end: with its answer the task has one.
        await at.ask("carol", "POST", f"/api/inbox/{asked['id']}", {"decision": "respond", "text": "x"})
        await at.until(asked["id"], "completed")
        (again,) = (await at.get("alice", "/api/fleet/health"))["agents"]
        assert (again["totalOutcomes"], again["classes"]["input-required"]) == (7, 1)
        south = await at.get("stranger", "/api/fleet/health")
        assert south["agents"][0]["totalOutcomes"] == 1
        assert (await at.get("all", "/api/fleet/health?tenant=north"))["agents"] == [again]

    office(work)


def test_failure_reasons_are_shown_only_to_callers_who_may_read_the_task() -> None:
    async def work(at: Office) -> None:
        await at.send("alice", "fail")
        for who, reason in (("alice", "it broke"), ("root", "it broke"), ("bob", "failed")):
            (desk,) = (await at.get(who, "/api/fleet/health"))["agents"]
            assert [one["failureReason"] for one in desk["recentFailures"]] == [reason], who

    office(work)


def test_narrowed_by_agent_and_skill() -> None:
    async def work(at: Office) -> None:
        await at.send("alice", "fail", metadata={"skillHint": "work"})
        await at.send("alice", "x", metadata={"skillHint": "other"})
        (whole,) = (await at.get("alice", "/api/fleet/health?agent=desk"))["agents"]
        names = [one["skill"] for one in whole["skills"]]
        assert "other" in names and len(names) == 2
        (other,) = (await at.get("alice", "/api/fleet/health?skill=other"))["agents"]
        assert (other["totalOutcomes"], other["successRate"], other["recentFailures"]) == (1, 1.0, [])
        failed = await at.get("alice", "/api/fleet/health")
        assert failed["orphanedSkillCount"] == 1 and failed["orphanedSkills"][0]["agent"] == "desk"
        assert [one["kind"] for one in failed["alerts"]] == ["orphaned-skills"]
        assert (await at.get("alice", "/api/fleet/health?agent=nobody"))["agents"] == []
        assert (await at.get("alice", "/api/fleet/health?skill=nothing"))["agents"] == []

    office(work)


def test_series_and_summaries() -> None:
    async def work(at: Office) -> None:
        for text in ("one", "report", "fail"):
            await at.send("alice", text)

        async def last(metric: str) -> Any:
            found = await at.get("alice", f"/api/series?agent=desk&metric={metric}")
            assert (found["metric"], found["stepSeconds"]) == (metric, 300)
            assert len(found["items"]) in (288, 289)
            values = [one["value"] for one in found["items"] if one["value"] is not None]
            return sum(values)

        assert [await last(name) for name in ("total", "completed", "failed", "costUsd")] == [3, 2, 1, 0.25]
        assert (await last("confidence"), await last("inputRequired")) == (0.5, 0)
        empty = await at.get("alice", "/api/series?agent=nobody&metric=successRate")
        assert {one["value"] for one in empty["items"]} == {None}
        (cost,) = (await at.get("alice", "/api/cost-summaries"))["items"]
        assert (cost["agent"], cost["samples"], cost["avgCostUsd"], cost["avgInputTokens"]) == (
            "desk",
            1,
            0.25,
            1,
        )
        assert (await at.get("alice", "/api/cost-summaries?minSamples=2"))["items"] == []
        (sure,) = (await at.get("alice", "/api/confidence-summaries?agent=desk"))["items"]
        assert (sure["avgConfidence"], sure["avgConfidenceOnSuccess"]) == (0.5, 0.5)
        assert (sure["avgConfidenceOnFailure"], sure["highConfFailures"]) == (None, 0)
        assert await at.get("alice", "/api/calls") == {"items": [], "next": None}
        bad = await at.ask("alice", "GET", "/api/series?metric=luck")
        assert (bad.status_code, bad.json()["field"]) == (400, "metric")
        assert "; choose " in bad.json()["detail"]

    office(work)


def test_a_page_goes_on_where_the_last_one_ended() -> None:
    async def work(at: Office) -> None:
        await at.send("alice", "report", metadata={"skillHint": "work"})
        await at.get("alice", "/api/calls")
        (doc,) = await at.store.docs.list("north", KIND)
        period = msgspec.msgpack.decode(doc.body)
        # Who had work done by whom, as an agent that calls others leaves it.
        period[5] = [["a", "b", 2, 1], ["a", "c", 1, 0], ["a-b", "a", 1, 0]]
        await at.store.docs.put("north", KIND, doc.id, msgspec.msgpack.encode(period), doc.rev)
        await at.application.host.store.docs.list("north", KIND)
        await at.send("alice", "report", metadata={"skillHint": "work"})
        whole = (await at.get("alice", "/api/calls"))["items"]
        assert [(one["caller"], one["agent"], one["total"], one["failed"]) for one in whole] == [
            ("a", "b", 2, 1),
            ("a", "c", 1, 0),
            ("a-b", "a", 1, 0),
        ]
        pages, after = [], ""
        while after is not None:
            page = await at.get("alice", f"/api/calls?limit=1&after={after.replace(' ', '%20')}")
            pages += page["items"]
            after = page["next"]
        assert pages == whole

    office(work)


def test_health_is_read_with_a_key_that_reads() -> None:
    async def work(at: Office) -> None:
        for path in PATHS:
            assert (await at.ask("alice", "GET", f"/api/{path}")).status_code == 200
            assert (await at.ask("alice", "GET", f"/api/{path}?tenant=south")).status_code == 403
            at.keys["nobody"] = "wrong"
            assert (await at.ask("nobody", "GET", f"/api/{path}")).status_code == 401

    office(work)
