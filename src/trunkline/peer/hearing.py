"""Reads what streams, and listens beside what takes long for a word that it is over elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from trunkline.client.result import Result
from trunkline.errors import Refused, TaskNotFound, Unreachable, Unreadable
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.peer")

# Most answers are there before it is worth listening: it begins when one has taken this long, or twice that.
LISTEN_S = 0.1

T = TypeVar("T")
Listen = Callable[[], Coroutine[Any, Any, None]]


class _Hearing:
    """One reading that takes long, and whoever listens beside it from now on."""

    __slots__ = ("_cancelling", "_interrupts", "_over", "_reader", "listener")

    def __init__(self, listen: Listen, reader: asyncio.Task[Any]) -> None:
        self._reader = reader
        self._cancelling = 0
        self._interrupts = self._over = False
        self.listener: asyncio.Task[None] = reader.get_loop().create_task(listen())
        self.listener.add_done_callback(self._interrupt)

    def _interrupt(self, listener: asyncio.Task[None]) -> None:
        if not (self._over or listener.cancelled()):
            self._interrupts = True
            self._cancelling = self._reader.cancelling()
            self._reader.cancel()

    def end(self) -> bool:
        """Stop listening; whether the reader was cancelled from here and by nobody else."""
        if self._over:
            return False
        self._over = True
        self.listener.cancel()
        return self._interrupts and self._reader.uncancel() <= self._cancelling


class LoginWatch:
    """Looks now and then whether an agent that waits for a login goes on: somebody has logged in there.

    `look` gives its task, `pause_ms` the time to the next look; what is new was heard of just now.
    """

    def __init__(
        self, look: Callable[[], Awaitable[Result]], pause_ms: Callable[[], int], *, is_new: bool
    ) -> None:
        self._look = look
        self._pause_ms = pause_ms
        self._is_new = is_new
        self.goes_on = False

    async def __call__(self) -> int:
        """Look; gives when to look again."""
        if not self._is_new:
            try:
                self.goes_on = (await self._look()).state is not TaskState.AUTH_REQUIRED
            except TaskNotFound:
                # Who follows it then finds out whether it is forgotten.
                self.goes_on = True
            except (Refused, Unreachable, Unreadable) as error:
                log.info("peer.unseen error=%a", str(error))
        self._is_new = False
        return self._pause_ms()


class Hearings:
    """The readings of one event loop, which share a timer: one for each would cost more than it is used."""

    __slots__ = ("_begun", "_loop", "_newer", "_older")

    def __init__(self) -> None:
        # The one in which the timer runs, if it does.
        self._loop: asyncio.AbstractEventLoop | None = None
        # By who reads: how to listen beside it, and who does.
        self._newer: dict[asyncio.Task[Any], Listen] = {}
        self._older: dict[asyncio.Task[Any], Listen] = {}
        self._begun: dict[asyncio.Task[Any], _Hearing] = {}

    async def read(self, reading: Coroutine[Any, Any, T], listen: Listen) -> T | None:
        """What is read; None where whoever listens has ended before. Raises what either of them raises."""
        reader = asyncio.current_task()
        assert reader is not None
        self._newer[reader] = listen
        if self._loop is None or self._loop is not reader.get_loop():
            self._loop = reader.get_loop()
            self._loop.call_later(LISTEN_S, self._tick, self._loop)
        try:
            return await reading
        except asyncio.CancelledError:
            hearing = self._begun.get(reader)
            if hearing is None or not hearing.end():
                raise
        finally:
            if self._newer.pop(reader, None) is None and self._older.pop(reader, None) is None:
                self._begun.pop(reader).end()
        hearing.listener.result()
        return None

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        due, self._older, self._newer = self._older, self._newer, {}
        for reader, listen in due.items():
            self._begun[reader] = _Hearing(listen, reader)
        if self._older:
            loop.call_later(LISTEN_S, self._tick, loop)
        else:
            self._loop = None
