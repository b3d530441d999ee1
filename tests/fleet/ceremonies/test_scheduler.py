"""The scheduler: each planned moment once, whoever dies at whichever step, on both databases."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fleet.ceremonies.stage import MINUTE, NOON, Killed, Stage, ceremony, filed
from tests.fleet.stores import Replicas
from trunkline.errors import InvalidParams, Refused, StoreError, TooManyRequests, Unavailable
from trunkline.fleet.ceremonies import scheduler as module
from trunkline.fleet.ceremonies.ceremony import Ceremony, CeremonyChanges, ceremony_of, changed_ceremony
from trunkline.fleet.ceremonies.runs import CeremonyReport, planned_run, progress_of
from trunkline.fleet.ceremonies.schedule import MISSED_MS
from trunkline.fleet.ceremonies.scheduler import Fire
from trunkline.fleet.journal import KIND, Journals
from trunkline.store.base import Store
from trunkline.wire.types import TaskState

COMPLETED = TaskState.COMPLETED


class Hours:
    """A store with its time."""

    def __init__(self, replicas: Replicas, store: Store) -> None:
        self._replicas = replicas
        self.store = store

    @property
    def now(self) -> int:
        return self._replicas.now

    async def pass_to(self, ms: int, *stages: Stage, step: int = 0) -> None:
        """Let it be so long after noon, and everybody look; the clock was set `step` milliseconds ahead."""
        self._replicas.now = NOON + ms + step
        for stage in stages:
            stage.monotonic_ms = ms
            await stage.scheduler.tick()


def alone(work: Any, *ceremonies: Any) -> None:
    """Do something with one replica, on the quick store."""
    replicas = Replicas("memory:")

    async def main(store: Store) -> None:
        await work(Hours(replicas, store), Stage(store, *ceremonies))

    replicas.run(main)


def planned_task(minute: int, **members: Any) -> str:
    return planned_run(ceremony(**members), NOON + minute * MINUTE, ("writer",)).first_task


def test_a_planned_moment_opens_a_task() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1000, stage)
        assert await stage.opened() == {}
        await hours.pass_to(MINUTE, stage)
        task_id = planned_task(1)
        assert await stage.opened() == {task_id: TaskState.SUBMITTED}
        feed = await stage.tasks.load("north", task_id)
        assert feed is not None
        first = feed.state.task(10).history[0]
        assert [(part.text, part.data) for part in first.parts][1] == (None, {"a": 1})
        assert (first.text, feed.state.principal, feed.state.agent) == ("Stand-up", "system", "writer")
        await stage.end(task_id)
        await hours.pass_to(MINUTE + 2000, stage)
        assert await stage.open_runs() == []
        (ended,) = await stage.rows("ended")
        assert ended["status"] == "success" and ended["taskId"] == task_id

    alone(work, ceremony(data={"a": 1}))


def test_a_clock_that_was_ahead_keeps_no_moment_from_firing_and_none_fires_twice() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(300 * MINUTE, stage)
        await stage.end(planned_task(300))
        await hours.pass_to(300 * MINUTE + 2000, stage)
        assert set(await stage.opened()) == {planned_task(300)}
        await hours.pass_to(30_000, stage)
        for minute in (1, 2, 300, 301):
            await hours.pass_to(minute * MINUTE + 10, stage)
            await hours.pass_to(minute * MINUTE + 2000, stage)
            for task_id in await stage.open_runs():
                await stage.end(task_id)
            await hours.pass_to(minute * MINUTE + 4000, stage)
        assert set(await stage.opened()) == {planned_task(minute) for minute in (1, 2, 300, 301)}
        assert len(await stage.rows("ended")) == 4
        changed = changed_ceremony(stage.ceremonies[one.key], CeremonyChanges(schedule="*/2 * * * *"), NOON)
        stage.ceremonies[one.key] = changed
        stage.scheduler.expect(one.key)
        await hours.pass_to(3 * MINUTE, stage)
        await hours.pass_to(4 * MINUTE, stage)
        assert planned_task(4) in await stage.opened()

    one = ceremony()
    alone(work, one)


def test_queued_run_is_planned_once_though_the_clock_was_set_back() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(60 * MINUTE, stage)
        await hours.pass_to(61 * MINUTE, stage)
        await hours.pass_to(30 * MINUTE + 1, stage)
        for minute in (60, 61):
            await hours.pass_to(minute * MINUTE + 10, stage)
        assert (await stage.open_runs())[-2:] == [planned_task(60), planned_task(61)]
        assert len(await stage.open_runs()) == len(set(await stage.open_runs()))

    alone(work, ceremony(overlap="queue"))


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
def test_hb26_overlap(overlap: str) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        for minute in (1, 2, 3):
            await hours.pass_to(minute * MINUTE, stage)
        opened = {planned_task(n) for n in ((1, 2, 3) if overlap == "allow" else (1,))}
        assert set(await stage.opened()) == opened
        skipped = await stage.rows("skipped")
        assert len(skipped) == (2 if overlap == "skip" else 0)
        await stage.end(planned_task(1))
        await hours.pass_to(3 * MINUTE + 5000, stage)
        await hours.pass_to(3 * MINUTE + 10_000, stage)
        opened |= {planned_task(2)} if overlap == "queue" else set()
        assert set(await stage.opened()) == opened
        assert all("has not ended" in one["reason"] for one in skipped)

    alone(work, ceremony(overlap=overlap))


def test_open_runs_are_bounded() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(120 * MINUTE, stage)
        assert len(await stage.opened()) == 50
        assert len(await stage.rows("skipped")) == 50
        (missed,) = await stage.rows("missed")
        assert missed["count"] == 20

    alone(work, ceremony(overlap="allow", misfire="all"))


@pytest.mark.parametrize(("misfire", "fired"), [("skip", 0), ("once", 1), ("all", 5)])
def test_hb26_missed_moments(misfire: str, fired: int) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        # The next process finds what the last one left.
        await hours.pass_to(5 * 60 * MINUTE + 20 * MINUTE, Stage(stage.store, *stage.ceremonies.values()))
        assert len(await stage.opened()) == fired
        assert sum(one["count"] for one in await stage.rows("missed")) == 5 - fired

    alone(work, ceremony(schedule="0 * * * *", misfire=misfire, overlap="allow"))


def test_hb26_a_timeout_cancels_and_is_recorded() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await hours.pass_to(MINUTE + 5000, stage)
        assert stage.stopped == []
        await hours.pass_to(MINUTE + 10_000, stage)
        assert stage.stopped == [planned_task(1)]
        await hours.pass_to(MINUTE + 11_000, stage)
        (ended,) = await stage.rows("ended")
        assert (ended["status"], ended["state"]) == ("timeout", "canceled")
        assert len(await stage.rows("timeout")) == 1

    alone(work, ceremony(timeoutMs=10_000))


@pytest.mark.parametrize("step", [-MISSED_MS, MISSED_MS])
def test_timeout_of_a_run_follows_the_monotonic_clock(step: int) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await hours.pass_to(MINUTE + 5000, stage, step=step)
        await hours.pass_to(MINUTE + 9000, stage, step=step)
        assert stage.stopped == []
        await hours.pass_to(MINUTE + 10_000, stage, step=step)
        assert stage.stopped == [planned_task(1)]

    alone(work, ceremony(timeoutMs=10_000))


@pytest.mark.parametrize("step", [-MISSED_MS, 0])
def test_timeout_of_a_run_goes_on_in_the_next_process(step: int) -> None:
    """What is left of it is at most its full length, also if the clock was set back meanwhile."""

    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        following = Stage(hours.store, *stage.ceremonies.values())
        left = 10_000 if step else 5_000
        await hours.pass_to(MINUTE + 5000, following, step=step)
        await hours.pass_to(MINUTE + 5000 + left - 1000, following, step=step)
        assert following.stopped == []
        await hours.pass_to(MINUTE + 5000 + left, following, step=step)
        assert following.stopped == [planned_task(1)]

    alone(work, ceremony(timeoutMs=10_000))


def test_report_is_sent_again_though_the_clock_was_set_back() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        stage.listens = False
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await stage.end(planned_task(1))
        await hours.pass_to(MINUTE + 2000, stage)
        assert len(stage.told) == 1
        await hours.pass_to(MINUTE + 4000, stage, step=-MISSED_MS)
        assert [one.attempts for one in stage.told] == [1, 2]

    alone(work, ceremony(notifyChannel="ops"))


def test_file_replaces_the_schedule_of_the_api_by_its_id() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await stage.end(planned_task(1))
        one = filed()
        stage.ceremonies[one.key] = one
        stage.scheduler.expect(one.key)
        await hours.pass_to(MINUTE + 2000, stage)
        await hours.pass_to(2 * MINUTE, stage)
        assert set(await stage.opened()) == {planned_task(1), planned_task(2)}

    alone(work, ceremony())


def test_a_run_for_all_has_one_task_for_each_agent_that_has_the_skill() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        first, second = sorted(await stage.opened())
        await stage.end(first)
        await hours.pass_to(MINUTE + 2000, stage)
        assert len(await stage.open_runs()) == 1
        await stage.end(second, TaskState.FAILED)
        await hours.pass_to(MINUTE + 4000, stage)
        (ended,) = await stage.rows("ended")
        assert ended["status"] == "failure"
        assert {one["agent"] for one in ended["tasks"]} == {"writer", "reader"}
        stage.agents = []
        await hours.pass_to(2 * MINUTE, stage)
        feed = await stage.tasks.load("north", (await stage.open_runs())[0])
        assert feed is not None and feed.state.agent == "all"

    alone(work, ceremony(targets=["all"]))


def test_a_dispatch_that_is_refused_is_a_failed_run() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        async def refuse(fire: Fire) -> None:
            raise InvalidParams("no such agent")

        stage.scheduler._open_task = refuse  # pyright: ignore[reportPrivateUsage]
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await hours.pass_to(MINUTE + 2000, stage)
        (ended,) = await stage.rows("ended")
        assert (ended["status"], ended["state"], ended["error"]) == ("failure", "unknown", "no such agent")

    alone(work, ceremony())


PASSING = [Unavailable("the server is going down"), TooManyRequests("too many tasks")]


@pytest.mark.parametrize("refusal", PASSING)
def test_run_stays_due_until_a_passing_refusal_ends(refusal: Refused) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal = refusal
        for seconds in (0, 1, 2, 59):
            await hours.pass_to(MINUTE + seconds * 1000, stage)
        assert await stage.opened() == {}
        (queued,) = await stage.items()
        assert (queued["status"], queued["error"]) == ("queued", refusal.message)
        stage.refusal = None
        await hours.pass_to(2 * MINUTE, stage)
        assert set(await stage.opened()) == {planned_task(1)}
        await stage.end(planned_task(1))
        await hours.pass_to(2 * MINUTE + 1500, stage)
        (ended,) = await stage.rows("ended")
        assert (ended["status"], "error" in ended) == ("success", False)
        assert await stage.rows("missed") == []

    alone(work, ceremony(schedule="1 * * * *"))


@pytest.mark.parametrize("refused", ["writer", "reader"])
def test_run_of_two_agents_stays_due_for_the_one_that_is_refused(refused: str) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal, stage.refused = PASSING[1], {refused}
        await hours.pass_to(MINUTE, stage)
        (first,) = await stage.opened()
        await stage.end(first)
        await hours.pass_to(MINUTE + 2000, stage)
        (partial,) = await stage.items()
        states = {one["agent"]: one["state"] for one in partial["tasks"]}
        assert (partial["status"], states.pop(refused)) == ("running", "unknown")
        assert [*states.values()] == ["completed"]
        stage.refusal = None
        await hours.pass_to(MINUTE + 4000, stage)
        (second,) = set(await stage.opened()) - {first}
        await stage.end(second)
        await hours.pass_to(MINUTE + 6000, stage)
        (ended,) = await stage.rows("ended")
        assert (ended["status"], len(await stage.rows("opened"))) == ("success", 1)

    alone(work, ceremony(schedule="1 * * * *", targets=["writer", "reader"]))


def test_run_of_two_agents_times_out_while_one_is_refused() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal, stage.refused = PASSING[1], {"reader"}
        for seconds in (0, 10, 12):
            await hours.pass_to(MINUTE + seconds * 1000, stage)
        (ended,) = await stage.rows("ended")
        assert ended["status"] == "timeout"

    alone(work, ceremony(schedule="1 * * * *", targets=["writer", "reader"], timeoutMs=10_000))


@pytest.mark.parametrize(
    ("misfire", "overlap", "minutes", "opened"),
    [
        ("skip", "allow", [3], []),
        ("once", "allow", [3], [3]),
        ("all", "allow", [1, 2, 3], [1, 2, 3]),
        ("once", "queue", [1, 2, 3], [1]),
        ("all", "skip", [1], [1]),
    ],
)
def test_run_that_is_refused_for_long_follows_the_misfire_policy(
    misfire: str, overlap: str, minutes: list[int], opened: list[int]
) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal = PASSING[0]
        for minute in (1, 2, 3):
            await hours.pass_to(minute * MINUTE, stage)
            await hours.pass_to(minute * MINUTE + 1000, stage)
        assert await stage.open_runs() == [planned_task(minute) for minute in minutes]
        missed, skipped = await stage.rows("missed"), await stage.rows("skipped")
        assert len(minutes) + len(missed) + len(skipped) == 3
        assert {row["reason"] for row in missed} <= {PASSING[0].message}
        # No further runs are planned, and these are still refused for a while.
        quiet = ceremony(misfire=misfire, overlap=overlap, schedule="0 0 1 1 *")
        stage.ceremonies[quiet.key] = quiet
        await hours.pass_to(4 * MINUTE, stage)
        stage.refusal = None
        await hours.pass_to(4 * MINUTE + 2000, stage)
        assert set(await stage.opened()) == {planned_task(minute) for minute in opened}

    alone(work, ceremony(misfire=misfire, overlap=overlap))


def test_run_that_is_refused_for_a_day_is_missed() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal, stage.refused = PASSING[1], {"reader"}
        await hours.pass_to(MINUTE, stage)
        await hours.pass_to(MINUTE + MISSED_MS - 1, stage)
        assert await stage.rows("missed") == []
        await hours.pass_to(MINUTE + MISSED_MS, stage)
        # The task that was opened is followed all the same.
        (run,) = await stage.items()
        assert (run["status"], run["error"]) == ("running", PASSING[1].message)
        stage.refused = {"writer"}
        await hours.pass_to(MINUTE + MISSED_MS + 1000, stage)
        assert len(await stage.opened()) == 1

    # NOON is at eight o'clock on 15 January.
    alone(work, ceremony(schedule="1 8 15 1 *", targets=["writer", "reader"]))


def test_run_is_not_missed_whose_task_was_opened_before_a_crash() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.refusal = PASSING[0]
        await hours.pass_to(MINUTE, stage)
        stage.refusal = None
        change = stage.scheduler._change_run  # pyright: ignore[reportPrivateUsage]

        async def die(*given: Any, **named: Any) -> Any:
            raise Killed

        stage.scheduler._change_run = die  # pyright: ignore[reportPrivateUsage]
        with contextlib.suppress(BaseExceptionGroup, Killed):
            await hours.pass_to(MINUTE + 2000, stage)
        stage.scheduler._change_run = change  # pyright: ignore[reportPrivateUsage]
        assert set(await stage.opened()) == {planned_task(1)}
        rest = Stage(stage.store, *stage.ceremonies.values())
        await hours.pass_to(3 * MINUTE, rest)
        await rest.end(planned_task(1))
        await hours.pass_to(3 * MINUTE + 2000, rest)
        assert [row["taskId"] for row in await rest.rows("ended")] == [planned_task(1)]
        assert await rest.rows("missed") == []

    alone(work, ceremony(misfire="skip", schedule="1 * * * *"))


def test_draining_hub_plans_nothing_and_the_next_one_does_it() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        stage.is_draining = True
        await hours.pass_to(MINUTE, stage)
        assert (await stage.opened(), await stage.open_runs(), await stage.rows("opened")) == ({}, [], [])
        with pytest.raises(Unavailable):
            await stage.scheduler.charge(ceremony(), 1)
        await hours.pass_to(MINUTE + 20_000, Stage(stage.store, *stage.ceremonies.values()))
        assert set(await stage.opened()) == {planned_task(1)}

    alone(work, ceremony())


def test_draining_hub_leaves_a_run_that_stayed_due_to_the_next_one() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        stage.refusal = PASSING[0]
        await hours.pass_to(MINUTE, stage)
        stage.is_draining, stage.refusal = True, None
        await hours.pass_to(MINUTE + 20_000, stage)
        assert await stage.opened() == {}
        await hours.pass_to(MINUTE + 40_000, Stage(stage.store, *stage.ceremonies.values()))
        assert set(await stage.opened()) == {planned_task(1)}

    alone(work, ceremony())


def test_run_is_done_once_whenever_one_of_two_hubs_begins_to_drain(replicas: Replicas) -> None:
    """One hub begins to drain at each of its calls to the store in turn; the other one goes on."""

    async def life(*stores: Store, begins: int) -> bool:
        # The minutes of each round follow those of the last one.
        hours, offset = Hours(replicas, stores[0]), begins * 10
        began = NOON + offset * MINUTE
        one = replace(ceremony(id=f"standup{begins}"), since=began, changed_at=began)
        first, second = Stage(stores[0], one), Stage(stores[1], one)
        await hours.pass_to(offset * MINUTE + 1000, first, second)
        first.steps = 0

        def drain() -> None:
            first.is_draining, first.refusal = True, PASSING[0]

        first.at_step = {begins: drain}
        for minute in (offset + 1, offset + 2):
            for seconds in (0, 1, 2, 8):
                await hours.pass_to(minute * MINUTE + seconds * 1000, first, second)
                for task_id, state in (await second.opened()).items():
                    if state is TaskState.SUBMITTED:
                        await second.end(task_id)
        rows = (await Journals(stores[1].docs).read("north", f"ceremony:{one.id}")).rows
        ended = [row.about for row in rows if row.kind == "ended"]
        wanted = [planned_run(one, NOON + (offset + n) * MINUTE, ("writer",)).first_task for n in (1, 2)]
        assert [(row["taskId"], row["status"]) for row in ended] == [(each, "success") for each in wanted]
        assert set(wanted) <= set(await second.opened())
        assert not [row for row in rows if row.kind in ("missed", "skipped")]
        return first.is_draining

    async def work(*stores: Store) -> None:
        begins = 1
        while await life(*stores, begins=begins):
            begins += 1
        assert begins > 15

    replicas.run(work, 2)


@pytest.mark.parametrize("owner", ["api", "file"])
def test_open_run_of_a_removed_schedule_is_followed_to_its_end(owner: str) -> None:
    made = {"api": ceremony, "file": filed}[owner]

    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        stage.ceremonies.clear()
        stage.scheduler.expect(("north", "standup"))
        await hours.pass_to(MINUTE + 5000, stage)
        assert stage.stopped == []
        await hours.pass_to(MINUTE + 10_000, stage)
        assert stage.stopped == [planned_task(1)]
        await hours.pass_to(MINUTE + 12_000, stage)
        (ended,) = await stage.rows("ended")
        assert (ended["status"], [one.about for one in stage.told]) == ("timeout", [ended])
        # Its history stays for a day, and nothing of it for longer.
        await hours.pass_to(MINUTE + module.HISTORY_MS, stage)
        assert await stage.rows("ended") == [ended]
        await hours.pass_to(2 * MINUTE + module.HISTORY_MS, stage)
        assert await stage.store.docs.list("north", KIND) == []

    alone(work, made(timeoutMs=10_000, notifyWebhook="https://hooks.example.com/x"))


def test_open_run_of_a_schedule_that_was_removed_while_no_hub_ran_is_followed(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)

    async def work(store: Store) -> None:
        hours, stage = Hours(replicas, store), Stage(store, filed())
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        following = Stage(store)
        subjects = following.scheduler.journals.subjects
        failures = [StoreError("the store is away")]

        async def fail_first(kind: str) -> list[tuple[str, str]]:
            if failures:
                raise failures.pop()
            return await subjects(kind)

        monkeypatch.setattr(following.scheduler.journals, "subjects", fail_first)
        await following.end(planned_task(1))
        running = asyncio.create_task(following.scheduler.run())
        while not await following.rows("ended"):  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert following.stopped == []

    replicas.run(work)


def test_replaced_file_keeps_overlap_history_and_run_times() -> None:
    """An editor removes a file and writes it anew: while a run works, and while a run time comes."""

    async def work(hours: Hours, stage: Stage) -> None:
        one = stage.ceremonies["north", "standup"]
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        del stage.ceremonies[one.key]
        stage.scheduler.expect(one.key)
        await hours.pass_to(2 * MINUTE - 2000, stage)
        stage.ceremonies[one.key] = one
        stage.scheduler.expect(one.key)
        await hours.pass_to(2 * MINUTE, stage)
        # The first run has not ended, so no other begins.
        assert set(await stage.opened()) == {planned_task(1)}
        assert len(await stage.rows("skipped")) == 1
        await stage.end(planned_task(1))
        await hours.pass_to(2 * MINUTE + 2000, stage)
        del stage.ceremonies[one.key]
        stage.scheduler.expect(one.key)
        await hours.pass_to(3 * MINUTE - 2000, stage)
        await hours.pass_to(3 * MINUTE + 2000, stage)
        stage.ceremonies[one.key] = one
        stage.scheduler.expect(one.key)
        await hours.pass_to(3 * MINUTE + 4000, stage)
        assert set(await stage.opened()) == {planned_task(1), planned_task(3)}
        assert [row["taskId"] for row in await stage.rows("ended")] == [planned_task(1)]

    alone(work, filed())


def test_journal_that_a_newer_version_wrote_keeps_its_open_run() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        (doc,) = await stage.store.docs.list("north", KIND)
        newer = doc.body.replace(b'"skill"', b'"novel":1,"skill"')
        assert newer != doc.body
        await stage.store.docs.put("north", KIND, doc.id, newer, doc.rev)
        assert await stage.open_runs() == [planned_task(1)]
        await stage.end(planned_task(1))
        await hours.pass_to(MINUTE + 2000, stage)
        (ended,) = await stage.rows("ended")
        assert ended["status"] == "success"
        await hours.pass_to(2 * MINUTE, stage)
        assert set(await stage.opened()) == {planned_task(1), planned_task(2)}

    alone(work, ceremony())


def test_queued_run_of_a_removed_schedule_is_reported_as_skipped() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await hours.pass_to(2 * MINUTE, stage)
        stage.ceremonies.clear()
        stage.scheduler.expect(("north", "standup"))
        await hours.pass_to(2 * MINUTE + 1000, stage)
        assert await stage.rows("skipped") == []
        await hours.pass_to(3 * MINUTE + 1000, stage)
        (skipped,) = await stage.rows("skipped")
        assert skipped["reason"] == "the ceremony was removed"
        await stage.end(planned_task(1))
        await hours.pass_to(3 * MINUTE + 3000, stage)
        assert len(await stage.rows("ended")) == 1
        # What comes back later has missed nothing meanwhile.
        stage.ceremonies["north", "standup"] = filed(overlap="queue")
        stage.scheduler.expect(("north", "standup"))
        await hours.pass_to(9 * MINUTE + 3000, stage)
        assert set(await stage.opened()) == {planned_task(1)}
        await hours.pass_to(10 * MINUTE, stage)
        assert set(await stage.opened()) == {planned_task(1), planned_task(10)}

    alone(work, filed(overlap="queue"))


def test_one_that_fails_does_not_keep_the_others() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        open_task = stage.scheduler._open_task  # pyright: ignore[reportPrivateUsage]
        fails = True

        async def half(fire: Fire) -> None:
            if fails and fire.ceremony == "standup":
                raise StoreError("away") if fire.target == "writer" else KeyError("bug")
            await open_task(fire)

        stage.scheduler._open_task = half  # pyright: ignore[reportPrivateUsage]
        await hours.pass_to(MINUTE, stage)
        assert len(await stage.opened()) == 1
        fails = False
        await hours.pass_to(MINUTE + 6000, stage)
        assert len(await stage.opened()) == 2

    alone(work, ceremony(), ceremony(id="other"))


def test_what_one_tenant_has_due_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.01)

    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        busy, fired = asyncio.Event(), asyncio.Event()

        async def open_task(fire: Fire) -> None:
            (busy if fire.tenant == "north" else fired).set()
            await asyncio.Event().wait()

        stage.scheduler._open_task = open_task  # pyright: ignore[reportPrivateUsage]
        await hours.pass_to(MINUTE)
        async with asyncio.timeout(30):
            running = asyncio.create_task(stage.scheduler.run())
            await busy.wait()
            # Due while as much as may be at once is at work for the other one.
            late = replace(ceremony(id="late"), tenant="south")
            stage.ceremonies[late.key] = late
            await fired.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    alone(work, *[ceremony(id=f"one{number}") for number in range(40)])


def test_paused_and_changed_ceremonies_miss_nothing() -> None:
    """What was planned while a ceremony was off, or by the schedule before, was never missed."""

    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        for minute, members in (
            (10, {"enabled": False}),
            (20, {}),
            (21, {"schedule": "0 0 1 1 *"}),
            (30, {}),
        ):
            stage.ceremonies[("north", "standup")] = filed(**members)
            stage.scheduler.expect(("north", "standup"))
            await hours.pass_to(minute * MINUTE + 1000, stage)
        assert await stage.opened() == {}
        await hours.pass_to(31 * MINUTE, stage)
        assert len(await stage.opened()) == 1
        del stage.ceremonies[("north", "standup")]
        await hours.pass_to(60 * MINUTE, stage)
        assert len(await stage.opened()) == 1

    alone(work, filed())


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_single_moment_that_passed_during_a_downtime_of_days_is_reported_once(misfire: str) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        late = Stage(stage.store, *stage.ceremonies.values())
        for days in (2, 3):
            await hours.pass_to(days * 1440 * MINUTE, late)
        assert await stage.opened() == {}
        (missed,) = await stage.rows("missed")
        assert missed["count"] == 1

    at = datetime.fromtimestamp((NOON + MINUTE) / 1000, UTC).isoformat()
    alone(work, ceremony(schedule=at, misfire=misfire))


def test_moment_planned_while_the_clock_was_set_back_is_reported_once_it_is_right_again() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        (one,) = stage.ceremonies.values()
        yesterday = NOON - 1440 * MINUTE
        at = datetime.fromtimestamp((yesterday + MINUTE) / 1000, UTC).isoformat()
        changed = changed_ceremony(one, CeremonyChanges(schedule=at), yesterday)
        # The process ends before it has looked; the next one starts with the right clock.
        rest = Stage(stage.store, changed)
        await hours.pass_to(3 * MINUTE, rest)
        (missed,) = await stage.rows("missed")
        assert missed["count"] == 1

    made = ceremony_of(ceremony().form, "north", NOON)
    alone(work, made)


def test_run_is_followed_when_its_schedule_is_removed_during_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        busy, goes_on = asyncio.Event(), asyncio.Event()

        journals = stage.scheduler.journals
        change = journals.change

        async def late(*given: Any) -> Any:
            busy.set()
            await goes_on.wait()
            return await change(*given)

        monkeypatch.setattr(journals, "change", late)
        await hours.pass_to(MINUTE)
        turn = asyncio.create_task(stage.scheduler.tick())
        await busy.wait()
        stage.ceremonies.clear()
        await stage.scheduler.tick()
        goes_on.set()
        await turn
        await stage.end(planned_task(1))
        await hours.pass_to(MINUTE + 6000, stage)
        (ended,) = await stage.rows("ended")
        assert ended["taskId"] == planned_task(1)

    alone(work, ceremony())


def test_hb25_a_moment_that_is_months_away_is_not_early() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1, stage)
        for days in (1, 24, 25, 26, 49, 50, 100, 300):
            await hours.pass_to(days * 1440 * MINUTE, stage)
        assert await stage.opened() == {}

    # Noon is in January 2027.
    alone(work, ceremony(schedule="0 0 31 12 *"))


def test_who_wants_to_be_told_is_told_until_it_works() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        stage.listens = False
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await stage.end(planned_task(1))
        await hours.pass_to(MINUTE + 1000, stage)
        await hours.pass_to(MINUTE + 5000, stage)
        assert len(stage.told) == 1
        await hours.pass_to(MINUTE + 30_000, stage)
        assert len(stage.told) == 2
        stage.listens = True
        await hours.pass_to(2 * MINUTE + 30_000, stage)
        assert len(stage.told) == 3
        await hours.pass_to(20 * MINUTE, stage)
        assert [one.about["status"] for one in stage.told] == ["success"] * 3

    alone(work, ceremony(notifyWebhook="https://hooks.example.com/x", schedule="1 * * * *"))


def test_receiver_of_reports_that_hangs_delays_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither other schedules of its tenant nor further runs of its own."""

    async def work(hours: Hours, stage: Stage) -> None:
        hanging, opened = asyncio.Event(), asyncio.Event()

        async def hang(one: Ceremony, report: CeremonyReport) -> bool:
            hanging.set()
            await asyncio.Event().wait()
            return True

        async def open_task(fire: Fire) -> None:
            await stage.open_task(fire)
            opened.set()

        stage.tell, stage.scheduler._open_task = hang, open_task  # pyright: ignore[reportPrivateUsage]
        async with asyncio.timeout(30):
            running = asyncio.create_task(stage.scheduler.run())
            await hours.pass_to(MINUTE)
            await opened.wait()
            await stage.end(planned_task(1))
            await hours.pass_to(MINUTE + 2000)
            await hanging.wait()
            opened.clear()
            await hours.pass_to(2 * MINUTE)
            await opened.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    monkeypatch.setattr(module, "TICK_S", 0.01)
    alone(work, ceremony(notifyChannel="ops"))


def test_reports_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        stage.listens = False
        await hours.pass_to(1, stage)
        for minute in (1, 2, 3):
            await hours.pass_to(minute * MINUTE, stage)
            await stage.end(planned_task(minute))
            await hours.pass_to(minute * MINUTE + 2000, stage)
        reports = progress_of(await stage.journal()).reports
        assert [one.about["taskId"] for one in reports] == [planned_task(2), planned_task(3)]

    monkeypatch.setattr(module, "REPORTS_LIMIT", 2)
    alone(work, ceremony(notifyChannel="ops"))


def test_channel_that_raises_is_given_up_after_five_attempts() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        async def broken(one: Ceremony, report: CeremonyReport) -> bool:
            stage.told.append(report)
            raise KeyError("of a third party")

        stage.tell = broken
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await stage.end(planned_task(1))
        for minute in range(1, 59):
            await hours.pass_to(minute * MINUTE + 2000, stage)
        assert [one.attempts for one in stage.told] == [1, 2, 3, 4, 5]
        assert not progress_of(await stage.journal()).reports

    alone(work, ceremony(schedule="1 * * * *", notifyChannel="ops"))


def test_report_of_a_process_that_died_is_sent_again() -> None:
    async def work(hours: Hours, stage: Stage) -> None:
        async def die(one: Ceremony, report: CeremonyReport) -> bool:
            raise Killed

        stage.tell = die
        await hours.pass_to(1, stage)
        await hours.pass_to(MINUTE, stage)
        await stage.end(planned_task(1))
        with pytest.raises(Killed):
            await hours.pass_to(MINUTE + 2000, stage)
        following = Stage(hours.store, *stage.ceremonies.values())
        await hours.pass_to(MINUTE + 5000, following)
        assert following.told == []
        await hours.pass_to(MINUTE + 20_000, following)
        assert len(following.told) == 1

    alone(work, ceremony(schedule="1 * * * *", notifyChannel="ops"))


def test_one_of_two_replicas_sends_a_report(replicas: Replicas) -> None:
    one = ceremony(schedule="1 * * * *", notifyChannel="ops")

    async def work(*stores: Store) -> None:
        hours, both = Hours(replicas, stores[0]), [Stage(store, one) for store in stores]
        await hours.pass_to(1, *both)
        await hours.pass_to(MINUTE, *both)
        await both[0].end(planned_task(1))

        async def ask_the_other(_: Ceremony, report: CeremonyReport) -> bool:
            both[0].told.append(report)
            await both[1].scheduler.tick()
            return True

        both[0].tell = ask_the_other
        both[1].scheduler.expect(one.key)
        await hours.pass_to(MINUTE + 2000, both[0])
        await hours.pass_to(5 * MINUTE, *both)
        assert [len(stage.told) for stage in both] == [1, 0]

    replicas.run(work, 2)


async def _live(hours: Hours, stage: Stage) -> None:
    """Two minutes and more, from now on; whatever is open ends."""
    for seconds in (0, 30, 60, 90, 120, 130, 140, 150, 160):
        if NOON + seconds * 1000 >= hours.now:
            await hours.pass_to(seconds * 1000, stage)
            for task_id, state in (await stage.opened()).items():
                if state is TaskState.SUBMITTED:
                    await stage.end(task_id)


def test_nothing_is_lost_or_doubled_by_a_crash_at_any_step() -> None:
    """The process dies before and after each of its calls; the next one goes on."""
    one = ceremony(overlap="skip", notifyWebhook="https://hooks.example.com/x")

    async def life(hours: Hours, dies_at: int) -> int:
        first = Stage(hours.store, one)
        first.dies_at = dies_at
        # A process that died ends no tasks either.
        with contextlib.suppress(BaseExceptionGroup, Killed):
            await _live(hours, first)
            return 1
        await _live(hours, Stage(hours.store, one))
        rest = Stage(hours.store, one)
        assert set(await rest.opened()) == {planned_task(1), planned_task(2)}, dies_at
        for kind in ("opened", "ended"):
            assert sorted(row["taskId"] for row in await rest.rows(kind)) == [
                planned_task(1),
                planned_task(2),
            ]
        assert await rest.rows("skipped") == []
        return 0

    dies_at = 1
    while True:
        replicas = Replicas("memory:")

        async def main(store: Store, replicas: Replicas = replicas, dies_at: int = dies_at) -> int:
            return await life(Hours(replicas, store), dies_at)

        if replicas.run(main):
            break
        dies_at += 1
    assert dies_at > 40


def test_run_of_a_removed_schedule_ends_whenever_the_process_dies() -> None:
    """The process dies before and after each of its calls; the next one has no such schedule at all."""

    async def life(hours: Hours, dies_at: int) -> bool:
        first = Stage(hours.store, filed(timeoutMs=10_000))
        first.dies_at = dies_at
        with contextlib.suppress(BaseExceptionGroup, Killed):
            await hours.pass_to(1, first)
            await hours.pass_to(MINUTE, first)
            first.ceremonies.clear()
            for seconds in (5, 10, 12, 70):
                await hours.pass_to(MINUTE + seconds * 1000, first)
        rest = Stage(hours.store)
        await rest.scheduler._find_gone()  # pyright: ignore[reportPrivateUsage]
        for seconds in (71, 73, 140, 142):
            await hours.pass_to(MINUTE + seconds * 1000, rest)
        ended, skipped = await rest.rows("ended"), await rest.rows("skipped")
        assert await rest.open_runs() == [], dies_at
        assert len(ended) == len(await rest.opened()), dies_at
        assert {one["status"] for one in ended} <= {"timeout"} and len(ended) + len(skipped) <= 1
        return first.steps < dies_at

    dies_at = 1
    while True:
        replicas = Replicas("memory:")

        async def main(store: Store, replicas: Replicas = replicas, dies_at: int = dies_at) -> bool:
            return await life(Hours(replicas, store), dies_at)

        if replicas.run(main):
            break
        dies_at += 1
    assert dies_at > 30


def test_two_replicas_fire_once(replicas: Replicas) -> None:
    one = ceremony(overlap="skip")

    async def work(*stores: Store) -> None:
        both = [Stage(store, one) for store in stores]
        for half in range(1, 9):
            replicas.now = NOON + half * MINUTE // 2
            await asyncio.gather(*(stage.scheduler.tick() for stage in both for _ in range(2)))
            for task_id, state in (await both[0].opened()).items():
                if state is TaskState.SUBMITTED:
                    await both[0].end(task_id)
        assert set(await both[1].opened()) == {planned_task(n) for n in (1, 2, 3, 4)}
        opened = [row["taskId"] for row in await both[1].rows("opened")]
        assert sorted(opened) == sorted(planned_task(n) for n in (1, 2, 3, 4))

    replicas.run(work, 2)


@pytest.mark.parametrize("targets", [("writer",), ("all",)], ids=["by name", "all"])
def test_a_run_is_left_to_the_hub_that_has_the_agent(
    targets: tuple[str, ...], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = Replicas(postgres_url)
    one = ceremony(overlap="allow", targets=targets)

    async def work(*stores: Store) -> None:
        hours = Hours(replicas, stores[0])
        far, near = Stage(stores[0], one), Stage(stores[1], one)
        far.agents, near.agents = [], ["writer"]
        await hours.pass_to(1000, far, near)
        await hours.pass_to(MINUTE, far, near)
        wanted = {planned_task(1, targets=targets)}
        assert set(await near.opened()) == wanted

        async def broken(*_: Any) -> None:
            raise StoreError("no")

        # Written down there, and not opened yet.
        with monkeypatch.context() as patched:
            patched.setattr(near.scheduler, "open_run", broken)
            await hours.pass_to(2 * MINUTE, far, near, far)
        assert set(await near.opened()) == wanted
        await hours.pass_to(2 * MINUTE + module.RETRY_MS, far, near)
        wanted.add(planned_task(2, targets=targets))
        assert set(await near.opened()) == wanted
        # Whom nobody has is refused, and that is seen.
        near.agents = []
        await hours.pass_to(3 * MINUTE + module.LEFT_MS - 1, far, near)
        assert set(await near.opened()) == wanted
        await hours.pass_to(3 * MINUTE + module.LEFT_MS + module.LOOK_MS, far, near)
        assert len(await near.opened()) == 3

    replicas.run(work, 2)


def test_nothing_is_begun_while_agents_have_not_been_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.001)

    async def work(hours: Hours, stage: Stage) -> None:
        await hours.pass_to(1000, stage)
        await hours.pass_to(MINUTE)
        asked = asyncio.Event()

        def is_settled() -> bool:
            asked.set()
            return stage.is_settled

        stage.is_settled = False
        monkeypatch.setattr(stage.scheduler, "_is_settled", is_settled)
        running = asyncio.create_task(stage.scheduler.run())
        for _ in range(3):
            asked.clear()
            await asked.wait()
        assert await stage.opened() == {}
        stage.is_settled = True
        while not await stage.opened():  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    alone(work, ceremony())
