"""A run as a tree in the terminal: each node with how it stands, while it runs and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.tree import Tree

from trunkline.cli.console import escape_controls
from trunkline.cli.flow_operations import FlowOperations
from trunkline.flow.definition.document import Definition
from trunkline.flow.definition.drawing import Branch, tree

_LOOK_S = 0.1
_MARKS = {"done": "✓", "failed": "✗", "running": "●", "waiting": "…", "cancelled": "-"}
_COLOURS = {"done": "green", "failed": "red", "running": "cyan", "waiting": "yellow", "cancelled": "dim"}
# How a node stands once there is a row of this name.
_STATES = {
    "ScheduleNode": "running",
    "CompleteNode": "done",
    "FailNode": "failed",
    "InterruptRaised": "waiting",
    "SignalWaitStarted": "waiting",
    "TimerStarted": "waiting",
    "ExecutionCancelled": "cancelled",
}


def states_of(rows: Iterable[dict[str, Any]], known: dict[str, str] | None = None) -> dict[str, str]:
    """How each node of a run stands by its rows, beginning with what was known."""
    states = dict(known or {})
    for row in rows:
        node = row["payload"].get("nodeId")
        state = _STATES.get(row["name"])
        if node and state:
            states[node] = state
        elif node and row["name"] == "ActivityFailed" and not row["payload"].get("willRetry"):
            states[node] = "failed"
    return states


def drawn(definition: Definition, states: dict[str, str] | None = None) -> Tree:
    """The nodes of a definition in the order of a walk; of a run, each with how it stands."""
    root = Tree(escape_controls(f"{definition.name} {definition.version}"))
    _hang(root, tree(definition), states)
    return root


def _hang(on: Tree, branches: tuple[Branch, ...], states: dict[str, str] | None) -> None:
    for one in branches:
        state = (states or {}).get(one.node, "") if one.node else ""
        text = f"{_MARKS[state]} {one.text}  {state}" if state else one.text
        if one.node and not state and states is not None:
            # In line with those that have a mark.
            text = f"  {text}"
        _hang(on.add(escape_controls(text), style=_COLOURS.get(state, "")), one.below, states)


class LiveTree:
    """Shows a run on a terminal while somebody waits for it."""

    def __init__(self, operations: FlowOperations, definition: Definition, execution_id: str) -> None:
        self._operations = operations
        self._definition = definition
        self._execution_id = execution_id
        self._states: dict[str, str] = {}
        self._seen = 0

    async def during(self, work: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
        """The result of the work; while it goes on the tree is drawn anew as rows come."""
        console = Console(stderr=True, highlight=False, markup=False)
        with Live(drawn(self._definition, {}), console=console, auto_refresh=False) as live:
            while not work.done():
                await asyncio.wait([work], timeout=_LOOK_S)
                await self._look()
                live.update(drawn(self._definition, self._states), refresh=True)
        return await work

    async def _look(self) -> None:
        try:
            page = await self._operations.events(self._execution_id, self._seen + 1, 1000)
        except Exception:  # noqa: BLE001 - it may not be there yet; what is wrong is told by the work itself
            return
        rows = page["events"]
        if rows:
            self._seen = rows[-1]["seq"]
            self._states = states_of(rows, self._states)
