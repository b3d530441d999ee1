"""The bodies of push notifications: what a target hears of one change of state."""

from __future__ import annotations

from trunkline.wire import v03, v1
from trunkline.wire.types import RESTING, TERMINAL, Metadata, StatusUpdate, Task
from trunkline.wire.versions import Version


def body(task: Task, version: str, *, whole: bool, metadata: Metadata | None = None) -> bytes:
    """The notification of a task as it stood at the change; `whole` sends the task whatever happened.

    An end always brings its result along: nobody should have to ask for it, or find it gone.
    """
    state = task.status.state
    update = StatusUpdate(task.id, task.context_id, task.status, metadata)
    if version == Version.V1.value:
        if whole or state in TERMINAL:
            return v1.task_frame(v1.task(task))
        return v1.status_frame(update, final=False)
    if whole:
        return v03.task(task)
    artifacts = task.artifacts if state in TERMINAL else ()
    return v03.told(update, artifacts, final=state in RESTING)
