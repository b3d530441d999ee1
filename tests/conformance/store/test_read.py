"""Read: dense, in order, bounded, and only for its tenant."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas, task


@pytest.fixture
def ten(run, store):
    run(_append(store, "t1", deltas(10)))
    return store


async def _append(store, task_id, events, tenant=A):
    return await store.log.append(tenant, task_id, 0, events, at=AT)


def seqs(events):
    return [recorded.seq for recorded in events]


def test_an_unknown_task_is_empty(run, store):
    assert run(store.log.read(A, "nobody")) == []


def test_everything_from_the_start(run, ten):
    assert seqs(run(ten.log.read(A, "t1"))) == list(range(1, 11))


@pytest.mark.parametrize(
    ("after", "left"), [(0, 10), (1, 9), (9, 1), (10, 0), (11, 0), (10**12, 0), (-5, 10)]
)
def test_after(run, ten, after, left):
    assert seqs(run(ten.log.read(A, "t1", after))) == list(range(11 - left, 11))


@pytest.mark.parametrize("limit", [1, 3, 10, 11, 5_000])
def test_limit(run, ten, limit):
    assert seqs(run(ten.log.read(A, "t1", limit=limit))) == list(range(1, min(limit, 10) + 1))


def test_no_limit_left_is_empty(run, ten):
    assert run(ten.log.read(A, "t1", limit=0)) == []


def test_pages_join_up(run, ten):
    async def case():
        found, after = [], 0
        while page := await ten.log.read(A, "t1", after, 3):
            found += page
            after = page[-1].seq
        return found

    assert run(case()) == run(ten.log.read(A, "t1"))


def test_a_page_may_begin_and_end_inside_an_append(run, store):
    places = [(after, limit) for after in range(13) for limit in (0, 1, 2, 3, 4, 5, 12, 50)]

    async def case():
        for seq, count in ((0, 1), (1, 4), (5, 2), (7, 5)):
            await store.log.append(A, "t1", seq, deltas(count, seq), at=AT + seq)
            await store.log.append(A, f"other-{seq}", 0, deltas(3), at=AT)
        return [await store.log.read(A, "t1", *place) for place in places]

    starts = [0, 1, 1, 1, 1, 5, 5, 7, 7, 7, 7, 7]
    for (after, limit), found in zip(places, run(case()), strict=True):
        assert seqs(found) == list(range(after + 1, min(after + limit, 12) + 1)), (after, limit)
        assert [recorded.event for recorded in found] == [delta(f"{recorded.seq - 1} ") for recorded in found]
        assert [recorded.at for recorded in found] == [AT + starts[recorded.seq - 1] for recorded in found]


def test_another_tenant_sees_nothing(run, ten):
    assert run(ten.log.read(B, "t1")) == []


def test_an_empty_tenant_is_not_a_master_key(run, ten):
    assert run(ten.log.read("", "t1")) == []


def test_a_prefix_of_an_id_is_another_task(run, ten):
    assert run(ten.log.read(A, "t")) == []
    assert run(ten.log.read(A, "t10")) == []


def test_ids_are_case_sensitive(run, ten):
    assert run(ten.log.read(A, "T1")) == []


def test_what_was_acknowledged_can_be_read_at_once(run, store):
    async def case():
        for seq in range(30):
            await store.log.append(A, "t1", seq, [delta()], at=AT)
            assert len(await store.log.read(A, "t1", after=seq)) == 1

    run(case())


def test_readers_beside_a_writer_see_no_holes(run, store):
    async def write():
        for seq in range(0, 300, 3):
            await store.log.append(A, "t1", seq, deltas(3), at=AT)

    async def watch():
        seen = 0
        while seen < 300:
            events = await store.log.read(A, "t1", seen)
            assert seqs(events) == list(range(seen + 1, seen + 1 + len(events)))
            # Three by three: an append is seen whole or not at all.
            assert len(events) % 3 == 0
            seen += len(events)

    async def case():
        await asyncio.gather(write(), watch(), watch())

    run(case())


def test_many_reads_at_once(run, ten, monkeypatch):
    # How long one waits for a free connection is not what is shown here, and a busy machine takes longer.
    monkeypatch.setattr("trunkline.store.postgres.sessions.WAIT_SECONDS", 30.0)

    async def case():
        return await asyncio.gather(*(ten.log.read(A, "t1", n % 10) for n in range(200)))

    assert [len(events) for events in run(case())] == [10 - n % 10 for n in range(200)]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_tasks_whose_beginning_holds_a_text(run, store, size):
    async def case():
        # What a task says later is not its beginning, and a text of another tenant is nobody's business.
        for number, (tenant, owner) in enumerate([(A, "c-1"), (A, "é"), (A, "c-1"), (B, "c-1"), (A, "c-12")]):
            author = await task(store, f"t{number}", tenant=tenant, owner=owner)
            await author.append(delta('"owner":"c-2"'))
        return [await found(store, text, size) for text in ('"owner":"c-1"', "é", "c-1", "c-2")]

    async def found(store, text, size):
        ids, cursor = await store.maintenance.begun_with(A, text, limit=size)
        while cursor:
            more, cursor = await store.maintenance.begun_with(A, text, cursor, size)
            ids += more
        return ids

    assert run(case()) == [["t2", "t0"], ["t1"], ["t4", "t2", "t0"], []]
