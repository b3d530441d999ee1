"""The reader of the whole log: everything at least once, from where it stopped, past what is damaged."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.store import tail as module
from trunkline.store.tail import KIND, TailReader


class Taken:
    """A listener that remembers what it was given, and can be waited for."""

    def __init__(self) -> None:
        self.places = []
        self._grown = asyncio.Event()

    async def __call__(self, page) -> None:
        self.places += [(record.task_id, record.recorded.seq) for record in page]
        self._grown.set()

    async def until(self, *places) -> None:
        while not set(places) <= set(self.places):
            self._grown.clear()
            await self._grown.wait()


@asynccontextmanager
async def reading(store, name, take):
    running = asyncio.ensure_future(TailReader(store, name, take).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()


def test_all_there_is_and_all_that_comes(run, store, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 3)

    async def case():
        taken = Taken()
        await store.log.append(A, "t1", 0, deltas(7), at=AT)
        async with reading(store, "one", taken):
            await taken.until(("t1", 7))
            await store.log.append(B, "t2", 0, deltas(2), at=AT)
            await taken.until(("t2", 2))
        return taken.places

    assert run(case()) == [*(("t1", seq) for seq in range(1, 8)), ("t2", 1), ("t2", 2)]


def test_each_name_has_its_own_place_and_goes_on_from_it(run, store):
    async def case():
        first, second, other = Taken(), Taken(), Taken()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        async with reading(store, "one", first):
            await first.until(("t1", 1))
        await store.log.append(A, "t1", 1, [delta()], at=AT)
        async with reading(store, "one", second), reading(store, "two", other):
            await second.until(("t1", 2))
            await other.until(("t1", 2))
        return second.places, other.places

    assert run(case()) == ([("t1", 2)], [("t1", 1), ("t1", 2)])


def test_a_page_that_was_not_taken_is_given_again(run, store, caplog):
    async def case():
        taken, failed = Taken(), []

        async def take(page) -> None:
            if not failed:
                failed.append(page)
                raise StoreError("full")
            await taken(page)

        await store.log.append(A, "t1", 0, deltas(3), at=AT)
        async with reading(store, "one", take):
            await taken.until(("t1", 3))
        return taken.places

    assert run(case()) == [("t1", 1), ("t1", 2), ("t1", 3)]
    assert "tail.stopped name=one" in caplog.text


def test_what_was_taken_after_the_cursor_was_saved_is_given_again(run, store):
    async def case():
        first, second = Taken(), Taken()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        async with reading(store, "one", first):
            await first.until(("t1", 1))
        saved = await store.docs.get("default", KIND, "one")
        await store.log.append(A, "t1", 1, [delta()], at=AT)
        async with reading(store, "one", first):
            await first.until(("t1", 2))
        # As if the process had been killed before it saved.
        await store.docs.put("default", KIND, "one", saved.body, saved.rev + 1)
        async with reading(store, "one", second):
            await second.until(("t1", 2))
        return second.places

    assert run(case()) == [("t1", 2)]


def test_two_under_one_name_leave_nothing_out(run, store, monkeypatch):
    monkeypatch.setattr(module, "SAVE_S", 0.0)

    async def case():
        taken = Taken()
        async with reading(store, "one", taken), reading(store, "one", taken):
            for n in range(40):
                await store.log.append(A, f"t{n}", 0, deltas(2), at=AT)
            await taken.until(*((f"t{n}", seq) for n in range(40) for seq in (1, 2)))
        return len(set(taken.places))

    assert run(case()) == 80


@pytest.mark.parametrize("body", [b'{"kind":"claimed"}', b'{"kind":"cla'])
def test_a_damaged_task_does_not_stop_it(run, store, body):
    async def case():
        taken = Taken()
        await store.log.append(A, "t1", 0, [ev.Unread(body)], at=AT)
        await store.log.append(A, "t2", 0, [delta()], at=AT)
        async with reading(store, "one", taken):
            await taken.until(("t2", 1))
        return taken.places

    assert run(case()) == [("t1", 1), ("t2", 1)]


def test_it_ends_with_the_store(run, bench):
    async def case():
        store, taken = bench.make(), Taken()
        await store.open()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        running = asyncio.ensure_future(TailReader(store, "one", taken).run())
        await taken.until(("t1", 1))
        await store.close()
        await running

    run(case())
