"""Counters of this process: requests, appends, commits, and every change of a task.

Plain integers, so that they cost nothing where nobody serves metrics; `metrics` reads them when it is asked.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import NamedTuple

from trunkline.clock import now_ms
from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.telemetry.logs import TASK_LOG, LoggedTask, change_log

COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
COMMIT_APPENDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 500)
_OUTCOMES: dict[type, str] = {int: "written", Conflict: "conflict", Duplicate: "duplicate"}
_log = logging.getLogger(TASK_LOG)


class AgentSample(NamedTuple):
    """How an agent of a tenant did lately: what ended, by outcome, what it cost, and how long it took."""

    tenant: str
    agent: str
    outcomes: Mapping[str, int]
    cost_usd: float
    # Seconds, by the quantile.
    latency: Mapping[str, float]


class Histogram:
    """A histogram as Prometheus defines it: how many values were at most each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        # One more than there are bounds: what is above them all.
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bound with how many values were not above it; the last one has them all."""
        return list(zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True))


class Counters:
    """The counts of this process since it started."""

    __slots__ = ("appends", "changes", "commit_appends", "commit_seconds", "drifts", "requests")

    def __init__(self, states: Iterable[str]) -> None:
        # By the state that the task was left in.
        self.changes = dict.fromkeys(states, 0)
        # By operation and outcome.
        self.requests: dict[tuple[str, str], int] = {}
        self.appends = dict.fromkeys((*_OUTCOMES.values(), "failed"), 0)
        # By skill.
        self.drifts: dict[str, int] = {}
        self.commit_seconds = Histogram(COMMIT_SECONDS)
        self.commit_appends = Histogram(COMMIT_APPENDS)

    def request(self, operation: str, outcome: str) -> None:
        """Count an answered request."""
        key = (operation, outcome)
        self.requests[key] = self.requests.get(key, 0) + 1

    def drift(self, skill: str) -> None:
        """Count a run whose effects were not those that its skill declares."""
        self.drifts[skill] = self.drifts.get(skill, 0) + 1

    def group(self, outcomes: Sequence[int | StoreError], seconds: float) -> None:
        """Count a group of appends that the store has ended."""
        self.commit_seconds.add(seconds)
        self.commit_appends.add(len(outcomes))
        for outcome in outcomes:
            self.appends[_OUTCOMES.get(type(outcome), "failed")] += 1

    def refusals(self) -> dict[str, int]:
        """How often each reason was given to a caller instead of an answer."""
        found: Counter[str] = Counter()
        for (_, outcome), count in self.requests.items():
            found[outcome] += count
        del found["OK"]
        return found


class TaskObserver:
    """Counts and logs every change of a task that this process commits; called on the hot path."""

    __slots__ = ("_changes", "_names", "_note")

    def __init__(self, counters: Counters, names: Mapping[Enum, str]) -> None:
        self._changes = counters.changes
        self._names = names
        self._note = change_log()

    def __call__(
        self,
        tenant: str,
        head: LoggedTask,
        passed: tuple[Enum, int] | None,
        trace: str,
        correlation: str,
    ) -> None:
        """Count and log a task's new head; `trace` is its `traceparent`.

        `passed` is a state that the same commit went through on the way, with its seq: one append can take
        a task from submitted over working to its end, and both are changes that somebody may wait for.
        """
        names = self._names
        state = names[head.state]
        self._changes[state] += 1
        if passed is not None:
            self._changes[names[passed[0]]] += 1
        if _log.isEnabledFor(logging.INFO):
            now = now_ms()
            if passed is not None:
                self._note((now, tenant, head, names[passed[0]], passed[1], trace, correlation))
            self._note((now, tenant, head, state, head.seq, trace, correlation))
