"""The small task API of workflow engines: `POST …/tasks`, `GET …/tasks/{id}`. A dialect of its own."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from trunkline.errors import InvalidParams, ParseError, PushNotSupported, Unreadable, UnsupportedOperation
from trunkline.wire.decode import DECODE_ERRORS, check_structure, invalid_params, parse_error
from trunkline.wire.error_reader import excerpt
from trunkline.wire.spellings import check_id, plain_state, state_named
from trunkline.wire.types import (
    STATES,
    Artifact,
    Correlation,
    Message,
    Metadata,
    Part,
    Role,
    SendRequest,
    Task,
    TaskState,
    TaskStatus,
)

# The dialect knows five words: who waits for a login waits for its host, who did not succeed failed.
_STATUS = {state: plain_state(state) for state in STATES} | {
    TaskState.AUTH_REQUIRED: "input-required",
    TaskState.CANCELED: "failed",
    TaskState.REJECTED: "failed",
}


class Submission(Struct, frozen=True):
    """The task that an engine submits: for which agent, under which correlation id, with which input."""

    agent_id: str
    correlation_id: str
    input: Metadata


class _Record(Struct, frozen=True, omit_defaults=True):
    id: str
    status: str
    output: Metadata | None = None
    error: str = ""


class _ForeignRecord(Struct, frozen=True):
    """A record of anybody's: ids may be numbers, output and error anything."""

    id: str | int
    status: str
    output: Any = None
    error: Any = None


_submission = msgspec.json.Decoder(Submission)
_answered = msgspec.json.Decoder(_ForeignRecord)
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
        raise invalid_params(error, "body") from None
    except DECODE_ERRORS as error:
        raise parse_error(error) from None
    check_id(found.correlation_id, "correlation_id")
    if not found.agent_id:
        raise InvalidParams("agent_id is missing", field="agent_id")
    return found


def request_of(submission: Submission, skill: str) -> SendRequest:
    """A submission as a send: the input as data, and as text for skills that read text."""
    given = submission.input
    only = next(iter(given.values())) if len(given) == 1 else None
    text = only if isinstance(only, str) else _encode(given).decode()
    message = Message(
        message_id=submission.correlation_id,
        role=Role.USER,
        parts=(Part(text=text), Part(data=given)),
        metadata={"skill": skill} if skill else None,
    )
    correlation_id = submission.correlation_id
    return SendRequest(
        message, metadata={"correlationId": correlation_id}, correlation=Correlation(correlation_id)
    )


def record(task: Task) -> bytes:
    """A task as the dialect shows it."""
    status = _STATUS[task.status.state]
    said = _said(task)
    output, error = None, ""
    if status == "completed":
        output = _output(task)
    elif status == "input-required" and said:
        output = {"prompt": said}
    elif status == "failed":
        error = said or f"the task ended as {plain_state(task.status.state)}"
    return _encode(_Record(task.id, status, output, error))


def submission_of(request: SendRequest, agent: str) -> bytes:
    """A send as a submission: data parts are the input, and texts its `task`.

    Raises:
        UnsupportedOperation: it continues a task or a conversation, or holds a file or a push config.
    """
    message = request.message
    if message.task_id or message.context_id:
        raise _no_place("a further message: it has no conversations")
    if request.push is not None:
        raise PushNotSupported("the task API of workflow engines has no push notifications")
    given: Metadata = {}
    texts: list[str] = []
    for part in message.parts:
        if part.text is not None:
            texts.append(part.text)
        elif isinstance(part.data, dict):
            given.update(cast("Metadata", part.data))
        elif part.data is not UNSET:
            given["data"] = part.data
        else:
            raise _no_place("files; send text or data")
    if texts:
        given.setdefault("task", "\n".join(texts))
    named = {**(request.metadata or {}), **(message.metadata or {}), "agent": agent}
    # A hint may name what is not there; the agent takes it.
    names = (named.get(name) for name in ("skillId", "skill", "agent", "skillHint"))
    wanted = next((name for name in names if name and isinstance(name, str)), "")
    if not wanted:
        raise _no_place("a submission for nobody; name the skill")
    return _encode(Submission(wanted, message.message_id, given))


def _no_place(what: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"the task API of workflow engines does not take {what}")


def read_record(body: bytes) -> Task:
    """A record as a task: its output is an artifact, its error or its prompt what was said.

    Raises:
        Unreadable: it is none.
    """
    try:
        check_structure(body)
        found = _answered.decode(body)
    except (*DECODE_ERRORS, ParseError):
        raise Unreadable(f"this is no record of a task but: {excerpt(body)}") from None
    state = state_named(found.status)
    if state is None or not found.id:
        raise Unreadable(f"{found.status!a} is no state of a task: {excerpt(body)}")
    text = found.error if isinstance(found.error, str) or not found.error else _encode(found.error).decode()
    output = found.output
    if state is TaskState.INPUT_REQUIRED and isinstance(output, dict):
        output = dict(cast("Metadata", output))
        prompt = output.pop("prompt", "")
        text = prompt if isinstance(prompt, str) else _encode(prompt).decode()
    said = Message("", role=Role.AGENT, parts=(Part(text=text),)) if text else None
    parts = _parts(output)
    artifacts = (Artifact("output", parts=parts),) if parts else ()
    return Task(str(found.id), "", TaskStatus(state, said), artifacts)


def _parts(output: object) -> tuple[Part, ...]:
    if output is None:
        return ()
    if not isinstance(output, dict):
        return (Part(text=output) if isinstance(output, str) else Part(data=output),)
    rest = dict(cast("Metadata", output))
    # It says again what the status says.
    rest.pop("delegate_status", None)
    spoken = (Part(text=rest.pop("text")),) if isinstance(rest.get("text"), str) else ()
    return (*spoken, Part(data=rest)) if rest else spoken


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
    """Whether a part is a report of the run on itself, such as its cost, and no part of its result."""
    # Extensions mark their parts by a media type in the metadata, ours and those of other agents alike.
    return "mimeType" in (part.metadata or {})


def _said(task: Task) -> str:
    message = task.status.message
    return "\n".join(part.text for part in message.parts if part.text) if message is not None else ""
