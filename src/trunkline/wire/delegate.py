"""The small task API of workflow engines: `POST …/tasks`, `GET …/tasks/{id}`. A dialect of its own."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from trunkline.errors import InvalidParams
from trunkline.wire.faults import UNREADABLE, check_structure, misfit, not_json
from trunkline.wire.foreign import check_foreign
from trunkline.wire.types import Message, Metadata, Part, Role, SendRequest, Task, TaskState

_STATUS = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.INPUT_REQUIRED: "input-required",
    # The dialect knows five words: who waits for a login waits for its host, who did not succeed failed.
    TaskState.AUTH_REQUIRED: "input-required",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "failed",
    TaskState.REJECTED: "failed",
}


class Submission(Struct, frozen=True):
    """What an engine hands over: for whom, under which correlation id, with which input."""

    agent_id: str
    correlation_id: str
    input: Metadata


class _Record(Struct, frozen=True, omit_defaults=True):
    id: str
    status: str
    output: Metadata | None = None
    error: str = ""


_submission = msgspec.json.Decoder(Submission)
_encode = msgspec.json.Encoder().encode


def read_submission(body: bytes) -> Submission:
    """The submission in a body.

    Raises:
        ParseError: it is not JSON.
        InvalidParams: a member is missing or does not fit.
    """
    check_structure(body)
    try:
        found = _submission.decode(body)
    except msgspec.ValidationError as error:
        raise misfit(error, "body") from None
    except UNREADABLE as error:
        raise not_json(error) from None
    check_foreign(found.correlation_id, "correlation_id")
    if not found.agent_id:
        raise InvalidParams("agent_id is missing", field="agent_id")
    return found


def request_of(submission: Submission, skill: str) -> SendRequest:
    """The same as a send: the input as data, and as text for skills that read text."""
    given = submission.input
    only = next(iter(given.values())) if len(given) == 1 else None
    text = only if isinstance(only, str) else _encode(given).decode()
    message = Message(
        message_id=submission.correlation_id,
        role=Role.USER,
        parts=(Part(text=text), Part(data=given)),
        metadata={"skill": skill} if skill else None,
    )
    return SendRequest(message, metadata={"correlationId": submission.correlation_id})


def record(task: Task) -> bytes:
    """A task as the dialect shows it."""
    status = _STATUS[task.status.state]
    if status == "completed":
        return _encode(_Record(task.id, status, _output(task)))
    return _encode(_Record(task.id, status, error=_said(task) if status == "failed" else ""))


def _output(task: Task) -> Metadata:
    output: dict[str, Any] = {}
    texts: list[str] = []
    for artifact in task.artifacts:
        for part in artifact.parts:
            if part.text is not None:
                texts.append(part.text)
            elif part.data is not UNSET and isinstance(part.data, dict) and not _is_report(part):
                output.update(cast("Metadata", part.data))
    if texts:
        output.setdefault("text", "".join(texts))
    output.setdefault("delegate_status", "completed")
    return output


def _is_report(part: Part) -> bool:
    """What a run says of itself, such as its cost, is no part of its result."""
    return "mimeType" in (part.metadata or {})


def _said(task: Task) -> str:
    message = task.status.message
    said = "\n".join(part.text for part in message.parts if part.text) if message is not None else ""
    return said or f"the task ended as {task.status.state.value.removeprefix('TASK_STATE_').lower()}"
