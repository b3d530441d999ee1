"""A stream of updates that goes on by itself when the connection breaks."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import cast

from msgspec.structs import replace

from trunkline.client.follow import (
    LOST_TIMES,
    Step,
    Trail,
    cannot_stream,
    is_refusal,
    keeps_nothing,
    poll_pause_s,
)
from trunkline.client.gather import Gather, Update
from trunkline.client.peer import FAILURES, Attempts, Peer, out_of_time, with_task
from trunkline.client.result import Result
from trunkline.client.transport import Frame
from trunkline.errors import Misuse, TaskNotFound, TimedOut, TrunklineError, Unreachable
from trunkline.net.carrier import Headers
from trunkline.wire.types import SendRequest, Task, TaskQuery

log = logging.getLogger("trunkline.client")
# How long to wait for a stream to close after its task has ended: what comes late still counts.
_CLOSING_S = 0.25


class Stream:
    """The updates of one answer, as an async iterator; `finish` reads them all and gives the result.

    It opens at the first step. Leave it by its context, by `close` or by reading to its end.
    """

    def __init__(
        self,
        peer: Peer,
        *,
        request: SendRequest | None = None,
        known: Gather | None = None,
        headers: Headers = (),
        timeout_s: float | None = None,
        deadline: float | None = None,
        through_questions: bool = False,
    ) -> None:
        self._peer = peer
        self._request = request
        self._headers = headers
        self._timeout_s = timeout_s
        # A subscription is held open while the agent waits for an answer; a send ends there.
        self._through = through_questions
        self._gather = Gather() if known is None else known
        self._trail: Trail | None = None
        self._attempts = Attempts()
        self._ready: deque[Update] = deque()
        self._source: AsyncIterator[Frame] | None = None
        self._timer: asyncio.TimerHandle | None = None
        # With a timeout the stream has a clock of its own; a deadline is kept by whoever gives it.
        self._deadline = deadline
        self._reader: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired = False
        self._closing = False
        self._recovered = False
        # Whether something may have come before the first frame, which only a snapshot would tell.
        self._blind = request is None
        self._over = False
        self._streams = True
        self._polls = 0
        self._lost = 0
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
        return self._gather.result()

    def send_whole(self) -> None:
        """Ask for the whole answer at once, though the agent has streams; before the first step only."""
        self._streams = False

    async def finish(self) -> Result:
        """Read to the end.

        Raises:
            Refused: the agent will not do it.
            Unreachable: it was lost, and could not be found again in time.
            Unreadable: what it answers is no A2A.
        """
        async for _ in self:
            pass
        found = self._gather.result()
        if found is None:
            raise Misuse("this stream was closed before anything came; read it before closing it")
        return found

    async def close(self) -> None:
        """Let go of the connection; the task goes on. May be called twice."""
        self._over = True
        self._ready.clear()
        self._stop_clock()
        listener, self._listener = self._listener, None
        found = None if listener is None else self._gather.result()
        if listener is not None and found is not None:
            listener(found)
        await self._drop()

    def at_end(self, listener: Callable[[Result], None]) -> None:
        """Tell somebody what came, when the stream is read to its end or closed."""
        self._listener = listener

    def _start_clock(self) -> None:
        if self._timeout_s is not None and self._deadline is not None:
            loop = asyncio.get_running_loop()
            # Only weakly: a stream that nobody reads any more must not live on for its timer.
            self._timer = loop.call_at(self._deadline, _expire, weakref.ref(self))

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __anext__(self) -> Update:
        if self._ready:
            return self._ready.popleft()
        if self._reader is not None:
            raise Misuse("this stream is already being read; one reader at a time")
        self._reader = reader = asyncio.current_task()
        try:
            return await self._next()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            await self.close()
            if isinstance(error, asyncio.CancelledError) and self._is_late(reader):
                raise self._late() from None
            raise
        finally:
            self._reader = None

    async def _next(self) -> Update:
        if self._trail is None:
            await self._begin()
        while True:
            source = self._source
            if self._expired:
                raise self._late()
            if source is None:
                await self._move()
            elif self._closing:
                await self._drain(source)
            else:
                try:
                    self._take(await source.__anext__())
                except StopAsyncIteration:
                    await self._stopped(None)
                except FAILURES as error:
                    await self._stopped(error)
            if self._ready:
                return self._ready.popleft()

    async def _begin(self) -> None:
        """Start the clock and choose the first step."""
        if self._timeout_s is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.time() + self._timeout_s
            self._start_clock()
        await self._peer.ready(self._deadline)
        streams = self._streams and self._peer.streams
        if self._request is not None:
            step = Step.STREAM if streams else Step.SEND
        elif self._gather.last_id:
            step = Step.RESUME
        else:
            step = Step.SUBSCRIBE if streams else Step.POLL
        self._trail = Trail(step, streams=streams, retries=self._peer.options.retries)

    async def _move(self) -> None:
        """Take the step that the trail is at."""
        if self._over:
            await self.close()
            raise StopAsyncIteration
        trail = cast("Trail", self._trail)
        if trail.step is Step.POLL:
            await self._poll()
            return
        if trail.step is Step.SEND:
            await self._ask()
            return
        query = TaskQuery(self._gather.task_id)
        if trail.step is Step.STREAM:
            request = cast("SendRequest", self._request)
            transport, call = await self._peer.enter(self._headers, request.message.message_id)
            self._source = transport.stream(request, call)
            return
        transport, call = await self._peer.enter(self._headers)
        if trail.step is Step.RESUME:
            self._source = transport.subscribe(query, call, after=self._gather.last_id)
        else:
            self._blind = True
            self._source = transport.subscribe(query, call)

    def _take(self, frame: Frame) -> None:
        gather = self._gather
        told = gather.take(frame)
        if self._blind:
            self._blind = False
            gather.damaged = gather.damaged or type(frame.notice.answer) is not Task
        if not told:
            return
        trail = cast("Trail", self._trail)
        # A snapshot alone is no progress: an agent may give one and break off for ever.
        if not trail.moved and (trail.step is Step.STREAM or type(frame.notice.answer) is not Task):
            trail.moved = True
            self._peer.fine()
        self._ready.extend(told)
        if gather.ended if self._through else gather.rests:
            self._closing = True

    async def _drain(self, source: AsyncIterator[Frame]) -> None:
        """Read what still comes, so that the connection can be used again; the end itself is known."""
        self._stop_clock()
        with suppress(TimeoutError, *FAILURES):
            async with asyncio.timeout(_CLOSING_S):
                async for frame in source:
                    self._take(frame)
        await self._drop()
        if self._gather.rests:
            await self._settle()
            return
        # What came last says that it goes on, or came too late: ask.
        self._closing = False
        self._start_clock()
        cast("Trail", self._trail).step = Step.POLL

    async def _stopped(self, error: TrunklineError | None) -> None:
        """The source has ended: well, or too soon."""
        await self._drop()
        gather = self._gather
        # Where the agent waits for an answer it may close a subscription too.
        if error is None and gather.rests:
            await self._settle()
            return
        if error is None:
            error = Unreachable("the stream ended before the task did", reason="protocol")
        trail = cast("Trail", self._trail)
        if trail.step is Step.STREAM and not gather.begun:
            await self._not_begun(error)
            return
        await self._lost_way(error)

    async def _not_begun(self, error: TrunklineError) -> None:
        """Nothing has come yet, so that it is not known whether anything runs."""
        trail = cast("Trail", self._trail)
        if cannot_stream(error) and await self._peer.contact.understands():
            trail.step = Step.SEND
            return
        message = cast("SendRequest", self._request).message
        await self._peer.recover(
            error, self._attempts, deadline=self._deadline, message_id=message.message_id
        )

    async def _lost_way(self, error: TrunklineError) -> None:
        """The task is known and will be found again."""
        options = self._peer.options
        if not options.retries and not is_refusal(error):
            raise with_task(error, self._gather.task_id)
        trail, gather = cast("Trail", self._trail), self._gather
        log.info("client.stream.broken task=%a step=%s why=%a", gather.task_id, trail.step.value, str(error))
        self._peer.failed(error)
        self._recovered = True
        # What was refused is not asked again: the next step is another way, and no retry.
        if trail.broken(error, gather.last_id) and not is_refusal(error):
            await self._peer.pause(error, self._attempts, self._deadline)

    async def _ask(self) -> None:
        """The whole answer at once, where there are no streams."""
        request = replace(cast("SendRequest", self._request), wait=True)
        notice = await self._peer.call(
            lambda transport, call: transport.send(request, call),
            headers=self._headers,
            deadline=self._deadline,
            message_id=request.message.message_id,
        )
        self._take(Frame(notice))
        trail = cast("Trail", self._trail)
        if self._closing:
            await self._settle()
        else:
            trail.broken(None, "")

    async def _poll(self) -> None:
        gather = self._gather
        if self._polls or self._lost:
            await asyncio.sleep(poll_pause_s(self._peer.options.poll_s, self._polls))
        try:
            task = await self._read()
        except TaskNotFound:
            self._lost += 1
            if self._lost >= LOST_TIMES or not gather.begun:
                raise
            return
        except FAILURES as error:
            raise with_task(error, gather.task_id) from error
        self._lost = 0
        before = gather.status
        told = gather.settle(task)
        self._polls = self._polls + 1 if gather.status == before else 1
        self._ready.extend(told)
        if gather.rests:
            # It was read from where it is kept.
            gather.doubtful = gather.damaged = self._recovered = False
            self._over = True

    async def _settle(self) -> None:
        """The end: what the frames left in doubt is read from where it is kept."""
        self._over = True
        gather = self._gather
        found = gather.result()
        # Who came late to it may have missed all that it made: not every agent's snapshot holds it.
        bare = self._request is None and found is not None and not found.artifacts
        if not gather.task_id or gather.message is not None:
            return
        if not (gather.doubtful or gather.damaged or self._recovered or bare):
            return
        try:
            async with asyncio.timeout_at(self._deadline):
                self._ready.extend(gather.settle(await self._read()))
        except TimeoutError:
            raise self._late() from None
        except FAILURES as error:
            if gather.damaged or not keeps_nothing(error):
                raise with_task(error, gather.task_id) from error
            # The stream has brought its end; an agent that forgets its tasks takes nothing from that.
            log.warning("client.stream.unchecked task=%a why=%a", gather.task_id, str(error))

    async def _read(self) -> Task:
        query = TaskQuery(self._gather.task_id)
        return await self._peer.call(
            lambda transport, call: transport.get(query, call), headers=self._headers, deadline=self._deadline
        )

    async def _drop(self) -> None:
        source, self._source = self._source, None
        close = getattr(source, "aclose", None)
        if close is not None:
            with suppress(*FAILURES):
                await close()

    def expire(self) -> None:
        """Time is up."""
        self._expired = True
        reader = self._reader
        if reader is not None:
            self._cancelling = reader.cancelling()
            reader.cancel()

    def _is_late(self, reader: asyncio.Task[object] | None) -> bool:
        """Whether it was our own clock that cancelled the reader."""
        return self._expired and reader is not None and reader.uncancel() <= self._cancelling

    def _late(self) -> TimedOut:
        message = "" if self._request is None else self._request.message.message_id
        return out_of_time(self._timeout_s or 0, self._gather.task_id, message)


def _expire(stream: Callable[[], Stream | None]) -> None:
    found = stream()
    if found is not None:
        found.expire()
