"""The promise of an append.

Cheaper than a future, and safer to wait for: whoever follows it with `then` is called at once when
it is settled, and a waiter who gives up does not take it away from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator

from trunkline.errors import StoreError

_logger = logging.getLogger("trunkline.store")
Follower = Callable[[StoreError | None], None]


class Ack:
    """Settled once, on the loop: with the last seq that was written, or with why nothing was."""

    __slots__ = ("_followers", "_outcome", "_waiters", "size")

    def __init__(self, size: int = 0) -> None:
        # The bytes that the append adds to its log.
        self.size = size
        self._outcome: int | StoreError | None = None
        self._followers: list[Follower] = []
        self._waiters: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        """Whether it is settled."""
        return self._outcome is not None

    def then(self, follower: Follower) -> None:
        """Be called with the error, or None, before anybody who awaits is woken."""
        if self._outcome is None:
            self._followers.append(follower)
        else:
            # Never inside the call that appends: whoever it belongs to does not wait yet, and would in vain.
            asyncio.get_running_loop().call_soon(self._tell, follower)

    def settle(self, outcome: int | StoreError) -> None:
        """End it."""
        self._outcome = outcome
        # Let go of them: a follower may hold this promise, and a circle costs a search for garbage.
        followers, self._followers = self._followers, []
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
            self._waiters.append(waiter)
            yield from waiter
        outcome = self._outcome
        if isinstance(outcome, int):
            return outcome
        raise outcome or StoreError("the append was not settled")
