"""Keeps the store small: ended tasks are compacted after a while and forgotten after their time.

Live tasks are never touched, however old. Of several processes on one store one does the round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import wait_event
from trunkline.errors import Conflict, StoreError
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store
from trunkline.store.documents import DocumentKind

log = logging.getLogger("trunkline.run")
LONGEST_S = 60.0
SHORTEST_S = 0.5
# Long enough for readers that were cut to come back and go on delta by delta.
COMPACT_AFTER_MS = 60_000
SCHEDULE = "trunkline.keep"
# Before which moment an operator had ended tasks deleted, in milliseconds.
PRUNES: DocumentKind[int] = DocumentKind("store", lambda _, body: int(body))
_PRUNED = "pruned"
_TRIES = 8


class Retention:
    """Forgets and compacts ended tasks of one store; `kept` says for how many seconds those of which names.

    None are forgotten whose seconds are 0, nor those of agents that other processes carry.
    """

    def __init__(self, tasks: Tasks, kept: Sequence[tuple[tuple[str, ...], float]]) -> None:
        self._tasks = tasks
        self._of_tenants: Callable[[], Mapping[str, float]] = dict
        self._woken = asyncio.Event()
        self.keep(kept)

    def keep(self, kept: Sequence[tuple[tuple[str, ...], float]]) -> None:
        """Keep the tasks of these agents for so many seconds from now on, and those of no others in mind."""
        self._kept = [(names, round(seconds * 1000)) for names, seconds in kept if seconds]
        self._names = [name for names, _ in kept for name in names]
        shortest_s = min([seconds for _, seconds in kept if seconds], default=4 * LONGEST_S)
        self._pause_s = min(LONGEST_S, max(SHORTEST_S, shortest_s / 4))

    def keep_of(self, tenants: Callable[[], Mapping[str, float]]) -> None:
        """Keep the tasks of these tenants for so many seconds, where that is less than for others."""
        self._of_tenants = tenants
        self._woken.set()

    async def run(self) -> None:
        """Sweep the store again and again, for ever."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            while (left_s := began + self._shortest_s() - clock()) > 0:
                self._woken.clear()
                await wait_event(self._woken, left_s)
            try:
                await self._round()
            except StoreError as error:
                log.error("store.unswept error=%s", error)

    def _shortest_s(self) -> float:
        shortest_s = min(self._of_tenants().values(), default=4 * LONGEST_S)
        return min(self._pause_s, max(SHORTEST_S, shortest_s / 4))

    async def _round(self) -> None:
        store = self._tasks.store
        now = await store.clock.now()
        for names, kept_ms in self._kept:
            self._tasks.forget(now - kept_ms, names)
        of_tenants = {tenant: round(kept_s * 1000) for tenant, kept_s in self._of_tenants().items()}
        self._tasks.forget_of({tenant: now - kept_ms for tenant, kept_ms in of_tenants.items()})
        if store.shared:
            # By an operator's command, or by another process that was asked to.
            self._tasks.forget(await pruned_before(store))
            pause_ms = round(self._shortest_s() * 1000)
            if not await store.clock.fire_once(SCHEDULE, now // pause_ms * pause_ms):
                return
        # Also where everything is kept: keys that have expired go in any case.
        forgotten = 0 if self._kept else await store.maintenance.prune(0)
        for names, kept_ms in self._kept:
            forgotten += await store.maintenance.prune(now - kept_ms, names)
        for tenant, kept_ms in of_tenants.items():
            forgotten += await store.maintenance.prune(now - kept_ms, self._names, tenant)
        shrunk = await store.maintenance.compact(now - COMPACT_AFTER_MS)
        if forgotten or shrunk:
            log.info("store.swept forgotten=%d compacted=%d", forgotten, shrunk)


async def prune(store: Store, before: int) -> int:
    """Forget what ended before a moment because an operator says so; gives how many tasks.

    The moment is left in the store: every process that uses it lets go of what it holds at its next round.
    """
    count = await store.maintenance.prune(before)
    for _ in range(_TRIES):
        known = await store.docs.get(DEFAULT_TENANT, PRUNES.name, _PRUNED)
        latest = max(before, await pruned_before(store))
        rev = 0 if known is None else known.rev
        with suppress(Conflict):
            await store.docs.put(DEFAULT_TENANT, PRUNES.name, _PRUNED, b"%d" % latest, expected_rev=rev)
            break
    return count


async def pruned_before(store: Store) -> int:
    """The latest moment before which an operator had ended tasks forgotten; 0 if none did."""
    known = await store.docs.get(DEFAULT_TENANT, PRUNES.name, _PRUNED)
    return (known and PRUNES.read_or_set_aside(DEFAULT_TENANT, known)) or 0
