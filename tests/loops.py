"""An event loop on a clock of its own: it jumps to the next timer when nothing is ready.

An hour of waiting takes no time, and a wait that nothing would ever end is an error at once. Only for code
that stays in this thread: there are no sockets, no threads and no subprocesses.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
# Whoever is busy for so many rounds while no time passes will be so for ever.
ROUNDS = 200_000


class Hang(BaseException):
    """Nothing will ever happen again, or nothing but the same."""


class Leap(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._now = 1_000.0
        super().__init__(_Still(self._pass))

    def time(self) -> float:
        """Seconds since some moment, as its timers see them."""
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds


class _Still(selectors.BaseSelector):
    """Takes part in no input or output; to be asked to wait is to let time pass."""

    def __init__(self, let_pass: Callable[[float], None]) -> None:
        self._pass = let_pass
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Hang("everybody waits, and nobody has set a timer")
        if timeout > 0:
            self._rounds = 0
            self._pass(timeout)
            return []
        self._rounds += 1
        if self._rounds > ROUNDS:
            raise Hang("everybody is busy, and no time passes")
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, 0, None)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, -1, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        raise KeyError(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


def leap(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine gives, without waiting for it."""
    with asyncio.Runner(loop_factory=Leap) as runner:
        return runner.run(work)
