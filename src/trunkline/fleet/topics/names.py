"""An event of a task → the topics that it is told under, each with its payload. Pure.

A payload is made of named members only: ids, states, numbers, and the beginnings of texts. Whatever else an
event holds (targets of notifications, headers, metadata, what steps gave) is in no topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.client.result import CONFIDENCE, COST, number, report_in, text_of
from trunkline.fleet.health.prices import cost_of, tokens_of
from trunkline.log import events as ev
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import INTERRUPTED, TERMINAL, Artifact, Message, Metadata, TaskState

DELTA = "worldstate-delta-v1"
PREVIEW = 500
# Longer names are cut, and so are longer lists.
NAME_SIZE, _ROWS = 128, 20
_CEREMONY = "ceremony:"
# The kinds that have a topic, perhaps: what belongs to a task needs looking up for no other.
NAMED = (
    ev.Submitted, ev.Routed, ev.FollowUp, ev.Status, ev.Chunk, ev.Replied, ev.QuestionClosed, ev.Compacted
)  # fmt: skip
Payload = dict[str, Any]
Topics = Iterator[tuple[str, Payload]]


class NamedTask(Struct):
    """What the topics of a task need to know of it; `asks` is its state while it asks something."""

    task_id: str
    context_id: str
    agent: str
    skill: str
    correlation_id: str
    trigger: str = ""
    parent: str = ""
    asks: TaskState | None = None


def named_task(task_id: str, event: ev.Submitted, origin: str) -> NamedTask:
    """A task by its first event; one that names no agent is that of the agent at the origin."""
    told = (event.metadata or {}).get(ev.DISPATCH_KEY)
    given = cast("Metadata", told) if isinstance(told, dict) else {}
    return NamedTask(
        task_id,
        event.context_id,
        (event.agent or origin)[:NAME_SIZE],
        event.skill[:NAME_SIZE],
        _text(given.get("correlationId"), NAME_SIZE) or task_id,
        _text(given.get("trigger"), NAME_SIZE),
        event.parent,
    )


def ends(event: ev.AnyEvent) -> bool:
    """Whether a task has come to its end with an event."""
    return isinstance(event, ev.Replied) or (isinstance(event, ev.Status) and event.state in TERMINAL)


def topics_of(task: NamedTask, event: ev.AnyEvent, answer: str = "") -> Topics:
    """The topics of the next event of a task, in a fixed order; `answer` is what it gave, if this ends it."""
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
        case ev.Replied(message=message):
            task.asks = None
            yield from _reports(task, (message,))
            yield from _ended(task, TaskState.COMPLETED, text_of(message) or answer)
        case ev.Status():
            task.asks = event.state if event.state in INTERRUPTED else None
            yield from _status(task, event, answer)
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


def _status(task: NamedTask, event: ev.Status, answer: str) -> Topics:
    said = event.message
    text = text_of(said)
    if said is not None:
        yield from _reports(task, (said,))
    if event.state in TERMINAL:
        yield from _ended(task, event.state, text or answer)
    elif event.state in INTERRUPTED:
        known: Payload = {"state": plain_state(event.state)}
        known |= {"question": said.message_id[:NAME_SIZE]} if said is not None else {}
        known |= {"deadline": timestamp(event.deadline)} if event.deadline else {}
        yield _scoped(task, "hitl.request"), _about(task, text, **known)
    elif text:
        yield _scoped(task, "agent.skill.progress"), _about(task, text, state=plain_state(event.state))


def _ended(task: NamedTask, state: TaskState, text: str) -> Topics:
    outcome: Payload = {"state": plain_state(state), "success": state is TaskState.COMPLETED}
    yield _scoped(task, "agent.skill.response"), _about(task, text, **outcome)
    yield _by_agent(task, "outcome"), _about(task, **outcome)
    if ceremony := _ceremony(task):
        yield f"ceremony.{ceremony}.completed", _about(task, text, **outcome)


def _reports(task: NamedTask, holders: Iterable[Message | Artifact]) -> Topics:
    for holder in holders:
        if (cost := report_in(holder, COST)) is not None:
            into, out = tokens_of(cost)
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
