"""Which nodes live, and which tasks the others left behind; cheap enough to ask four times a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from trunkline.store.columns import STATES
from trunkline.store.postgres.address import EVERY_TENANT
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.sessions import fetch
from trunkline.store.records import EndedChild, Orphan, TaskRef, Waiting

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

# How often all running tasks are looked at for nodes that nobody has heard of.
SEARCH_SECONDS = 5.0


# A node, whether it lives, and the agents it carries.
_Node = tuple[str, bool, list[str]]


class PostgresNodes:
    """A node is dead if it never joined, has left, lost its session, or was silent for too long."""

    def __init__(self, database: PostgresDatabase, ttl_s: float) -> None:
        self._database = database
        self._ttl_ms = round(ttl_s * 1000)
        self._searched = -SEARCH_SECONDS

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._database.liveness.join(node, agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._database.liveness.beat(node)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        if self._database.liveness.holds(node):
            await self._database.liveness.leave(node)
        else:
            await self._database.change(partial(fetch, name="leave", nodes=[node]))

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        rows = await self._database.read(EVERY_TENANT, partial(self._known, node=node))
        return any(lives for _, lives, _ in rows)

    async def dead(self) -> list[str]:
        """The nodes that are known and dead."""
        rows = await self._database.read(EVERY_TENANT, self._known)
        return [node for node, lives, _ in rows if not lives]

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        return await self._database.read(EVERY_TENANT, partial(self._orphans, agents=agents, limit=limit))

    async def claimed(
        self, node: str, agents: Sequence[str], limit: int = 100, after: str = ""
    ) -> list[Orphan]:
        """See `Nodes`."""
        call = partial(fetch, name="claimed", node=node, agents=agents, limit=limit, after=after)
        return [Orphan(*row) for row in await self._database.read(EVERY_TENANT, call)]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""

        async def search(connection: Connection) -> list[Waiting]:
            carried = [
                agent for _, lives, agents in await self._known(connection) if lives for agent in agents
            ]
            rows = await fetch(
                connection, "waiting", tenant=tenant, carried=carried, limit=limit, after=after
            )
            return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]

        return await self._database.read(EVERY_TENANT, search)

    async def ended_children(self, limit: int = 100) -> list[EndedChild]:
        """See `Nodes`."""
        call = partial(fetch, name="ended_children", now=self._database.now_ms(), limit=limit)
        rows = await self._database.read(EVERY_TENANT, call)
        return [EndedChild(tenant, parent, child, STATES[state]) for tenant, parent, child, state in rows]

    async def open_children_of_canceled(self, limit: int = 100) -> list[TaskRef]:
        """See `Nodes`."""
        call = partial(fetch, name="open_children_of_canceled", limit=limit)
        return [TaskRef(*row) for row in await self._database.read(EVERY_TENANT, call)]

    async def _known(self, connection: Connection, node: str | None = None) -> list[_Node]:
        """The nodes that ever joined and were not tidied away: whether they live, and their agents."""
        judging = self._database.liveness.judging()
        rows = await fetch(connection, "nodes", node=node, ttl=self._ttl_ms, judging=judging)
        return [(name, lives, agents) for name, lives, agents in rows]

    async def _orphans(self, connection: Connection, agents: Sequence[str], limit: int) -> list[Orphan]:
        known = await self._known(connection)
        search = time.monotonic() - self._searched >= SEARCH_SECONDS
        rows = await fetch(
            connection,
            "orphans",
            agents=agents,
            # Nobody's tasks among them: those that a node has released.
            dead=["", *(node for node, lives, _ in known if not lives)],
            known=[node for node, _, _ in known],
            search=search,
            now=self._database.now_ms(),
            limit=limit,
        )
        # While there are some, the next look is a search again.
        if search and not rows:
            self._searched = time.monotonic()
        return [Orphan(*row) for row in rows]
