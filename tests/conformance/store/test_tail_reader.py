"""The reader of the whole log: everything at least once, from where it stopped, past what is damaged."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.log.encoding import placed
from trunkline.store import tail as module
from trunkline.store.tail import TailReader


class AnswerRead:
    """A listener that remembers what it was given and what had an effect, and can be waited for."""

    def __init__(self) -> None:
        self.places = []
        # By the number of their batch, as a listener that writes documents has it: a repeated one is no other.
        self.settled = {}
        self._grown = asyncio.Event()

    async def take(self, page) -> list:
        found = [
            (append.task_id, one.seq)
            for append in page
            for one in placed(append.last, append.at, append.events)
        ]
        self.places += found
        return found

    async def settle(self, batch, number) -> None:
        self.settled[number] = [tuple(one) for one in msgspec.msgpack.decode(batch)]
        self._grown.set()

    @property
    def effects(self) -> list:
        return [one for number in sorted(self.settled) for one in self.settled[number]]

    async def until(self, *places) -> None:
        while not set(places) <= set(self.effects):
            self._grown.clear()
            await self._grown.wait()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 0.0)


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
        taken = AnswerRead()
        await store.log.append(A, "t1", 0, deltas(7), at=AT)
        async with reading(store, "one", taken):
            await taken.until(("t1", 7))
            await store.log.append(B, "t2", 0, deltas(2), at=AT)
            await taken.until(("t2", 2))
        return taken.places

    assert run(case()) == [*(("t1", seq) for seq in range(1, 8)), ("t2", 1), ("t2", 2)]


def test_nobody_gathers_hints_in_the_pause(run, store, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 60.0)
    monkeypatch.setattr(module, "EVERY_S", 60.0)
    heard = store._database.hints.heard

    async def case():
        taken = AnswerRead()
        async with reading(store, "one", taken):
            while not heard:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await store.log.append(A, "t1", 0, [delta()], at=AT)
            await taken.until(("t1", 1))
            while heard:  # noqa: ASYNC110
                await asyncio.sleep(0)

    run(case())


def test_what_many_looks_found_is_written_at_once(run, store, monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    monkeypatch.setattr(module, "EVERY_S", 3600.0 if not store.shared else 0.0)

    async def case():
        taken, other = AnswerRead(), AnswerRead()
        async with reading(store, "one", taken):
            for n in range(6):
                await store.log.append(A, f"t{n}", 0, deltas(2), at=AT)
                while (f"t{n}", 2) not in taken.places:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        # Whoever comes next has what was only taken, as if the process had died.
        await TailReader(store, "one", other).catch_up()
        return taken.settled, other.settled

    before, after = run(case())
    assert sorted({place for batch in (before | after).values() for place in batch}) == [
        (f"t{n}", seq) for n in range(6) for seq in (1, 2)
    ]
    if not store.shared:
        # The first is written at once, the others wait for its pause.
        assert len(before) == 1 and len(after) == 2


def test_much_is_written_though_it_is_not_yet_time(run, store, monkeypatch):
    monkeypatch.setattr(module, "EVERY_S", 3600.0)
    monkeypatch.setattr(module, "MOST_FOUND", 4)
    monkeypatch.setattr(module, "PAGE", 2)

    async def case():
        taken = AnswerRead()
        reader = TailReader(store, "one", taken)
        for n in range(9):
            await store.log.append(A, f"t{n}", 0, [delta()], at=AT)
        await reader.catch_up()
        return [len(taken.settled[number]) for number in sorted(taken.settled)]

    # A shared store has every page at once, as another process may wait for it.
    # Of any other the first is written at once, as nothing was written just before.
    assert run(case()) == ([2, 2, 2, 2, 1] if store.shared else [2, 4, 3])


def test_each_name_has_its_own_place_and_goes_on_from_it(run, store):
    async def case():
        first, second, other = AnswerRead(), AnswerRead(), AnswerRead()
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
    class Failing(AnswerRead):
        async def take(self, page) -> list:
            if not self.places:
                self.places.append("failed")
                raise StoreError("full")
            return await super().take(page)

    async def case():
        taken = Failing()
        await store.log.append(A, "t1", 0, deltas(3), at=AT)
        async with reading(store, "one", taken):
            await taken.until(("t1", 3))
        return taken.effects

    assert run(case()) == [("t1", 1), ("t1", 2), ("t1", 3)]
    assert "tail.stopped name=one" in caplog.text


def test_what_was_saved_has_its_effect_though_the_process_died_before(run, store):
    class Dying(AnswerRead):
        async def settle(self, batch, number) -> None:
            raise StoreError("killed")

    async def case():
        first, second, third = Dying(), AnswerRead(), AnswerRead()
        await store.log.append(A, "t1", 0, deltas(2), at=AT)
        with pytest.raises(StoreError, match="killed"):
            await TailReader(store, "one", first).catch_up()
        await store.log.append(A, "t1", 2, [delta()], at=AT)
        await TailReader(store, "one", second).catch_up()
        # Given again as the last one: who has it already knows it by its number.
        await TailReader(store, "one", third).catch_up()
        return first.places, second.places, second.effects, third.places, third.settled

    places, again, effects, nothing, last = run(case())
    assert places == [("t1", 1), ("t1", 2)]
    assert again == [("t1", 3)]
    assert effects == [("t1", 1), ("t1", 2), ("t1", 3)]
    assert nothing == [] and last == {2: [("t1", 3)]}


def test_what_was_taken_and_not_saved_is_given_again(run, store):
    class Dying(AnswerRead):
        async def take(self, page) -> list:
            await super().take(page)
            raise StoreError("killed")

    async def case():
        first, second = Dying(), AnswerRead()
        await store.log.append(A, "t1", 0, deltas(2), at=AT)
        with pytest.raises(StoreError, match="killed"):
            await TailReader(store, "one", first).catch_up()
        await TailReader(store, "one", second).catch_up()
        return first.places == second.places == second.effects

    assert run(case())


def test_of_two_under_one_name_each_event_has_its_effect_once(run, store, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 7)

    async def case():
        taken = [AnswerRead(), AnswerRead()]
        readers = [TailReader(store, "one", one) for one in taken]
        for n in range(20):
            await store.log.append(A, f"t{n}", 0, deltas(2), at=AT)
            await asyncio.gather(*(reader.catch_up() for reader in readers))
        batches = taken[0].settled | taken[1].settled
        both = taken[0].settled.keys() & taken[1].settled.keys()
        assert all(taken[0].settled[number] == taken[1].settled[number] for number in both)
        return sorted(place for batch in batches.values() for place in batch)

    assert run(case()) == sorted((f"t{n}", seq) for n in range(20) for seq in (1, 2))


def test_who_asks_while_another_looks_has_all_that_was_there_before(run, store):
    async def case():
        taken = AnswerRead()
        reader = TailReader(store, "one", taken)
        looks = []
        for n in range(5):
            await store.log.append(A, f"t{n}", 0, [delta()], at=AT)
            looks.append(asyncio.ensure_future(reader.catch_up()))
            await asyncio.sleep(0)
        await asyncio.gather(*looks)
        return {task for task, _ in taken.effects}

    assert run(case()) == {f"t{n}" for n in range(5)}


def test_who_waited_for_a_look_that_failed_looks_itself(run, store):
    class Failing(AnswerRead):
        failed = grown = False

        async def take(self, page) -> list:
            if not self.failed and any(append.task_id == "t2" for append in page):
                self.failed = True
                raise StoreError("full")
            return await super().take(page)

        async def settle(self, batch, number) -> None:
            await super().settle(batch, number)
            if ("t1", 1) in self.effects and not self.grown:
                self.grown = True
                await store.log.append(A, "t2", 0, [delta()], at=AT)

    async def case():
        taken = Failing()
        reader = TailReader(store, "one", taken)
        # From here on what is appended is at hand, and a look ends with what it began with.
        await reader.catch_up()
        await store.log.append(A, "t0", 0, [delta()], at=AT)
        await reader.catch_up()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        # The last two ask while the first looks, and one look would do for both.
        looks = await asyncio.gather(*(reader.catch_up() for _ in range(3)), return_exceptions=True)
        return [type(one) for one in looks], {task for task, _ in taken.effects}

    assert run(case()) == ([type(None), StoreError, type(None)], {"t0", "t1", "t2"})


def test_a_look_has_its_end_though_more_is_appended_all_the_time(run, store):
    class Writing(AnswerRead):
        async def take(self, page) -> list:
            if len(self.places) < 100:
                await store.log.append(A, f"t{len(self.places) + 1}", 0, [delta()], at=AT)
            return await super().take(page)

    async def case():
        taken = Writing()
        reader = TailReader(store, "one", taken)
        # From here on what is appended is at hand.
        await reader.catch_up()
        await store.log.append(A, "t0", 0, [delta()], at=AT)
        await reader.catch_up()
        return taken.effects

    assert run(case()) == [("t0", 1)]


@pytest.mark.parametrize("body", [b'{"kind":"claimed"}', b'{"kind":"cla'])
def test_a_damaged_task_does_not_stop_it(run, store, body):
    async def case():
        taken = AnswerRead()
        await store.log.append(A, "t1", 0, [ev.Unread(body)], at=AT)
        await store.log.append(A, "t2", 0, [delta()], at=AT)
        async with reading(store, "one", taken):
            await taken.until(("t2", 1))
        return taken.places

    assert run(case()) == [("t1", 1), ("t2", 1)]


def test_a_damaged_batch_is_logged_and_does_not_stop_it(run, store, caplog):
    class Repeatable(AnswerRead):
        is_repeatable = True

    async def case():
        first, second = Repeatable(), Repeatable()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        await TailReader(store, "one", first).catch_up()
        doc = await store.docs.get("default", module.KIND, "one")
        cursor, _ = msgspec.msgpack.decode(doc.body)
        damaged = msgspec.msgpack.encode([cursor, b"\xc1"])
        await store.docs.put("default", module.KIND, "one", damaged, doc.rev)
        await TailReader(store, "one", second).catch_up()
        return second.effects

    assert run(case()) == [("t1", 1)]
    assert "document.damaged kind=tail-cursor id='one'" in caplog.text


def test_it_ends_with_the_store(run, bench):
    async def case():
        store, taken = bench.make(), AnswerRead()
        await store.open()
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        running = asyncio.ensure_future(TailReader(store, "one", taken).run())
        await taken.until(("t1", 1))
        await store.close()
        await running

    run(case())
