"""How much of what is drawn at random runs: a sample in `make test`, all of it under `make chaos`."""

from __future__ import annotations

import os

THOROUGH = bool(os.environ.get("TRUNKLINE_THOROUGH"))


def at_most(everything: int, sample: int) -> int:
    """The number of cases to try in this run."""
    return everything if THOROUGH else sample
