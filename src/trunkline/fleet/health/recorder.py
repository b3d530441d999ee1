"""Writes what becomes of tasks into the documents of their periods: once, whichever process dies when."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from trunkline.errors import Conflict, StoreError
from trunkline.fleet.health.health_records import HEALTH, KIND, HealthRecords
from trunkline.fleet.health.outcome import OpenTask, TaskOutcome, counted, has_calls, replay
from trunkline.fleet.health.periods import KEPT_MS, Period, fold, start_of
from trunkline.log.events import Submitted
from trunkline.store.base import Store
from trunkline.store.records import TailAppend
from trunkline.wire.types import INTERRUPTED

log = logging.getLogger("trunkline.fleet")
# Open tasks that are remembered; the log of any other is read again when it ends.
OPEN_LIMIT = 20_000
_PAGE = 1000
_encode = msgspec.msgpack.Encoder().encode
BATCH = list[TaskOutcome]
_decode = msgspec.msgpack.Decoder(BATCH).decode


class HealthRecorder:
    """Listens to the whole log. What it remembers of open tasks only saves reading their logs."""

    # Outcomes would be counted twice.
    is_repeatable = False

    def __init__(self, store: Store, records: HealthRecords, origin: str) -> None:
        self._store = store
        self._records = records
        self._origin = origin
        self._open: dict[str, OpenTask] = {}

    async def take(self, page: Sequence[TailAppend]) -> list[TaskOutcome]:
        """The outcomes that a page comes to."""
        oldest = self._records.now_ms() - KEPT_MS
        found: list[TaskOutcome] = []
        for append in page:
            task_id, at, events = append.task_id, append.at, append.events
            if type(first := events[0]) is Submitted:
                known = OpenTask(0, at, first)
                if known.parent or not known.agent:
                    await self._name(append.tenant, known)
                while len(self._open) >= OPEN_LIMIT:
                    del self._open[next(iter(self._open))]
                self._open[task_id] = known
            else:
                known = self._open.get(task_id)
            if known is not None:
                known.take(append.last, events)
            if has_calls(events) and at >= oldest:
                if known is None or known.seq < append.last:
                    known = await self._replayed(append)
                if known is not None:
                    self._open[task_id] = known
                    found += known.calls(append.tenant, at, events)
            for state, said in counted(events):
                if known is None or known.seq < append.last:
                    known = await self._replayed(append) if at >= oldest else None
                if known is None:
                    break
                if state not in INTERRUPTED:
                    self._open.pop(task_id, None)
                if at >= oldest:
                    found.append(known.outcome(append.tenant, task_id, at, state, said))
        return found

    async def settle(self, batch: bytes, number: int) -> None:
        """Count the outcomes of a batch in every document that does not have it yet."""
        groups: dict[tuple[str, int], list[TaskOutcome]] = defaultdict(list)
        for one in _decode(batch):
            groups[one.tenant, start_of(one.at)].append(one)
        for (tenant, start), outcomes in groups.items():
            while not await self._write(tenant, start, outcomes, number):
                pass
        await self._tidy()

    async def _write(self, tenant: str, start: int, outcomes: Sequence[TaskOutcome], number: int) -> bool:
        """Whether the document has the batch now; another process may have changed it meanwhile."""
        doc = await self._store.docs.get(tenant, KIND, str(start))
        found = None if doc is None else HEALTH.read_or_set_aside(tenant, doc)
        period = Period() if found is None else found
        if period.batch >= number:
            return True
        fold(period, start, outcomes)
        period.batch = number
        rev = 0 if doc is None else doc.rev
        try:
            await self._records.mirror.put(tenant, str(start), _encode(period), expected_rev=rev)
        except Conflict:
            return False
        return True

    async def _tidy(self) -> None:
        gone = [
            await self._store.docs.delete(tenant, KIND, str(start))
            for tenant, start in self._records.outdated()
        ]
        if gone:
            await self._records.mirror.refresh()

    async def _replayed(self, append: TailAppend) -> OpenTask | None:
        known: OpenTask | None = None
        tenant, task_id, until, after = append.tenant, append.task_id, append.last, 0
        try:
            while after < until and (page := await self._store.log.read(tenant, task_id, after, _PAGE)):
                known = replay(page, until, known)
                after = page[-1].seq
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            log.warning("health.uncounted task=%s error=%s", task_id, error)
            return None
        if known is not None:
            await self._name(tenant, known)
        return known

    async def _name(self, tenant: str, known: OpenTask) -> None:
        """Name the agents of a task: one without is at the origin; that of its parent has called it."""
        known.agent = known.agent or self._origin
        if known.parent:
            parent = self._open.get(known.parent)
            head = None if parent is not None else await self._store.heads.get(tenant, known.parent)
            known.caller = (
                parent.agent if parent is not None else "" if head is None else head.agent or self._origin
            )
