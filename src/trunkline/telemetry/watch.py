"""Told of every change of a task that this process has committed: counts it and logs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from trunkline.clock import now_ms
from trunkline.telemetry.counts import Counts
from trunkline.telemetry.lines import TASK_LOG, LineHead
from trunkline.telemetry.logs import change_log

_log = logging.getLogger(TASK_LOG)


class Watch:
    """Called on the hot path with a tenant, the new head and the `traceparent` of the task."""

    __slots__ = ("_changes", "_names", "_note")

    def __init__(self, counts: Counts, names: Mapping[Enum, str]) -> None:
        self._changes = counts.changes
        self._names = names
        self._note = change_log()

    def __call__(self, tenant: str, head: LineHead, trace: str, passed: tuple[Enum, int] | None) -> None:
        """Take a change in, and the state that was passed through on the way to it, with its seq."""
        names = self._names
        state = names[head.state]
        self._changes[state] += 1
        if passed is not None:
            self._changes[names[passed[0]]] += 1
        if _log.isEnabledFor(logging.INFO):
            now = now_ms()
            if passed is not None:
                self._note((now, tenant, head, names[passed[0]], passed[1], trace))
            self._note((now, tenant, head, state, head.seq, trace))
