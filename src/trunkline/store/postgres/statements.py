"""The named statements of PostgreSQL, their parameters numbered in the order in which they first appear."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trunkline.store.statements import statements

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")

Value = object


class Statement:
    """A text for the driver, and the names of what it takes."""

    __slots__ = ("names", "text")

    def __init__(self, text: str) -> None:
        self.names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        self.text = _PARAMETER.sub(lambda found: numbers[found[1]], text)

    def values(self, given: Mapping[str, Value]) -> list[Value]:
        """What is given, in the order of the parameters."""
        return [given[name] for name in self.names]


TEXTS, _ = statements("postgres")
SQL: Mapping[str, Statement] = {name: Statement(text) for name, text in TEXTS.items()}
