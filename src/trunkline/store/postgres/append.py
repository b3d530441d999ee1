"""Appends in PostgreSQL: a group as the arrays of one statement, one round trip and one transaction.

One statement takes one append per task and per dedup key, and those that go on from it without a key of
their own; what does not fit comes in a following pass. A connection that is lost leaves it open whether a
group was written. It is then sent again with the same marks: an append that finds itself in the log was
written before, and is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from trunkline.clock import now_ms, random_bits
from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.log.head import Head
from trunkline.store.group_commit import Entry, Outcome
from trunkline.store.postgres.address import DatabaseAddress, is_data, is_loss, is_race, is_taken
from trunkline.store.postgres.sessions import PATIENCE, TEXTS, KeptSession, Statement, Value, fetch
from trunkline.store.statements import head_columns

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

# An append that keeps meeting others is tried this often.
_TRIES = 5
Row = Sequence[Value]
# The places of one task's appends in their group: the first and those that follow it.
Chain = list[int]

_PARTS = ("append_rest", "append_heads", "append_keys", "append_deliveries")


def choose(group: Sequence[Entry], waiting: Iterable[int]) -> list[Chain]:
    """What one statement can take of those that wait, sorted by task."""
    chains: dict[str, Chain] = {}
    held: set[str] = set()
    keys: set[tuple[str, str]] = set()
    for place in waiting:
        entry = group[place]
        task_id = entry.task_id
        if task_id in held:
            continue
        before = chains.get(task_id)
        own = [(entry.tenant, one.key) for one in entry.keys]
        if before is not None:
            last = group[before[-1]]
            if not own and last.last == entry.expected and last.tenant == entry.tenant:
                before.append(place)
                continue
        elif keys.isdisjoint(own):
            chains[task_id] = [place]
            keys.update(own)
            continue
        # Invariant: appends to one task are tried in the order in which they were made.
        held.add(task_id)
    # By code points, as COLLATE "C" has it: every writer takes its locks in this order.
    return [chains[task_id] for task_id in sorted(chains)]


@cache
def append_statement(*parts: bool) -> Statement:
    """The statement with the parts that a group needs: rest, heads, keys, deliveries."""
    names = [name for name, wanted in zip(_PARTS, parts, strict=True) if wanted]
    text = TEXTS["append"].replace("/*parts*/", "\n".join(TEXTS[name] for name in names))
    return Statement(text.replace("/*unless*/", TEXTS["unless_recorded"] if "append_keys" in names else ""))


def plan(
    group: Sequence[Entry], marks: Sequence[int], chains: Sequence[Chain], now: int | None
) -> tuple[Statement, list[Value]]:
    """The statement that writes these chains, and its values."""
    firsts = [one[0] for one in chains]
    rest = [place for one in chains if len(one) > 1 for place in one[1:]]
    entries = [group[place] for place in firsts]
    whole = [group[place] for one in chains for place in one] if rest else entries
    heads = {entry.task_id: (entry.tenant, entry.head) for entry in whole if entry.head is not None}
    keys = [
        (entry.tenant, one.key, entry.task_id, entry.last, one.digest, one.kept_ms, one.over)
        for entry in entries
        for one in entry.keys
    ]
    deliveries = [
        (entry.task_id, entry.tenant, one.target, one.seq, one.id, one.due, one.lane)
        for entry in whole
        for one in entry.deliveries
    ]
    values: dict[str, Value] = {"count": len(entries), "now": now, "here": now_ms() if now is None else now}
    values |= _columns(_EVENTS, _events(group, marks, firsts))
    values |= _columns(_REST, _events(group, marks, rest))
    values |= _columns(_HEADS, [(tenant, *head_columns(head)) for tenant, head in heads.values()])
    values |= _columns(_KEYS, keys)
    values |= _columns(_DELIVERIES, deliveries)
    statement = append_statement(bool(rest), bool(heads), bool(keys), bool(deliveries))
    return statement, statement.values(values)


_EVENTS = ("task_ids", "tenants", "expected", "lasts", "ats", "bodies", "marks")
_REST = tuple(f"rest_{name}" for name in _EVENTS)
_HEADS = tuple(f"head_{name}s" for name in ("tenant", *Head.__struct_fields__))
_KEYS = ("key_tenants", "key_names", "key_task_ids", "key_seqs", "key_digests", "key_times", "key_overs")
_DELIVERIES = ("out_task_ids", "out_tenants", "out_targets", "out_seqs", "out_ids", "out_dues", "out_lanes")


def _events(group: Sequence[Entry], marks: Sequence[int], places: Sequence[int]) -> list[Row]:
    """The rows of these appends, by the columns `_EVENTS`."""
    found = [(group[place], marks[place]) for place in places]
    return [(one.task_id, one.tenant, one.expected, one.last, one.at, one.body, mark) for one, mark in found]


def _columns(names: Sequence[str], rows: Sequence[Row]) -> dict[str, Value]:
    """The parameters of a statement that takes rows as an array for each column; none without rows."""
    return dict(zip(names, zip(*rows, strict=True), strict=True)) if rows else {}


class _Group:
    """A group that is being written: what has become of each append, and what is known of their logs."""

    __slots__ = ("group", "marks", "outcomes", "stands")

    def __init__(self, group: Sequence[Entry]) -> None:
        self.group = group
        # Numbers that no other append to the same place has, by chance alone.
        first = random_bits(62)
        self.marks = range(first, first + len(group))
        self.outcomes: list[Outcome | None] = [None] * len(group)
        self.stands: dict[tuple[str, str], int] = {}

    def waiting(self) -> list[int]:
        """Those still to be tried; refuses what cannot succeed after what was just seen of its log."""
        found: list[int] = []
        for place, outcome in enumerate(self.outcomes):
            if outcome is not None:
                continue
            entry = self.group[place]
            actual = self.stands.get((entry.tenant, entry.task_id), entry.expected)
            if actual != entry.expected and not entry.keys:
                self.outcomes[place] = Conflict(actual)
            else:
                found.append(place)
        return found

    def settle(self, place: int, outcome: Outcome) -> None:
        """Note the outcome of one append of the group."""
        self.outcomes[place] = outcome
        entry = self.group[place]
        if isinstance(outcome, int):
            self.stands[entry.tenant, entry.task_id] = outcome
        elif isinstance(outcome, Conflict):
            self.stands[entry.tenant, entry.task_id] = outcome.actual

    def settle_all(self, chains: Sequence[Chain]) -> None:
        """Note that these were written."""
        for one in chains:
            for place in one:
                self.outcomes[place] = self.group[place].last
            last = self.group[one[-1]]
            self.stands[last.tenant, last.task_id] = last.last

    def give_up(self, text: str) -> None:
        """End all that is not settled."""
        self.outcomes = [StoreError(text) if outcome is None else outcome for outcome in self.outcomes]


class PostgresAppends:
    """Writes groups of appends; what goes wrong is each append's outcome."""

    def __init__(
        self, address: DatabaseAddress, session: KeptSession, now_ms: Callable[[], int | None]
    ) -> None:
        self._address = address
        self._session = session
        self._now = now_ms

    async def write(self, group: Sequence[Entry]) -> list[Outcome]:
        """The outcome of each append."""
        progress = _Group(group)
        loop = asyncio.get_running_loop()
        # Set by the first loss: from then on it is not known what was written, and time is short.
        deadline: float | None = None
        while waiting := progress.waiting():
            connection: Connection | None = None
            try:
                connection = await self._session.live(deadline)
                await self._pass(connection, progress, waiting)
            except StoreError as error:
                progress.give_up((_UNREACHED if deadline is None else _UNKNOWN).format(error))
            except Exception as error:  # noqa: BLE001 - logged, and every caller is told
                text = self._address.told(error)
                if connection is not None and is_loss(error):
                    self._session.lose(connection, text)
                    deadline = deadline or loop.time() + PATIENCE
                    if loop.time() >= deadline:
                        progress.give_up(_UNKNOWN.format(text))
                else:
                    _logger.error("store.failed reason=%s: %s", type(error).__name__, text)
                    progress.give_up(f"the store failed, nothing was written: {text}")
        return [outcome or _UNSETTLED for outcome in progress.outcomes]

    async def _pass(self, connection: Connection, progress: _Group, waiting: list[int]) -> None:
        chains = choose(progress.group, waiting)
        try:
            await self._write(connection, progress, chains)
        except Exception as error:
            if not (is_data(error) or is_race(error)):
                raise
            # One of them cannot be written at all, or met somebody; alone it fails without its neighbours.
            for place in waiting:
                await self._write_alone(connection, progress, place)

    async def _write(self, connection: Connection, progress: _Group, chains: Sequence[Chain]) -> None:
        statement, values = plan(progress.group, progress.marks, chains, self._now())
        (row,) = await connection.fetch(statement.text, *values)
        done = row[0]
        if done is not None and not done:
            return progress.settle_all(chains)
        written = frozenset[str](done or ())
        refused = [one for one in chains if progress.group[one[0]].task_id not in written]
        progress.settle_all([one for one in chains if progress.group[one[0]].task_id in written])
        await self._judge(connection, progress, refused)

    async def _judge(self, connection: Connection, progress: _Group, refused: Sequence[Chain]) -> None:
        places = [place for one in refused for place in one]
        firsts = frozenset(one[0] for one in refused)
        # A row for each key of an append, or one for an append without keys.
        asked = [(place, key) for place in places for key in progress.group[place].keys or (None,)]
        entries = [progress.group[place] for place, _ in asked]
        rows = await fetch(
            connection,
            "judge",
            task_ids=[entry.task_id for entry in entries],
            tenants=[entry.tenant for entry in entries],
            expected=[entry.expected for entry in entries],
            marks=[progress.marks[place] for place, _ in asked],
            keys=[None if key is None else key.key for _, key in asked],
            now=self._now(),
        )
        for (place, key), entry, (last, tenant, ours, task_id, seq, digest) in zip(
            asked, entries, rows, strict=True
        ):
            known = progress.outcomes[place]
            if ours is not None:
                progress.settle(place, ours)
            elif place not in firsts or isinstance(known, Duplicate):
                # It followed one that was refused; on its own it may still fit.
                continue
            elif key is not None and task_id is not None and digest != key.over:
                progress.settle(place, Duplicate(task_id, seq, digest, key.key))
            else:
                # Another tenant's task is not there; the id is taken all the same.
                progress.settle(place, Conflict(last if tenant == entry.tenant else 0))

    async def _write_alone(self, connection: Connection, progress: _Group, place: int) -> None:
        entry = progress.group[place]
        for attempt in range(1, _TRIES + 1):
            try:
                for one in entry.keys:
                    key = {"tenant": entry.tenant, "key": one.key, "over": one.over}
                    await fetch(connection, "drop_key", **key, now=self._now())
                return await self._write(connection, progress, [[place]])
            except Exception as error:
                if not (is_data(error) or is_race(error)):
                    raise
                if (is_race(error) or is_taken(error)) and attempt < _TRIES:
                    continue
                text = self._address.told(error)
                _logger.error("store.failed reason=%s: %s", type(error).__name__, text)
                return progress.settle(place, StoreError(f"the store failed, nothing was written: {text}"))


_UNREACHED = "the store cannot be reached, nothing was written: {}"
_UNKNOWN = "the connection was lost while writing; it is not known whether it was written: {}"
_UNSETTLED = StoreError("the append was not settled")
