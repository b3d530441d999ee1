"""How far a log may grow: one task is neither a database nor a disk."""

from __future__ import annotations

from trunkline.log.fold import State

EVENTS_LIMIT = 20_000
BYTES_LIMIT = 64 << 20
LIMITS = "20 000 events or 64 MiB"


def is_full(state: State) -> bool:
    """Whether a task may only end from here on."""
    return state.seq >= EVENTS_LIMIT or state.size >= BYTES_LIMIT
