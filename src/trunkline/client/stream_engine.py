"""Goes after one answer, step by step, until it rests: sends, reads, finds again what was lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import cast

from msgspec.structs import replace

from trunkline.client.assembler import Assembler, Update
from trunkline.client.resume import (
    LOST_TIMES,
    ResumePoint,
    ResumeStep,
    cannot_stream,
    is_refusal,
    keeps_nothing,
    poll_pause_s,
)
from trunkline.client.session import FAILURES, AgentSession, Attempts, out_of_time, with_task
from trunkline.client.size_limit import LIMIT
from trunkline.client.transport import Frame, Pace
from trunkline.errors import RouteNotFound, TaskNotFound, TimedOut, TrunklineError, Unreachable
from trunkline.net.http import Headers
from trunkline.wire.types import RESTING, ArtifactUpdate, SendRequest, Task, TaskQuery

log = logging.getLogger("trunkline.client")
# How long to wait for a stream to close after its task has ended: what comes late still counts.
_CLOSING_S = 0.25
# A stream that breaks off sooner than this, again and again, is opened again ever more slowly.
_SHORT_S = 1.0
# What has come from a source that does not tell; nothing can be put into it.
_UNTOLD: deque[Frame] = deque(maxlen=0)


class StreamEngine:
    """Reads one answer to its end: by its stream, and after a break by whatever finds more of it."""

    def __init__(
        self,
        session: AgentSession,
        request: SendRequest | None,
        known: Assembler | None,
        headers: Headers,
        through_questions: bool,
    ) -> None:
        self.assembler = Assembler() if known is None else known
        # What has come and was not yet given.
        self.ready: deque[Update] = deque()
        self.over = False
        # The end is known; what still comes is only read.
        self.closing = False
        # Whoever waits keeps the time: until when there is some, of how much, and whether it is up.
        self.deadline: float | None = None
        self.timeout_s: float | None = None
        self.expired = False
        # Whether to read a stream where the agent has streams.
        self.streams = True
        # Called as lines come, to slow an agent that sends many.
        self.pace: Pace | None = None
        self._session = session
        self._request = request
        self._headers = headers
        # A subscription is held open while the agent waits for an answer; a send ends there.
        self._through = through_questions
        self._resume: ResumePoint | None = None
        self._attempts: Attempts | None = None
        self.source: AsyncIterator[Frame] | None = None
        self._opened_at = 0.0
        # What has come from it, where it tells.
        self._come = _UNTOLD
        self._recovered = False
        # Whether something may have come before the first frame, which only a snapshot would tell.
        self._blind = request is None
        # Whether the first frame may show the task as it was before it was answered.
        self._answering = request is not None and bool(request.message.task_id)
        self._polls = 0
        self._missed = 0

    def at_hand(self) -> Update | None:
        """An update that is there without waiting: frames come many at a time and are taken one by one."""
        ready, come, assembler = self.ready, self._come, self.assembler
        while not ready:
            if not come or self.closing or self.expired:
                return None
            frame = come[0]
            found = None if assembler.run is None else assembler.more(frame)
            if found is None:
                if assembler.size.total > LIMIT or assembler.is_foreign(frame):
                    return None
                self._take(frame)
            come.popleft()
            if found is not None:
                return found
        return ready.popleft()

    async def next(self) -> Update | None:
        """The next update; None at the end."""
        if self._resume is None:
            if self._session.negotiation.transport is None:
                await self._session.ready(self.deadline)
            if self._request is not None and self._request.push is not None:
                await self._session.check_push()
            self._resume = self._first_step()
        size = self.assembler.size
        while True:
            if self.expired and not (self.over or self.closing):
                raise self.late()
            if size.total > LIMIT and not self.over:
                error = Unreachable(f"the agent's answer is over {LIMIT} bytes", reason="size")
                raise with_task(error, self.assembler.task_id)
            source = self.source
            if source is None:
                if self.over:
                    return None
                await self._move()
            elif self.closing:
                await self._drain(source)
            else:
                try:
                    self._take(await source.__anext__())
                except StopAsyncIteration:
                    await self._stopped(None)
                except FAILURES as error:
                    await self._stopped(error)
            if self.ready:
                return self.ready.popleft()

    async def drop(self) -> None:
        """Let go of the connection."""
        source, self.source = self.source, None
        self._come = _UNTOLD
        self.assembler.pause()
        close = getattr(source, "aclose", None)
        if close is not None:
            try:
                await close()
            except FAILURES:
                # It is let go of all the same.
                pass

    def late(self) -> TimedOut:
        """The error when the time of a stream is up."""
        message = "" if self._request is None else self._request.message.message_id
        return out_of_time(self.timeout_s or 0, self.assembler.task_id, message)

    def _first_step(self) -> ResumePoint:
        streams = self.streams and self._session.streams
        if self._request is not None:
            step = ResumeStep.STREAM if streams else ResumeStep.SEND
        elif self.assembler.last_id:
            step = ResumeStep.RESUME
        else:
            # Whoever waits for the end and nothing else need not risk what a second stream does to the task.
            follows = streams and (self._through or self._session.follows_safely)
            step = ResumeStep.SUBSCRIBE if follows else ResumeStep.POLL
        return ResumePoint(step, streams, self._session.options.retries)

    async def _move(self) -> None:
        """Take the step that the resume is at."""
        resume = self._resume
        assert resume is not None
        if resume.step is ResumeStep.POLL:
            await self._poll()
            return
        if resume.step is ResumeStep.SEND:
            await self._ask()
            return
        if resume.step is ResumeStep.STREAM:
            request = cast("SendRequest", self._request)
            transport, call = await self._session.enter(self._headers, request.message.message_id)
            self._follow(transport.stream(request, replace(call, pace=self.pace)))
            return
        query = TaskQuery(self.assembler.task_id)
        try:
            transport, call = await self._session.enter(self._headers)
        except FAILURES as error:
            await self._resume_after(error)
            return
        call = replace(call, pace=self.pace)
        if resume.step is ResumeStep.RESUME:
            self._follow(transport.subscribe(query, call, after=self.assembler.last_id))
        else:
            self._blind = True
            self._follow(transport.subscribe(query, call))

    def _follow(self, source: AsyncIterator[Frame]) -> None:
        self._opened_at = asyncio.get_running_loop().time()
        self.source = source
        self._come = getattr(source, "come", _UNTOLD)

    def _take(self, frame: Frame) -> None:
        assembler, resume, kind = self.assembler, self._resume, type(frame.notice.answer)
        assert resume is not None
        told = assembler.take(frame)
        opening, self._answering = self._answering and not frame.notice.final, False
        if self._blind:
            self._blind = False
            assembler.damaged = assembler.damaged or kind is not Task
        if not told:
            return
        # A snapshot alone is no progress: an agent may give one and break off for ever.
        if not resume.moved and (resume.step is ResumeStep.STREAM or kind is not Task):
            resume.moved = True
            self._session.fine()
        self.ready.extend(told)
        # A piece of an artifact never is the end, nor is the word that a task goes on.
        state = told[-1].state
        if kind is not ArtifactUpdate and (state is None or state in RESTING):
            self.closing = self.closing or (assembler.ended if self._through or opening else assembler.rests)

    async def _drain(self, source: AsyncIterator[Frame]) -> None:
        """Read what still comes, so that the connection can be used again; the end itself is known."""
        # Where all has come there is nothing to wait for.
        if self._come or not getattr(source, "is_over", False):
            try:
                async with asyncio.timeout(_CLOSING_S):
                    async for frame in source:
                        self._take(frame)
            except (TimeoutError, *FAILURES):
                # Something may have been on its way that belongs before the end.
                self._recovered = True
        await self.drop()
        self.closing = False
        if self.assembler.rests:
            if self._ends_in_doubt():
                await self._settle()
            return
        # What came last says that it goes on.
        await self._resume_after(Unreachable("the stream ended before the task did", reason="protocol"))

    async def _stopped(self, error: TrunklineError | None) -> None:
        """The source has ended: well, or too soon."""
        await self.drop()
        assembler = self.assembler
        # Where the agent waits for an answer it may close a subscription too.
        if error is None and assembler.rests:
            if self._ends_in_doubt():
                await self._settle()
            return
        if error is None:
            error = Unreachable("the stream ended before the task did", reason="protocol")
        resume = cast("ResumePoint", self._resume)
        if resume.step is ResumeStep.STREAM and not assembler.begun:
            await self._not_begun(error)
            return
        await self._resume_after(error)

    async def _not_begun(self, error: TrunklineError) -> None:
        """Recover from an error before anything has come, when it is not known whether anything runs."""
        resume = cast("ResumePoint", self._resume)
        if cannot_stream(error) and await self._session.negotiation.understands():
            resume.step = ResumeStep.SEND
            return
        message = cast("SendRequest", self._request).message
        attempts = self._attempts = self._attempts or Attempts()
        try:
            await self._session.recover(
                error, attempts, deadline=self.deadline, message_id=message.message_id
            )
        except RouteNotFound:
            if not cannot_stream(error):
                raise
            # Whoever lacks streams may have nothing but the plain way, and knows of no tasks either.
            resume.step = ResumeStep.SEND

    async def _resume_after(self, error: TrunklineError) -> None:
        """The task is known and will be found again."""
        options = self._session.options
        if not options.retries and not is_refusal(error):
            raise with_task(error, self.assembler.task_id)
        resume, assembler = cast("ResumePoint", self._resume), self.assembler
        log.info(
            "client.stream.broken task=%a step=%s why=%a", assembler.task_id, resume.step.value, str(error)
        )
        self._session.failed(error)
        self._recovered = True
        moved = not resume.broken(error, assembler.last_id)
        if moved and asyncio.get_running_loop().time() - self._opened_at >= _SHORT_S:
            self._attempts = None
        # What was refused is not asked again: the next step is another way, and no retry.
        elif moved or not is_refusal(error):
            attempts = self._attempts = self._attempts or Attempts()
            try:
                await self._session.rest(error, attempts, self.deadline)
            except FAILURES as given_up:
                raise with_task(given_up, assembler.task_id) from given_up

    async def _ask(self) -> None:
        """The whole answer at once, where there are no streams."""
        request = replace(cast("SendRequest", self._request), wait=True)
        notice = await self._session.call(
            lambda transport, call: transport.send(request, call),
            headers=self._headers,
            deadline=self.deadline,
            message_id=request.message.message_id,
        )
        self._take(Frame(notice))
        resume = cast("ResumePoint", self._resume)
        if not self.closing:
            resume.broken(None, "")
        elif self._ends_in_doubt():
            await self._settle()

    async def _poll(self) -> None:
        assembler = self.assembler
        if self._polls or self._missed:
            pause = poll_pause_s(self._session.options.poll_s, self._polls + self._missed)
            await asyncio.sleep(max(pause, self._session.closed_s))
        try:
            task = await self._read()
        except FAILURES as error:
            self._missed += 1
            if self._missed > self._patience(error):
                raise with_task(error, assembler.task_id) from error
            return
        self._missed = 0
        before = assembler.status
        told = assembler.settle(task)
        self._polls = self._polls + 1 if assembler.status == before else 1
        self.ready.extend(told)
        if assembler.rests:
            # It was read from where it is kept.
            assembler.doubtful = assembler.damaged = self._recovered = False
            self.over = True

    def _patience(self, error: TrunklineError) -> int:
        """How many polls in a row may fail like this before the task counts as lost."""
        if isinstance(error, TaskNotFound):
            return LOST_TIMES - 1 if self.assembler.begun else 0
        is_large = isinstance(error, Unreachable) and error.reason == "size"
        is_away = not is_large and (isinstance(error, Unreachable) or not is_refusal(error))
        return self._session.options.retries if is_away else 0

    def _ends_in_doubt(self) -> bool:
        """Note the end; whether the frames leave doubts about it."""
        self.over = True
        assembler = self.assembler
        if not assembler.task_id or assembler.message is not None:
            return False
        if assembler.doubtful or assembler.damaged or self._recovered or assembler.mute:
            return True
        # Who came late to it may have missed all that it made: not every agent's snapshot holds it.
        return self._request is None and assembler.bare

    async def _settle(self) -> None:
        """What the frames left in doubt is read from where it is kept."""
        assembler = self.assembler
        try:
            async with asyncio.timeout_at(self.deadline if self.timeout_s else None):
                self.ready.extend(assembler.settle(await self._read()))
        except TimeoutError:
            raise self.late() from None
        except FAILURES as error:
            if assembler.damaged or not keeps_nothing(error):
                raise with_task(error, assembler.task_id) from error
            # The stream has brought its end; an agent that forgets its tasks takes nothing from that.
            log.warning("client.stream.unchecked task=%a why=%a", assembler.task_id, str(error))

    async def _read(self) -> Task:
        query = TaskQuery(self.assembler.task_id)
        return await self._session.call(
            lambda transport, call: transport.get(query, call), headers=self._headers, deadline=self.deadline
        )
