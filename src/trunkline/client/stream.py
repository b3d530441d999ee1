"""A stream of updates that goes on by itself when the connection breaks."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from types import TracebackType

from trunkline.client.assembler import Assembler, Update
from trunkline.client.result import Result
from trunkline.client.session import AgentSession
from trunkline.client.stream_engine import StreamEngine
from trunkline.client.transport import Pace
from trunkline.config import LONGEST_S
from trunkline.errors import Misuse
from trunkline.net.http import Headers
from trunkline.wire.types import SendRequest


class Stream:
    """The updates of one answer, as an async iterator; `finish` reads them all and gives the result.

    It opens at the first step. Leave it by its context, by `close` or by reading to its end.
    """

    def __init__(
        self,
        session: AgentSession,
        *,
        request: SendRequest | None = None,
        known: Assembler | None = None,
        headers: Headers = (),
        timeout_s: float | None = None,
        deadline: float | None = None,
        through_questions: bool = False,
    ) -> None:
        self._engine = StreamEngine(session, request, known, headers, through_questions)
        # An update that is there without waiting; None if there is none.
        self.at_hand = self._engine.at_hand
        # With a timeout the stream has a clock of its own; a deadline is kept by whoever gives it.
        # The longest there is stands for none.
        self._engine.timeout_s = None if timeout_s == LONGEST_S else timeout_s
        self._engine.deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._is_read = False
        # Whom the clock stops.
        self._reader: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._listener: Callable[[Result], None] | None = None

    def __aiter__(self) -> Stream:
        return self

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def result(self) -> Result | None:
        """The answer as far as it has come; None before the first frame."""
        return self._engine.assembler.result()

    @property
    def task_id(self) -> str:
        """The id of the task; empty before the first frame, and where the answer is a message."""
        return "" if self._engine.assembler.message is not None else self._engine.assembler.task_id

    @property
    def context_id(self) -> str:
        """The id of its context, as far as it was told."""
        return self._engine.assembler.context_id

    def send_whole(self) -> None:
        """Ask for the whole answer at once, though the agent has streams; before the first step only."""
        self._engine.streams = False

    def pace_by(self, pace: Pace) -> None:
        """Have `pace` called with the number of lines that came; before the first step only."""
        self._engine.pace = pace

    def at_end(self, listener: Callable[[Result], None]) -> None:
        """Tell somebody what came, when the stream is read to its end or closed."""
        self._listener = listener

    async def finish(self) -> Result:
        """Read to the end.

        Raises:
            Refused: the agent will not do it.
            Unreachable: it was lost, and could not be found again in time.
            Unreadable: what it answers is no A2A.
        """
        if not self._engine.over or self._engine.ready:
            async for _ in self:
                pass
        found = self.result
        if found is None:
            raise Misuse("this stream was closed before anything came; read it before closing it")
        return found

    async def close(self) -> None:
        """Let go of the connection; the task goes on. May be called twice."""
        engine = self._engine
        engine.over = True
        engine.ready.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        listener, self._listener = self._listener, None
        found = None if listener is None else self.result
        if listener is not None and found is not None:
            listener(found)
        if engine.source is not None:
            await engine.drop()

    async def __anext__(self) -> Update:
        engine = self._engine
        ready = self.at_hand()
        if ready is not None:
            return ready
        if engine.over:
            await self.close()
            raise StopAsyncIteration
        if self._is_read:
            raise Misuse("this stream is already being read; one reader at a time")
        self._is_read = True
        try:
            if engine.timeout_s is not None:
                self._watch_clock(engine.timeout_s)
            found = await engine.next()
        except BaseException as error:
            await self.close()
            if isinstance(error, asyncio.CancelledError) and self._is_late():
                raise engine.late() from None
            raise
        finally:
            self._is_read = False
            self._reader = None
        if found is None:
            await self.close()
            raise StopAsyncIteration
        return found

    def _watch_clock(self, timeout_s: float) -> None:
        self._reader = asyncio.current_task()
        if self._timer is None:
            loop, engine = asyncio.get_running_loop(), self._engine
            engine.deadline = loop.time() + timeout_s
            # Only weakly: a stream that nobody reads any more must not live on for its timer.
            self._timer = loop.call_at(engine.deadline, _expire, weakref.ref(self))

    def expire(self) -> None:
        """Time is up. Where the end is known already, there is nothing more to wait for."""
        self._engine.expired = True
        reader = self._reader
        if reader is not None and not self._engine.closing:
            self._cancelling = reader.cancelling()
            reader.cancel()

    def _is_late(self) -> bool:
        """Whether it was our own clock that cancelled the reader."""
        reader = self._reader
        return self._engine.expired and reader is not None and reader.uncancel() <= self._cancelling


def _expire(stream: Callable[[], Stream | None]) -> None:
    found = stream()
    if found is not None:
        found.expire()
