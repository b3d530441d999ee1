"""Tasks, events and deliveries in the shapes of the operator's API. Pure.

States are spelled as in 0.3, times as RFC 3339 in UTC. What is sealed is not shown, nor what a step of a
skill gave, which is the skill's own.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from trunkline.client.result import Result, is_file_part, result_parts, text_of
from trunkline.fleet.call import ApiStruct
from trunkline.log.events import Candidate, PushTarget, Recorded, Stepped, Unread
from trunkline.log.fold import NEVER, State
from trunkline.log.head import Head
from trunkline.store.records import DeliveryRecord
from trunkline.wire.question import read_question
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import Artifact, Message, Metadata, Part, TaskState
from trunkline.wire.v03 import V03

_FAILED = frozenset({TaskState.FAILED, TaskState.REJECTED})
_TIMES = frozenset({"deadline", "until", "wake_at"})
# What only matters to whoever continues a task after a crash.
_UNSHOWN = frozenset({"due", "rest_ms", "waits"})
EventRow = dict[str, Any]


class TaskItem(ApiStruct, frozen=True, kw_only=True):
    """A task in a list."""

    task_id: str
    context_id: str
    agent: str
    skill: str
    state: str
    text: str = ""
    error: str = ""
    cost_usd: float | None = None
    confidence: float | None = None
    created_at: str
    updated_at: str


class ChildItem(ApiStruct, frozen=True, kw_only=True):
    """A child of a task."""

    task_id: str
    agent: str
    state: str


class DeliveryItem(ApiStruct, frozen=True, kw_only=True):
    """A delivery of a notification; `at` is its last attempt, `due` the next one."""

    id: str
    task_id: str
    seq: int
    config: str
    host: str
    state: str
    attempts: int
    status: int = 0
    note: str = ""
    at: str = ""
    due: str = ""


class FileItem(ApiStruct, frozen=True, kw_only=True):
    """A file of a result: its address, or its size in bytes if the task contains it."""

    name: str = ""
    media_type: str = ""
    url: str = ""
    size: int = 0


class QuestionItem(ApiStruct, frozen=True, kw_only=True):
    """The question of an interrupted task and the form of its answer."""

    text: str
    schema: Metadata | None = None
    choices: list[str] = []
    deadline: str = ""


class TaskDetail(TaskItem, frozen=True, kw_only=True):
    """A task with its result, its question, its newest events, its deliveries, its parent and its children.

    `data` and `files` contain the result except its text. They are complete, unlike `events`.
    """

    data: list[Any] = []
    files: list[FileItem] = []
    question: QuestionItem | None = None
    events: list[EventRow]
    deliveries: list[DeliveryItem]
    parent: str = ""
    children: list[ChildItem]


def task_item(state: State, origin: str) -> TaskItem:
    """A task in a list; one that names no agent is that of the agent at the origin."""
    answer = Result(task=state.task(0))
    text, error = answer_text(state, answer), ""
    if state.state in _FAILED:
        error = text_of(state.status_message)
        text = "" if text == error else text
    return TaskItem(
        task_id=state.task_id,
        context_id=state.context_id,
        agent=state.agent or origin,
        skill=state.skill,
        state=plain_state(state.state),
        text=text,
        error=error,
        cost_usd=answer.cost_usd,
        confidence=answer.confidence,
        created_at=timestamp(state.created_at),
        updated_at=timestamp(state.status_at),
    )


def task_detail(state: State, origin: str, **related: Any) -> TaskDetail:
    """Return a task with its whole result; `related` has its events, deliveries, parent and children."""
    answer = Result(task=state.task(0))
    return TaskDetail(
        **msgspec.structs.asdict(task_item(state, origin)),
        data=[*answer.all_data],
        files=[_file_item(part) for part in result_parts(answer) if is_file_part(part)],
        question=None if state.question is None else _question_item(state, state.question),
        **related,
    )


def _file_item(part: Part) -> FileItem:
    # Four characters of base64 are three bytes.
    size = len((part.raw or "").rstrip("=")) * 3 // 4
    return FileItem(name=part.filename, media_type=part.media_type, url=part.url or "", size=size)


def _question_item(state: State, message: Message) -> QuestionItem:
    asked = read_question(message)
    deadline = timestamp(state.deadline) if state.deadline else asked.deadline
    return QuestionItem(text=asked.text, schema=asked.schema, choices=[*asked.choices], deadline=deadline)


def answer_text(state: State, answer: Result) -> str:
    """What a task has answered so far, and after that what it asks."""
    text, said = answer.text, text_of(state.status_message)
    return f"{text}\n{said}" if state.interrupted and said not in ("", text) else text


def child_item(head: Head, origin: str) -> ChildItem:
    """A child by its head."""
    return ChildItem(task_id=head.task_id, agent=head.agent or origin, state=plain_state(head.state))


def delivery_item(record: DeliveryRecord) -> DeliveryItem:
    """A delivery without its tenant, and without more of its address than the host."""
    return DeliveryItem(
        id=record.id,
        task_id=record.task_id,
        seq=record.seq,
        config=record.target,
        host=record.host,
        state=record.state,
        attempts=record.attempts,
        status=record.status,
        note=record.note,
        at=timestamp(record.at) if record.at else "",
        due=timestamp(record.due) if record.due else "",
    )


def event_row(recorded: Recorded) -> EventRow:
    """An event at its place: its kind, and those of its members that say something."""
    event = recorded.event
    row: EventRow = {
        "seq": recorded.seq,
        "at": timestamp(recorded.at),
        "kind": type(event).__struct_config__.tag,
    }
    if isinstance(event, Stepped | Unread):
        # What a step gave is the skill's own; what a newer version wrote nobody here can judge.
        return row | ({"place": event.place, "name": event.name} if isinstance(event, Stepped) else {})
    for name, value in msgspec.structs.asdict(event).items():
        if name in _UNSHOWN:
            continue
        if name in _TIMES:
            shown = timestamp(value) if 0 < value < NEVER else None
        else:
            # Only tuples of texts, of artifacts and of candidates occur.
            several = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
            shown = _shown(value) if several is None else [_shown(one) for one in several]
        if shown not in (None, "", (), []):
            row[_camel(name)] = shown
    return row


def _shown(value: Any) -> Any:
    match value:
        case Message():
            return msgspec.Raw(V03.message(value))
        case Artifact():
            return msgspec.Raw(V03.artifact(value))
        case Candidate():
            return msgspec.to_builtins(value)
        case TaskState():
            return plain_state(value)
        case PushTarget():
            # The rest of an address may be a secret.
            return {"id": value.id, "url": value.url.partition("?")[0], "version": value.version}
        case _:
            return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join([word.capitalize() for word in others])
