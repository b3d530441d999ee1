"""Whether a run that waits may be dropped now and begun again when what it waits for has come.

Its log makes up for the coroutine. But a time limit, or the tasks of a group, live in the coroutine alone.
"""

from __future__ import annotations

import asyncio
import gc

# `asyncio.timeout` and groups; those of anyio are known by where their classes come from.
_LIMITS = (asyncio.Timeout, asyncio.TaskGroup)


def is_bounded(task: asyncio.Task[None]) -> bool:
    """Whether a suspended task waits inside a time limit or a group, which no log keeps."""
    place: object = task.get_coro()
    while place is not None:
        # The exit of a `with` block that is open stands on the stack of its frame; nothing else knows of it.
        held = gc.get_referents(place)
        if any(_is_limit(getattr(one, "__self__", one)) for one in held):
            return True
        place = _awaited(place, held)
    return False


def _is_limit(held: object) -> bool:
    return isinstance(held, _LIMITS) or type(held).__module__.partition(".")[0] == "anyio"


def _awaited(place: object, held: list[object]) -> object:
    for name in ("cr_await", "ag_await", "gi_yieldfrom"):
        if (found := getattr(place, name, None)) is not None:
            return found
    # `async for` awaits an object that tells of its generator only to the garbage collector.
    return next((one for one in held if hasattr(one, "ag_await")), None)
