"""Sessions of a PostgreSQL store, and the named statements that they run.

The writer's is kept, so that an outage is an error and never a queue; a few more serve reads and small
changes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from trunkline.errors import StoreError
from trunkline.store.postgres.address import DATABASE_ERRORS, EVERY_TENANT, DatabaseAddress, is_data, is_loss
from trunkline.store.statements import statements

if TYPE_CHECKING:
    from asyncpg import Record

    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

T = TypeVar("T")
Value = object

SIZE = 4
WAIT_SECONDS = 0.9
READ_SECONDS = 3.0
# For whoever reads everything: pages are small, but a disk may be slow, and so may whoever takes an export.
SNAPSHOT_SECONDS = 600.0
# How long after a loss callers are kept waiting; after that they are refused at once until it is back.
PATIENCE = 0.65
_DIAL_SECONDS = 2.0
_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Statement:
    """A text for the driver, and the names of its parameters, numbered as they first appear."""

    __slots__ = ("names", "text")

    def __init__(self, text: str) -> None:
        self.names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        self.text = _PARAMETER.sub(lambda found: numbers[found[1]], text)

    def values(self, given: Mapping[str, Value]) -> list[Value]:
        """What is given, in the order of the parameters."""
        return [given[name] for name in self.names]


# Those that are put together from several are as many as there are filters.
_statement = lru_cache(maxsize=512)(Statement)
TEXTS = statements("postgres")
SQL: Mapping[str, Statement] = {name: _statement(text) for name, text in TEXTS.items()}
_SET_TENANT = SQL["set_tenant"].text


async def fetch(connection: Connection, name: str, **values: Value) -> list[Record]:
    """The rows of a named statement."""
    return await fetch_text(connection, TEXTS[name], **values)


async def fetch_text(connection: Connection, text: str, **values: Value) -> list[Record]:
    """The rows of a statement."""
    statement = _statement(text)
    return await connection.fetch(statement.text, *statement.values(values))


class KeptSession:
    """The writer's session: lost, it is dialled again in the background until it is back.

    Whoever needs it waits a moment for it and no longer.
    """

    def __init__(self, address: DatabaseAddress, role: str) -> None:
        self._address = address
        self._role = role
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._reason = ""

    def begin(self, connection: Connection) -> None:
        """Start with a session that is there."""
        self._connection = connection

    async def live(self, deadline: float | None = None) -> Connection:
        """The session, or one that comes within the patience left since the loss, or before the deadline.

        Raises:
            StoreError: there is none; says why.
        """
        if self._connection is not None and self._connection.is_closed():
            self.lose(self._connection, "the connection was closed")
        if self._connection is None and self._dialling is not None:
            until = self._lost_at + PATIENCE
            until = until if deadline is None else min(until, deadline)
            if (left := until - asyncio.get_running_loop().time()) > 0:
                await asyncio.wait({self._dialling}, timeout=left)
        if self._connection is None:
            raise StoreError(self._reason)
        return self._connection

    def lose(self, connection: Connection, reason: str) -> None:
        """Give a session up and dial anew."""
        connection.terminate()
        if connection is not self._connection:
            return
        _logger.error("store.failed reason=%s", reason)
        self._connection, self._reason = None, reason
        self._lost_at = asyncio.get_running_loop().time()
        self._dialling = asyncio.create_task(self._dial())

    async def close(self) -> None:
        """End the session."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling})
        if self._connection is not None:
            await hang_up(self._connection)
            self._connection = None

    async def _dial(self) -> None:
        attempt = 0
        while self._connection is None:
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1
            try:
                self._connection = await self._address.connect(self._role, seconds=_DIAL_SECONDS)
            except StoreError as error:
                self._reason = str(error)
        seconds = asyncio.get_running_loop().time() - self._lost_at
        _logger.warning("store.back after_s=%.2f", seconds)


async def hang_up(connection: Connection) -> None:
    """Say goodbye to the server, or go without."""
    try:
        await connection.close(timeout=1.0)
    except Exception as error:  # noqa: BLE001 - it is over in any case
        _logger.debug("store.close reason=%s", type(error).__name__)
        connection.terminate()


class Snapshot:
    """One session in one transaction that only reads: all of it sees the store as it stood at the beginning.

    It is for whoever reads everything. Statements may take long, and calls take turns.
    """

    def __init__(self, address: DatabaseAddress, connection: Connection) -> None:
        self._address = address
        self._session = _TenantSession(connection, EVERY_TENANT)
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """Take the moment."""
        await self._session.connection.execute(TEXTS["begin_snapshot"])

    async def read(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a call that only reads, for one tenant.

        Raises:
            StoreError: the statement failed, or the session was lost: another one would see another moment.
        """
        async with self._turn:
            try:
                return await self._session.run(tenant, call)
            except (*DATABASE_ERRORS, ValueError) as error:
                raise StoreError(f"the store could not do it: {self._address.told(error)}") from error

    async def close(self) -> None:
        """End the session."""
        await hang_up(self._session.connection)


class _TenantSession(Struct, eq=False):
    """A session, and the tenant it is set to, which row-level security goes by."""

    connection: Connection
    tenant: str

    async def run(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a call as this tenant."""
        if self.tenant != tenant:
            await self.connection.fetchval(_SET_TENANT, tenant)
            self.tenant = tenant
        return await call(self.connection)


class Pool:
    """A few sessions for reads and small changes, dialled when they are needed.

    A call waits a second for a free one and no longer; with the database away it fails at once. A session
    that failed is thrown away.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        self._address = address
        self._free: list[_TenantSession] = []
        self._places = asyncio.Semaphore(SIZE)
        self._away = False

    async def read(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a call that reads; again on another session if its own was lost.

        Raises:
            StoreError: there is no session, or the statement failed.
        """
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await self._use(tenant, call, again=True)
        except TimeoutError:
            raise StoreError(f"the store did not answer within {READ_SECONDS} s") from None

    async def change(self, call: Callable[[Connection], Awaitable[T]], tenant: str = EVERY_TENANT) -> T:
        """Run a call that writes, once: what became of it is not known when its session is lost.

        Raises:
            StoreError: there is no session, or the statement failed.
        """
        return await self._use(tenant, call, again=False)

    async def close(self) -> None:
        """Wait for those who were let in, then end all sessions."""
        for _ in range(SIZE):
            # Places are given in the order in which they were asked for.
            await self._places.acquire()
        for session in self._free:
            await hang_up(session.connection)
        self._free.clear()

    async def _use(self, tenant: str, call: Callable[[Connection], Awaitable[T]], *, again: bool) -> T:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise StoreError(f"the store is busy: no free connection for {WAIT_SECONDS} s") from None
        try:
            return await self._run(tenant, call, again=again)
        finally:
            self._places.release()

    async def _run(self, tenant: str, call: Callable[[Connection], Awaitable[T]], *, again: bool) -> T:
        while True:
            fresh = not any(not session.connection.is_closed() for session in self._free)
            session = await self._take(tenant)
            try:
                result = await session.run(tenant, call)
            except BaseException as error:
                if _keeps_session(error):
                    self._free.append(session)
                else:
                    session.connection.terminate()
                if is_loss(error) and again and not fresh:
                    continue
                if is_data(error) or isinstance(error, DATABASE_ERRORS):
                    raise StoreError(f"the store could not do it: {self._address.told(error)}") from error
                raise
            self._free.append(session)
            return result

    async def _take(self, tenant: str) -> _TenantSession:
        if (session := self._free_session(tenant)) is not None:
            return session
        # The tenant is set by a statement, never by the start of a session, whose settings end at a NUL.
        try:
            return _TenantSession(await self._dial(), EVERY_TENANT)
        except StoreError:
            # A burst dials for every place at once, which a busy machine may not manage in time.
            if (session := self._free_session(tenant)) is not None:
                return session
            raise

    def _free_session(self, tenant: str) -> _TenantSession | None:
        """A live session that nobody uses, set to this tenant already if there is such a one."""
        self._free = [session for session in self._free if not session.connection.is_closed()]
        for place, session in enumerate(self._free):
            if session.tenant == tenant:
                return self._free.pop(place)
        return self._free.pop(0) if self._free else None

    async def _dial(self) -> Connection:
        try:
            connection = await self._address.connect("reader", seconds=WAIT_SECONDS)
        except StoreError as error:
            # Once per outage: every read that comes meanwhile is told for itself.
            if not self._away:
                _logger.error("store.failed reason=%s", error)
            self._away = True
            raise
        if self._away:
            _logger.warning("store.back")
        self._away = False
        return connection


def _keeps_session(error: BaseException) -> bool:
    """Whether it is ours, or the server's no to one statement; anything else leaves a session in doubt."""
    return (
        isinstance(error, StoreError)
        or is_data(error)
        or (isinstance(error, DATABASE_ERRORS) and not is_loss(error))
    )
