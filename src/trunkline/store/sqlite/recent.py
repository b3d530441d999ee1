"""The newest appends of this process, so that whoever reads the whole log as it grows need not ask the file.

To read an append again and to decode it costs a third of what it costs to make it. What is older than the
newest few megabytes is read from the file, as all of it is after a start.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.records import TailAppend

LIMIT_BYTES = 8 << 20
_number = attrgetter("id")


class NumberedAppend(TailAppend, frozen=True, gc=False):
    """An append with the number of its last event in the whole log."""

    id: int


class RecentAppends:
    """What this process has committed last, without a gap. Invariant: no other writes to the file."""

    __slots__ = ("_after", "_entries", "_size")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._size = 0
        # The number of the last event before them; None while there are none.
        self._after: int | None = None

    def take(self, group: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
        """Add the appends of a group that were written, in the order of the log."""
        taken = [entry for entry, outcome in zip(group, outcomes, strict=True) if type(outcome) is int]
        if self._after is None and taken:
            self._after = taken[0].id - (taken[0].last - taken[0].expected)
        self._entries += taken
        self._size += sum([len(entry.body) for entry in taken])
        if self._size > LIMIT_BYTES:
            self._drop()

    def _drop(self) -> None:
        # More than is too much, so that the rest is not moved with every group.
        count = 0
        while self._size > LIMIT_BYTES * 3 // 4 and count < len(self._entries):
            self._size -= len(self._entries[count].body)
            count += 1
        self._after = self._entries[count - 1].id
        del self._entries[:count]

    def page(self, after: int, limit: int) -> list[NumberedAppend] | None:
        """The appends behind a number, so many events of them or one append; None if not all are here."""
        if self._after is None or after < self._after:
            return None
        place = bisect_right(self._entries, after, key=_number)
        end = bisect_right(self._entries, after + limit, place, key=_number)
        return [
            NumberedAppend(entry.tenant, entry.task_id, entry.last, entry.at, entry.events, entry.id)
            for entry in self._entries[place : max(end, place + 1)]
        ]
