"""What one webhook says of a task, whatever shape its body had, and which were received lately."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256
from itertools import islice, takewhile

from msgspec import Struct

from trunkline.wire.answers import Answer, read_notice
from trunkline.wire.types import (
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskState,
)

# Notifications that are remembered, about 20 MB when full; the oldest goes first.
_MOST = 100_000


class Notification(Struct, frozen=True, kw_only=True):
    """News of a task, and the whole body as it was read: `update`.

    `id` is the same on every attempt to deliver it: the sender's, or else made of a body that has a time.
    `state` is None where the body tells none: a piece of an artifact, or a bare message. `message` is what
    was said with the status, or that bare message.
    """

    task_id: str
    context_id: str
    update: Answer
    id: str = ""
    state: TaskState | None = None
    message: Message | None = None
    artifacts: tuple[Artifact, ...] = ()
    repeated: bool = False

    @property
    def task(self) -> Task | None:
        """The task, if the sender sent it whole."""
        return self.update if isinstance(self.update, Task) else None

    @property
    def final(self) -> bool:
        """Whether the task has ended."""
        return self.state in TERMINAL

    @property
    def text(self) -> str:
        """All text of the artifacts, a line each; without any, that of the message."""
        found = [text for artifact in self.artifacts for text in _texts(artifact.parts)]
        if not found and self.message is not None:
            found = _texts(self.message.parts)
        return "\n".join(found)


def read_notification(body: bytes, webhook_id: str) -> Notification:
    """The notification in a body of any shape.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: they are no notification.
    """
    notice = read_notice(body)
    update = notice.answer
    if isinstance(update, Task | StatusUpdate):
        task_id = update.id if isinstance(update, Task) else update.task_id
        state, message = update.status.state, update.status.message
        # A task can be in a state twice: only with its time does a body tell which of them it was.
        if not webhook_id and update.status.timestamp:
            webhook_id = f"sha256:{sha256(body).hexdigest()}"
    else:
        task_id, state = update.task_id, None
        message = None if isinstance(update, ArtifactUpdate) else update
    return Notification(
        task_id=task_id,
        context_id=update.context_id,
        update=update,
        id=webhook_id,
        state=state,
        message=message,
        artifacts=notice.artifacts,
    )


def _texts(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if part.text is not None]


class RecentNotifications:
    """Notifications by task and id, each until its time is over. Any thread may ask."""

    def __init__(self, window_s: float, clock: Callable[[], int]) -> None:
        self._window_ms = int(window_s * 1000)
        self._clock = clock
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
                if len(self._until) >= _MOST:
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
    """The key that tells a notification from others; empty if nothing does.

    The task is part of it: who may speak for one task cannot make another's notifications look old.
    """
    if not notification.id:
        return b""
    # With the length of one of them: no other two texts may come to the same.
    text = f"{len(notification.id)} {notification.id} {notification.task_id}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
