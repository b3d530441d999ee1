"""Which nodes live, and which tasks the others left behind; cheap enough to ask four times a second."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from trunkline.store.base import Orphan
from trunkline.store.postgres.address import EVERY_TENANT, DatabaseAddress
from trunkline.store.postgres.liveness import Liveness
from trunkline.store.postgres.pool import Pool
from trunkline.store.postgres.rows import fetch

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

# How often all running tasks are looked at for nodes that nobody has heard of.
SEARCH_SECONDS = 5.0


class PostgresNodes:
    """A node is dead if it never joined, has left, lost its session, or was silent for too long."""

    def __init__(self, address: DatabaseAddress, pool: Pool, ttl_s: float) -> None:
        self._pool = pool
        self._ttl_ms = round(ttl_s * 1000)
        self._liveness = Liveness(address)
        self._searched = -SEARCH_SECONDS

    async def join(self, node: str) -> None:
        """See `PostgresNodes`."""
        await self._liveness.join(node)

    async def beat(self, node: str) -> None:
        """See `PostgresNodes`."""
        await self._liveness.beat(node)

    async def leave(self, node: str) -> None:
        """See `PostgresNodes`."""
        if self._liveness.holds(node):
            await self._liveness.leave(node)
        else:
            await self._pool.change(partial(fetch, name="leave", nodes=[node]))

    async def close(self) -> None:
        """Let our own nodes go."""
        await self._liveness.close()

    async def alive(self, node: str) -> bool:
        """See `PostgresNodes`."""
        known = await self._pool.look(EVERY_TENANT, partial(self._known, node=node))
        return known.get(node, False)

    async def dead(self) -> list[str]:
        """The nodes that are known and dead."""
        known = await self._pool.look(EVERY_TENANT, self._known)
        return [node for node, lives in known.items() if not lives]

    async def orphans(self, limit: int) -> list[Orphan]:
        """See `PostgresNodes`."""
        return await self._pool.look(EVERY_TENANT, partial(self._orphans, limit=limit))

    async def _known(self, connection: Connection, node: str | None = None) -> dict[str, bool]:
        judging = self._liveness.judging()
        rows = await fetch(connection, "nodes", node=node, ttl=self._ttl_ms, judging=judging)
        return {name: lives for name, lives in rows}

    async def _orphans(self, connection: Connection, limit: int) -> list[Orphan]:
        known = await self._known(connection)
        if time.monotonic() - self._searched < SEARCH_SECONDS:
            # Nobody's tasks among them: those that a node has released.
            dead = ["", *(node for node, lives in known.items() if not lives)]
            rows = await fetch(connection, "orphans_of", nodes=dead, limit=limit)
        else:
            living = [node for node, lives in known.items() if lives]
            rows = await fetch(connection, "orphans", nodes=living, limit=limit)
            # While there are some, the next look is a search again.
            if not rows:
                self._searched = time.monotonic()
        return [Orphan(*row) for row in rows]
