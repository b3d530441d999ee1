"""Journals: bounded, and the same for all replicas, on both databases."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.fleet.stores import Replicas
from trunkline.errors import StoreError
from trunkline.fleet import journal as module
from trunkline.fleet.journal import KIND, Journal, JournalRow, Journals, read_state
from trunkline.store.base import Store

SUBJECT = "ceremony:standup"


def row(number: int, size: int = 0) -> JournalRow:
    return JournalRow(number, "fired", {"text": "x" * size})


def numbers(journal: Journal) -> list[int]:
    return [one.at for one in journal.rows]


def test_a_journal_keeps_the_newest_rows() -> None:
    journal = Journal().with_rows([row(n) for n in range(300)]).with_rows([row(300)])
    assert numbers(journal) == list(range(101, 301))


def test_a_journal_keeps_no_more_bytes_than_it_may() -> None:
    journal = Journal().with_rows([row(n, 10_000) for n in range(20)])
    assert numbers(journal) == list(range(14, 20))
    assert numbers(journal.with_rows([row(20, 100_000)])) == []


def test_replicas_add_to_one_journal(replicas: Replicas) -> None:
    async def work(one: Store, other: Store) -> None:
        both = [Journals(one.docs), Journals(other.docs)]
        assert (await both[0].read("north", SUBJECT)).rows == ()
        await asyncio.gather(*(both[n % 2].add("north", SUBJECT, row(n)) for n in range(12)))
        found = await both[0].read("north", SUBJECT)
        assert sorted(numbers(found)) == list(range(12))
        assert (await both[0].read("south", SUBJECT)).rows == ()
        assert not await both[1].delete("north", SUBJECT, Journal())
        assert await both[1].delete("north", SUBJECT, found)
        assert (await both[0].read("north", SUBJECT)).rows == ()

    replicas.run(work, 2)


def test_state_and_rows_change_together(replicas: Replicas) -> None:
    """Of those who count from the same state, each counts one further."""

    async def work(one: Store, other: Store) -> None:
        def count(journal: Journal) -> Journal:
            seen = msgspec.json.decode(journal.state) or 0
            state = msgspec.Raw(msgspec.json.encode(seen + 1))
            return msgspec.structs.replace(journal.with_rows([row(seen)]), state=state)

        await asyncio.gather(
            *(Journals(store.docs).change("north", SUBJECT, count) for store in (one, other) * 5)
        )
        found = await Journals(one.docs).read("north", SUBJECT)
        assert (numbers(found), bytes(found.state)) == (list(range(10)), b"10")
        kept = await Journals(one.docs).change("north", SUBJECT, lambda journal: None)
        assert kept == found

    replicas.run(work, 2)


def test_damaged_journal_counts_as_empty_and_one_that_cannot_be_written_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PAUSE_S", 0)

    async def work(store: Store) -> None:
        await store.docs.put("north", KIND, SUBJECT, b"[]", 0)
        assert await Journals(store.docs).read("north", SUBJECT) == Journal()
        await Journals(store.docs).add("north", SUBJECT, row(1))
        assert (await Journals(store.docs).read("north", SUBJECT)).rows == (row(1),)

        async def stale(*_: object) -> None:
            return None

        monkeypatch.setattr(store.docs, "get", stale)
        with pytest.raises(StoreError, match="by others all the time"):
            await Journals(store.docs).add("north", SUBJECT, row(1))

    Replicas("memory:").run(work)


def test_damaged_state_is_logged_with_its_journal_and_leaves_the_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(store: Store) -> None:
        rows = (row(1),)
        body = msgspec.json.encode(Journal(rows, msgspec.Raw(b'{"cursor": 1.5}')))
        await store.docs.put("north", KIND, SUBJECT, body, 0)
        journal = await Journals(store.docs, dict[str, int]).read("north", SUBJECT)
        assert (journal.rows, read_state(journal, dict[str, int], {})) == (rows, {})
        (damaged,) = [one for one in caplog.messages if one.startswith("document.damaged")]
        assert damaged.startswith(f"document.damaged kind=journal id='{SUBJECT}' tenant='north' error=")

    Replicas("memory:").run(work)
