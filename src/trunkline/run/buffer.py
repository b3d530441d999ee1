"""Events of an executor on their way into the log: buffered, appended in order, one append in flight.

The log decides whether it still counts. An append whose outcome is not known is looked for before
it is tried again, so that a lost answer of the store neither loses nor doubles a word.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable

from trunkline.errors import Conflict, Misuse, StoreError, TaskFull, TurnOver
from trunkline.log.decide import Emit, decide
from trunkline.log.encoding import decode, encode
from trunkline.log.events import AnyEvent, Status
from trunkline.run.feed import Feed
from trunkline.run.node import Node

log = logging.getLogger("trunkline.run")
UNFLUSHED_LIMIT = 64
RETRY_S = 0.5


class EventBuffer:
    """Events of one executor that are not yet in the log, and the append that is in flight.

    It tells its owner two things: `settled`, when nothing is left to append (and whether the last of it
    came too late without anybody having waited for it), and `refused`, when the events are such that no
    log takes them; the verdict that this gives is appended in their place.
    """

    __slots__ = (
        "_closed",
        "_decided",
        "_drained",
        "_expected",
        "_feed",
        "_held",
        "_in_flight",
        "_loop",
        "_node",
        "_pending",
        "_refused",
        "_settled",
        "_written",
        "busy",
        "opening",
    )

    def __init__(
        self,
        node: Node,
        feed: Feed,
        settled: Callable[[bool], None],
        refused: Callable[[Misuse | TaskFull], Status],
        *,
        opening: bool,
    ) -> None:
        # Whether something is in flight or about to be.
        self.busy = False
        # Whether the executor has not yet paused for the first time: all it says until then is one append.
        self.opening = opening
        self._settled: Callable[[bool], None] | None = settled
        self._refused: Callable[[Misuse | TaskFull], Status] | None = refused
        self._feed = feed
        self._node = node
        self._loop = node.tasks.loop
        self._pending: list[AnyEvent] = []
        self._in_flight: tuple[AnyEvent, ...] = ()
        self._decided: tuple[AnyEvent, ...] = ()
        self._expected = 0
        self._written = 0
        self._held = self._closed = False
        self._drained: list[tuple[int, Future[None]]] = []

    @property
    def unflushed(self) -> int:
        """How many events are not yet on their way."""
        return len(self._pending)

    def put(self, event: AnyEvent) -> None:
        """Write with the next flush."""
        self._pending.append(event)
        if not self.busy and not self.opening:
            self.busy = True
            self._loop.call_soon(self._flush)

    def put_now(self, event: AnyEvent) -> None:
        """Write at once, with what was said before, or as soon as what is in flight has landed."""
        self._pending.append(event)
        self.flush()

    def put_only(self, event: AnyEvent) -> None:
        """Write this now, and nothing of what was said before and is not yet on its way."""
        self._pending = [event]
        self._fail_waiting(TurnOver(f"task {self._feed.state.task_id} is being ended"))
        self.flush()

    def flush(self) -> None:
        """Begin to write what was said, unless that is under way."""
        if self._pending and not self.busy:
            self._flush()

    async def drain(self) -> None:
        """Wait until everything said so far is durable.

        Raises:
            TurnOver: some of it came too late.
        """
        self.opening = False
        self.flush()
        if self.busy:
            drained: Future[None] = self._loop.create_future()
            self._drained.append((self._written + len(self._in_flight) + len(self._pending), drained))
            await drained

    def close(self) -> None:
        """Write nothing more; what is in flight may still land."""
        self._closed = True
        self._pending = []
        self._fail_waiting(TurnOver(f"task {self._feed.state.task_id} has been left"))

    def detach(self) -> None:
        """Tell nobody anything from here on: the owner is done."""
        # A circle of the two would cost a search for garbage, dearer than the task.
        self._settled = self._refused = None

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
            self._in_flight = tuple(self._pending)
            self._pending.clear()
        self._append()

    def _append(self) -> None:
        state = self._feed.state
        try:
            self._expected = state.seq
            self._decided = decide(state, Emit(self._node.id, self._in_flight))
            self._node.tasks.append(self._feed, self._decided, then=self._flushed)
        except TurnOver as over:
            self._come_late(over)
        except (Misuse, TaskFull) as error:
            if self._refused is None:
                raise
            # All that can still be recorded is that it failed.
            verdict = self._refused(error)
            self._in_flight = ()
            self._pending = [verdict]
            self._fail_waiting(TurnOver(str(error)))
            self._flush()

    def _come_late(self, over: TurnOver) -> None:
        log.info("task.late task=%s events=%d", self._feed.state.task_id, len(self._in_flight))
        self._node.tasks.late += len(self._in_flight)
        self._in_flight = ()
        self._pending.clear()
        self._settle(lost=not self._fail_waiting(over))

    def _flushed(self, error: StoreError | None) -> None:
        if error is None:
            self._land()
        elif not self._closed:
            # Somebody spoke in between, or the store failed; it may recover (a full disk), and until
            # then back-pressure holds the executor.
            self._node.spawn(self._look(error))

    def _land(self) -> None:
        self._written += len(self._in_flight)
        self._in_flight = ()
        if self._drained:
            self._resolve_written()
        if self._pending:
            self._flush()
        else:
            self._settle()

    async def _look(self, error: StoreError) -> None:
        task_id = self._feed.state.task_id
        if isinstance(error, Conflict) and error.actual < self._expected:
            # Forgotten, or set back: what was said is about a task that is no more.
            self._node.tasks.drop(self._feed, error)
            self._come_late(TurnOver(f"task {task_id} has lost what was recorded of it"))
            return
        if not isinstance(error, Conflict):
            await self._wait("task.unwritten task=%s error=%s", task_id, error)
        while True:
            try:
                written = await self._is_written()
                break
            except StoreError as unread:
                if unread.damaged_task:
                    # No time heals it.
                    self._come_late(TurnOver(str(unread)))
                    return
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
        await self._node.tasks.refresh(feed)
        records = feed.newer(expected)
        if records is None:
            stored = self._node.tasks.store.log
            records = await stored.read(feed.tenant, feed.state.task_id, expected, len(self._decided))
        found = [recorded.event for recorded in records[: len(self._decided)]]
        return found == decode(encode(self._decided))

    def _settle(self, *, lost: bool = False) -> None:
        self.busy = False
        if self._settled is not None:
            self._settled(lost)

    def _resolve_written(self) -> None:
        waiting, self._drained = self._drained, []
        for mark, drained in waiting:
            if mark > self._written:
                self._drained.append((mark, drained))
            elif not drained.done():
                drained.set_result(None)

    def _fail_waiting(self, error: BaseException) -> bool:
        """Tell whoever waits for events that they are lost; whether anybody waited."""
        waiting, self._drained = self._drained, []
        heard = False
        for _, drained in waiting:
            if not drained.done():
                heard = True
                drained.set_exception(error)
        return heard
