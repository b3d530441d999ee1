"""Which nodes live, and which tasks the others left behind; cheap enough to ask several times a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from trunkline.store.columns import STATES, orphan
from trunkline.store.parts import Nodes
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.liveness import GRACE_SECONDS
from trunkline.store.records import NodeRecord, Orphan, Waiting

# How often all running tasks are looked at for nodes that nobody has heard of.
SEARCH_SECONDS = 5.0
# One look may fall between the end of a session and the beginning of the next.
LOOK_AGAIN_SECONDS = 0.15


class NodeSigns(NamedTuple):
    """A node as one look into the database shows it."""

    node: str
    agents: list[str]
    # Whether it has left in peace.
    gone: bool
    # Milliseconds since its last beat.
    silent_ms: int
    # Whether its liveness session holds its lock.
    locked: bool
    # Whether its sessions can be found by their names, and whether one was.
    named: bool
    connected: bool
    # Milliseconds since the database started.
    up_ms: int
    # The moment of its last beat.
    beat: int = 0


def lives(signs: NodeSigns, *, ttl_ms: int, calm: bool) -> bool | None:
    """Whether a node lives; None if that takes a second look.

    A killed process loses all its sessions at once; one that lives has others when its liveness session is
    cut. Where sessions cannot be found only silence counts. While it is not `calm`, what cut the sessions of
    whoever looks may have cut all others too, and nobody is called dead.
    """
    if signs.gone:
        return False
    if not calm or signs.up_ms < GRACE_SECONDS * 1000:
        return True
    if signs.silent_ms > ttl_ms:
        return False
    if signs.locked or signs.connected or not signs.named:
        return True
    return None


class PostgresNodes(Nodes):
    """A node is dead if it never joined, has left, lost all its sessions, or was silent for too long."""

    def __init__(self, database: PostgresDatabase, ttl_s: float) -> None:
        super().__init__(database)
        self._liveness = database.liveness
        self._ttl_ms = round(ttl_s * 1000)
        self._searched = -SEARCH_SECONDS

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._liveness.join(node, agents)

    async def beat(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        await self._liveness.beat(node)

    async def leave(self, node: str) -> None:
        """See `Nodes`."""
        self._database.check()
        if self._liveness.holds(node):
            await self._liveness.leave(node)
        else:
            await self._database.write("leave", nodes=[node])

    async def alive(self, node: str) -> bool:
        """See `Nodes`."""
        return (await self._living()).get(node) is not None

    async def dead(self) -> list[str]:
        """The nodes that are known and dead."""
        return [node for node, agents in (await self._living()).items() if agents is None]

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        found = await self._judged()
        return [
            NodeRecord(node, tuple(signs.agents), alive, signs.beat)
            for node, (alive, signs) in sorted(found.items())
            if not signs.gone
        ]

    async def orphans(self, agents: Sequence[str], limit: int = 100) -> list[Orphan]:
        """See `Nodes`."""
        living = await self._living()
        search = time.monotonic() - self._searched >= SEARCH_SECONDS
        rows = await self._database.rows(
            "orphans",
            agents=agents,
            # Nobody's tasks among them: those that a node has released.
            dead=["", *(node for node, carried in living.items() if carried is None)],
            search=search,
            now=self._database.now_ms(),
            limit=limit,
        )
        # While there are some, the next look is a search again.
        if search and not rows:
            self._searched = time.monotonic()
        return [orphan(*row) for row in rows]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        carried = [agent for agents in (await self._living()).values() for agent in agents or ()]
        rows = await self._database.rows("waiting", tenant, carried=carried, limit=limit, after=after)
        return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]

    async def _living(self) -> dict[str, list[str] | None]:
        """The nodes that joined and were not tidied away: the agents of each that lives, None if dead."""
        return {
            node: signs.agents if alive else None for node, (alive, signs) in (await self._judged()).items()
        }

    async def _judged(self) -> dict[str, tuple[bool, NodeSigns]]:
        """The nodes that joined and were not tidied away, with whether each of them lives."""
        first = found = await self._look()
        if any(alive is None for alive, _ in first.values()):
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            found = await self._look()

        def is_dead(node: str, alive: bool | None) -> bool:
            return alive is False or (alive is None and node in first and first[node][0] is None)

        return {node: (not is_dead(node, alive), signs) for node, (alive, signs) in found.items()}

    async def _look(self) -> dict[str, tuple[bool | None, NodeSigns]]:
        rows = await self._database.rows("nodes")
        found = [NodeSigns(*row) for row in rows]
        # Asked only now: whoever sees its own lock free, or took it anew, was cut before it looked.
        liveness = self._liveness
        cut = any(liveness.holds(signs.node) and not signs.locked for signs in found)
        calm = not cut and not liveness.lost_lately()
        return {signs.node: (lives(signs, ttl_ms=self._ttl_ms, calm=calm), signs) for signs in found}
