"""What an executor says on its way into the log: buffered, appended in order, one append in flight.

The log decides whether it still counts. An append whose outcome is not known is looked for before
it is tried again, so that a lost answer of the store neither loses nor doubles a word.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Coroutine
from typing import Protocol

from trunkline.errors import Conflict, Misuse, StoreError, TaskFull, TurnOver
from trunkline.log.decide import Emit, decide
from trunkline.log.events import AnyEvent, Status, decode, encode
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks

log = logging.getLogger("trunkline.run")
UNFLUSHED_LIMIT = 64
RETRY_S = 0.5


class Holder(Protocol):
    """Who holds the pen, and hears how its words fare."""

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something in the background."""
        ...

    def rested(self) -> None:
        """Everything that was said is in the log, or came too late."""
        ...

    def unheard(self) -> None:
        """The task has ended or moved, and nobody waited to be told so."""
        ...

    def verdict_on(self, error: Misuse | TaskFull) -> Status:
        """How the task ends because its executor's words cannot be recorded."""
        ...

    def interrupt(self, verdict: Status) -> bool:
        """Stop the executor."""
        ...


class _Nobody:
    """Holds the pen when its holder has left: nobody hears how the last words fare."""

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        work.close()

    def rested(self) -> None:
        pass

    def unheard(self) -> None:
        pass

    def verdict_on(self, error: Misuse | TaskFull) -> Status:
        raise error

    def interrupt(self, verdict: Status) -> bool:
        del verdict
        return False


_NOBODY = _Nobody()


class EventBuffer:
    """Writes the words of one executor."""

    __slots__ = (
        "_buffer",
        "_closed",
        "_decided",
        "_drained",
        "_expected",
        "_feed",
        "_held",
        "_holder",
        "_in_flight",
        "_loop",
        "_node",
        "_tasks",
        "_written",
        "busy",
        "unsaid",
    )

    def __init__(
        self, holder: Holder, feed: Feed, tasks: Tasks, node: str, *, loop: AbstractEventLoop, unsaid: bool
    ) -> None:
        # Whether something is in flight or about to be.
        self.busy = False
        # Whether the executor has not yet paused for the first time: all it says until then is one append.
        self.unsaid = unsaid
        self._holder: Holder = holder
        self._feed = feed
        self._tasks = tasks
        self._node = node
        self._loop = loop
        self._buffer: list[AnyEvent] = []
        self._in_flight: tuple[AnyEvent, ...] = ()
        self._decided: tuple[AnyEvent, ...] = ()
        self._expected = 0
        self._written = 0
        self._held = self._closed = False
        self._drained: list[tuple[int, Future[None]]] = []

    @property
    def unflushed(self) -> int:
        """How many events are not yet on their way."""
        return len(self._buffer)

    def put(self, event: AnyEvent) -> None:
        """Write with the next flush."""
        self._buffer.append(event)
        if not self.busy and not self.unsaid:
            self.busy = True
            self._loop.call_soon(self._flush)

    def put_now(self, event: AnyEvent) -> None:
        """Write at once, with what was said before, or as soon as what is in flight has landed."""
        self._buffer.append(event)
        self.flush()

    def put_only(self, event: AnyEvent) -> None:
        """Write this now, and nothing of what was said before and is not yet on its way."""
        self._buffer = [event]
        self._tell(TurnOver(f"task {self._feed.state.task_id} is being ended"))
        self.flush()

    def flush(self) -> None:
        """Begin to write what was said, unless that is under way."""
        if self._buffer and not self.busy:
            self._flush()

    async def drain(self) -> None:
        """Wait until everything said so far is durable.

        Raises:
            TurnOver: some of it came too late.
        """
        self.unsaid = False
        self.flush()
        if self.busy:
            drained: Future[None] = self._loop.create_future()
            self._drained.append((self._written + len(self._in_flight) + len(self._buffer), drained))
            await drained

    def close(self) -> None:
        """Write nothing more; what is in flight may still land."""
        self._closed = True
        self._buffer = []
        self._tell(TurnOver(f"task {self._feed.state.task_id} has been left"))

    def let_go(self) -> None:
        """The holder leaves. A circle of the two would cost a search for garbage, dearer than the task."""
        self._holder = _NOBODY

    def resume(self) -> bool:
        """Go on if a caller was let go first and has spoken; whether that was so."""
        if not self._held or self._feed.callers:
            return False
        self._held = False
        self._flush()
        return True

    def _flush(self) -> None:
        if self._closed:
            return
        self.busy = True
        if self._feed.callers:
            # A caller goes first and then wakes us; or a talkative skill would never hear it.
            self._held = True
            return
        if not self._in_flight:
            self._in_flight = tuple(self._buffer)
            self._buffer.clear()
        self._append()

    def _append(self) -> None:
        state = self._feed.state
        try:
            self._expected = state.seq
            self._decided = decide(state, Emit(self._node, self._in_flight))
            self._tasks.append(self._feed, self._decided, then=self._flushed)
        except TurnOver as over:
            self._come_late(over)
        except (Misuse, TaskFull) as error:
            # All that can still be recorded is that it failed.
            verdict = self._holder.verdict_on(error)
            self._in_flight = ()
            self._buffer = [verdict]
            self._tell(TurnOver(str(error)))
            self._flush()
            self._holder.interrupt(verdict)

    def _come_late(self, over: TurnOver) -> None:
        log.info("task.late task=%s events=%d", self._feed.state.task_id, len(self._in_flight))
        self._tasks.late += len(self._in_flight)
        self._in_flight = ()
        self._buffer.clear()
        told = self._tell(over)
        self._rest()
        if not told:
            self._holder.unheard()

    def _flushed(self, error: StoreError | None) -> None:
        if error is None:
            self._land()
        elif not self._closed:
            # Somebody spoke in between, or the store failed; it may recover (a full disk), and until
            # then back-pressure holds the executor.
            self._holder.spawn(self._look(error))

    def _land(self) -> None:
        self._written += len(self._in_flight)
        self._in_flight = ()
        if self._drained:
            self._tell_written()
        if self._buffer:
            self._flush()
        else:
            self._rest()

    async def _look(self, error: StoreError) -> None:
        task_id = self._feed.state.task_id
        if isinstance(error, Conflict) and self._expected and not error.actual:
            self._come_late(TurnOver(f"task {task_id} has ended elsewhere and is no longer kept"))
            return
        if not isinstance(error, Conflict):
            await self._wait("task.unwritten task=%s error=%s", task_id, error)
        while True:
            try:
                written = await self._is_written()
                break
            except StoreError as unread:
                await self._wait("task.unread task=%s error=%s", task_id, unread)
        if written:
            self._land()
            return
        if self._closed:
            self._come_late(TurnOver(f"task {task_id} has been left"))
            return
        if isinstance(error, Conflict) and self._feed.state.seq == self._expected:
            # A conflict with nothing: the store does not know what it holds, and asking faster does not help.
            await self._wait("task.unwritten task=%s error=%s", task_id, error)
        # Invariant: tried again as it was, with nothing added. The first try may still land, at the
        # same seq; only then is it found to be ours.
        self._flush()

    async def _wait(self, text: str, task_id: str, error: StoreError) -> None:
        log.error(text, task_id, error)
        await asyncio.sleep(RETRY_S)

    async def _is_written(self) -> bool:
        feed, expected = self._feed, self._expected
        await self._tasks.refresh(feed)
        records = feed.newer(expected)
        if records is None:
            log = self._tasks.store.log
            records = await log.read(feed.tenant, feed.state.task_id, expected, len(self._decided))
        found = [recorded.event for recorded in records[: len(self._decided)]]
        return found == decode(encode(self._decided))

    def _rest(self) -> None:
        self.busy = False
        self._holder.rested()

    def _tell_written(self) -> None:
        waiting, self._drained = self._drained, []
        for mark, drained in waiting:
            if mark > self._written:
                self._drained.append((mark, drained))
            elif not drained.done():
                drained.set_result(None)

    def _tell(self, error: BaseException) -> bool:
        """What was said is lost; whether anybody waited for it."""
        waiting, self._drained = self._drained, []
        told = False
        for _, drained in waiting:
            if not drained.done():
                told = True
                drained.set_exception(error)
        return told
