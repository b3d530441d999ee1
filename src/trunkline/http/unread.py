"""Large answers that their readers have not taken yet: how much of them a process holds, and for whom.

Small ones are bounded by the number of connections. Of large ones a few slow readers could make a process
hold any amount, so it is bounded for each reader and in all; who has kept us waiting longest loses its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

# What a connection may leave unread without being counted.
LARGE_BYTES = 64 << 10
# One reader may hold this part of what all may.
SHARE = 4


class UnreadConnection(Protocol):
    """A connection whose reader is behind."""

    def drop(self) -> None:
        """Let go of the connection and of what it has not sent."""
        ...


class UnreadAnswers:
    """Counts the bytes of large answers by reader; a `limit` of 0 is none."""

    __slots__ = ("_by_reader", "_limit", "_sizes", "dropped", "total")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self._by_reader: dict[Hashable, dict[UnreadConnection, int]] = {}
        self._sizes: dict[Hashable, int] = {}
        self.total = 0
        # How many connections were dropped since somebody last asked.
        self.dropped = 0

    def add(self, reader: Hashable, connection: UnreadConnection, size: int) -> None:
        """Count an answer that is waiting for its reader; drops others where it is one too many.

        Never the one that was just written: however large, an answer alone can be read.
        """
        self._by_reader.setdefault(reader, {})[connection] = size
        self._sizes[reader] = self._sizes.get(reader, 0) + size
        self.total += size
        if not self._limit:
            return
        while self._sizes[reader] > self._limit // SHARE and self._drop_oldest(reader, connection):
            pass
        while self.total > self._limit:
            # From whoever holds most: a crowd of slow readers is no reason to cut a modest one.
            # This reader counts only if it holds more than the answer that is spared.
            others = [each for each, held in self._by_reader.items() if each != reader or len(held) > 1]
            if not others:
                return
            self._drop_oldest(max(others, key=lambda each: self._sizes[each]), connection)

    def remove(self, reader: Hashable, connection: UnreadConnection) -> None:
        """Forget an answer: it was taken, or its connection is gone."""
        size = self._by_reader.get(reader, {}).pop(connection, 0)
        self.total -= size
        self._sizes[reader] = self._sizes.get(reader, 0) - size
        if not self._by_reader.get(reader):
            self._by_reader.pop(reader, None)
            self._sizes.pop(reader, None)

    def _drop_oldest(self, reader: Hashable, spared: UnreadConnection) -> bool:
        oldest = next((each for each in self._by_reader[reader] if each is not spared), None)
        if oldest is None:
            return False
        self.remove(reader, oldest)
        self.dropped += 1
        oldest.drop()
        return True
