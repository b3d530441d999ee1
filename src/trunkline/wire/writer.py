"""The dialects we write, and what a writer of any of them offers."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from trunkline.wire import v1
from trunkline.wire.types import ArtifactUpdate, Message, StatusUpdate, Task, TaskPage
from trunkline.wire.v03 import V03, V03_PROTO


class Dialect(Enum):
    """The three forms in which the same objects are written."""

    # Looked up on every answer; Enum's own hash is Python code.
    __hash__ = object.__hash__

    V1 = "1.0"
    V03 = "0.3"
    V03_PROTO = "0.3 ProtoJSON"


class Writer(Protocol):
    """The functions that write one dialect. The module `v1` is a writer, and so are `V03` and `V03_PROTO`."""

    def task(self, task: Task) -> bytes:
        """A bare Task, as `get` and `cancel` answer."""
        ...

    def message(self, message: Message) -> bytes:
        """A bare Message."""
        ...

    def task_frame(self, task_bytes: bytes) -> bytes:
        """What a send answers, and a stream frame: around a Task already written by `task`."""
        ...

    def message_frame(self, message: Message) -> bytes:
        """The same with a Message: of a send that was answered directly."""
        ...

    def status_frame(self, update: StatusUpdate, *, final: bool) -> bytes:
        """A stream frame with a change of status."""
        ...

    def artifact_frame(self, update: ArtifactUpdate) -> bytes:
        """A stream frame with a new or grown artifact."""
        ...

    def page(self, page: TaskPage) -> bytes:
        """One page of `list`."""
        ...


WRITERS: dict[Dialect, Writer] = {Dialect.V1: v1, Dialect.V03: V03, Dialect.V03_PROTO: V03_PROTO}
