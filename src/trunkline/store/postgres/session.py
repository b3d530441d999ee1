"""One session that is kept: lost, it is dialled again in the background until it is back.

Whoever needs it waits a moment for it and no longer, so that an outage is an error and never a queue.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from trunkline.errors import StoreError
from trunkline.store.postgres.address import DatabaseAddress

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

# How long after a loss callers are kept waiting; after that they are refused at once until it is back.
PATIENCE = 0.65
_DIAL_SECONDS = 2.0
_PAUSES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


class KeptSession:
    """The writer's session."""

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
