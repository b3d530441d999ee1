"""Hints: tell listeners in this process which logs have grown.

Lossy by contract. A listener that falls behind loses hints and gets a `Poll` instead; one
that is no longer referenced is forgotten.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable

from trunkline.store.records import Hint, Poll

POLL_EVERY = 1.0
LISTENER_HINTS = 1024

_POLL = Poll()


class Listener(AsyncIterator[Hint | Poll]):
    """One reader's hints: the newest of each task, in the order in which they were first told."""

    __slots__ = ("__weakref__", "_loop", "_lost", "_over", "_pending", "_polled", "_ready", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: dict[str, Hint] = {}
        self._ready: list[Hint] = []
        self._polled = self._loop.time()
        self._lost = False
        self._over = False
        self._waiter: asyncio.Future[None] | None = None

    def tell(self, hint: Hint) -> None:
        """Leave a hint, or only the word that some were lost."""
        if self._lost:
            return
        if len(self._pending) >= LISTENER_HINTS and hint.task_id not in self._pending:
            self._pending.clear()
            self._lost = True
        else:
            self._pending[hint.task_id] = hint

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

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Hint | Poll:
        while not self._over:
            left = self._polled + POLL_EVERY - self._loop.time()
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


class HintBroadcast:
    """All listeners of one store."""

    __slots__ = ("_over", "heard")

    def __init__(self) -> None:
        # Empty when nobody listens: then a commit costs one look at this list.
        self.heard: list[weakref.ref[Listener]] = []
        self._over = False

    def listen(self) -> Listener:
        """A new listener, which hears everything from now on."""
        listener = Listener()
        if self._over:
            listener.end()
        else:
            self.heard.append(weakref.ref(listener, self.heard.remove))
        return listener

    def tell(self, grown: Iterable[tuple[str, str, int]]) -> None:
        """Tell all listeners which (tenant, task, seq) were committed."""
        hints = {task_id: Hint(tenant, task_id, seq) for tenant, task_id, seq in grown}
        for listener in self._living():
            for hint in hints.values():
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

    def _living(self) -> list[Listener]:
        return [listener for reference in self.heard if (listener := reference()) is not None]
