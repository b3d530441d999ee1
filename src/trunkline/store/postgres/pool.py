"""A few sessions for reads and small changes.

Each remembers the tenant it is set to, which row-level security goes by. A call waits a second for a
free one and no longer; with the database away it fails at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from trunkline.errors import StoreError
from trunkline.store.postgres.address import DATABASE_ERRORS, EVERY_TENANT, DatabaseAddress, is_data, is_loss
from trunkline.store.postgres.session import hang_up
from trunkline.store.postgres.statements import SQL

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

T = TypeVar("T")
SIZE = 4
WAIT_SECONDS = 0.9
LOOK_SECONDS = 3.0
_SET_TENANT = SQL["set_tenant"].text


class _Seat:
    """A session, and the tenant it is set to."""

    __slots__ = ("connection", "tenant")

    def __init__(self, connection: Connection, tenant: str) -> None:
        self.connection = connection
        self.tenant = tenant


class Pool:
    """At most `size` sessions, dialled when they are needed; one that failed is thrown away."""

    def __init__(self, address: DatabaseAddress, size: int = SIZE) -> None:
        self._address = address
        self._free: list[_Seat] = []
        self._places = asyncio.Semaphore(size)
        self._users = 0
        self._empty: asyncio.Event | None = None
        self._away = False

    async def look(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a call that reads; again on another session if its own was lost.

        Raises:
            StoreError: there is no session, or the statement failed.
        """
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await self._use(tenant, call, again=True)
        except TimeoutError:
            raise StoreError(f"the store did not answer within {LOOK_SECONDS} s") from None

    async def change(self, call: Callable[[Connection], Awaitable[T]], tenant: str = EVERY_TENANT) -> T:
        """Run a call that writes, once: what became of it is not known when its session is lost.

        Raises:
            StoreError: there is no session, or the statement failed.
        """
        return await self._use(tenant, call, again=False)

    async def close(self) -> None:
        """Wait for those who were let in, then end all sessions."""
        if self._users:
            self._empty = asyncio.Event()
            await self._empty.wait()
        for seat in self._free:
            await hang_up(seat.connection)
        self._free.clear()

    async def _use(self, tenant: str, call: Callable[[Connection], Awaitable[T]], *, again: bool) -> T:
        self._users += 1
        try:
            if self._places.locked():
                await self._wait()
            else:
                await self._places.acquire()
            try:
                return await self._run(tenant, call, again=again)
            finally:
                self._places.release()
        finally:
            self._users -= 1
            if not self._users and self._empty is not None:
                self._empty.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise StoreError(f"the store is busy: no free connection for {WAIT_SECONDS} s") from None

    async def _run(self, tenant: str, call: Callable[[Connection], Awaitable[T]], *, again: bool) -> T:
        while True:
            fresh = not any(not seat.connection.is_closed() for seat in self._free)
            seat = await self._seat(tenant)
            try:
                if seat.tenant != tenant:
                    await seat.connection.fetchval(_SET_TENANT, tenant)
                    seat.tenant = tenant
                result = await call(seat.connection)
            except BaseException as error:
                if _keeps_session(error):
                    self._free.append(seat)
                else:
                    seat.connection.terminate()
                if is_loss(error) and again and not fresh:
                    continue
                if is_data(error) or isinstance(error, DATABASE_ERRORS):
                    raise StoreError(f"the store could not do it: {self._address.told(error)}") from error
                raise
            self._free.append(seat)
            return result

    async def _seat(self, tenant: str) -> _Seat:
        self._free = [seat for seat in self._free if not seat.connection.is_closed()]
        for place, seat in enumerate(self._free):
            if seat.tenant == tenant:
                return self._free.pop(place)
        if self._free:
            return self._free.pop(0)
        # The tenant is set by a statement, never by the start of a session, whose settings end at a NUL.
        return _Seat(await self._dial(), EVERY_TENANT)

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
