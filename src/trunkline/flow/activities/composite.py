"""Executors of activities that hand on to others by the type of the node, or do the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.flow.activities.base import Activity, ActivityExecutor, Outcome, failed


class CompositeActivities:
    """Gives each activity to whoever does nodes of its type, else to a fallback."""

    def __init__(
        self,
        by_type: Mapping[str, ActivityExecutor],
        fallback: ActivityExecutor | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Take who does what, and for errors the settings by which an operator sets up each type."""
        self._by_type = dict(by_type)
        self._fallback = fallback
        self._settings = settings or {}

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        node = activity.node
        executor = self._by_type.get(node.type, self._fallback)
        if executor is None:
            text = f"{node.id}: nothing is configured for nodes of the type {node.type!r}"
            how = f"; set {self._settings[node.type]}" if node.type in self._settings else ""
            return failed("COMPOSITE_EXECUTOR_NOT_CONFIGURED", text + how)
        return await executor.execute(activity)


class StubActivities:
    """Gives each node the output that is set for it, else an empty one."""

    def __init__(self, outputs: Mapping[str, dict[str, Any]] | None = None) -> None:
        self._outputs = dict(outputs or {})

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        return Outcome(ok=True, output=dict(self._outputs.get(activity.node.id, {})))
