"""The events of a task → what became of it. Pure.

Only what is counted is kept of a task, so that ten thousand open ones cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from msgspec import UNSET, Struct

from trunkline.client.result import CONFIDENCE, COST, number, report_in, text_of
from trunkline.fleet.health.prices import cost_of, tokens_of
from trunkline.log.correlation import correlation_id_of
from trunkline.log.events import (
    AnyEvent,
    Chunk,
    Compacted,
    Recorded,
    Replied,
    Status,
    Stepped,
    Submitted,
    spanned,
)
from trunkline.wire.reports import SPENT, UNTOLD
from trunkline.wire.types import INTERRUPTED, RESTING, Artifact, Message, Metadata, TaskState

# The classes, by their numbers in what is stored. A task that asks has not ended; all others have.
CLASSES = ("completed", "failed", "canceled", "rejected", "input-required")
COMPLETED, FAILED, CANCELED, REJECTED, ASKED = range(5)
# The kind of an outcome that is the cost of a model call of a task at work; periods keep no row of it.
CALLED = 5
_CLASS = {
    TaskState.COMPLETED: COMPLETED,
    TaskState.FAILED: FAILED,
    TaskState.CANCELED: CANCELED,
    TaskState.REJECTED: REJECTED,
}
_REPORTS = (COST, CONFIDENCE)
# Longer names and reasons are cut.
_NAME_LENGTH, _REASON_LENGTH = 128, 200
_GOAL_MISSED = "completed and reported success: false"


class TaskOutcome(Struct, frozen=True, array_like=True, gc=False):
    """A task that ended or asked, with the agent that did the work.

    `ms` is the time from its first event to its end. `caller` is the agent that requested the task, and
    `principal` owns it. `task`, `correlation` and `reason` are set only for a failed task. The quota has
    counted the cost already where `is_charged`.
    """

    tenant: str
    agent: str
    skill: str
    at: int
    kind: int
    ms: int = 0
    cost: float | None = None
    confidence: float | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    caller: str = ""
    task: str = ""
    correlation: str = ""
    principal: str = ""
    reason: str = ""
    is_charged: bool = False


class OpenTask:
    """What is kept of a task until it ends: who does it, since when, and what it has reported."""

    __slots__ = (
        "_called",
        "_reports",
        "agent",
        "caller",
        "created_at",
        "correlation",
        "parent",
        "principal",
        "seq",
        "skill",
    )

    def __init__(self, seq: int, at: int, event: Submitted) -> None:
        self.seq = seq
        self.created_at = at
        self.agent = event.agent
        self.skill = event.skill[:_NAME_LENGTH]
        self.parent = event.parent
        self.principal = event.principal
        # The agent of the parent, once somebody has found it.
        self.caller = ""
        self.correlation = correlation_id_of(event.correlation, event.metadata)[:_NAME_LENGTH]
        # By artifact, in the order in which these were made.
        self._reports: dict[str, dict[str, Metadata]] = {}
        # The model calls that were recorded while the task worked: their cost, and tokens in and out.
        self._called = (0.0, 0, 0)

    def take(self, last: int, events: Sequence[AnyEvent]) -> None:
        """Take the next append in, unless something is missing between it and what was taken."""
        if last - len(events) != self.seq and not last - spanned(events) <= self.seq < last:
            return
        self.seq = last
        for event in events:
            if type(event) is Chunk:
                self._read(event.artifact, event.append)
            elif type(event) is Compacted:
                for artifact in event.artifacts:
                    self._read(artifact, False)
            # An author may name a step of its own like that.
            elif type(event) is Stepped and event.name == UNTOLD and isinstance(event.result, dict):
                self._read(Artifact(UNTOLD, metadata=cast("Metadata", event.result)), False)
            elif (body := _call_in(event)) is not None:
                cost, into, out = self._called
                more_in, more_out = tokens_of(body)
                self._called = cost + (cost_of(body) or 0.0), into + more_in, out + more_out

    def calls(self, tenant: str, at: int, events: Sequence[AnyEvent]) -> list[TaskOutcome]:
        """Return the costs of the model calls that an append records."""
        bodies = [body for event in events if (body := _call_in(event)) is not None]
        return [
            TaskOutcome(
                tenant,
                self.agent,
                self.skill,
                at,
                CALLED,
                cost=cost_of(body),
                tokens_in=tokens_of(body)[0],
                tokens_out=tokens_of(body)[1],
                principal=self.principal,
            )
            for body in bodies
        ]

    def outcome(
        self, tenant: str, task_id: str, at: int, state: TaskState, said: Message | None
    ) -> TaskOutcome:
        """Return the outcome of the task for a state that ends it or asks, with its message."""
        if state in INTERRUPTED:
            return TaskOutcome(tenant, self.agent, self.skill, at, ASKED)
        kind, into, out = _CLASS[state], 0, 0
        spent = sure = None
        if self._reports or said is not None:
            cost, confidence = self._report(COST, said), self._report(CONFIDENCE, said)
            if kind == COMPLETED and False in (cost.get("success"), confidence.get("success")):
                # It came to its end without having reached its goal.
                kind = FAILED
            into, out = tokens_of(cost)
            spent = cost_of(cost)
            sure = number(confidence.get("confidence"))
        if spent is None and any(self._called):
            spent, into, out = self._called
        failed = kind == FAILED
        reason = text_of(said) if state is TaskState.FAILED else _GOAL_MISSED
        return TaskOutcome(
            tenant,
            self.agent,
            self.skill,
            at,
            kind,
            max(at - self.created_at, 0),
            spent,
            None if sure is None else min(max(sure, 0.0), 1.0),
            into,
            out,
            self.caller,
            task_id if failed else "",
            (self.correlation or task_id) if failed else "",
            self.principal,
            reason[:_REASON_LENGTH] if failed else "",
            any(self._called),
        )

    def _read(self, artifact: Artifact, append: bool) -> None:
        if not self._reports and not artifact.metadata:
            for part in artifact.parts:
                if part.data is not UNSET:
                    break
            else:
                # Most say nothing of the run.
                return
        known = self._reports.get(artifact.artifact_id, {}) if append else {}
        found = {name: body for name in _REPORTS if (body := report_in(artifact, name)) is not None}
        if found or known:
            # What an artifact said first counts, as for who reads its answer.
            self._reports[artifact.artifact_id] = {**found, **known}
        elif self._reports:
            self._reports.pop(artifact.artifact_id, None)

    def _report(self, name: str, said: Message | None) -> Metadata:
        for found in self._reports.values():
            if name in found:
                return found[name]
        return (None if said is None else report_in(said, name)) or {}


def _call_in(event: AnyEvent) -> Metadata | None:
    """Return the cost report of a model call that an event records."""
    if type(event) is Stepped and event.name == SPENT and isinstance(event.result, dict):
        return cast("Metadata", event.result)
    return None


def has_calls(events: Iterable[AnyEvent]) -> bool:
    """Return whether an append records a model call."""
    return any(_call_in(event) is not None for event in events)


def counted(events: Iterable[AnyEvent]) -> list[tuple[TaskState, Message | None]]:
    """The states among these events that end a task or ask, each with what was said."""
    found: list[tuple[TaskState, Message | None]] = []
    for event in events:
        if type(event) is Status:
            if event.state in RESTING:
                found.append((event.state, event.message))
        elif type(event) is Replied:
            found.append((TaskState.COMPLETED, event.message))
    return found


def replay(recorded: Iterable[Recorded], until: int, found: OpenTask | None = None) -> OpenTask | None:
    """A task as it was with the event `until`, from its log, of which `found` has the beginning."""
    for one in recorded:
        if one.seq > until:
            break
        if isinstance(one.event, Submitted):
            found = OpenTask(one.seq, one.at, one.event)
        elif found is not None:
            found.take(one.seq, (one.event,))
    return found
