"""Maps an event of a task to the topics that it is sent under, each with its payload. Pure.

A payload has named members only: ids, states, numbers, and the first characters of texts. Everything else
in an event (targets of notifications, headers, metadata, results of steps) is in no topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.client.result import CONFIDENCE, COST, artifact_text, number, report_in, text_of
from trunkline.fleet.health.prices import cost_of, tokens_of
from trunkline.log import events as ev
from trunkline.log.correlation import correlation_id_of
from trunkline.wire.reports import UNTOLD
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import INTERRUPTED, TERMINAL, Artifact, Message, Metadata, TaskState

DELTA = "worldstate-delta-v1"
PREVIEW = 500
# Longer names are cut, and so are longer lists.
NAME_SIZE, _ROWS = 128, 20
_CEREMONY = "ceremony:"
# The kinds of event that may have a topic. A task is looked up for these only.
NAMED = (
    ev.Submitted, ev.Routed, ev.FollowUp, ev.Status, ev.Delta, ev.Chunk, ev.Replied, ev.QuestionClosed,
    ev.Compacted, ev.Stepped,
)  # fmt: skip
Payload = dict[str, Any]
Topics = Iterator[tuple[str, Payload]]


class NamedTask(Struct):
    """The facts of a task that its topics show.

    `asks` is the state of the task while it asks something. `began` is the time of its first event, and
    `usage` the tokens in and out that it has reported.
    """

    task_id: str
    context_id: str
    agent: str
    skill: str
    correlation_id: str
    trigger: str = ""
    parent: str = ""
    asks: TaskState | None = None
    began: int = 0
    usage: tuple[int, int] = (0, 0)


def named_task(task_id: str, at: int, event: ev.Submitted, origin: str) -> NamedTask:
    """Return a task by its first event; one that names no agent belongs to the agent at the origin."""
    told = (event.metadata or {}).get(ev.DISPATCH_KEY)
    given = cast("Metadata", told) if isinstance(told, dict) else {}
    return NamedTask(
        task_id,
        event.context_id,
        (event.agent or origin)[:NAME_SIZE],
        event.skill[:NAME_SIZE],
        correlation_id_of(event.correlation, event.metadata)[:NAME_SIZE] or task_id,
        _text(given.get("trigger"), NAME_SIZE),
        event.parent or ("" if event.correlation is None else event.correlation.parent_id[:NAME_SIZE]),
        began=at,
    )


def ends(event: ev.AnyEvent) -> bool:
    """Return whether an event ends its task."""
    return isinstance(event, ev.Replied) or (isinstance(event, ev.Status) and event.state in TERMINAL)


class TextPiece(Struct, frozen=True):
    """Text of an artifact: added to the text before it with `append`, else in the place of that text."""

    artifact_id: str
    text: str
    append: bool


def pieces_of(event: ev.AnyEvent) -> list[TextPiece]:
    """Return the text that an event adds to artifacts."""
    match event:
        case ev.Delta(artifact_id=artifact_id, text=text, append=append):
            found = [TextPiece(artifact_id, text, append)]
        case ev.Chunk(artifact=artifact, append=append):
            found = [TextPiece(artifact.artifact_id, artifact_text(artifact), append)]
        case ev.Compacted(artifacts=artifacts):
            found = [TextPiece(one.artifact_id, artifact_text(one), append=False) for one in artifacts]
        case _:
            found = []
    return [piece for piece in found if piece.text]


def progress_topic(task: NamedTask) -> str:
    """Return the topic of the text that a task writes while it works."""
    return _scoped(task, "agent.skill.progress")


def progress_of(task: NamedTask, piece: TextPiece) -> Payload:
    """Return the payload for text of an artifact."""
    return _about(task, piece.text, artifactId=piece.artifact_id[:NAME_SIZE], append=piece.append)


def topics_of(task: NamedTask, at: int, event: ev.AnyEvent, answer: str = "") -> Topics:
    """Yield the topics of the next event of a task, in a fixed order.

    `at` is the time of the event. `answer` is the text of the task, if the event ends it. The text of
    artifacts is not among the topics: `pieces_of` yields it, so that readers can join it.
    """
    match event:
        case ev.Submitted(message=message):
            yield from _request(task, message)
        case ev.Routed() if event.refusal:
            yield f"dispatch.dropped.{_segment(event.refusal)}", _dropped(task, event)
        case ev.FollowUp(message=message, by=by):
            if task.asks is not None:
                answered = {"answeredBy": by[:NAME_SIZE]} if by else {}
                # What somebody says to a login may be a secret.
                text = "" if task.asks is TaskState.AUTH_REQUIRED else text_of(message)
                yield _scoped(task, "hitl.response"), _about(task, text, **answered)
        case ev.QuestionClosed(withdrawn=withdrawn):
            if not withdrawn:
                yield _scoped(task, "hitl.expired"), _about(task)
        case ev.Chunk(artifact=artifact):
            yield from _reports(task, (artifact,))
        case ev.Compacted(artifacts=artifacts):
            yield from _reports(task, artifacts)
        case ev.Stepped(name=name, result=result):
            # An author may give a step of its own this name.
            if name == UNTOLD and isinstance(result, dict):
                yield from _reports(task, (Artifact(UNTOLD, metadata=cast("Metadata", result)),))
        case ev.Replied(message=message):
            task.asks = None
            yield from _reports(task, (message,))
            yield from _ended(task, at, TaskState.COMPLETED, text_of(message) or answer)
        case ev.Status():
            task.asks = event.state if event.state in INTERRUPTED else None
            yield from _status(task, at, event, answer)
        case _:
            pass


def _request(task: NamedTask, message: Message) -> Topics:
    known: Payload = {"contextId": task.context_id}
    known |= {"parentId": task.parent} if task.parent else {}
    known |= {"trigger": task.trigger} if task.trigger else {}
    text = text_of(message)
    yield "agent.skill.request", _about(task, text, **known)
    if ceremony := _ceremony(task):
        yield f"ceremony.{ceremony}.execute", _about(task, text)


def _dropped(task: NamedTask, event: ev.Routed) -> Payload:
    targets = [one[:NAME_SIZE] for one in event.targets[:_ROWS]]
    return {
        "taskId": task.task_id,
        "reason": event.refusal[:NAME_SIZE],
        "skill": event.skill[:NAME_SIZE],
        "targets": targets,
        "textPreview": event.reason[:PREVIEW],
    }


def _status(task: NamedTask, at: int, event: ev.Status, answer: str) -> Topics:
    said = event.message
    text = text_of(said)
    if said is not None:
        yield from _reports(task, (said,))
    if event.state in TERMINAL:
        is_completed = event.state is TaskState.COMPLETED
        yield from _ended(task, at, event.state, answer or text if is_completed else text or answer)
    elif event.state in INTERRUPTED:
        known: Payload = {"state": plain_state(event.state)}
        known |= {"question": said.message_id[:NAME_SIZE]} if said is not None else {}
        known |= {"deadline": timestamp(event.deadline)} if event.deadline else {}
        yield _scoped(task, "hitl.request"), _about(task, text, **known)
    elif text:
        yield progress_topic(task), _about(task, text, state=plain_state(event.state))


def _ended(task: NamedTask, at: int, state: TaskState, text: str) -> Topics:
    outcome: Payload = {"state": plain_state(state), "success": state is TaskState.COMPLETED}
    yield _scoped(task, "agent.skill.response"), _about(task, text, **outcome)
    spent: Payload = {"systemActor": task.agent, "durationMs": max(at - task.began, 0)}
    spent |= {"trigger": task.trigger} if task.trigger else {}
    if any(task.usage):
        spent["usage"] = dict(zip(("input_tokens", "output_tokens"), task.usage, strict=True))
    yield _by_agent(task, "outcome"), _about(task, text, **outcome, **spent)
    if ceremony := _ceremony(task):
        yield f"ceremony.{ceremony}.completed", _about(task, text, **outcome)


def _reports(task: NamedTask, holders: Iterable[Message | Artifact]) -> Topics:
    for holder in holders:
        if (cost := report_in(holder, COST)) is not None:
            task.usage = into, out = tokens_of(cost)
            yield (
                _by_agent(task, "cost"),
                _about(task, costUsd=cost_of(cost), inputTokens=into, outputTokens=out),
            )
        if (sure := report_in(holder, CONFIDENCE)) is not None:
            yield (
                _by_agent(task, "confidence"),
                _about(
                    task, _text(sure.get("explanation"), PREVIEW), confidence=number(sure.get("confidence"))
                ),
            )
        if (made := report_in(holder, DELTA)) is not None:
            yield "world.state.delta", _about(task, deltas=_deltas(made.get("deltas")))


def _deltas(told: object) -> list[Payload]:
    rows = cast("list[object]", told)[:_ROWS] if isinstance(told, list) else []
    found = [cast("Metadata", row) for row in rows if isinstance(row, dict)]
    return [
        {name: _text(row.get(name), NAME_SIZE) for name in ("domain", "path", "op")}
        | {"value": _value(row.get("value"))}
        for row in found
    ]


def _value(value: object) -> object:
    """A plain value as it is; of any other the beginning of its JSON."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return (value if isinstance(value, str) else msgspec.json.encode(value).decode())[:PREVIEW]


def _about(task: NamedTask, text: str = "", **known: object) -> Payload:
    payload: Payload = {"taskId": task.task_id, "agent": task.agent, "skill": task.skill, **known}
    return payload | {"textPreview": text[:PREVIEW]} if text else payload


def _scoped(task: NamedTask, name: str) -> str:
    return f"{name}.{_segment(task.correlation_id)}"


def _by_agent(task: NamedTask, kind: str) -> str:
    return f"autonomous.{kind}.{_segment(task.agent)}.{_segment(task.skill)}"


def _ceremony(task: NamedTask) -> str:
    found = task.trigger.removeprefix(_CEREMONY)
    return _segment(found) if found and found != task.trigger else ""


def _segment(text: str) -> str:
    """A text as one segment: what would be a dot or a wildcard in it is escaped; `-` if it is empty."""
    return quote(text, safe="", errors="replace").replace(".", "%2E") or "-"


def _text(value: object, limit: int) -> str:
    return value[:limit] if isinstance(value, str) else ""
