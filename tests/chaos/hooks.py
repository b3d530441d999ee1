"""Rule H5: every receiver saw every change of state at least once, and first deliveries in order. Pure.

Written without the code it judges: it walks the logs itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from tests.chaos.checker import Violation
from tests.chaos.history import Logged
from trunkline.log import events as ev
from trunkline.wire.types import TaskState


class Arrival(Struct, frozen=True):
    """One POST: which delivery, of which task and event, what it said."""

    id: str
    task_id: str
    seq: int
    state: str


def check_hooks(logs: Iterable[Logged], arrivals: Sequence[Arrival]) -> list[Violation]:
    """What was not told, told in the wrong order, or told under two ids."""
    found: list[Violation] = []
    of_task: dict[str, list[Arrival]] = {}
    for arrival in arrivals:
        of_task.setdefault(arrival.task_id, []).append(arrival)
    for one in logs:
        due = _due(one)
        seen = of_task.pop(one.task_id, [])
        firsts = list(dict.fromkeys(arrival.seq for arrival in seen))
        missing = sorted(set(due) - set(firsts))
        if missing:
            found.append(Violation("H5", one.task_id, f"nobody was told of {missing}"))
        if firsts != sorted(firsts):
            found.append(Violation("H5", one.task_id, f"told in the order {firsts}"))
        for arrival in seen:
            if due.get(arrival.seq) != arrival.state:
                found.append(
                    Violation(
                        "H5", one.task_id, f"{arrival.state} told of {arrival.seq}, {due.get(arrival.seq)}"
                    )
                )
        if len({arrival.id for arrival in seen}) != len(firsts):
            found.append(Violation("H5", one.task_id, "one delivery came under two ids"))
    found += [Violation("H5", task_id, "told of a task that is not there") for task_id in of_task]
    return found


def _due(one: Logged) -> dict[int, str]:
    """The changes of state that a task opened with a target has to tell, by seq."""
    due: dict[int, str] = {}
    state = TaskState.SUBMITTED
    for recorded in one.records:
        if isinstance(recorded.event, ev.Submitted) and recorded.event.push is None:
            return {}
        if isinstance(recorded.event, ev.Status) and recorded.event.state is not state:
            state = recorded.event.state
            due[recorded.seq] = state.value
    return due
