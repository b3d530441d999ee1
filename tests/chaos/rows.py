"""What a row of the catalogue is, and what it is given to run with."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests import postgres
from tests.chaos.checker import Violation
from tests.chaos.fleet import Fleet
from tests.chaos.history import History

SQLITE, POSTGRES = "sqlite", "postgres"


class Database:
    """A PostgreSQL of the row's own, that syncs, and a database in it."""

    def __init__(self) -> None:
        self.server = postgres.Server(durable=True)
        self.server.start()
        self.url = postgres.Database(self.server.url(), "chaos").url

    def close(self) -> None:
        """Stop and remove it."""
        self.server.close()


class Result(Struct):
    """What came out; `passed` is None where this machine cannot run the row."""

    passed: bool | None
    measured: str


class Run:
    """One row on one store: its chance, its directory, its size."""

    def __init__(self, number: int, kind: str, seed: int, scale: float, options: dict[str, Any]) -> None:
        self.number = number
        self.kind = kind
        self.seed = seed
        self.scale = scale
        self.options = options
        self.random = random.Random(f"{seed}-{number}-{kind}")
        self.directory = Path(tempfile.mkdtemp(prefix=f"chaos-{number:02}-{kind}-"))
        self.history = History(seed)
        # Made before any loop runs, because it uses one of its own.
        self.database = Database() if kind == POSTGRES else None
        self._fleets: list[Fleet] = []
        self._said = 0.0

    def count(self, full: int, least: int = 1, *, option: str = "") -> int:
        """How many of something: as the option says, else the catalogue's number, scaled."""
        named = self.options.get(option)
        return named if named else max(least, round(full * self.scale))

    @property
    def url(self) -> str:
        """The store of this row."""
        return self.database.url if self.database is not None else f"sqlite:///{self.directory}/tasks.db"

    def fleet(self, count: int = 1, *flags: str, history: History | None = None, url: str = "") -> Fleet:
        """Servers, not yet started; they are ended with the row."""
        made = Fleet(self.directory, count, url or self.url, history or self.history, *flags)
        self._fleets.append(made)
        return made

    def say(self, text: str) -> None:
        """Progress, not more often than every few seconds."""
        if time.monotonic() - self._said > 5:
            self._said = time.monotonic()
            print(f"    {text}", flush=True)

    def close(self, *, keep: bool) -> None:
        """Nothing is left behind, but what a look is needed at."""
        for fleet in self._fleets:
            fleet.end()
        if self.database is not None:
            self.database.close()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)


class Row(Struct, frozen=True):
    """A line of the catalogue."""

    number: int
    what: str
    target: str
    stores: tuple[str, ...]
    play: Callable[[Run], Awaitable[Result]]
    name: str = ""


ROWS: list[Row] = []
_Play = Callable[[Run], Awaitable[Result]]


def row(number: int, what: str, target: str, *stores: str, name: str = "") -> Callable[[_Play], _Play]:
    """Enter a function into the table; a name is for those who do not know its number."""

    def enter(play: _Play) -> _Play:
        ROWS.append(Row(number, what, target, stores, play, name))
        return play

    return enter


def verdict(violations: list[Violation], measured: str, *more: bool) -> Result:
    """Passed if nothing was violated and all else holds."""
    return Result(not violations and all(more), f"{len(violations)} violations; {measured}")


def spread(values: list[float], unit: str = "ms") -> str:
    """p50, p99 and the worst."""
    if not values:
        return "none"
    ordered = sorted(values)
    factor = 1000 if unit == "ms" else 1
    p50, p99 = percentile(ordered, 50), percentile(ordered, 99)
    return f"p50 {p50 * factor:.0f}, p99 {p99 * factor:.0f}, max {ordered[-1] * factor:.0f} {unit}"


def percentile(values: list[float], share: float) -> float:
    """The value that so many per cent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100).__int__() - 1))]
