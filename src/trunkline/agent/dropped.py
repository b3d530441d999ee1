"""Coroutines of an author that were dropped before anything awaited them.

Python issues a warning when such a coroutine is destroyed, in the context of the task that dropped it.
"""

from __future__ import annotations

import re
import sysconfig
import warnings
from contextvars import ContextVar
from pathlib import Path
from typing import Any

# Where the run of this context has dropped coroutines.
DROPPED: ContextVar[list[str] | None] = ContextVar("dropped", default=None)
_MAX_PLACES = 64
_NEVER_AWAITED = r"(coroutine '.*') was never awaited"
_pattern = re.compile(_NEVER_AWAITED)
# Dropped by a library, a coroutine is no mistake of the author.
_LIBRARIES = (
    *[sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")],
    str(Path(__file__).parents[1]),
    "<",
)


class _DropWatch:
    """A `showwarning` that also records dropped coroutines for the run in whose context they are dropped."""

    def __init__(self) -> None:
        self._show = warnings.showwarning

    def __call__(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any
    ) -> None:
        places, found = DROPPED.get(), _pattern.match(str(message))
        if found and places is not None and len(places) < _MAX_PLACES and not filename.startswith(_LIBRARIES):
            places.append(f"{found[1]} at {filename}:{lineno}")
        self._show(message, category, filename, lineno, *rest)


def record_dropped() -> None:
    """Have each warning of a dropped coroutine recorded, also if its line was shown before."""
    warnings.filterwarnings("always", _NEVER_AWAITED, RuntimeWarning)
    if type(warnings.showwarning) is not _DropWatch:
        warnings.showwarning = _DropWatch()
