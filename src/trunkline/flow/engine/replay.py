"""The rows of a run against the walk that comes by them again. Pure.

Commands must come in the order in which they are recorded. Results are taken in their order, each by the walk
through its node, and never before the commands that were written before them. What is recorded is not written
again; an event that was left out before a later command stays out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from trunkline.flow.engine.effects import (
    UNRECORDED,
    Ask,
    CheckState,
    Delegate,
    Done,
    Effect,
    Evaluate,
    Nest,
    Perform,
    RecordRows,
    Sleep,
)
from trunkline.flow.engine.rows import SUBMITTED, is_command, node_of
from trunkline.log.events import FlowRow
from trunkline.wire.types import Metadata

_RESULTS = frozenset({"ActivityCompleted", "ActivityFailed", "SubworkflowCompleted", "TimerFired"})
# Stands for a result that is not recorded, as a result may be None.
MISSING: Any = object()


class StrayError(Exception):
    """The walk does something else than what is recorded of it."""

    def __init__(self, index: int, expected: Metadata, actual: Metadata) -> None:
        super().__init__(
            f"the definition does not lead to what is recorded: command index {index} is "
            f"{expected['name']} of {expected['nodeId']!r}, and the walk comes to "
            f"{actual['name']} of {actual['nodeId']!r}"
        )
        self.context = {"expected": expected, "actual": actual}


class History:
    """The rows that a run had when this walk began; none for a new one."""

    __slots__ = ("_at", "_commands", "_results", "_rows", "_submitted", "_taken")

    def __init__(self, rows: Sequence[FlowRow] = ()) -> None:
        self._rows = rows
        self._at = 0
        self._commands: list[int] = []
        self._results: dict[str | None, deque[int]] = {}
        # The IDs of external tasks, by node, visit and attempt.
        self._submitted: dict[tuple[str, int, int], str] = {}
        # How many commands the walk has come by.
        self._taken = 0
        for place, row in enumerate(rows):
            if is_command(row.name):
                self._commands.append(place)
            elif row.name in _RESULTS:
                self._results.setdefault(node_of(row), deque()).append(place)
            elif row.name == SUBMITTED:
                told = row.payload
                self._submitted[told["nodeId"], told["_visit"], told["attempt"]] = told["externalTaskId"]

    @property
    def over(self) -> bool:
        """Whether everything that is recorded has been come by."""
        return self._at >= len(self._rows)

    def external_task(self, effect: Delegate) -> str:
        """Return the ID of the external task that was submitted for an attempt, or an empty string."""
        return self._submitted.get((effect.node.id, effect.visit, effect.attempt), "")

    @property
    def _limit(self) -> int:
        """The place of the next command."""
        if self._taken < len(self._commands):
            return self._commands[self._taken]
        return len(self._rows)

    def next_command(self) -> FlowRow | None:
        """The command that comes next, if one is recorded."""
        limit = self._limit
        return self._rows[limit] if limit < len(self._rows) else None

    @property
    def is_past_check(self) -> bool:
        """Return whether the next command proves that the state fit its schema here."""
        following = self.next_command()
        return following is not None and following.name != "FailNode"

    def command(self, name: str, node: str | None) -> Metadata | None:
        """What is recorded of a command; None if it is to be written.

        Raises:
            StrayError: another one is recorded.
        """
        if self.over:
            return None
        place = self._limit
        if place == len(self._rows):
            self._at = place
            return None
        row = self._rows[place]
        if row.name != name or node_of(row) != node:
            expected = {"name": row.name, "seq": place + 1, "nodeId": node_of(row)}
            raise StrayError(self._taken + 1, expected, {"name": name, "nodeId": node})
        self._at = place + 1
        self._taken += 1
        return row.payload

    def event(self, name: str, node: str | None) -> Metadata | None:
        """What is recorded of an event, nothing if it was left out; None if it is to be written."""
        if self.over:
            return None
        limit = self._limit
        for place in range(self._at, limit):
            row = self._rows[place]
            if row.name == name and node_of(row) == node:
                self._at = place + 1
                return row.payload
        return {} if limit < len(self._rows) or self._has_result(node, limit) else None

    def _has_result(self, node: str | None, limit: int) -> bool:
        found = self._results.get(node)
        return bool(found) and found[0] < limit

    def place(self, effect: Effect) -> int | None:
        """Where what an effect gave is recorded, before the next command or as it; None if nowhere."""
        limit = self._limit
        if isinstance(effect, UNRECORDED) or not self._rows:
            return None
        node = effect.node.id
        if isinstance(effect, Sleep) and not effect.fires:
            return self._retried(node, limit)
        if self._has_result(node, limit):
            return self._results[node][0]
        following = self.next_command()
        if following is None or node_of(following) != node:
            return None
        return limit if following.name in _ANSWERING[type(effect)] else None

    def _retried(self, node: str, limit: int) -> int | None:
        """A pause is over if what comes after it is recorded."""
        for place in range(self._at, limit):
            if node_of(self._rows[place]) == node:
                return place
        return None

    def take(self, effect: Effect) -> Any:
        """What an effect gave, once; `MISSING` if that is not recorded."""
        place = self.place(effect)
        if place is None or isinstance(effect, UNRECORDED):
            return MISSING
        row = self._rows[place]
        queue = self._results.get(effect.node.id)
        if queue and queue[0] == place:
            queue.popleft()
        payload = row.payload
        match effect:
            case Sleep():
                return None
            case Ask(awaits="signal"):
                return payload.get("payload", {})
            case Ask():
                return (
                    payload["_payload"]
                    if "_payload" in payload
                    else self._output_after(place, effect.node.id)
                )
            case Nest():
                return _nested(payload)
            case Perform() | Delegate():
                return _performed(row)

    def _output_after(self, place: int, node: str) -> object:
        for row in self._rows[place + 1 :]:
            if row.name == "CompleteNode" and node_of(row) == node:
                return row.payload.get("output", {})
        return MISSING


# The commands that tell what an effect gave where no event does.
_ANSWERING: dict[type[Effect], tuple[str, ...]] = {
    Perform: ("CompleteNode",),
    Delegate: ("CompleteNode",),
    Nest: ("CompleteSubworkflow", "CompleteNode"),
    Sleep: ("CompleteNode",),
    Ask: ("ResumeInterrupt", "DeliverSignal"),
    Evaluate: (),
    CheckState: (),
    RecordRows: (),
}


def _nested(payload: Metadata) -> Done:
    if payload.get("failed"):
        return Done(ok=False, error=str(payload.get("error", "")), code=payload.get("_code", ""))
    output = payload.get("mergedOutput", payload.get("childFinalState", payload.get("output", {})))
    return Done(ok=True, output=output, result=payload.get("childResult", output))


def _performed(row: FlowRow) -> Done:
    payload = row.payload
    if row.name == "ActivityFailed":
        return Done(
            ok=False,
            error=payload.get("error", ""),
            code=payload.get("code", ""),
            by_host=bool(payload.get("_host")),
        )
    return Done(
        ok=True,
        output=payload.get("result", payload.get("output", {})),
        external_task=payload.get("externalTaskId", ""),
        by_host="nodeType" in payload,
    )
