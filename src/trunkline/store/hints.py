"""Hints: tell listeners in this process which logs have grown, or which documents have changed.

Lossy by contract. A listener that falls behind loses hints and gets a `Poll` instead; one
that is no longer referenced is forgotten.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Generic, TypeVar

from trunkline.store.records import DocHint, Hint, Poll

POLL_EVERY = 1.0
# Documents change seldom, and a replica that hears nothing may know of it this much later.
DOC_POLL_EVERY = 5.0
LISTENER_HINTS = 1024

_POLL = Poll()
H = TypeVar("H", Hint, DocHint)


class Listener(AsyncIterator[H | Poll]):
    """One reader's hints: the newest about each subject, in the order in which they were first told."""

    __slots__ = (
        "__weakref__", "_every", "_loop", "_lost", "_over", "_pending", "_polled", "_ready", "_waiter"
    )  # fmt: skip

    def __init__(self, every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._every = every
        self._pending: dict[str, H] = {}
        self._ready: list[H] = []
        self._polled = self._loop.time()
        self._lost = False
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    def tell(self, hint: H) -> None:
        """Leave a hint, or only the word that some were lost."""
        if self._lost:
            return
        subject = hint.subject
        if len(self._pending) >= LISTENER_HINTS and subject not in self._pending:
            self._pending.clear()
            self._lost = True
        else:
            self._pending[subject] = hint

    def miss(self) -> None:
        """Leave only the word that some were lost."""
        self._pending.clear()
        self._lost = True
        self.wake()

    def wake(self) -> None:
        """Let a waiting reader look."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """No more hints will come."""
        self._over = True
        self.wake()

    async def __anext__(self) -> H | Poll:
        while not self._over:
            left = self._polled + self._every - self._loop.time()
            if left <= 0 or self._lost:
                self._polled = self._loop.time()
                self._lost = False
                return _POLL
            if not self._ready and self._pending:
                self._ready = list(self._pending.values())
                self._ready.reverse()
                self._pending.clear()
            if self._ready:
                return self._ready.pop()
            await self._wait(left)
        raise StopAsyncIteration

    async def _wait(self, seconds: float) -> None:
        self._waiter = self._loop.create_future()
        alarm = self._loop.call_later(seconds, self.wake)
        try:
            await self._waiter
        finally:
            alarm.cancel()
            self._waiter = None


class HintBroadcast(Generic[H]):
    """All listeners of one store to one sort of hints; each is reminded to look itself every so often."""

    __slots__ = ("_every", "_over", "heard")

    def __init__(self, every: float = POLL_EVERY) -> None:
        # Empty when nobody listens: then a commit costs one look at this list.
        self.heard: list[weakref.ref[Listener[H]]] = []
        self._every = every
        self._over = False

    def listen(self) -> Listener[H]:
        """A new listener, which hears everything from now on."""
        listener: Listener[H] = Listener(self._every)
        if self._over:
            listener.end()
        else:
            self.heard.append(weakref.ref(listener, self.heard.remove))
        return listener

    def tell(self, hints: Iterable[H]) -> None:
        """Tell all listeners what was committed."""
        newest = {hint.subject: hint for hint in hints}
        for listener in self._living():
            for hint in newest.values():
                listener.tell(hint)
            listener.wake()

    def miss(self) -> None:
        """Tell all listeners that hints were lost, so that they look themselves."""
        for listener in self._living():
            listener.miss()

    def end(self) -> None:
        """Let every listener come to its end."""
        self._over = True
        for listener in self._living():
            listener.end()

    def _living(self) -> list[Listener[H]]:
        return [listener for reference in self.heard if (listener := reference()) is not None]
