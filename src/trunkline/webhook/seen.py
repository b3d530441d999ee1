"""What was received lately: a bounded memory, so that the same webhook does not count twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice, takewhile

from trunkline.webhook.notification import Notification

# About 20 MB when full; the oldest goes first.
_MOST = 100_000


class Seen:
    """Notifications by task and id, each until its time is over. Any thread may ask."""

    def __init__(self, window_s: float, clock: Callable[[], int], most: int = _MOST) -> None:
        self._window_ms = int(window_s * 1000)
        self._clock = clock
        self._most = most
        self._until: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def __contains__(self, notification: Notification) -> bool:
        key = key_of(notification)
        with self._lock:
            self._forget_old(self._clock())
            return key in self._until

    def add(self, notification: Notification) -> bool:
        """Remember it; whether it is new. One without an id always is."""
        key = key_of(notification)
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            if key in self._until:
                return False
            if key:
                if len(self._until) >= self._most:
                    del self._until[next(iter(self._until))]
                self._until[key] = now + self._window_ms
            return True

    def discard(self, notification: Notification) -> None:
        """Forget it, as if it had never come."""
        with self._lock:
            self._until.pop(key_of(notification), None)

    def _forget_old(self, now: int) -> None:
        # A dict keeps the order in which keys came, and none comes again while it is known. They are counted
        # first: after each one that is taken from its front, a dict takes longer to find the next.
        over = sum(1 for _ in takewhile(lambda until: until <= now, self._until.values()))
        for key in list(islice(self._until, over)):
            del self._until[key]


def key_of(notification: Notification) -> bytes:
    """What tells it from others; empty if nothing does.

    The task is part of it: who may speak for one task cannot make another's notifications look old.
    """
    if not notification.id:
        return b""
    # With the length of one of them: no other two texts may come to the same.
    text = f"{len(notification.id)} {notification.id} {notification.task_id}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
