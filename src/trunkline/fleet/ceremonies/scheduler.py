"""The scheduler: opens the tasks of schedules when they are due, and follows their runs to the end.

Every step is recorded in the journal of the schedule or follows from it, and can be repeated: a crash between
two steps loses nothing, and another replica or the next start continues. A hub that drains starts no run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import UNSET, Struct
from msgspec.structs import replace

from trunkline.clock import monotonic_ms
from trunkline.errors import Conflict, Refused, StoreError, TooManyRequests, Unavailable
from trunkline.fleet.ceremonies.ceremony import ALL, SYSTEM, TARGETS, Ceremony
from trunkline.fleet.ceremonies.ceremony_store import taken
from trunkline.fleet.ceremonies.report_sender import ReportSender, Tell
from trunkline.fleet.ceremonies.runs import (
    ENDED,
    OPENED,
    TIMEOUT,
    CeremonyReport,
    CeremonyRun,
    Heads,
    Progress,
    is_over,
    journal_with,
    opened_in,
    plan,
    progress_of,
    rebased,
    run_item,
    subject,
    to_open,
    to_stop,
    updated_run,
    with_opened,
    without_misfires,
    without_unopened,
)
from trunkline.fleet.ceremonies.schedule import GRACE_MS
from trunkline.fleet.journal import Journal, JournalRow, Journals
from trunkline.store.base import Store
from trunkline.wire.types import TERMINAL, Message, Metadata, Part, Role

log = logging.getLogger("trunkline.fleet")
TICK_S = 1.0
# How often open runs are looked at.
LOOK_MS = 1000
# When a ceremony is looked at again whose store or dispatch failed.
RETRY_MS = 5000
# Every ceremony is looked at this often: another replica may have begun something and died.
REST_MS = 60_000
# How many reports of a schedule may wait: beyond it the oldest are given up.
REPORTS_LIMIT = 200
# How long the history of a schedule is kept after it was removed, counted from its newest row.
HISTORY_MS = 24 * 3_600_000
_NEVER = 1 << 62
# How long what is due is left to other hubs where nobody whom it concerns is known here, and how long after a
# start agents may take to show what they can.
LEFT_MS, SETTLE_S = 10_000, 10.0
# Turns of one tenant.
_AT_ONCE = 16


class Fire(Struct, frozen=True, kw_only=True):
    """A task to be opened under a certain id: for one agent, or for `all` where none has the skill."""

    tenant: str
    principal: str
    skill: str
    target: str
    message: Message
    task_id: str
    run_id: str
    ceremony: str
    # Whether somebody has asked for it, and was let in for that; else the clock has.
    by_hand: bool = False
    # Who may answer the questions of the task, as it is recorded.
    restriction: Metadata = {}


# Opens a task, and returns when it is recorded.
OpenTask = Callable[[Fire], Awaitable[object]]
# Lets the caller of a ceremony, by its tenant and name, have so many tasks opened.
Charge = Callable[[str, str, int], Awaitable[None]]
# Cancels a task of a tenant, by its id and in somebody's name.
StopTask = Callable[[str, str, str], Awaitable[None]]
# A schedule by its tenant and its id.
Key = tuple[str, str]
# The names of the agents of a tenant that have a skill.
AgentsOf = Callable[[str, str], list[str]]


class Scheduler:
    """The ceremonies that are known now, and when each of them is looked at next."""

    def __init__(
        self,
        store: Store,
        ceremonies: Callable[[], Mapping[tuple[str, str], Ceremony]],
        *,
        open_task: OpenTask,
        stop_task: StopTask,
        agents_of: AgentsOf,
        charge: Charge | None = None,
        tell: Tell | None = None,
        rests: Callable[[str], bool] = lambda tenant: False,
        knows: Callable[[str, str], bool] = lambda tenant, agent: True,
        is_settled: Callable[[], bool] = lambda: True,
        is_draining: Callable[[], bool] = lambda: False,
        monotonic_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Take the schedules and what is done with them; those of a tenant that `rests` are paused.

        `knows` returns whether a tenant has an agent here, `is_settled` whether all have been discovered.
        """
        self._store = store
        self._ceremonies = ceremonies
        self._open_task = open_task
        self._stop_task = stop_task
        self._agents_of = agents_of
        self._charge = charge
        self._rests = rests
        self._knows = knows
        self._is_settled = is_settled
        self._is_draining = is_draining
        self._monotonic_ms = monotonic_ms
        self.journals = Journals(store.docs, Progress)
        self._reports = None if tell is None else ReportSender(self.journals, store.clock, tell)
        # When each schedule is checked next, by tenant and id; 0 if it is new or has changed.
        self._next: dict[Key, int] = {}
        # The schedules that were removed and have a journal, and when this process noticed.
        self._gone: dict[Key, int] = {}
        self._has_found_gone = False
        # When this process loaded each schedule in its present form, by its mark.
        self._loaded: dict[Key, tuple[str, int]] = {}
        # When each open run began, by the monotonic clock: a clock that is set times out no run.
        self._began: dict[Key, dict[str, int]] = {}

    async def run(self) -> None:
        """Have everything done when it is due, until cancelled: what one tenant has due delays no other."""
        working: dict[str, asyncio.Task[None]] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not self._is_settled():  # noqa: ASYNC110 - cards come by themselves
                    await asyncio.sleep(TICK_S)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    try:
                        if not self._has_found_gone:
                            await self._find_gone()
                        now, due = await self._due()
                        for tenant, some in due.items():
                            if tenant not in working or working[tenant].done():
                                working[tenant] = group.create_task(self._take_turns(some, now))
                    except StoreError as error:
                        log.error("ceremonies.waiting error=%s", error)
                    await asyncio.sleep(TICK_S)
        finally:
            if self._reports is not None:
                await self._reports.close()

    def expect(self, key: Key) -> None:
        """Check a schedule with the next tick: it is new, has changed or was removed."""
        self._next[key] = 0

    async def tick(self) -> None:
        """Take a turn of every schedule that is due."""
        now, due = await self._due()
        async with asyncio.TaskGroup() as group:
            for some in due.values():
                group.create_task(self._take_turns(some, now))
        if self._reports is not None:
            await self._reports.wait()

    async def _find_gone(self) -> None:
        """Find the runs of schedules that were removed while no process could follow them.

        Raises:
            StoreError: the store does not answer.
        """
        now, known = await self._store.clock.now(), self._ceremonies()
        for tenant, name in await self.journals.subjects("ceremony"):
            if (key := (tenant, name.partition(":")[2])) in known:
                continue
            progress = progress_of(await self.journals.read(tenant, name))
            latest = progress.latest
            if not (latest is not None and latest.owner == "file" and self._store.shared):
                self._gone[key] = now
            elif progress.open or progress.reports:
                # Another replica may still have the file.
                self._gone[key] = _NEVER
        self._has_found_gone = True

    async def _due(self) -> tuple[int, dict[str, list[Key]]]:
        """Return the time, and the schedules to check then, by tenant; a hub that drains has none."""
        now, known = await self._store.clock.now(), self._ceremonies()
        for key in self._next.keys() - known.keys() - self._gone.keys():
            self._gone[key], self._next[key] = now, 0
            self._loaded.pop(key, None)
        for key in self._gone.keys() & known.keys():
            del self._gone[key]
            self._next[key] = 0
        due: dict[str, list[Key]] = {}
        for key in [] if self._is_draining() else [*known, *self._gone]:
            # A check that is planned much later was planned before the clock was set back.
            is_due = not now < self._next.get(key, 0) <= now + REST_MS
            if is_due and not self._rests(key[0]):
                due.setdefault(key[0], []).append(key)
        return now, due

    async def _take_turns(self, due: Sequence[Key], now: int) -> None:
        places = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for key in due:
                group.create_task(self._turn(key, now, places))

    async def _turn(self, key: Key, now: int, places: asyncio.Semaphore) -> None:
        async with places:
            # A schedule that changes during its turn is set to 0 meanwhile, and checked again.
            self._next[key] = now + RETRY_MS
            try:
                one = self._ceremonies().get(key)
                if one is None:
                    following = await self._wind_down(key, now)
                else:
                    following = _next_look(one, await self._advance(one, now), now)
            except Exception as error:  # noqa: BLE001
                # Whatever is wrong with one of them, the others go on.
                log.error("ceremony.waiting ceremony=%s error=%r", key[1], error)
                following = now + RETRY_MS
            if self._next.get(key):
                self._next[key] = following

    async def _advance(self, one: Ceremony, now: int) -> Progress:
        """Do what is due of one schedule, each step recorded before the one that follows from it."""
        progress = await self.record_due(one, now)
        for run in to_open(one, progress):
            if self._is_here(one, run.targets) or not self._is_left(one, run.planned, now):
                progress = await self.open_run(one, run, now)
                if any([each.refused for each in progress.open if each.id == run.id]):
                    # What refuses one run now refuses the others as well.
                    break
        return await self._follow(one, progress, now)

    async def record_due(self, one: Ceremony, now: int) -> Progress:
        """Record the runs that have ended, and those that begin.

        Raises:
            StoreError: the store does not answer.
        """
        before = progress_of(await self.journals.read(one.tenant, subject(one.id)))
        heads = {run.id: await self.heads(one, run) for run in before.open if run.opened or run.refused}
        targets = self.targets(one)
        is_here = self._is_here(one, targets)
        mark, loaded = self._loaded.get(one.key, ("", now))
        if mark != one.mark:
            loaded = now
        self._loaded[one.key] = one.mark, loaded

        def revise(journal: Journal) -> Journal | None:
            stored = progress_of(journal)
            known = rebased(stored, now)
            opened, rows = with_opened(known, heads, now)
            planned, ended = _without_ended(one, opened, heads, now, tells=self._reports is not None)
            planned, late = without_misfires(one, planned, now)
            further: list[JournalRow] = []
            is_left = not is_here and self._is_left(one, next(one.schedule.after(known.cursor), 0), now)
            if not is_left and not self._is_draining():
                planned, further = plan(one, planned, now, targets, opened_in(journal), loaded=loaded)
            return (
                None if planned == stored else journal_with(journal, planned, rows + ended + late + further)
            )

        return progress_of(await self.journals.change(one.tenant, subject(one.id), revise))

    async def _follow(self, one: Ceremony, progress: Progress, now: int) -> Progress:
        """Stop the runs that have taken too long, and report those that have ended."""
        for run in to_stop(one, progress, self._elapsed(one, progress, now)):
            progress = await self._stop_run(one, run, now)
        if self._reports is not None:
            self._reports.send_due(one, progress, now)
        return progress

    def _elapsed(self, one: Ceremony, progress: Progress, now: int) -> dict[str, int]:
        """Return how long each open run has worked, in milliseconds, by its ID."""
        at, known = self._monotonic_ms(), self._began.pop(one.key, {})
        began = {
            run.id: known.get(run.id, at - max(0, now - run.opened)) for run in progress.open if run.opened
        }
        if began:
            self._began[one.key] = began
        return {run_id: at - since for run_id, since in began.items()}

    async def _wind_down(self, key: Key, now: int) -> int:
        """Follow the open runs of a schedule that was removed to their end; return when to check it again.

        A file that an editor replaces is missing for a moment, so for a minute nothing else is changed. The
        history is deleted a day later.
        """
        journal = await self.journals.read(key[0], subject(key[1]))
        one = progress_of(journal).latest
        gone_at = self._gone.get(key, now)
        is_removed = now - gone_at >= GRACE_MS
        if one is not None:
            journal = await self._wind_down_runs(one, now, is_removed=is_removed)
            progress = await self._follow(one, progress_of(journal), now)
            if progress.reports or any([run.opened for run in progress.open]):
                return now + LOOK_MS
        if not is_removed and gone_at != _NEVER:
            return now + GRACE_MS
        if journal.rows and now - journal.rows[-1].at < HISTORY_MS and gone_at != _NEVER:
            return now + REST_MS
        if key in self._gone and key not in self._ceremonies():
            if gone_at != _NEVER:
                await self.journals.delete(key[0], subject(key[1]), journal)
            del self._gone[key], self._next[key]
        return now + RETRY_MS

    async def _wind_down_runs(self, one: Ceremony, now: int, *, is_removed: bool) -> Journal:
        before = progress_of(await self.journals.read(one.tenant, subject(one.id)))
        heads = {run.id: await self.heads(one, run) for run in before.open}

        def revise(journal: Journal) -> Journal | None:
            known = progress_of(journal)
            opened, rows = with_opened(known, heads, now)
            left, ended = _without_ended(one, opened, heads, now, tells=self._reports is not None)
            rows += ended
            if is_removed and one.key not in self._ceremonies():
                left, dropped = without_unopened(left, now)
                rows += dropped
            return None if left == known else journal_with(journal, left, rows)

        return await self.journals.change(one.tenant, subject(one.id), revise)

    def _is_here(self, one: Ceremony, targets: Sequence[str]) -> bool:
        """Return whether this hub knows one of the agents that a run concerns."""
        return any([self._knows(one.tenant, name) for name in targets])

    def _is_left(self, one: Ceremony, planned: int, now: int) -> bool:
        """Return whether a run is left to hubs that know its agents."""
        return self._store.shared and now < planned + one.jitter.delay(planned) + LEFT_MS

    async def charge(self, one: Ceremony, count: int) -> None:
        """Charge a run that somebody starts by hand, before it is recorded.

        Raises:
            TooManyRequests: the owner of the schedule has met a limit.
            Unavailable: the hub is going down.
        """
        if self._is_draining():
            raise Unavailable("the hub is going down; no run was started, try again")
        if self._charge is not None:
            await self._charge(one.tenant, one.form.created_by or SYSTEM, count)

    async def take_over(self, made: Ceremony) -> Progress:
        """Return the progress of a deleted schedule that a new one replaces; another author's is deleted.

        Raises:
            InvalidParams: a run of another author's schedule has not ended, which is a conflict.
        """
        journal = await self.journals.read(made.tenant, subject(made.id))
        before = progress_of(journal)
        latest = before.latest
        if latest is None or latest.form.created_by == made.form.created_by:
            return before
        if before.open:
            raise taken(made.id)
        await self.journals.delete(made.tenant, subject(made.id), journal)
        return Progress()

    def targets(self, one: Ceremony) -> tuple[str, ...]:
        """The agents that a run of a ceremony concerns now."""
        if one.form.targets != (ALL,):
            return one.form.targets
        # Where nobody has the skill, the refusal is a task too.
        return tuple(sorted(self._agents_of(one.tenant, one.form.skill))[:TARGETS]) or (ALL,)

    async def heads(self, one: Ceremony, run: CeremonyRun) -> Heads:
        """The heads of the tasks of a run, by their ids."""
        ids = [run.task_id(target) for target in run.targets]
        return {task_id: await self._store.heads.get(one.tenant, task_id) for task_id in ids}

    async def open_run(self, one: Ceremony, run: CeremonyRun, now: int) -> Progress:
        """Open the tasks of a run that are not open yet, and record that.

        A refusal that passes leaves the run due: a limit, a server that goes down, a tenant that is disabled.
        """
        error, refusals, done = "", 0, 0
        for target, (task_id, head) in zip(run.targets, (await self.heads(one, run)).items(), strict=True):
            if head is None:
                try:
                    # A conflict: another replica has opened it meanwhile.
                    with suppress(Conflict):
                        await self._open_task(_fire(one, run, target, task_id))
                except Refused as refused:
                    error = refused.message
                    if isinstance(refused, TooManyRequests | Unavailable) or self._rests(one.tenant):
                        # Only this agent may have no room; the others have a task each.
                        refusals += 1
                        continue
            done += 1
        opened = run.opened or (now if done else 0)
        rows = [JournalRow(now, OPENED, {"runId": run.id, "taskId": run.first_task})]
        return await self._change_run(
            one,
            run,
            rows if opened and not run.opened else [],
            opened=opened,
            refused=(run.refused or now) if refusals else 0,
            error=error,
        )

    async def _stop_run(self, one: Ceremony, run: CeremonyRun, now: int) -> Progress:
        row = JournalRow(now, TIMEOUT, {"runId": run.id})
        progress = await self._change_run(one, run, [row], timed_out=True)
        for task_id, head in (await self.heads(one, run)).items():
            if head is not None and head.state not in TERMINAL:
                with suppress(Refused):
                    await self._stop_task(one.tenant, task_id, f"ceremony:{one.id}")
        return progress

    async def _change_run(
        self, one: Ceremony, run: CeremonyRun, rows: Sequence[JournalRow], **changes: object
    ) -> Progress:
        """Change an open run as it was read, unless another replica was faster."""

        def revise(journal: Journal) -> Journal | None:
            known = progress_of(journal)
            changed = updated_run(known, run.id, **changes)
            is_same = run in known.open or (changes.get("timed_out") and not _timed_out(known, run.id))
            return journal_with(journal, changed, rows) if is_same and changed != known else None

        return progress_of(await self.journals.change(one.tenant, subject(one.id), revise))


def _fire(one: Ceremony, run: CeremonyRun, target: str, task_id: str) -> Fire:
    form = one.form
    restriction: Metadata = {"requestedBy": run.by} if run.by else {}
    if form.answered_by:
        restriction["answeredBy"] = form.answered_by
    parts = [Part(text=form.message or form.name)]
    if form.data is not UNSET:
        parts.append(Part(data=form.data))
    return Fire(
        tenant=one.tenant,
        principal=form.created_by or SYSTEM,
        skill=form.skill,
        target=target,
        message=Message(message_id=task_id, role=Role.USER, parts=tuple(parts)),
        task_id=task_id,
        run_id=run.id,
        ceremony=one.id,
        by_hand=bool(run.by),
        restriction=restriction,
    )


def _timed_out(known: Progress, run_id: str) -> bool:
    return all([run.timed_out for run in known.open if run.id == run_id])


def _without_ended(
    one: Ceremony, known: Progress, heads: Mapping[str, Heads], now: int, *, tells: bool
) -> tuple[Progress, list[JournalRow]]:
    """The progress without the runs that have ended: each is a row, and a report where one is wanted."""
    left: list[CeremonyRun] = []
    rows: list[JournalRow] = []
    for run in known.open:
        if run.id in heads and is_over(run, heads[run.id]):
            rows.append(JournalRow(now, ENDED, run_item(run, heads[run.id])))
        else:
            left.append(run)
    if not rows:
        return known, rows
    wanted = tells and bool(one.form.notify_channel or one.form.notify_webhook or one.notify_env)
    reports = [CeremonyReport(about=row.about, due=now) for row in rows] if wanted else []
    waiting = (*known.reports, *reports)[-REPORTS_LIMIT:]
    if lost := len(known.reports) + len(reports) - len(waiting):
        log.error("ceremony.unreported ceremony=%s count=%d limit=%d", one.id, lost, REPORTS_LIMIT)
    return replace(known, open=tuple(left), reports=waiting), rows


def _next_look(one: Ceremony, progress: Progress, now: int) -> int:
    if progress.open or progress.reports:
        return now + LOOK_MS
    planned = next(one.schedule.after(progress.cursor), None) if one.form.enabled else None
    due = now + REST_MS if planned is None else planned + one.jitter.delay(planned)
    return min(due, now + REST_MS)
