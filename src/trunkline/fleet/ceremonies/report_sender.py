"""Sends reports of ended runs beside the scheduler, so that a receiver that hangs delays no schedule.

An attempt is recorded before it is made, so that one of several replicas makes it. An attempt of a process
that dies is made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from trunkline.errors import StoreError
from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.runs import CeremonyReport, Progress, journal_with, progress_of, subject
from trunkline.fleet.journal import Journal, Journals
from trunkline.store.parts import Clock

log = logging.getLogger("trunkline.fleet")
ATTEMPTS = 5
# How long an attempt may take; the next one is due later than that.
ATTEMPT_S = 14.0
# The pause after an attempt is three times the one before it.
_FIRST_PAUSE_MS = 15_000
LONGEST_PAUSE_MS = _FIRST_PAUSE_MS * 3 ** (ATTEMPTS - 1)
# Attempts for one tenant at once.
_TOGETHER = 16
# Sends a report of a run that has ended; returns whether it was accepted.
Tell = Callable[[Ceremony, CeremonyReport], Awaitable[bool]]


class ReportSender:
    """Sends the reports that are due, each in a task of its own."""

    def __init__(self, journals: Journals, clock: Clock, tell: Tell) -> None:
        self._journals = journals
        self._clock = clock
        self._tell = tell
        self._sending: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._places = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(_TOGETHER))

    def send_due(self, one: Ceremony, progress: Progress, now: int) -> None:
        """Begin to send the reports of a schedule that are due."""
        self._sending = {name: task for name, task in self._sending.items() if not task.done()}
        for report in progress.reports:
            name = (*one.key, str(report.about["runId"]))
            # A report that is due much later was planned before the clock was set back.
            if name not in self._sending and not now < report.due <= now + LONGEST_PAUSE_MS:
                self._sending[name] = asyncio.get_running_loop().create_task(self._send(one, report))

    async def wait(self) -> None:
        """Wait until the attempts that were begun have ended."""
        await asyncio.gather(*self._sending.values())

    async def close(self) -> None:
        """Cancel the attempts that were begun; they are made again."""
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, one: Ceremony, report: CeremonyReport) -> None:
        try:
            async with self._places[one.tenant]:
                begun = await self._begin(one, report)
                if begun is not None and (await self._attempt(one, begun) or begun.attempts >= ATTEMPTS):
                    await self._replace(one, begun, None)
        except StoreError as error:
            log.error("ceremony.unreported ceremony=%s error=%s", one.id, error)

    async def _begin(self, one: Ceremony, report: CeremonyReport) -> CeremonyReport | None:
        """Record an attempt; return the report as it is then, or None if no attempt is made here."""
        pause_ms = _FIRST_PAUSE_MS * 3**report.attempts
        begun = replace(report, attempts=report.attempts + 1, due=await self._clock.now() + pause_ms)
        # After the last one, only a process that died has left it.
        is_last = report.attempts >= ATTEMPTS
        is_ours = await self._replace(one, report, None if is_last else begun)
        return begun if is_ours and not is_last else None

    async def _attempt(self, one: Ceremony, report: CeremonyReport) -> bool:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._tell(one, report)
        except TimeoutError:
            log.warning("ceremony.unreported ceremony=%s error=timeout", one.id)
        except Exception as error:
            # A channel is code of others.
            log.error("ceremony.unreported ceremony=%s", one.id, exc_info=error)
        return False

    async def _replace(self, one: Ceremony, report: CeremonyReport, by: CeremonyReport | None) -> bool:
        """Put another report in the place of one, or none; return whether it was there."""
        is_there = False

        def revise(journal: Journal) -> Journal | None:
            nonlocal is_there
            known = progress_of(journal)
            is_there = report in known.reports
            left = [by if each == report else each for each in known.reports]
            reports = tuple([each for each in left if each is not None])
            return journal_with(journal, replace(known, reports=reports), []) if is_there else None

        await self._journals.change(one.tenant, subject(one.id), revise)
        return is_there
