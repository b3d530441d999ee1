"""What one webhook says of a task, whatever shape its body had."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

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
