"""Tasks that come to an end in a store, and a calculation of their health that shares nothing with ours."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from typing import Any, NamedTuple

from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.store.base import Store
from trunkline.wire.types import Artifact, Message, Part, TaskState

NOW = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
COST_URI = "https://proto-labs.ai/a2a/ext/cost-v1"


class Ended(NamedTuple):
    """A task by what the calculation needs of it."""

    agent: str
    skill: str
    state: TaskState
    at: int
    ms: int
    cost: float


class Moment:
    """A clock that only a test moves."""

    def __init__(self) -> None:
        self.ms = NOW

    def __call__(self) -> int:
        return self.ms


async def append(store: Store, state: State, *events: ev.AnyEvent, at: int, tenant: str = "north") -> None:
    """Add events to a task as the runner does."""
    head = head_after(state, events, at)
    last = await store.log.append(tenant, state.task_id, state.seq, events, at=at, head=head)
    for place, event in enumerate(events):
        state.apply(ev.Recorded(last - len(events) + place + 1, at, event))


def submitted(agent: str = "desk", skill: str = "work", **members: Any) -> ev.Submitted:
    said = Message("m-1", parts=(Part(text="hello"),))
    return ev.Submitted(said, "ctx", "ann", "n1", agent=agent, skill=skill, **members)


async def run_task(
    store: Store, task_id: str, one: Ended, *, tenant: str = "north", parent: str = ""
) -> None:
    """A task from its first event to its end, in two appends."""
    state = State(task_id)
    await append(
        store, state, submitted(one.agent, one.skill, parent=parent), at=one.at - one.ms, tenant=tenant
    )
    report = Artifact("a", parts=(Part(text="x"),), metadata={COST_URI: {"costUsd": one.cost}})
    await append(store, state, ev.Chunk(report), ev.Status(one.state), at=one.at, tenant=tenant)


def calculated(tasks: Sequence[Ended], agent: str, now: int, window: int = DAY) -> dict[str, Any]:
    """The health of an agent by the definitions, from a plain list of what ended."""
    mine = [one for one in tasks if one.agent == agent and one.at >= now - window]
    recent = [one for one in mine if one.at >= now - HOUR]
    ordered = sorted(one.ms for one in mine)
    size = len(ordered)
    good = sum(one.state is TaskState.COMPLETED for one in mine)
    return {
        "total": size,
        "success_rate": good / size if size else None,
        "p50_ms": ordered[min(floor(size * 0.5), size - 1)] if size else None,
        "p95_ms": ordered[min(floor(size * 0.95), size - 1)] if size else None,
        "cost_usd": sum(one.cost for one in mine),
        "failure_rate_1h": sum(one.state is TaskState.FAILED for one in recent) / len(recent)
        if recent
        else 0.0,
    }
