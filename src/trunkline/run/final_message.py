"""The reply of a task on its last status, for clients that do not read artifacts."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.client.result import Result
from trunkline.log.events import Replied, Status
from trunkline.log.fold import State
from trunkline.wire.types import Message, Part, Role, TaskState


def reply_id(task_id: str) -> str:
    """Return the ID of the message that repeats the reply of a task."""
    return f"{task_id}:reply"


def with_reply(verdict: Status | Replied, state: State) -> Status | Replied:
    """Return the end of a task with its text, or else its data, as the message of the status."""
    if (
        isinstance(verdict, Replied)
        or verdict.state is not TaskState.COMPLETED
        or verdict.message is not None
    ):
        return verdict
    result = Result(task=state.task(0))
    if not result.text and result.data is None:
        return verdict
    part = Part(text=result.text) if result.text else Part(data=result.data)
    return replace(
        verdict,
        message=Message(reply_id(state.task_id), state.context_id, state.task_id, Role.AGENT, (part,)),
    )
