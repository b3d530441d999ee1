"""What the tour was told of each task, to be held against the server whenever that comes back."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trunkline.demo.remote import Demo, StepFailed, state_of, text_of

_OPEN = ("submitted", "working", "input-required")


class Ledger:
    """The newest answer for each task."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, str]] = {}

    def note(self, task: dict[str, Any]) -> None:
        """Keep what was answered."""
        self._told[task["id"]] = (state_of(task), text_of(task))

    def compare(self, demo: Demo) -> str:
        """Ask for every task again; gives what became of them, in words.

        Raises:
            StepFailed: something that was acknowledged is not there.
        """
        now: Counter[str] = Counter()
        for task_id, told in self._told.items():
            task = demo.call("GetTask", {"id": task_id})
            found = state_of(task), text_of(task)
            # What had ended stays as it was. A question may have been answered, and what ran may have ended.
            if found != told and told[0] not in _OPEN:
                raise StepFailed(f"task {task_id} was {told[0]} {told[1]!r} and is {found[0]} {found[1]!r}")
            now[found[0]] += 1
        states = ", ".join(f"{count} {state}" for state, count in now.items())
        return f"nothing acknowledged was lost: {states or 'there was nothing yet'}"
