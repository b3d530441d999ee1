"""Group commit, on the loop's side: gathers appends and hands them to a backend in groups.

Everything accepted while one group is being written forms the next, so a group costs its
callers one fsync together. Knows neither SQL nor threads; the backend calls `done` on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Sequence

from msgspec import Struct

from trunkline.errors import Misuse, StoreError, TaskFull
from trunkline.log.encoding import written
from trunkline.log.events import AnyEvent
from trunkline.log.fold import BYTES_LIMIT, LIMITS
from trunkline.log.head import Head
from trunkline.store.hints import HintBroadcast
from trunkline.store.records import Dedup, Hint, OutboxEntry

GROUP_EVENTS = 500
GROUP_BYTES = 1 << 20
# Behind a group of many the loop goes round before the next is taken: what is appended by those who have just
# heard, and by requests that are here already, goes with it. Each group costs an fsync and some hand-overs
# between threads; measured at a hub with 64 callers, half of them are saved. A lone append waits for nobody.
ROUNDS = 4

_logger = logging.getLogger("trunkline.store")
# What became of one append: its last seq, or why it was refused.
Outcome = int | StoreError
Follower = Callable[[StoreError | None], None]
# What became of each append of a group, and the seconds that took.
Observer = Callable[[Sequence[Outcome], float], None]


class Ack:
    """The promise of an append. Settled once, on the loop: with the last seq that was written, or why not.

    Cheaper than a future, and safer to wait for: whoever follows it with `then` is called at once when
    it is settled, and a waiter who gives up does not take it away from the others.
    """

    __slots__ = ("_followers", "_outcome", "_waiters", "size")

    def __init__(self, size: int = 0) -> None:
        # The bytes that the append adds to its log.
        self.size = size
        self._outcome: int | StoreError | None = None
        # Most have one follower and no waiter, so a list is made for who comes.
        self._followers: Sequence[Follower] = ()
        self._waiters: Sequence[asyncio.Future[None]] = ()

    def done(self) -> bool:
        """Whether it is settled."""
        return self._outcome is not None

    def then(self, follower: Follower) -> None:
        """Be called with the error, or None, before anybody who awaits is woken."""
        if self._outcome is None:
            self._followers = (*self._followers, follower)
        else:
            # Never inside the call that appends: whoever it belongs to does not wait yet, and would in vain.
            asyncio.get_running_loop().call_soon(self._tell, follower)

    def settle(self, outcome: int | StoreError) -> None:
        """End the append with its outcome."""
        self._outcome = outcome
        # Let go of them: a follower may hold this promise, and a circle costs a search for garbage.
        followers, self._followers = self._followers, ()
        for follower in followers:
            self._tell(follower)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _tell(self, follower: Follower) -> None:
        try:
            follower(self._outcome if isinstance(self._outcome, StoreError) else None)
        except Exception as error:  # noqa: BLE001 - one follower's fault must not keep the rest of a group waiting
            _logger.error("append.follower", exc_info=error)

    def __await__(self) -> Generator[None, None, int]:
        if self._outcome is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters = (*self._waiters, waiter)
            yield from waiter
        outcome = self._outcome
        if isinstance(outcome, int):
            return outcome
        raise outcome or StoreError("the append was not settled")


class Entry(Struct, gc=False, eq=False):
    """One append on its way to the disk: the events after `expected` up to `last`, as a JSON array."""

    ack: Ack
    tenant: str
    task_id: str
    expected: int
    last: int
    body: bytes
    at: int
    head: Head | None
    deliveries: Sequence[OutboxEntry]
    keys: Sequence[Dedup]
    events: Sequence[AnyEvent] = ()
    # The number of its last event in the whole log, once the backend knows it and if it has such numbers.
    id: int = 0


class GroupCommit:
    """The queue of appends. At most one group is with the backend at any time."""

    __slots__ = (
        "_began", "_busy", "_bytes", "_events", "_hints", "_idle", "_loop", "_pending", "_rounds",
        "_submit", "observer", "refusal", "written",
    )  # fmt: skip

    _loop: asyncio.AbstractEventLoop
    _idle: asyncio.Event

    def __init__(self, submit: Callable[[list[Entry]], None], hints: HintBroadcast[Hint]) -> None:
        self._submit = submit
        self._hints = hints
        self._pending: list[Entry] = []
        self._events = 0
        self._bytes = 0
        self._busy = False
        self._rounds = 1
        # Why no append is taken now; nothing if they are.
        self.refusal = "the store is not open"
        # Told of every group that has ended, and of the seconds it took.
        self.observer: Observer | None = None
        # Given every group that has ended, before whoever waits for it hears of it.
        self.written: Callable[[Sequence[Entry], Sequence[Outcome]], None] | None = None
        self._began = 0.0

    def start(self) -> None:
        """Take appends from here on, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._idle = asyncio.Event()
        self._idle.set()
        self.refusal = ""

    async def stop(self) -> None:
        """Take no more, and wait until all that was taken is settled."""
        self.refusal = "the store is closed"
        await self._idle.wait()

    def append(
        self,
        tenant: str,
        task_id: str,
        expected: int,
        events: Sequence[AnyEvent],
        *,
        at: int,
        head: Head | None = None,
        deliveries: Sequence[OutboxEntry] = (),
        dedup: Dedup | None = None,
        claim: Dedup | None = None,
    ) -> Ack:
        """Queue one append; its promise ends with its last seq, Conflict, Duplicate or StoreError.

        Raises:
            Misuse: there is nothing to write, or it cannot be written as JSON.
            TaskFull: it is larger than a whole task may be.
        """
        if self.refusal:
            return self._refused()
        if not events:
            raise Misuse(f"task {task_id}: an append needs at least one event")
        try:
            count, body = written(events)
        except (TypeError, ValueError, RecursionError) as error:
            raise Misuse(f"task {task_id}: an event cannot be written as JSON: {error}") from error
        if len(body) > BYTES_LIMIT:
            raise TaskFull(f"task {task_id} has reached its limit ({LIMITS})")
        ack = Ack(len(body))
        keys = () if dedup is None else (dedup,)
        if claim is not None:
            keys = (*keys, claim)
        self._pending.append(
            Entry(ack, tenant, task_id, expected, expected + count, body, at, head, deliveries, keys, events)
        )
        self._events += count
        self._bytes += len(body)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            # After this pass of the loop at least, so that appends made together share the first group too.
            self._flush_in(self._rounds)
        return ack

    def done(self, group: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """Called by the backend, on the loop, when a group has ended."""
        if self.observer is not None:
            self.observer(outcomes, time.perf_counter() - self._began)
        if self.written is not None:
            self.written(group, outcomes)
        for entry, outcome in zip(group, outcomes, strict=True):
            entry.ack.settle(outcome)
        self._rounds = min(len(group), ROUNDS)
        if self._pending:
            self._flush_in(self._rounds)
        else:
            self._busy = False
            self._idle.set()
        if self._hints.heard:
            self._hints.tell(
                Hint(entry.tenant, entry.task_id, outcome)
                for entry, outcome in zip(group, outcomes, strict=True)
                if isinstance(outcome, int)
            )

    def _flush_in(self, rounds: int) -> None:
        """Hand the next group over when the loop has been round so often."""
        if rounds:
            self._loop.call_soon(self._flush_in, rounds - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        if self._events <= GROUP_EVENTS and self._bytes <= GROUP_BYTES:
            group, self._pending = self._pending, []
            self._events = self._bytes = 0
        else:
            group = self._first_group()
        # The loop's own clock may count in whole milliseconds, which a commit seldom takes.
        self._began = time.perf_counter()
        self._submit(group)

    def _first_group(self) -> list[Entry]:
        events = size = count = 0
        for entry in self._pending:
            more, longer = entry.last - entry.expected, len(entry.body)
            # One append is never split, so a huge one is a group of its own.
            if count and (events + more > GROUP_EVENTS or size + longer > GROUP_BYTES):
                break
            events += more
            size += longer
            count += 1
        group = self._pending[:count]
        del self._pending[:count]
        self._events -= events
        self._bytes -= size
        return group

    def _refused(self) -> Ack:
        ack = Ack()
        ack.settle(StoreError(self.refusal))
        return ack
