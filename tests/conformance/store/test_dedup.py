"""Dedup keys: recorded once, until they expire."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas
from trunkline.errors import Conflict, Duplicate
from trunkline.store.records import Dedup

DAY = 86_400_000


def key(name="k", digest=b"digest", life=DAY):
    return Dedup(name, digest, life)


async def add(store, task_id, dedup, *, tenant=A, expected=0, events=1):
    return await store.log.append(tenant, task_id, expected, deltas(events), at=AT, dedup=dedup)


async def duplicate(append):
    with pytest.raises(Duplicate) as caught:
        await append
    return caught.value


def test_a_new_key_is_recorded(run, store):
    assert run(add(store, "t1", key(), events=2)) == 2


def test_the_same_key_names_the_task_and_seq_that_has_it(run, store):
    async def case():
        await add(store, "t1", key(), events=2)
        return await duplicate(add(store, "t2", key()))

    found = run(case())
    assert (found.task_id, found.seq, found.digest) == ("t1", 2, b"digest")


def test_what_a_key_stands_for_can_be_asked_by_its_tenant(run, store):
    async def case():
        await add(store, "t1", key(), events=2)
        await add(store, "t2", key("short", life=0))
        asked = [(A, "k"), (A, "short"), (A, "other"), (B, "k")]
        return [await store.heads.duplicate(*one) for one in asked]

    first, *others = run(case())
    assert (first.task_id, first.seq, first.digest) == ("t1", 2, b"digest")
    assert others == [None] * 3


def test_the_digest_is_the_recorded_one(run, store):
    async def case():
        await add(store, "t1", key(digest=b"\x00\xff"))
        return (await duplicate(add(store, "t2", key(digest=b"other")))).digest

    assert run(case()) == b"\x00\xff"


def test_a_duplicate_writes_nothing(run, store):
    async def case():
        await add(store, "t1", key())
        await duplicate(add(store, "t2", key()))
        return await store.log.read(A, "t2")

    assert run(case()) == []


def test_twice_in_one_group(run, store):
    async def case():
        both = (add(store, "t1", key(digest=b"1")), add(store, "t2", key(digest=b"2")))
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = run(case())
    assert first == 1
    assert (second.task_id, second.seq, second.digest) == ("t1", 1, b"1")


def test_a_refused_append_in_the_same_group_records_no_key(run, store):
    async def case():
        both = (add(store, "t1", key(), expected=3), add(store, "t2", key()))
        return await asyncio.gather(*both, return_exceptions=True)

    first, second = run(case())
    assert isinstance(first, Conflict)
    assert second == 1


def test_a_follow_up_sent_again_is_a_duplicate_not_a_conflict(run, store):
    async def case():
        await add(store, "t1", key("first"))
        await add(store, "t1", key("second"), expected=1)
        return (await duplicate(add(store, "t1", key("second"), expected=1))).seq

    assert run(case()) == 2


def test_tenants_have_their_own_keys(run, store):
    async def case():
        return await add(store, "t1", key()), await add(store, "t2", key(), tenant=B)

    assert run(case()) == (1, 1)


def test_keys_that_differ_are_different(run, store):
    async def case():
        return [await add(store, f"t{n}", key(name)) for n, name in enumerate(("k", "K", "k ", "", "ķ"))]

    assert run(case()) == [1] * 5


def test_an_expired_key_may_be_recorded_again(run, store, clock):
    async def case():
        await add(store, "t1", key(life=1_000))
        clock.ms = AT + 1_000
        await add(store, "t2", key(life=5_000))
        return (await duplicate(add(store, "t3", key()))).task_id

    assert run(case()) == "t2"


def test_a_key_holds_until_the_last_moment(run, store, clock):
    async def case():
        await add(store, "t1", key(life=1_000))
        clock.ms = AT + 999
        return (await duplicate(add(store, "t2", key()))).task_id

    assert run(case()) == "t1"


def test_many_keys_in_one_group(run, store):
    async def case():
        await asyncio.gather(*(add(store, f"t{n}", key(f"k{n}")) for n in range(300)))
        again = (add(store, f"u{n}", key(f"k{n}")) for n in range(300))
        return await asyncio.gather(*again, return_exceptions=True)

    assert [found.task_id for found in run(case())] == [f"t{n}" for n in range(300)]


def test_appends_without_a_key_are_never_duplicates(run, store):
    async def case():
        await add(store, "t1", key())
        return [await store.log.append(A, f"u{n}", 0, [delta("same")], at=AT) for n in range(3)]

    assert run(case()) == [1, 1, 1]
