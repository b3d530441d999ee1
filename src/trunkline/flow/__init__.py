"""Durable workflows: definitions, the engine that walks them, what their nodes have done, and surfaces.

`async with LocalFlows("sqlite:///runs.db") as flows` has an engine without a server; `load` reads a document,
`run` runs one here and now. Loaded when first asked for: they need the extra `flow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.flow.local import LocalFlows, RunHandle, load, run

__all__ = ["LocalFlows", "RunHandle", "load", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trunkline.flow import local

    return getattr(local, name)
