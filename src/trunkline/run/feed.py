"""One task as everybody in this process reads it: folded once, followed by many.

A feed holds what is committed and nothing else. Readers keep only a place (a seq), so a slow
one costs no memory; events older than the window are read from the store again (`backlog`).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline.errors import StoreError
from trunkline.log.encoding import encode_one
from trunkline.log.events import AnyEvent, Compacted, Recorded, Stepped
from trunkline.log.fold import State

if TYPE_CHECKING:
    from trunkline.run.owner import Owner

WINDOW = 512
# Size limit of the window by what its events take in the log; in memory they take several times as much.
WINDOW_BYTES = 512 << 10
# These events stay, however large: the first ones of a task hold what its run begins with.
_FEW = 8
PAGE = 500


class Feed:
    """A task's committed state, its newest events, and those who wait for more."""

    __slots__ = (
        "__weakref__", "_broken", "_bytes", "_resters", "_waiters", "base", "callers", "frames", "readers",
        "records", "runner", "state", "tenant",
    )  # fmt: skip

    def __init__(self, tenant: str, state: State) -> None:
        self.tenant = tenant
        self.state = state
        self.base: int = state.seq
        self.records: list[Recorded] = []
        self._bytes = 0
        # Encoded frames by dialect and seq, made by one reader for the others.
        self.frames: dict[tuple[object, int], bytes] = {}
        self.readers = 0
        # Who runs the task here, told whenever the log has moved.
        self.runner: Owner | None = None
        # How many commands of callers are on their way; the runner's own events wait for them.
        self.callers = 0
        self._waiters: list[Future[None]] = []
        self._resters: list[Future[None]] = []
        self._broken: StoreError | None = None

    def take(self, expected: int, events: Sequence[AnyEvent], at: int, size: int) -> bool:
        """Fold committed events in; False if the feed does not stand at `expected`."""
        state = self.state
        if state.seq != expected:
            return False
        state.size += size
        self._bytes += size
        for seq, event in enumerate(events, expected + 1):
            recorded = Recorded(seq, at, event)
            state.apply(recorded)
            self.records.append(recorded)
        self._wake()
        return True

    def catch_up(self, recorded: Sequence[Recorded]) -> None:
        """Fold events in that were read from the store, skipping those already here."""
        news = [one for one in recorded if one.seq > self.state.seq]
        if not news:
            return
        for one in news:
            self.state.apply(one)
        size = weight(news)
        self.state.size += size
        self._bytes += size
        self.records += news
        if any(isinstance(one.event, Compacted) for one in news):
            # A range is one record for many seqs, so a place in the window no longer tells the seq.
            self.records = []
            self.base = self.state.seq
        self._wake()

    def _wake(self) -> None:
        count = len(self.records)
        if count > 2 * WINDOW:
            self._trim(WINDOW)
        elif self._bytes > 2 * WINDOW_BYTES and count > 2 * _FEW:
            self._trim(max(_FEW, count * WINDOW_BYTES // self._bytes))
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            _release(waiters)
        if self._resters and self.state.resting:
            resters, self._resters = self._resters, []
            _release(resters)
        if self.runner is not None:
            self.runner.moved()

    def _trim(self, kept: int) -> None:
        # As if all events were of one size.
        self._bytes = self._bytes * kept // len(self.records)
        del self.records[:-kept]
        self.base = self.records[0].seq - 1
        self.frames = {key: frame for key, frame in self.frames.items() if key[1] > self.base}

    def changed(self, loop: AbstractEventLoop) -> Future[None]:
        """Done at the next change."""
        return self._future(loop, self._waiters)

    def rested(self, loop: AbstractEventLoop) -> Future[None]:
        """Done when the task next reaches a terminal or interrupted state."""
        return self._future(loop, self._resters)

    def _future(self, loop: AbstractEventLoop, waiting: list[Future[None]]) -> Future[None]:
        future: Future[None] = loop.create_future()
        if self._broken is None:
            waiting.append(future)
        else:
            future.set_exception(self._broken)
        return future

    def forget(self, future: Future[None]) -> None:
        """Whoever waited for a rest has stopped waiting."""
        if future in self._resters:
            self._resters.remove(future)

    def fail(self, error: BaseException) -> None:
        """The task could not be recorded: tell everyone who waits for it."""
        waiters, self._waiters, self._resters = [*self._waiters, *self._resters], [], []
        for future in waiters:
            if not future.done():
                future.set_exception(error)

    def give_up(self, error: StoreError) -> None:
        """The feed is not what the log holds, and will not move again: whoever runs or awaits it goes."""
        self._broken = error
        if self.runner is not None:
            self.runner.abandon()
        self.fail(error)

    def nudge(self) -> None:
        """Wake the readers without news, so that they look at the clock or at the exit."""
        waiters, self._waiters = self._waiters, []
        _release(waiters)

    def opening_step(self, place: int | None = None) -> Stepped | None:
        """The step at a place that was recorded together with the first message, or any."""
        if not self.base and self.state.opened > 1:
            for one in self.records[1 : self.state.opened]:
                if type(one.event) is Stepped and place in (None, one.event.place):
                    return one.event
        return None

    def newer(self, after: int) -> list[Recorded] | None:
        """Events after a seq, or None if that is before the window."""
        if after < self.base:
            return None
        return self.records[after - self.base :]


def weight(records: Sequence[Recorded]) -> int:
    """About how many bytes these events take in a log."""
    return sum([len(encode_one(recorded.event)) for recorded in records])


def _release(futures: list[Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
