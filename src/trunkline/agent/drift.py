"""Compares what skills declare with what their runs report. Says so; a run is never changed for it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from msgspec import Struct

from trunkline.agent.declaration import Effect
from trunkline.agent.extensions import Change, RunReport, is_number
from trunkline.agent.skill import Skill

log = logging.getLogger("trunkline.agent")
KEPT = 64
TEXT_LIMIT = 256
_Place = tuple[str, str]


class Drifted(Struct, frozen=True):
    """A run whose effects are not those that its skill declares, each as `domain:path` and its sign."""

    task_id: str
    skill: str
    missing: tuple[str, ...]
    undeclared: tuple[str, ...]


def _nobody(skill: str) -> None:
    del skill


class Drift:
    """Watches the runs of one agent; `found` holds the newest of those that drifted."""

    def __init__(self, count: Callable[[str], None] = _nobody) -> None:
        self.found: deque[Drifted] = deque(maxlen=KEPT)
        self._count = count
        self._warned: set[tuple[str, str]] = set()

    def look(self, skill: Skill, task_id: str, report: RunReport, *, success: bool) -> None:
        """Look at a run that has come to its end."""
        for name, _ in report.bodies(success=success):
            if name not in skill.emits and (skill.id, name) not in self._warned:
                self._warned.add((skill.id, name))
                fix = f"@agent.skill(emits=[{name!r}]) puts it on the card"
                log.warning("extension.undeclared skill=%s extension=%s fix=%s", skill.id, name, fix)
        if success and skill.effects:
            self._compare(skill, task_id, report.changes)

    def _compare(self, skill: Skill, task_id: str, changes: Iterable[Change]) -> None:
        missing, undeclared = compare(skill.effects, changes)
        if not missing and not undeclared:
            return
        self.found.append(Drifted(task_id, skill.id, missing, undeclared))
        self._count(skill.id)
        # Quoted: a path may hold what a caller said.
        log.warning(
            "effects.drift task=%s skill=%s missing=%a undeclared=%a",
            task_id,
            skill.id,
            ", ".join(missing)[:TEXT_LIMIT],
            ", ".join(undeclared)[:TEXT_LIMIT],
        )


def compare(declared: Iterable[Effect], changes: Iterable[Change]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The declared effects that did not come about, and the changes that nobody declared.

    Additions to one place count together, by their sign; what is set or pushed has none and fits either.
    """
    expected = {(one.domain, one.path): _sign(one.delta) for one in declared}
    observed = _observed(changes)
    missing = [
        _shown(place, sign)
        for place, sign in expected.items()
        if observed.get(place, "none") not in (sign, "")
    ]
    undeclared = [
        _shown(place, sign)
        for place, sign in observed.items()
        if place not in expected or sign not in (expected[place], "")
    ]
    return tuple(missing), tuple(undeclared)


def _observed(changes: Iterable[Change]) -> dict[_Place, str]:
    sums: dict[_Place, float] = {}
    replaced: set[_Place] = set()
    for one in changes:
        place = (one.domain, one.path)
        sums.setdefault(place, 0)
        if one.op == "inc" and is_number(one.value):
            sums[place] += one.value  # pyright: ignore[reportOperatorIssue]
        else:
            replaced.add(place)
    return {
        place: "" if place in replaced else _sign(total)
        for place, total in sums.items()
        if total or place in replaced
    }


def _sign(delta: float) -> str:
    return "+" if delta > 0 else "-"


def _shown(place: _Place, sign: str) -> str:
    domain, path = place
    return f"{domain}:{path}{sign}"
