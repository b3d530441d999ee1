"""Ceremonies over HTTP: whose they are, what is refused, and their runs, with a real runner behind."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
from cronsim import CronSim
from msgspec.structs import replace

from tests.fleet.ceremonies.hall import CREATE, LEAST, Hall, hall
from tests.fleet.ceremonies.stage import filed
from tests.fleet.office import NORTH
from trunkline.errors import InvalidParams
from trunkline.fleet.ceremonies import ceremony_store as book_module
from trunkline.fleet.ceremonies import schedule as schedule_module
from trunkline.fleet.ceremonies.ceremony_store import KIND, CeremonyFault


def test_a_ceremony_shows_what_it_is_and_its_next_fires() -> None:
    async def work(at: Hall) -> None:
        made = await at.post("alice", CREATE, {**LEAST, "createdBy": "bob", "data": {"a": 1}})
        (listed,) = (await at.at.get("alice", "/api/ceremonies"))["items"]
        assert listed == made
        assert (made["createdBy"], made["owner"], made["enabled"], made["state"]) == (
            "alice",
            "api",
            True,
            "ready",
        )
        assert made["targets"] == ["all"] and made["data"] == {"a": 1}
        assert len(made["nextFires"]) == 5 and all(
            one.endswith("T09:00:00.000Z") for one in made["nextFires"]
        )
        by_root = await at.post("root", CREATE, {**LEAST, "id": "other", "createdBy": "bob"})
        assert by_root["createdBy"] == "bob"
        assert await at.ids("bob") == ["other"]
        page = await at.at.get("root", "/api/ceremonies?limit=1")
        assert [one["id"] for one in page["items"]] == ["other"]
        rest = await at.at.get("root", f"/api/ceremonies?limit=1&after={page['next']}")
        assert ([one["id"] for one in rest["items"]], rest["next"]) == (["standup"], None)

    hall(work)


def test_a_page_costs_what_it_shows_and_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def counted(text: str, moment: datetime) -> CronSim:
        searched.append(text)
        return CronSim(text, moment)

    async def work(at: Hall) -> None:
        for n in range(12):
            # Each a day that comes once in decades, which is long looked for.
            await at.post("alice", CREATE, {**LEAST, "id": f"c{n:02}", "schedule": f"{n} 0 30 2 0#5"})
        turns: set[int] = set()

        async def others() -> None:
            while True:
                turns.add(len(set(searched)))
                await asyncio.sleep(0)

        schedule_module.schedule_of.cache_clear()
        monkeypatch.setattr(schedule_module, "CronSim", counted)
        await at.at.get("alice", "/api/ceremonies?limit=1")
        assert set(searched) == {"0 0 30 2 0#5"}
        running = asyncio.create_task(others())
        await at.at.get("alice", "/api/ceremonies")
        running.cancel()
        assert len(set(searched)) == 12 and set(range(1, 12)) <= turns
        searched.clear()
        await at.at.get("alice", "/api/ceremonies")
        assert not searched

    hall(work)


def test_hb27_a_ceremony_is_its_authors() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, LEAST)
        for who in ("alice", "bob", "root"):
            taken = await at.post(who, CREATE, {**LEAST, "name": "Mine"}, 409)
            assert taken["code"] == "CEREMONY_EXISTS"
        for act in ("update", "delete", "run"):
            refused = await at.post(
                "bob", f"/api/ceremonies/standup/{act}", {"name": "x"} if act == "update" else {}, 403
            )
            assert "alice" in refused["detail"]
            await at.post(
                "alice", f"/api/ceremonies/unknown/{act}", {"name": "x"} if act == "update" else {}, 404
            )
        assert (await at.at.ask("bob", "GET", "/api/ceremonies/standup/runs")).status_code == 403
        assert (await at.at.ask("bob", "GET", "/api/ceremonies/unknown/runs")).status_code == 404
        assert (await at.ids("bob"), await at.ids("alice"), await at.ids("root")) == (
            [],
            ["standup"],
            ["standup"],
        )
        # Another tenant has its own.
        assert await at.ids("stranger") == []
        await at.post("stranger", CREATE, LEAST)
        await at.post("root", "/api/ceremonies/standup/update", {"name": "Renamed"})
        assert (await at.post("alice", "/api/ceremonies/standup/delete"))["id"] == "standup"
        assert (await at.ids("root"), await at.ids("stranger")) == ([], ["standup"])

    hall(work)


def test_a_change_of_what_another_has_just_changed_or_removed_is_refused() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, LEAST)
        seen = at.ceremony_store.all()[NORTH, "standup"]
        later = replace(seen, form=replace(seen.form, name="Later"))
        await at.post("alice", "/api/ceremonies/standup/update", {"enabled": False})
        with pytest.raises(InvalidParams, match="just been changed"):
            await at.ceremony_store.put(later, over=seen)
        paused = at.ceremony_store.all()[NORTH, "standup"]
        assert not paused.form.enabled
        await at.post("alice", "/api/ceremonies/standup/delete")
        with pytest.raises(InvalidParams, match="just been changed"):
            await at.ceremony_store.put(later, over=paused)
        assert await at.ids("alice") == []

    hall(work)


def test_hb28_an_update_without_enabled_leaves_a_paused_one_paused() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, LEAST)
        paused = await at.post("alice", "/api/ceremonies/standup/update", {"enabled": False})
        assert (paused["enabled"], paused["nextFires"], paused["state"]) == (False, [], "paused")
        assert not (await at.post("alice", "/api/ceremonies/standup/update", {"name": "New"}))["enabled"]
        assert (await at.post("alice", "/api/ceremonies/standup/update", {"enabled": True}))["enabled"]

    hall(work)


def test_change_of_a_schedule_loses_no_moment_that_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, {**LEAST, "schedule": "* * * * *"})
        now = await at.at.store.clock.now()

        async def later() -> int:
            return now + 90_000

        monkeypatch.setattr(at.at.store.clock, "now", later)
        # The scheduler has not looked since.
        await at.post("alice", "/api/ceremonies/standup/update", {"schedule": LEAST["schedule"]})
        assert [run["status"] for run in await at.runs("alice")] == ["queued"]

    hall(work)


@pytest.mark.parametrize(
    ("field", "members"),
    [
        ("schedule", {"schedule": "nonsense"}),
        ("targets", {"targets": []}),
        ("id", {"id": ".."}),
        ("enabled", {"enabled": "maybe"}),
        ("notifyWebhook", {"notifyWebhook": "http://127.0.0.1/x"}),
        ("notifyWebhookEnv", {"notifyWebhookEnv": "HOME"}),
    ],
)
def test_hb29_what_is_invalid_is_nowhere(field: str, members: dict[str, Any]) -> None:
    async def work(at: Hall) -> None:
        refused = await at.post("alice", CREATE, {**LEAST, **members}, 400)
        assert refused["field"] == field
        # Neither that it is an inner address, nor of what kind: names could be asked for one by one.
        assert "loopback" not in refused["detail"]
        assert await at.at.store.docs.list("north", book_module.KIND) == []
        await at.post("alice", CREATE, LEAST)
        if field != "id":
            await at.post("alice", "/api/ceremonies/standup/update", members, 400)
        (kept,) = await at.at.store.docs.list("north", book_module.KIND)
        assert kept.rev == 1

    hall(work)


def test_a_channel_of_the_operator_is_not_for_other_tenants() -> None:
    async def work(at: Hall) -> None:
        refused = await at.post("root", CREATE, {**LEAST, "notifyChannel": "ops"}, 400)
        assert refused["field"] == "notifyChannel"
        await at.post("root", CREATE, LEAST)
        refused = await at.post("root", "/api/ceremonies/standup/update", {"notifyChannel": "ops"}, 400)
        assert refused["field"] == "notifyChannel"
        # As earlier versions kept it.
        (kept,) = await at.at.store.docs.list(NORTH, book_module.KIND)
        body = kept.body.replace(b'"name"', b'"notifyChannel":"ops","name"', 1)
        await at.at.store.docs.put(NORTH, book_module.KIND, kept.id, body, kept.rev)
        await at.ceremony_store.refresh()
        changed = await at.post("root", "/api/ceremonies/standup/update", {"enabled": False})
        assert (changed["enabled"], changed.get("notifyChannel", "")) == (False, "")

    hall(work)


def test_a_file_keeps_its_ceremony() -> None:
    async def work(at: Hall) -> None:
        own = [CeremonyFault(one, "x.yaml, line 3: no", NORTH) for one in ("broken", "standup")]
        at.ceremony_store.take_files(
            [filed(createdBy="alice", skill="work")], [*own, CeremonyFault("others", "y.yaml: no")]
        )
        listed = (await at.at.get("root", "/api/ceremonies"))["items"]
        assert [(one["id"], one["owner"], one["state"]) for one in listed] == [
            ("broken", "file", "invalid"),
            ("standup", "file", "ready"),
        ]
        assert [one["reason"] for one in listed] == ["x.yaml, line 3: no"] * 2
        for who in ("alice", "root"):
            for act, body in (("update", {"name": "x"}), ("delete", {})):
                refused = await at.post(who, f"/api/ceremonies/standup/{act}", body, 409)
                assert refused["code"] == "FILE_OWNED"
            await at.post(who, CREATE, LEAST, 409)
        await at.post("alice", "/api/ceremonies/standup/run")
        at.ceremony_store.take_files([], [])
        await at.scheduler.tick()
        assert await at.ids("root") == []

    hall(work)


def test_schedule_whose_time_zone_is_unknown_here_is_listed_as_invalid() -> None:
    """A document that another machine wrote, with other time zones; all other schedules are listed."""

    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, LEAST)
        await at.post("alice", CREATE, {**LEAST, "id": "daily", "timezone": "Europe/Berlin"})
        doc = await at.at.store.docs.get(NORTH, KIND, "daily")
        assert doc is not None
        body = doc.body.replace(b"Europe/Berlin", b"Mars/Base")
        await at.at.store.docs.put(NORTH, KIND, "daily", body, doc.rev)
        await at.ceremony_store.refresh()
        daily, standup = (await at.at.get("root", "/api/ceremonies"))["items"]
        assert (daily["state"], daily["nextFires"]) == ("invalid", [])
        assert "'Mars/Base'" in daily["reason"]
        assert standup["state"] == "ready"
        mended = await at.post("alice", "/api/ceremonies/daily/update", {"timezone": "UTC"})
        assert mended["state"] == "ready"

    hall(work)


def test_hb26_a_run_by_hand_has_an_id_a_task_and_a_history() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, {**LEAST, "enabled": False})
        started = await at.post("alice", "/api/ceremonies/standup/run")
        (run,) = await at.runs("alice")
        assert (run["runId"], run["taskId"], run["startedBy"]) == (
            started["runId"],
            started["taskId"],
            "alice",
        )
        assert run["status"] == "running" and run["startedAt"] and "completedAt" not in run
        assert (await at.at.get("alice", f"/api/tasks/{run['taskId']}"))["taskId"] == run["taskId"]
        refused = await at.post("alice", "/api/ceremonies/standup/run", None, 409)
        assert refused["code"] == "RUN_OPEN"
        assert at.charged == ["alice"]
        await at.post("alice", f"/api/tasks/{run['taskId']}/cancel")
        await at.scheduler.tick()
        (run,) = await at.runs("root")
        assert (run["status"], run["state"]) == ("canceled", "canceled") and run["completedAt"]
        await at.post("alice", "/api/ceremonies/standup/update", {"message": "quick"})
        # It has ended before the scheduler has seen that.
        quick = await at.post("alice", "/api/ceremonies/standup/run")
        await at.at.until(quick["taskId"], "completed")
        second = await at.post("alice", "/api/ceremonies/standup/run")
        await at.at.until(second["taskId"], "completed")
        first = await at.at.get("alice", "/api/ceremonies/standup/runs?limit=1")
        assert [(one["runId"], one["status"]) for one in first["items"]] == [(second["runId"], "success")]
        after = first["next"].replace(" ", "%20")
        earlier = [one["runId"] for one in await at.runs("alice", query=f"?after={after}")]
        assert earlier == [quick["runId"], started["runId"]]

    hall(work)


def test_hb26_a_timeout_stops_the_task() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, {**LEAST, "timeoutMs": 1})
        started = await at.post("alice", "/api/ceremonies/standup/run")
        async with asyncio.timeout(30):
            while (await at.runs("alice"))[0]["status"] != "timeout":  # noqa: ASYNC110
                at.scheduler.expect(("north", "standup"))
                await at.scheduler.tick()
        assert (await at.at.get("alice", f"/api/tasks/{started['taskId']}"))["state"] == "canceled"
        assert await at.runs("alice", query="?skipped=true")

    hall(work)


def test_ceremonies_of_a_tenant_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "TENANT_LIMIT", 2)

    async def work(at: Hall) -> None:
        for one in ("a", "b"):
            await at.post("alice", CREATE, {**LEAST, "id": one, "notifyWebhook": ""})
        assert (await at.post("alice", CREATE, LEAST, 409))["code"] == "CEREMONY_LIMIT"

    hall(work)


def test_deleted_schedule_leaves_its_open_run_and_its_history() -> None:
    async def work(at: Hall) -> None:
        await at.post("alice", CREATE, {**LEAST, "timeoutMs": 1})
        started = await at.post("alice", "/api/ceremonies/standup/run")
        await at.post("alice", "/api/ceremonies/standup/delete")
        assert await at.ids("root") == []
        (run,) = await at.runs("alice")
        assert (run["runId"], run["status"]) == (started["runId"], "running")
        assert (await at.at.ask("bob", "GET", "/api/ceremonies/standup/runs")).status_code == 403
        # A run that works keeps others from beginning, and an author's history from others.
        assert (await at.post("bob", CREATE, LEAST, 409))["code"] == "CEREMONY_EXISTS"
        await at.post("alice", CREATE, LEAST)
        assert (await at.post("alice", "/api/ceremonies/standup/run", None, 409))["code"] == "RUN_OPEN"
        await at.post("alice", "/api/ceremonies/standup/delete")
        async with asyncio.timeout(30):
            while (await at.runs("alice"))[0]["status"] != "timeout":  # noqa: ASYNC110
                at.scheduler.expect(("north", "standup"))
                await at.scheduler.tick()
        assert (await at.at.get("alice", f"/api/tasks/{started['taskId']}"))["state"] == "canceled"
        at.scheduler.expect(("north", "standup"))
        await at.scheduler.tick()
        await at.post("bob", CREATE, LEAST)
        assert await at.runs("bob") == []

    hall(work)
