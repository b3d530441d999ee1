"""Keeps the store small: ended tasks are compacted after a while and forgotten after their time.

Live tasks are never touched, however old. Of several processes on one store one does the round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import Conflict, StoreError
from trunkline.run.node import HostedAgent
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store

log = logging.getLogger("trunkline.run")
LONGEST_S = 60.0
SHORTEST_S = 0.5
# Long enough for readers that were cut to come back and go on delta by delta.
COMPACT_AFTER_MS = 60_000
SCHEDULE = "trunkline.keep"
_KIND, _PRUNED = "store", "pruned"
_TRIES = 8


class Retention:
    """Forgets and compacts the ended tasks of one store; an agent's `retention_s` of 0 keeps everything."""

    def __init__(self, tasks: Tasks, agents: Sequence[HostedAgent]) -> None:
        self._tasks = tasks
        kept = [agent.retention_s for agent in agents]
        # One that keeps everything, or for longer, must not lose a task to another's setting.
        retention_s = max(kept) if all(kept) else 0.0
        self._retention_ms = round(retention_s * 1000)
        pause_s = retention_s / 4 if retention_s else LONGEST_S
        self._pause_s = min(LONGEST_S, max(SHORTEST_S, pause_s))

    async def run(self) -> None:
        """Sweep the store again and again, for ever."""
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self._round()
            except StoreError as error:
                log.error("store.unswept error=%s", error)

    async def _round(self) -> None:
        store = self._tasks.store
        now = await store.clock.now()
        if self._retention_ms:
            self._tasks.forget(now - self._retention_ms)
        if store.shared:
            # By an operator's command, or by another process that was asked to.
            self._tasks.forget(await pruned_before(store))
            pause_ms = round(self._pause_s * 1000)
            if not await store.clock.fire_once(SCHEDULE, now // pause_ms * pause_ms):
                return
        # Also where everything is kept: keys that have expired go in any case.
        forgotten = await store.maintenance.prune(now - self._retention_ms if self._retention_ms else 0)
        shrunk = await store.maintenance.compact(now - COMPACT_AFTER_MS)
        if forgotten or shrunk:
            log.info("store.swept forgotten=%d compacted=%d", forgotten, shrunk)


async def prune(store: Store, before: int) -> int:
    """Forget what ended before a moment because an operator says so; gives how many tasks.

    The moment is left in the store: every process that uses it lets go of what it holds at its next round.
    """
    count = await store.maintenance.prune(before)
    for _ in range(_TRIES):
        known = await store.docs.get(DEFAULT_TENANT, _KIND, _PRUNED)
        latest = max(before, 0 if known is None else int(known.body))
        try:
            await store.docs.put(
                DEFAULT_TENANT, _KIND, _PRUNED, b"%d" % latest, expected_rev=0 if known is None else known.rev
            )
            break
        except Conflict:
            continue
    return count


async def pruned_before(store: Store) -> int:
    """The latest moment before which an operator had ended tasks forgotten; 0 if none did."""
    known = await store.docs.get(DEFAULT_TENANT, _KIND, _PRUNED)
    return 0 if known is None else int(known.body)
