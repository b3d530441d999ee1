"""The one cache: finished tasks as they were last encoded, bounded in bytes.

A finished task does not change, so a hit needs no look at the log. The owner is part of the
entry: nobody is answered from here who would not be answered by `Tasks.find`; and so is the time
until which the store keeps the task.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

LIMIT_BYTES = 4 << 20
ENTRY_BYTES = 64 << 10


Key = tuple[str, str, object]


class _Entry(Struct, gc=False):
    owner: str
    body: bytes
    until: int


class Cache:
    """Encoded finished tasks by tenant, id and dialect; the least recently read goes first."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()

    def get(self, key: Key, owner: str, now: int) -> bytes | None:
        """The encoded task, if it is here, this caller's and still kept."""
        entry = self._entries.get(key)
        if entry is None or entry.owner != owner:
            return None
        if entry.until <= now:
            self._size -= len(self._entries.pop(key).body)
            return None
        self._entries.move_to_end(key)
        return entry.body

    def put(self, key: Key, owner: str, body: bytes, until: int) -> None:
        """Keep an encoded finished task until this moment."""
        if len(body) > ENTRY_BYTES or key in self._entries:
            return
        self._entries[key] = _Entry(owner, body, until)
        self._size += len(body)
        while self._size > self._limit:
            self._size -= len(self._entries.popitem(last=False)[1].body)
