"""What agents keep between tasks: kept once, found by words, and older notes after newer ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trunkline.errors import Misuse
from trunkline.fleet.catalogue.model_entry import ModelMemory
from trunkline.gateway.model import notes
from trunkline.gateway.model.notes import NOTES, TODOS, Note, NoteBook, listed, search
from trunkline.store.sqlite.store import SqliteStore

DAY = 86_400_000


def run(case: Callable[[SqliteStore], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        store = SqliteStore(None, now_ms=lambda: 1)
        await store.open()
        try:
            await case(store)
        finally:
            await store.close()

    asyncio.run(whole())


def test_a_note_is_kept_once_by_tenant_and_agent() -> None:
    async def case(store: SqliteStore) -> None:
        book = NoteBook(store.docs, NOTES)
        for _ in range(2):
            await book.add("t", "a", Note("1", "tea", 1))
        await book.add("t", "b", Note("2", "milk", 2))
        assert await book.read("t", "a") == (Note("1", "tea", 1),)
        assert await book.read("other", "a") == ()
        await book.delete("t", "a", "1")
        assert await book.read("t", "a") == ()

    run(case)


def test_notes_that_are_added_at_once_are_all_kept() -> None:
    async def case(store: SqliteStore) -> None:
        book = NoteBook(store.docs, NOTES)
        await asyncio.gather(*[book.add("t", "a", Note(str(n), "x", n)) for n in range(8)])
        assert sorted(one.id for one in await book.read("t", "a")) == [str(n) for n in range(8)]

    run(case)


def test_there_is_a_bound_on_notes_and_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_LIMITS", {NOTES.name: 3})
    monkeypatch.setattr(notes, "_BYTES_LIMIT", 400)

    async def case(store: SqliteStore) -> None:
        book = NoteBook(store.docs, NOTES)
        for text in ("", "x" * 8193):
            with pytest.raises(Misuse, match="8192 bytes"):
                await book.add("t", "a", Note("0", text, 1))
        with pytest.raises(Misuse, match="too many"):
            await book.add("t", "a", Note("0", "x" * 500, 1))
        for n in range(3):
            await book.add("t", "a", Note(str(n), "x", 1))
        with pytest.raises(Misuse, match="too many"):
            await book.add("t", "a", Note("4", "x", 1))

    run(case)


def test_agents_that_come_and_go_fill_no_more_than_the_part_of_their_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notes, "TENANT_BYTES", 5000)

    async def case(store: SqliteStore) -> None:
        book, todos = NoteBook(store.docs, NOTES), NoteBook(store.docs, notes.TODOS)
        # Their notes outlive them, so each new name would bring room of its own.
        for n in range(4):
            await book.add("t", f"agent-{n}", Note("0", "x" * 1000, 1))
        for agent in ("agent-0", "another"):
            with pytest.raises(Misuse, match="of a tenant"):
                await book.add("t", agent, Note("1", "x" * 1000, 1))
        await todos.add("t", "another", Note("0", "x" * 1000, 1))
        await book.add("other", "another", Note("0", "x" * 1000, 1))
        await book.delete("t", "agent-3", "0")
        await book.add("t", "another", Note("1", "x" * 1000, 1))

    run(case)


def test_what_is_to_be_done_is_marked_as_done() -> None:
    async def case(store: SqliteStore) -> None:
        book = NoteBook(store.docs, TODOS)
        await book.add("t", "a", Note("1", "wash up", 1))
        await book.finish("t", "a", "1")
        assert listed(await book.read("t", "a")) == "1: (done) wash up"
        with pytest.raises(Misuse, match="none with the id"):
            await book.finish("t", "a", "2")

    run(case)


def test_a_search_counts_words_and_age() -> None:
    known = [Note("old", "Tea is green", 0), Note("new", "green leaves", 80 * DAY), Note("no", "coffee", 0)]
    now = 90 * DAY
    plain = ModelMemory(age_decay=False)
    assert [one.id for one in search(known, "green TEA", plain, now)] == ["old", "new"]
    assert [one.id for one in search(known, "green", plain, now)] == ["new", "old"]
    # Half as much after a half-life: then the newer note with half of the words counts for more.
    aged = ModelMemory(age_half_life_days=30, age_floor=0.1)
    assert [one.id for one in search(known, "green tea", aged, now)] == ["new", "old"]
    assert [
        one.id for one in search(known, "green tea", ModelMemory(age_half_life_days=30, age_floor=0.9), now)
    ] == [
        "old",
        "new",
    ]
    assert search(known, "milk", plain, now) == []
    # A query is words and no pattern of any language.
    for query in ("%", "_", "gr%", "gre*", ".*", "' OR 1=1 --", '"green', "green\0", "(?=", "*:*", ""):
        wanted = ["new", "old"] if "green" in query else []
        assert [one.id for one in search(known, query, plain, now)] == wanted, query
    assert listed([]) == "There are none."


def test_damaged_notes_are_neither_shown_nor_replaced() -> None:
    async def case(store: SqliteStore) -> None:
        await store.docs.put("t", NOTES.name, "a", b"[{", 0)
        book = NoteBook(store.docs, NOTES)
        with pytest.raises(Misuse, match="document 'a' of kind model.notes is damaged"):
            await book.read("t", "a")
        with pytest.raises(Misuse, match="is damaged"):
            await book.add("t", "a", Note("0", "x", 1))
        assert (await store.docs.get("t", NOTES.name, "a")).body == b"[{"
        await book.add("t", "b", Note("0", "x", 1))

    run(case)
