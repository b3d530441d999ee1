"""Docs: compare-and-set on a revision."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import A, B
from trunkline.errors import Conflict
from trunkline.store.base import Doc

KIND = "agent"


def test_nothing_there(run, store):
    assert run(store.docs.get(A, KIND, "x")) is None
    assert run(store.docs.list(A, KIND)) == []


def test_the_first_revision_is_one(run, store):
    async def case():
        return await store.docs.put(A, KIND, "x", b"body", 0), await store.docs.get(A, KIND, "x")

    assert run(case()) == (1, Doc("x", 1, b"body"))


def test_a_change_over_the_seen_revision(run, store):
    async def case():
        await store.docs.put(A, KIND, "x", b"1", 0)
        return await store.docs.put(A, KIND, "x", b"2", 1), await store.docs.get(A, KIND, "x")

    assert run(case()) == (2, Doc("x", 2, b"2"))


@pytest.mark.parametrize(("writes", "seen"), [(0, 1), (1, 0), (2, 1), (2, 3)])
def test_another_revision_conflicts(run, store, writes, seen):
    async def case():
        for rev in range(writes):
            await store.docs.put(A, KIND, "x", b"kept", rev)
        with pytest.raises(Conflict) as caught:
            await store.docs.put(A, KIND, "x", b"lost", seen)
        found = await store.docs.get(A, KIND, "x")
        return caught.value.actual, found is None or found.body == b"kept"

    assert run(case()) == (writes, True)


def test_one_of_many_writers_wins(run, store):
    async def case():
        rivals = (store.docs.put(A, KIND, "x", bytes([n]), 0) for n in range(20))
        return await asyncio.gather(*rivals, return_exceptions=True)

    results = run(case())
    assert [result for result in results if isinstance(result, int)] == [1]
    assert sum(isinstance(result, Conflict) for result in results) == 19


@pytest.mark.parametrize("body", [b"", b"\x00\xff\x00", "ünï".encode(), b"x" * 2_000_000], ids=len)
def test_any_body(run, store, body):
    async def case():
        await store.docs.put(A, KIND, "x", body, 0)
        return (await store.docs.get(A, KIND, "x")).body == body

    assert run(case())


def test_list_is_by_id_and_kind(run, store):
    async def case():
        for name in ("b", "a", "ä", "c"):
            await store.docs.put(A, KIND, name, name.encode(), 0)
        await store.docs.put(A, "other", "z", b"", 0)
        return [doc.id for doc in await store.docs.list(A, KIND)]

    assert run(case()) == ["a", "b", "c", "ä"]


def test_tenants_are_apart(run, store):
    async def case():
        await store.docs.put(A, KIND, "x", b"a", 0)
        await store.docs.put(B, KIND, "x", b"b", 0)
        assert await store.docs.delete(B, KIND, "x")
        return (
            await store.docs.get(A, KIND, "x"),
            await store.docs.get(B, KIND, "x"),
            await store.docs.list(B, KIND),
        )

    assert run(case()) == (Doc("x", 1, b"a"), None, [])


def test_delete_says_whether_there_was_one(run, store):
    async def case():
        await store.docs.put(A, KIND, "x", b"", 0)
        return [await store.docs.delete(A, KIND, "x") for _ in range(2)]

    assert run(case()) == [True, False]


def test_after_a_delete_it_may_be_made_again(run, store):
    async def case():
        await store.docs.put(A, KIND, "x", b"1", 0)
        await store.docs.delete(A, KIND, "x")
        return await store.docs.put(A, KIND, "x", b"2", 0)

    assert run(case()) == 1
