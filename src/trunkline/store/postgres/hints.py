"""Hints between replicas: `NOTIFY` after a commit, `LISTEN` for those of others.

Never in the transaction that writes, where it would cost half the rate. Hints are gathered for two
milliseconds. All of it may be lost: readers look by themselves each second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from trunkline.clock import wait_event
from trunkline.errors import StoreError
from trunkline.store.hints import HintBroadcast
from trunkline.store.postgres.address import DATABASE_ERRORS, DatabaseAddress
from trunkline.store.postgres.sessions import fetch, hang_up
from trunkline.store.records import DocHint, Hint

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

GATHER_SECONDS = 0.002
# The server takes up to 8000 bytes.
PAYLOAD_BYTES = 7_900
MOST_HINTS = 2_000
_LOST = "poll"
_IDLE_SECONDS = 5.0
_DIAL_SECONDS = 2.0
_LONGEST_PAUSE = 1.0

# A task that has grown by its tenant, id and seq; or, without a tenant, a kind of documents.
_Grown = tuple[str, str, int]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Grown]).decode


class PostgresHints:
    """One session that tells the other replicas which logs have grown, and hears of theirs."""

    def __init__(
        self, address: DatabaseAddress, tasks: HintBroadcast[Hint], docs: HintBroadcast[DocHint]
    ) -> None:
        self._address = address
        self._tasks = tasks
        self._docs = docs
        self._pending: dict[tuple[str, str], _Grown] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._over = False
        self._pid = 0
        self._connected = False
        self._ready = asyncio.Event()

    async def start(self, seconds: float) -> None:
        """Begin; without a session for it the store works on, with a second's delay between replicas."""
        self._task = asyncio.create_task(self._run())
        if not await wait_event(self._ready, seconds):
            _logger.warning("hints.lost reason=no answer within %.0f s", seconds)

    async def stop(self) -> None:
        """Tell what is left, then hang up."""
        if self._task is None:
            return
        self._over = True
        self._wake.set()
        if self._connected:
            await asyncio.wait({self._task}, timeout=1.0)
        self._task.cancel()
        await asyncio.wait({self._task})

    def tell(self, grown: Iterable[_Grown]) -> None:
        """Tell the other replicas, soon."""
        for one in grown:
            self._pending[one[:2]] = one
        if self._pending:
            self._wake.set()

    async def _run(self) -> None:
        pause, lost = 0.05, False
        while not self._over:
            try:
                connection = await self._address.connect("hints", seconds=_DIAL_SECONDS)
                try:
                    self._pid = connection.get_server_pid()
                    await connection.add_listener(self._address.schema, self._heard)
                    connection.add_termination_listener(lambda _: self._wake.set())
                    if lost:
                        self._miss()
                    pause, lost = 0.05, False
                    self._connected = True
                    self._ready.set()
                    await self._serve(connection)
                finally:
                    self._connected = False
                    await hang_up(connection)
            except (*DATABASE_ERRORS, StoreError) as error:
                if not lost:
                    _logger.warning(
                        "hints.lost reason=%s; replicas hear of each other by looking, each second",
                        self._address.told(error),
                    )
                lost = True
                self._ready.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _serve(self, connection: Connection) -> None:
        while not connection.is_closed():
            if not await wait_event(self._wake, _IDLE_SECONDS):
                # A peer that vanished without a word is noticed by asking it something.
                await connection.fetchval("SELECT 1", timeout=2.0)
                continue
            self._wake.clear()
            if self._pending:
                payloads = list(payloads_of(list(self._pending.values())))
                self._pending.clear()
                async with asyncio.timeout(2.0):
                    await fetch(connection, "notify", channel=self._address.schema, payloads=payloads)
            if self._over:
                return
            await asyncio.sleep(GATHER_SECONDS)
        raise StoreError("the connection was closed")

    def _heard(self, _connection: object, pid: int, _channel: str, payload: object) -> None:
        if pid == self._pid or not (self._tasks.heard or self._docs.heard):
            return
        try:
            grown = _decode(str(payload))
        except msgspec.DecodeError:
            # It says so, or somebody else uses our channel.
            self._miss()
            return
        self._tasks.tell(Hint(*one) for one in grown if one[0])
        self._docs.tell(DocHint(kind) for tenant, kind, _ in grown if not tenant)

    def _miss(self) -> None:
        self._tasks.miss()
        self._docs.miss()


def payloads_of(grown: list[_Grown]) -> Iterator[str]:
    """What to notify of these, each short enough for the server; of too much, only that some are lost."""
    payload = _encode(grown)
    if len(payload) <= PAYLOAD_BYTES:
        yield payload.decode()
    elif len(grown) == 1 or len(grown) > MOST_HINTS:
        yield _LOST
    else:
        # Most are alike in length, so parts of this size fit; one that does not is cut again.
        size = max(1, len(grown) * PAYLOAD_BYTES // (len(payload) + PAYLOAD_BYTES))
        for start in range(0, len(grown), size):
            yield from payloads_of(grown[start : start + size])
