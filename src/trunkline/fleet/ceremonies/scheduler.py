"""The scheduler: has the tasks of ceremonies opened when they are due, and follows them to their end.

Every step is written to the journal of the ceremony or follows from it, and can be done again: whoever dies
between two of them loses nothing, and another replica, or the next start, goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import UNSET, Struct
from msgspec.structs import replace

from trunkline.errors import Conflict, Refused, StoreError
from trunkline.fleet.ceremonies.ceremony import ALL, SYSTEM, TARGETS, Ceremony
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
    run_item,
    to_open,
    to_stop,
    updated_run,
)
from trunkline.fleet.journal import Journal, JournalRow, Journals
from trunkline.store.base import Store
from trunkline.wire.types import TERMINAL, Message, Part, Role

log = logging.getLogger("trunkline.fleet")
TICK_S = 1.0
# How often open runs are looked at.
LOOK_MS = 1000
# When a ceremony is looked at again whose store or dispatch failed.
RETRY_MS = 5000
# Every ceremony is looked at this often: another replica may have begun something and died.
REST_MS = 60_000
REPORT_ATTEMPTS = 5
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


# Opens a task, and returns when it is recorded.
OpenTask = Callable[[Fire], Awaitable[object]]
# Lets the caller of a ceremony, by its tenant and name, have so many tasks opened.
Charge = Callable[[str, str, int], Awaitable[None]]
# Cancels a task of a tenant, by its id and in somebody's name.
StopTask = Callable[[str, str, str], Awaitable[None]]
# The names of the agents of a tenant that have a skill.
AgentsOf = Callable[[str, str], list[str]]
# Tells of a run that has ended; whether somebody was told.
Tell = Callable[[Ceremony, CeremonyReport], Awaitable[bool]]


def subject(ceremony_id: str) -> str:
    """The name of a ceremony's journal."""
    return f"ceremony:{ceremony_id}"


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
    ) -> None:
        """Take the ceremonies and what is done with them; those of a tenant that `rests` are let be.

        `knows` says whether a tenant has an agent here, `is_settled` whether all have been heard of.
        """
        self._store = store
        self._ceremonies = ceremonies
        self._open_task = open_task
        self._stop_task = stop_task
        self._agents_of = agents_of
        self._charge = charge
        self._tell = tell
        self._rests = rests
        self._knows = knows
        self._is_settled = is_settled
        self.journals = Journals(store.docs)
        self._next: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Have everything done when it is due, until cancelled: what one tenant has due delays no other."""
        working: dict[str, asyncio.Task[None]] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                while not self._is_settled():  # noqa: ASYNC110 - cards come by themselves
                    await asyncio.sleep(TICK_S)
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    now, due = await self._due()
                    for tenant, some in due.items():
                        if tenant not in working or working[tenant].done():
                            working[tenant] = group.create_task(self._take_turns(some, now))
                except StoreError as error:
                    log.error("ceremonies.waiting error=%s", error)
                await asyncio.sleep(TICK_S)

    def expect(self, key: tuple[str, str]) -> None:
        """Have a ceremony looked at with the next tick: it is new or has changed."""
        self._next.pop(key, None)

    async def tick(self) -> None:
        """Take a turn of every ceremony that is due."""
        now, due = await self._due()
        async with asyncio.TaskGroup() as group:
            for some in due.values():
                group.create_task(self._take_turns(some, now))

    async def _due(self) -> tuple[int, dict[str, list[Ceremony]]]:
        """The moment, and the ceremonies that are due then, by tenant."""
        known = self._ceremonies()
        for key in sorted(self._next.keys() - known.keys()):
            # One that comes back has missed nothing meanwhile.
            await self.journals.forget(key[0], subject(key[1]))
            del self._next[key]
        now = await self._store.clock.now()
        due: dict[str, list[Ceremony]] = {}
        for key, one in known.items():
            # One that is to be looked at much later was looked at before the clock was set back.
            is_due = not now < self._next.get(key, 0) <= now + REST_MS
            if is_due and not self._rests(one.tenant):
                due.setdefault(one.tenant, []).append(one)
        return now, due

    async def _take_turns(self, due: Sequence[Ceremony], now: int) -> None:
        places = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for one in due:
                group.create_task(self._turn(one, now, places))

    async def _turn(self, one: Ceremony, now: int, places: asyncio.Semaphore) -> None:
        async with places:
            # One that changes while its turn is on is looked at again.
            self._next[one.key] = now + RETRY_MS
            try:
                progress = await self._advance(one, now)
            except Exception as error:  # noqa: BLE001
                # Whatever is wrong with one of them, the others go on.
                log.error("ceremony.waiting ceremony=%s error=%r", one.id, error)
                look = now + RETRY_MS
            else:
                look = _next_look(one, progress, now)
            # With the next tick one that has changed meanwhile; and one that went, whose journal was written.
            self._next[one.key] = look if one.key in self._next else 0

    async def _advance(self, one: Ceremony, now: int) -> Progress:
        """Do what is due of one ceremony, each step recorded before the one that follows from it."""
        before = progress_of(await self.journals.read(one.tenant, subject(one.id)))
        heads = {run.id: await self.heads(one, run) for run in before.open if run.opened}
        targets = self.targets(one)
        is_here = any([self._knows(one.tenant, name) for name in targets])

        def revise(journal: Journal) -> Journal | None:
            known = progress_of(journal)
            planned, rows = _without_ended(one, known, heads, now, tells=self._tell is not None)
            further: list[JournalRow] = []
            if is_here or not self._is_left(one, next(one.schedule.after(known.cursor), 0), now):
                planned, further = plan(one, planned, now, targets, opened_in(journal))
            return None if planned == known else journal_with(journal, planned, [*rows, *further])

        progress = progress_of(await self.journals.change(one.tenant, subject(one.id), revise))
        for run in to_open(one, progress):
            if is_here or not self._is_left(one, run.planned, now):
                progress = await self.open_run(one, run, now)
        for run in to_stop(one, progress, now):
            progress = await self._stop_run(one, run, now)
        for report in progress.reports:
            if self._tell is not None and report.due <= now:
                progress = await self._report(one, report, now)
        return progress

    def _is_left(self, one: Ceremony, planned: int, now: int) -> bool:
        """Whether a run that concerns nobody here is left to hubs with other agents."""
        return self._store.shared and now < planned + one.jitter.delay(planned) + LEFT_MS

    async def charge(self, one: Ceremony, count: int) -> None:
        """Let in a run that somebody asks for, before it is written down.

        Raises:
            TooManyRequests: whose the ceremony is may not have more done now.
        """
        if self._charge is not None:
            await self._charge(one.tenant, one.form.created_by or SYSTEM, count)

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
        """Open the tasks of a run that are not open yet, and write that down."""
        error = ""
        for target, (task_id, head) in zip(run.targets, (await self.heads(one, run)).items(), strict=True):
            if head is None:
                # A conflict: another replica has opened it meanwhile.
                with suppress(Conflict):
                    error = await self._opened(one, run, target, task_id) or error
        row = JournalRow(now, OPENED, {"runId": run.id, "taskId": run.first_task})
        return await self._change_run(one, run, row, opened=now, error=error)

    async def _opened(self, one: Ceremony, run: CeremonyRun, target: str, task_id: str) -> str:
        form = one.form
        parts = [Part(text=form.message or form.name)]
        if form.data is not UNSET:
            parts.append(Part(data=form.data))
        fire = Fire(
            tenant=one.tenant,
            principal=form.created_by or SYSTEM,
            skill=form.skill,
            target=target,
            message=Message(message_id=task_id, role=Role.USER, parts=tuple(parts)),
            task_id=task_id,
            run_id=run.id,
            ceremony=one.id,
            by_hand=bool(run.by),
        )
        try:
            await self._open_task(fire)
        except Refused as refused:
            return refused.message
        return ""

    async def _stop_run(self, one: Ceremony, run: CeremonyRun, now: int) -> Progress:
        row = JournalRow(now, TIMEOUT, {"runId": run.id})
        progress = await self._change_run(one, run, row, timed_out=True)
        for task_id, head in (await self.heads(one, run)).items():
            if head is not None and head.state not in TERMINAL:
                with suppress(Refused):
                    await self._stop_task(one.tenant, task_id, f"ceremony:{one.id}")
        return progress

    async def _change_run(
        self, one: Ceremony, run: CeremonyRun, row: JournalRow, **changes: object
    ) -> Progress:
        """Change a run that is open, once."""

        def revise(journal: Journal) -> Journal | None:
            known = progress_of(journal)
            changed = updated_run(known, run.id, **changes)
            current = next((each for each in known.open if each.id == run.id), None)
            done = current is None or (current.opened and not changes.get("timed_out")) or current.timed_out
            return None if done else journal_with(journal, changed, [row])

        return progress_of(await self.journals.change(one.tenant, subject(one.id), revise))

    async def _report(self, one: Ceremony, report: CeremonyReport, now: int) -> Progress:
        told = self._tell is None or await self._tell(one, report)
        attempts = report.attempts + 1
        again = (
            ()
            if told or attempts == REPORT_ATTEMPTS
            else (replace(report, attempts=attempts, due=now + RETRY_MS * 3**attempts),)
        )

        def revise(journal: Journal) -> Journal | None:
            known = progress_of(journal)
            if report not in known.reports:
                return None
            left = tuple(each for each in known.reports if each != report)
            return journal_with(journal, replace(known, reports=(*left, *again)), [])

        return progress_of(await self.journals.change(one.tenant, subject(one.id), revise))


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
    return replace(known, open=tuple(left), reports=(*known.reports, *reports)), rows


def _next_look(one: Ceremony, progress: Progress, now: int) -> int:
    if progress.open or progress.reports:
        return now + LOOK_MS
    planned = next(one.schedule.after(progress.cursor), None) if one.form.enabled else None
    due = now + REST_MS if planned is None else planned + one.jitter.delay(planned)
    return min(due, now + REST_MS)
