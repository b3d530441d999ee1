"""What the tour was told of each task, to be held against the server whenever that comes back."""

from __future__ import annotations

from collections import Counter

from trunkline.client.result import Result
from trunkline.client.sync import SyncClient
from trunkline.demo.remote import StepFailed
from trunkline.log.decide import plain


class Acknowledged:
    """The newest answer for each task."""

    def __init__(self) -> None:
        self._told: dict[str, Result] = {}

    def note(self, result: Result) -> None:
        """Keep what was answered."""
        self._told[result.task_id] = result

    def compare(self, client: SyncClient) -> str:
        """Ask for every task again; gives what became of them, in words.

        Raises:
            StepFailed: something that was acknowledged is not there.
        """
        now: Counter[str] = Counter()
        for task_id, told in self._told.items():
            found = client.get(task_id)
            # What had ended stays as it was. A question may have been answered, and what ran may have ended.
            if told.ended and in_words(found) != in_words(told):
                raise StepFailed(f"task {task_id} was {in_words(told)} and is {in_words(found)}")
            now[plain(found.state)] += 1
        states = ", ".join(f"{count} {state}" for state, count in now.items())
        return f"nothing acknowledged was lost: {states or 'there was nothing yet'}"


def in_words(result: Result) -> str:
    """The state and the text of an answer."""
    return f"{plain(result.state)} {result.text!r}"
