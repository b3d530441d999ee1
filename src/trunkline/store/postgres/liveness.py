"""Which nodes live, and which tasks the dead left behind; cheap enough to ask several times a second.

That this process lives is told from a thread of its own: a skill that blocks the loop is not dead. A session
holds an advisory lock for each node that joined, so that its end is seen at once; and it beats, so that one
that only looks connected is seen after a while. Cut, it is dialled again at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from trunkline.clock import wait_event
from trunkline.errors import StoreError
from trunkline.log.fold import AT_ONCE
from trunkline.store.database import Database
from trunkline.store.parts import Nodes
from trunkline.store.postgres.address import DATABASE_ERRORS, STATEMENT_SECONDS, DatabaseAddress, lock_key
from trunkline.store.postgres.sessions import fetch, hang_up
from trunkline.store.records import NodeRecord, Orphan, Waiting
from trunkline.store.statements import STATES, orphan

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

BEAT_SECONDS = 0.5
# Whatever cut our session may have cut everybody's; each has this time to come back.
GRACE_SECONDS = 3.0
# How often all running tasks are looked at for nodes that nobody has heard of.
SEARCH_SECONDS = 5.0
# One look may fall between the end of a session and the beginning of the next.
LOOK_AGAIN_SECONDS = 0.15
_RETRY_SECONDS = 0.1
_DIAL_SECONDS = 1.0
_CALL_SECONDS = 1.0
_LOCK_TRIES = 50
_SETTINGS = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
}


class Liveness:
    """The nodes of this process. All but the methods above the line run in the thread."""

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Each with its lock's number and its agents as a JSON array.
        self._nodes: dict[str, tuple[int, str]] = {}
        self._locked: set[str] = set()
        self._connection: Connection | None = None
        self._stopping = False
        self._dialled = 0
        self._redialled_at = 0.0

    def lost_lately(self) -> bool:
        """Whether our own session was lost a moment ago, and perhaps those of others with it."""
        return bool(self._redialled_at) and time.monotonic() - self._redialled_at <= GRACE_SECONDS

    def holds(self, node: str) -> bool:
        """Whether a node joined here."""
        return node in self._nodes

    async def join(self, node: str, agents: Sequence[str]) -> None:
        """Begin to say that a node lives.

        Raises:
            StoreError: nobody hears it.
        """
        if self._thread is None:
            started = threading.Event()
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._run(started)), name="trunkline-liveness", daemon=True
            )
            self._thread.start()
            await asyncio.to_thread(started.wait, _CALL_SECONDS)
        await self._ask(lambda: self._join(node, agents))

    async def beat(self, node: str) -> None:
        """Say now that this node is alive.

        Raises:
            StoreError: nobody hears it.
        """
        if node in self._nodes:
            await self._ask(self._beat)

    async def leave(self, node: str) -> None:
        """Say that a node lives no longer, and let its lock go.

        Raises:
            StoreError: nobody hears it.
        """
        await self._ask(lambda: self._leave([node]))

    async def close(self) -> None:
        """Let all nodes go and end the thread."""
        if self._thread is None or self._loop is None:
            return
        try:
            if self._nodes:
                await self._ask(lambda: self._leave(list(self._nodes)))
        except StoreError as error:
            _logger.warning("liveness.unsaid reason=%s", error)
        self._stopping = True
        self._loop.call_soon_threadsafe(self._wake.set)
        await asyncio.to_thread(self._thread.join, 5.0)
        self._thread = None

    async def _ask(self, call: Callable[[], Awaitable[None]]) -> None:
        loop = self._loop
        if loop is None:
            raise StoreError("the liveness thread did not start")
        answer = asyncio.run_coroutine_threadsafe(self._alone(call), loop)
        try:
            async with asyncio.timeout(2 * _CALL_SECONDS):
                await asyncio.wrap_future(answer)
        except TimeoutError:
            raise StoreError("the store does not answer the liveness thread") from None

    # In the thread

    async def _run(self, started: threading.Event) -> None:
        # Set at the end of the session, and at ours.
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        started.set()
        while not self._stopping:
            self._wake.clear()
            try:
                await self._alone(self._beat)
                pause = BEAT_SECONDS
            except StoreError:
                pause = _RETRY_SECONDS
            await wait_event(self._wake, pause)
        if self._connection is not None:
            await hang_up(self._connection)

    async def _alone(self, call: Callable[[], Awaitable[None]]) -> None:
        async with self._turn:
            try:
                await call()
            except DATABASE_ERRORS as error:
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                    _logger.warning("liveness.lost reason=%s", self._address.told(error))
                raise StoreError(f"the liveness connection is down: {self._address.told(error)}") from error

    async def _live(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._locked.clear()
        self._connection = await self._address.connect(
            "liveness", seconds=_DIAL_SECONDS, statement_s=STATEMENT_SECONDS, **_SETTINGS
        )
        self._connection.add_termination_listener(lambda _: self._wake.set())
        if self._dialled:
            self._redialled_at = time.monotonic()
        self._dialled += 1
        return self._connection

    async def _join(self, node: str, agents: Sequence[str]) -> None:
        connection = await self._live()
        key = lock_key(self._address.schema, f"node/{node}")
        # First the lock, then the row: in the other order it would look like a death. Whoever looks after
        # us holds the lock for an instant; whoever holds it for longer is this node's own lost session.
        for _ in range(_LOCK_TRIES):
            if await self._lock(connection, node, key):
                break
            await asyncio.sleep(0.01)
        await fetch(connection, "join", node=node, key=key, agents=agents, process=self._address.process)
        self._nodes[node] = key, msgspec.json.encode(agents).decode()

    async def _lock(self, connection: Connection, node: str, key: int) -> bool:
        if node not in self._locked:
            ((locked,),) = await fetch(connection, "lock_node", key=key)
            if locked:
                self._locked.add(node)
        return node in self._locked

    async def _beat(self) -> None:
        if not self._nodes:
            # Also when the last one left while this waited for its turn.
            return
        connection = await self._live()
        async with asyncio.timeout(_CALL_SECONDS):
            for node, (key, _) in self._nodes.items():
                await self._lock(connection, node, key)
            keys, agents = zip(*self._nodes.values(), strict=True)
            await fetch(connection, "beat", nodes=list(self._nodes), keys=keys, agents=agents)

    async def _leave(self, nodes: list[str]) -> None:
        connection = await self._live()
        await fetch(connection, "leave", nodes=nodes)
        for node in nodes:
            joined = self._nodes.pop(node, None)
            if joined is not None and node in self._locked:
                self._locked.discard(node)
                await fetch(connection, "unlock_node", key=joined[0])


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
    # A negative uptime shows that the clock of the database was set back since its start.
    if not calm or 0 <= signs.up_ms < GRACE_SECONDS * 1000:
        return True
    if signs.silent_ms > ttl_ms:
        return False
    if signs.locked or signs.connected or not signs.named:
        return True
    return None


class PostgresNodes(Nodes):
    """A node is dead if it never joined, has left, lost all its sessions, or was silent for too long."""

    def __init__(self, database: Database, liveness: Liveness, ttl_s: float) -> None:
        super().__init__(database)
        self._liveness = liveness
        self._ttl_ms = round(ttl_s * 1000)
        self._searched = -SEARCH_SECONDS
        # The last beat of each node that was seen, and when, in seconds of the monotonic clock.
        self._heard: dict[str, tuple[int, float]] = {}

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
        found = (await self._judged()).get(node)
        return found is not None and found[0]

    async def dead(self) -> list[str]:
        """The nodes that are known and dead."""
        return [node for node, (alive, _) in (await self._judged()).items() if not alive]

    async def list(self) -> list[NodeRecord]:
        """See `Nodes`."""
        found = await self._judged()
        return [
            NodeRecord(node, tuple(signs.agents), alive, signs.beat)
            for node, (alive, signs) in sorted(found.items())
            if not signs.gone
        ]

    async def orphans(self, agents: Sequence[str], limit: int = 100, *, timed: bool = True) -> list[Orphan]:
        """See `Nodes`."""
        search = time.monotonic() - self._searched >= SEARCH_SECONDS
        rows = await self._database.rows(
            "orphans",
            agents=agents,
            # Nobody's tasks among them: those that a node has released.
            dead=["", *await self.dead()],
            search=search,
            now=self._database.now_ms() if timed else AT_ONCE,
            limit=limit,
        )
        # While there are some, the next look is a search again.
        if search and not rows:
            self._searched = time.monotonic()
        return [orphan(*row) for row in rows]

    async def waiting(self, tenant: str | None = None, limit: int = 100, after: str = "") -> list[Waiting]:
        """See `Nodes`."""
        found = await self._judged()
        carried = [agent for alive, signs in found.values() if alive for agent in signs.agents]
        rows = await self._database.rows("waiting", tenant, carried=carried, limit=limit, after=after)
        return [Waiting(of, task_id, agent, STATES[state]) for of, task_id, agent, state in rows]

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
        found = self._timed([NodeSigns(*row) for row in rows])
        # Asked only now: whoever sees its own lock free, or took it anew, was cut before it looked.
        liveness = self._liveness
        cut = any(liveness.holds(signs.node) and not signs.locked for signs in found)
        calm = not cut and not liveness.lost_lately()
        return {signs.node: (lives(signs, ttl_ms=self._ttl_ms, calm=calm), signs) for signs in found}

    def _timed(self, found: Sequence[NodeSigns]) -> list[NodeSigns]:
        """Return the signs with the silence that passed here since the last beat.

        The clock of the database may be set meanwhile. Only the first look at a node relies on it.
        """
        at = time.monotonic()
        first = [(signs.beat, at - signs.silent_ms / 1000) for signs in found]
        known = [self._heard.get(signs.node, one) for signs, one in zip(found, first, strict=True)]
        self._heard = {
            signs.node: (signs.beat, since if signs.beat == beat else at)
            for signs, (beat, since) in zip(found, known, strict=True)
        }
        return [signs._replace(silent_ms=round((at - self._heard[signs.node][1]) * 1000)) for signs in found]
