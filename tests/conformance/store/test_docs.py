"""Docs: compare-and-set on a revision."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, submitted
from trunkline.errors import Conflict
from trunkline.store import parts
from trunkline.store.records import START, AddedDoc, Dedup, Doc, DocHint, TenantDoc

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


def test_the_size_is_that_of_the_bodies_of_one_kind_and_tenant(run, store):
    async def case():
        found = [await store.docs.size(A, KIND)]
        for tenant, kind, doc_id, body in (
            (A, KIND, "x", "é".encode()),
            (A, KIND, "y", b"12345"),
            (A, "other", "x", b"1"),
            (B, KIND, "x", b"1"),
        ):
            await store.docs.put(tenant, kind, doc_id, body, 0)
            found.append(await store.docs.size(A, KIND))
        await store.docs.put(A, KIND, "x", b"1", 1)
        await store.docs.delete(A, KIND, "y")
        return [*found, await store.docs.size(A, KIND)]

    assert run(case()) == [0, 2, 7, 7, 7, 1]


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


def test_pages_by_id(run, store):
    async def case():
        for name in "dbeca":
            await store.docs.put(A, KIND, name, b"", 0)
        pages, after = [], ""
        while page := await store.docs.list(A, KIND, after, 2):
            after = page[-1].id
            pages.append([doc.id for doc in page])
        return pages

    assert run(case()) == [["a", "b"], ["c", "d"], ["e"]]


def test_a_list_over_tenants(run, store):
    async def case():
        for tenant, name in ((B, "x"), (A, "y"), (A, "x"), (B, "gone")):
            await store.docs.put(tenant, KIND, name, f"{tenant}/{name}".encode(), 0)
        await store.docs.put(A, "other", "z", b"", 0)
        await store.docs.delete(B, KIND, "gone")
        first = await store.docs.list_all(KIND, limit=2)
        return first, await store.docs.list_all(KIND, (first[-1].tenant, first[-1].id), 2)

    first, second = run(case())
    assert first == [TenantDoc(A, name, 1, f"{A}/{name}".encode()) for name in ("x", "y")]
    assert second == [TenantDoc(B, "x", 1, f"{B}/x".encode())]


def test_a_delete_of_another_body_does_nothing(run, store):
    async def case():
        await store.docs.put(A, KIND, "x", b"new", 0)
        return [await store.docs.delete(A, KIND, "x", body) for body in (b"old", b"new")]

    assert run(case()) == [False, True]


def test_a_tenant_is_cleared_of_documents_and_dedup_keys_while_another_document_stands(
    run, store, monkeypatch
):
    monkeypatch.setattr(parts, "PAGE_CLEARED", 2)

    async def left():
        found = [await store.docs.list(tenant, kind) for tenant in (A, B) for kind in ("one", "two")]
        keys = [await store.heads.duplicate(tenant, key) for tenant in (A, B) for key in ("k1", "k2", "k3")]
        return [len(one) for one in found], [key is not None for key in keys]

    async def case():
        for tenant in (A, B):
            for name in ("x", "y", "z"):
                await store.docs.put(tenant, "one", name, b"", 0)
            await store.docs.put(tenant, "two", "x", b"", 0)
            for n in (1, 2, 3):
                first = submitted(f"{tenant}-{n}")
                await store.log.append(
                    tenant, f"{tenant}-{n}", 0, [first], at=AT, dedup=Dedup(f"k{n}", b"", 1 << 40)
                )
        await store.docs.put("owner", KIND, "mark", b"now", 0)
        cleared = []
        for body in (b"then", b"now"):
            mark = TenantDoc("owner", "mark", 1, body)
            cleared.append((await store.docs.clear(A, under=mark, kind=KIND), *await left()))
        return cleared, await store.docs.get("owner", KIND, "mark")

    cleared, mark = run(case())
    assert cleared == [
        (False, [3, 1, 3, 1], [True] * 6),
        (True, [0, 0, 3, 1], [False] * 3 + [True] * 3),
    ]
    assert mark is not None


async def follow(store, cursor, known):
    """Apply what has changed; gives the next cursor and whether anything was new."""
    changes, cursor = await store.docs.changes(KIND, cursor)
    for change in changes:
        known[change.tenant, change.id] = change.doc and change.doc.body
    return cursor


def test_changes_tell_of_every_write(run, store):
    async def case():
        known, seen = {}, []
        await store.docs.put(A, KIND, "x", b"1", 0)
        cursor = await follow(store, START, known)
        seen.append(dict(known))
        await store.docs.put(B, KIND, "y", b"1", 0)
        await store.docs.put(A, KIND, "x", b"2", 1)
        await store.docs.put(A, "other", "z", b"", 0)
        cursor = await follow(store, cursor, known)
        seen.append(dict(known))
        await store.docs.delete(A, KIND, "x")
        cursor = await follow(store, cursor, known)
        seen.append(dict(known))
        await store.docs.put(A, KIND, "x", b"again", 0)
        await follow(store, cursor, known)
        return [*seen, known]

    assert run(case()) == [
        {(A, "x"): b"1"},
        {(A, "x"): b"2", (B, "y"): b"1"},
        {(A, "x"): None, (B, "y"): b"1"},
        {(A, "x"): b"again", (B, "y"): b"1"},
    ]


def test_deletions_are_told_for_a_day(run, store, clock):
    async def case():
        known = {}
        for name in ("x", "y"):
            await store.docs.put(A, KIND, name, b"", 0)
        await store.docs.delete(A, KIND, "x")
        cursor = await follow(store, START, known)
        await store.maintenance.prune(0)
        young = len((await store.docs.changes(KIND))[0])
        clock.ms += 86_400_001
        await store.docs.put(A, KIND, "z", b"", 0)
        await store.maintenance.prune(0)
        await follow(store, cursor, known)
        return young, len((await store.docs.changes(KIND))[0]), known

    assert run(case()) == (2, 2, {(A, "x"): None, (A, "y"): b"", (A, "z"): b""})


def test_a_number_is_never_given_twice(run, store, clock):
    """What is deleted last and forgotten must not hide the write after it."""

    async def case():
        known = {}
        await store.docs.put(A, KIND, "x", b"", 0)
        await store.docs.delete(A, KIND, "x")
        cursor = await follow(store, START, known)
        clock.ms += 86_400_001
        await store.maintenance.prune(0)
        await store.docs.put(A, KIND, "y", b"", 0)
        await follow(store, cursor, known)
        return (A, "y") in known

    assert run(case())


def test_changes_come_in_pages(run, store):
    async def case():
        for number in range(5):
            await store.docs.put(A, KIND, f"a {number}", b"", 0)
        await store.docs.put(B, KIND, "b", b"", 0)
        pages, cursor = [], START
        while not pages or len(pages[-1]) == 2:
            page, cursor = await store.docs.changes(KIND, cursor, 2)
            pages.append([change.id for change in page])
        await store.docs.put(B, KIND, "b", b"2", 1)
        return pages, [change.id for change in (await store.docs.changes(KIND, cursor))[0]]

    pages, later = run(case())
    assert pages == [["a 0", "a 1"], ["a 2", "a 3"], ["a 4", "b"], []]
    assert later[-1] == "b"


def test_a_change_is_hinted_with_its_kind(run, store):
    async def case():
        listener = store.docs.hints()
        await store.docs.put(A, KIND, "x", b"", 0)
        first = await anext(listener)
        await store.docs.put(A, "other", "x", b"", 0)
        await store.docs.delete(A, KIND, "x")
        return first, [await anext(listener), await anext(listener)]

    assert run(case()) == (DocHint(KIND), [DocHint("other"), DocHint(KIND)])


def test_what_goes_beside_is_written_with_it_or_neither_is(run, store):
    row = AddedDoc("row", "r1", b"told")

    async def case():
        first = await store.docs.put(A, KIND, "x", b"1", 0, beside=row)
        told = await store.docs.get(A, "row", "r1")
        for doc_id, rev, beside in (("x", 1, row), ("y", 3, AddedDoc("row", "r2", b"lost"))):
            with pytest.raises(Conflict):
                await store.docs.put(A, KIND, doc_id, b"2", rev, beside=beside)
        found = [await store.docs.get(A, "row", "r2"), await store.docs.get(A, KIND, "y")]
        return first, told, (await store.docs.get(A, KIND, "x")).rev, found

    assert run(case()) == (1, Doc("r1", 1, b"told"), 1, [None, None])
