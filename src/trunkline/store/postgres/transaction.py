"""The hand that writes: a group of appends in one statement, one round trip and one transaction.

A connection that is lost leaves it open whether a group was written. It is then sent again with the
same marks: an append that finds itself in the log was written before, and is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trunkline.clock import random_bits
from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.store.postgres.address import DatabaseAddress, is_data, is_loss, is_race, is_taken
from trunkline.store.postgres.append_plan import Chain, choose, draft
from trunkline.store.postgres.session import PATIENCE, KeptSession
from trunkline.store.postgres.statements import SQL
from trunkline.store.writer import Entry, Outcome

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

# An append that keeps meeting others is tried this often.
_TRIES = 5


class _Work:
    """A group on its way: what has become of each append, and what is known of their logs."""

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
            if actual != entry.expected and entry.dedup is None:
                self.outcomes[place] = Conflict(actual)
            else:
                found.append(place)
        return found

    def settle(self, place: int, outcome: Outcome) -> None:
        """Note an outcome."""
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


class PostgresTransactions:
    """Writes groups; what goes wrong is each append's outcome."""

    def __init__(self, address: DatabaseAddress, link: KeptSession, now_ms: Callable[[], int | None]) -> None:
        self._address = address
        self._link = link
        self._now = now_ms

    async def write(self, group: Sequence[Entry]) -> list[Outcome]:
        """The outcome of each append."""
        work = _Work(group)
        loop = asyncio.get_running_loop()
        # Set by the first loss: from then on it is not known what was written, and time is short.
        deadline: float | None = None
        while waiting := work.waiting():
            connection: Connection | None = None
            try:
                connection = await self._link.live(deadline)
                await self._pass(connection, work, waiting)
            except StoreError as error:
                work.give_up((_UNREACHED if deadline is None else _UNKNOWN).format(error))
            except Exception as error:  # noqa: BLE001 - logged, and every caller is told
                text = self._address.told(error)
                if connection is not None and is_loss(error):
                    self._link.lose(connection, text)
                    deadline = deadline or loop.time() + PATIENCE
                    if loop.time() >= deadline:
                        work.give_up(_UNKNOWN.format(text))
                else:
                    _logger.error("store.failed reason=%s: %s", type(error).__name__, text)
                    work.give_up(f"the store failed, nothing was written: {text}")
        return [outcome or _UNSETTLED for outcome in work.outcomes]

    async def _pass(self, connection: Connection, work: _Work, waiting: list[int]) -> None:
        chains = choose(work.group, waiting)
        try:
            await self._write(connection, work, chains)
        except Exception as error:
            if not (is_data(error) or is_race(error)):
                raise
            # One of them cannot be written at all, or met somebody; alone it fails without its neighbours.
            for place in waiting:
                await self._write_alone(connection, work, place)

    async def _write(self, connection: Connection, work: _Work, chains: Sequence[Chain]) -> None:
        statement, values = draft(work.group, work.marks, chains, self._now())
        (row,) = await connection.fetch(statement.text, *values)
        done = row[0]
        if done is not None and not done:
            return work.settle_all(chains)
        written = frozenset[str](done or ())
        refused = [one for one in chains if work.group[one[0]].task_id not in written]
        work.settle_all([one for one in chains if work.group[one[0]].task_id in written])
        await self._judge(connection, work, refused)

    async def _judge(self, connection: Connection, work: _Work, refused: Sequence[Chain]) -> None:
        places = [place for one in refused for place in one]
        firsts = frozenset(one[0] for one in refused)
        entries = [work.group[place] for place in places]
        statement = SQL["judge"]
        values = statement.values(
            {
                "task_ids": [entry.task_id for entry in entries],
                "tenants": [entry.tenant for entry in entries],
                "expected": [entry.expected for entry in entries],
                "marks": [work.marks[place] for place in places],
                "keys": [None if entry.dedup is None else entry.dedup.key for entry in entries],
                "now": self._now(),
            }
        )
        rows = await connection.fetch(statement.text, *values)
        for place, entry, (last, tenant, ours, task_id, seq, digest) in zip(
            places, entries, rows, strict=True
        ):
            if ours is not None:
                work.settle(place, ours)
            elif place not in firsts:
                # It followed one that was refused; on its own it may still fit.
                continue
            elif task_id is not None:
                work.settle(place, Duplicate(task_id, seq, digest))
            else:
                # Another tenant's task is not there; the id is taken all the same.
                work.settle(place, Conflict(last if tenant == entry.tenant else 0))

    async def _write_alone(self, connection: Connection, work: _Work, place: int) -> None:
        entry = work.group[place]
        for attempt in range(1, _TRIES + 1):
            try:
                if entry.dedup is not None:
                    statement = SQL["drop_key"]
                    key = {"tenant": entry.tenant, "key": entry.dedup.key, "now": self._now()}
                    await connection.fetch(statement.text, *statement.values(key))
                return await self._write(connection, work, [[place]])
            except Exception as error:
                if not (is_data(error) or is_race(error)):
                    raise
                if (is_race(error) or is_taken(error)) and attempt < _TRIES:
                    continue
                text = self._address.told(error)
                _logger.error("store.failed reason=%s: %s", type(error).__name__, text)
                return work.settle(place, StoreError(f"the store failed, nothing was written: {text}"))


_UNREACHED = "the store cannot be reached, nothing was written: {}"
_UNKNOWN = "the connection was lost while writing; it is not known whether it was written: {}"
_UNSETTLED = StoreError("the append was not settled")
