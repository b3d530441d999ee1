"""Outcomes → periods of five minutes, each a document of a tenant. Pure.

A period keeps its first thousand outcomes one by one, so that every figure and every edge of a window is
exact where there are not more; of those behind them it keeps counts and
sums, and durations that are at most 0.8 % off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import nan
from struct import Struct as Packed

import msgspec
from msgspec import Struct, field

from trunkline.config import HEALTH_KEPT_S
from trunkline.fleet.health.outcome import ASKED, CALLED, CLASSES, FAILED, TaskOutcome
from trunkline.fleet.health.tally import Row, Summary, Tally

PERIOD_MS = 300_000
KEPT_MS = round(HEALTH_KEPT_S * 1000)
# Bounds of one document: outcomes one by one, pairs of agent and skill, failures that are named, pairs of
# agents that call each other.
ROWS = 1000
CELLS = 2000
FAILURES_PER_AGENT = 10
FAILURES = 100
CALLS = 1000
# Where there are more pairs than are kept apart. No agent can have this id.
OTHERS = ("*", "*")
_ROW = Packed("<HIIBddII")
_MOST = (1 << 32) - 1

Cell = tuple[str, str]


class FailedRun(Struct, frozen=True, array_like=True, gc=False):
    """A failed task: its time, agent, skill, IDs, owner and reason.

    Documents of earlier versions have no owner and no reason.
    """

    at: int
    agent: str
    skill: str
    task: str
    correlation: str
    principal: str = ""
    reason: str = ""


class Calls(Struct, array_like=True, gc=False):
    """How often tasks of one agent had tasks of another done, and how many of these failed."""

    caller: str
    agent: str
    total: int = 0
    failed: int = 0


class Period(Struct, array_like=True):
    """What came to its end in five minutes. `batch` is the last one that is in it; `rows` are packed.

    `spent` is what the tasks of each principal cost, in dollars and in tokens.
    """

    batch: int = 0
    cells: list[Cell] = field(default_factory=list[Cell])
    rows: bytes = b""
    more: dict[int, Tally] = field(default_factory=dict[int, Tally])
    failures: list[FailedRun] = field(default_factory=list[FailedRun])
    calls: list[Calls] = field(default_factory=list[Calls])
    spent: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])


def start_of(at: int) -> int:
    """When the period of a moment began."""
    return at - at % PERIOD_MS


def fold(period: Period, start: int, outcomes: Iterable[TaskOutcome]) -> None:
    """Count outcomes in the period that began at `start`, in which they all lie."""
    numbers = {cell: number for number, cell in enumerate(period.cells)}
    calls = {(call.caller, call.agent): call for call in period.calls}
    rows: list[Row] = []
    for one in outcomes:
        if (one.cost or one.tokens_in or one.tokens_out) and not one.is_charged:
            _spend(period.spent, one)
        if one.kind == CALLED:
            continue
        number = numbers.get((one.agent, one.skill))
        if number is None:
            number = _number(period, numbers, (one.agent, one.skill))
        rows.append(_row(number, start, one))
        if one.kind == FAILED:
            names = one.agent, one.skill, one.task, one.correlation, one.principal, one.reason
            period.failures.append(FailedRun(one.at, *names))
        if one.caller and one.kind != ASKED:
            _call(calls, one)
    room = max(ROWS - len(period.rows) // _ROW.size, 0)
    period.rows += b"".join([_ROW.pack(*row) for row in rows[:room]])
    for number, more in _by_cell(rows[room:]).items():
        tally = period.more.setdefault(number, Tally())
        tally.add(more)
        tally.bin(more)
    period.calls = list(calls.values())
    period.failures = newest_failures(period.failures)


def read_period(doc_id: str, body: bytes) -> Period:
    """Return the period that a document holds; its ID is when the period began.

    Raises:
        ValueError: the document holds none.
    """
    period = msgspec.msgpack.decode(body, type=Period)
    if int(doc_id) % PERIOD_MS or len(period.rows) % _ROW.size:
        raise ValueError("its ID or the length of its rows does not fit")
    if any([row[3] >= len(CLASSES) for row in rows_of(period)]):
        raise ValueError("a row has an unknown outcome")
    return period


def rows_of(period: Period) -> Iterator[Row]:
    """The outcomes that are kept one by one."""
    return _ROW.iter_unpack(period.rows)


def summarize(
    period: Period,
    start: int,
    since: int,
    into: dict[Cell, Summary],
    wanted: Callable[[Cell], bool] = lambda cell: True,
) -> None:
    """Add what ended since a moment to the summaries of agents and skills that are wanted.

    Of what is not kept one by one, all counts until the whole period lies before the moment.
    """
    if start + PERIOD_MS <= since:
        return
    numbers, offset = {number for number, cell in enumerate(period.cells) if wanted(cell)}, since - start
    rows = [row for row in rows_of(period) if row[1] >= offset and row[0] in numbers]
    for number, of_cell in _by_cell(rows).items():
        into.setdefault(period.cells[number], Summary()).add(of_cell)
    for number in numbers & period.more.keys():
        into.setdefault(period.cells[number], Summary()).tally.plus(period.more[number])


def newest_failures(failures: Iterable[FailedRun]) -> list[FailedRun]:
    """The newest of these, newest first: so many of each agent, and so many in all."""
    kept: list[FailedRun] = []
    of_agent: dict[str, int] = {}
    for one in sorted(failures, key=lambda one: (one.at, one.task), reverse=True):
        of_agent[one.agent] = of_agent.get(one.agent, 0) + 1
        if of_agent[one.agent] <= FAILURES_PER_AGENT:
            kept.append(one)
    return kept[:FAILURES]


def _number(period: Period, numbers: dict[Cell, int], cell: Cell) -> int:
    """The number of an agent and a skill that has none yet."""
    if len(numbers) >= CELLS:
        cell = OTHERS
    if cell not in numbers:
        numbers[cell] = len(period.cells)
        period.cells.append(cell)
    return numbers[cell]


def _row(number: int, start: int, one: TaskOutcome) -> Row:
    cost = nan if one.cost is None else one.cost
    confidence = nan if one.confidence is None else one.confidence
    ms, into, out = one.ms, one.tokens_in, one.tokens_out
    if max(ms, into, out) > _MOST:
        ms, into, out = min(ms, _MOST), min(into, _MOST), min(out, _MOST)
    return number, one.at - start, ms, one.kind, cost, confidence, into, out


def _by_cell(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found


def _spend(spent: dict[str, tuple[float, int]], one: TaskOutcome) -> None:
    # Where there are too many to tell apart, the tenant still pays.
    name = one.principal if one.principal in spent or len(spent) < CELLS else ""
    cost, tokens = spent.get(name, (0.0, 0))
    spent[name] = cost + (one.cost or 0.0), tokens + one.tokens_in + one.tokens_out


def _call(calls: dict[Cell, Calls], one: TaskOutcome) -> None:
    pair = (one.caller, one.agent)
    if pair not in calls and len(calls) >= CALLS:
        return
    found = calls.setdefault(pair, Calls(*pair))
    found.total += 1
    found.failed += one.kind == FAILED
