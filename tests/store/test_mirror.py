"""The mirror of documents: whole, in order, bounded, and unharmed by a document that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trunkline.errors import Conflict, InvalidParams, Misuse, StoreError
from trunkline.store import mirror as module
from trunkline.store.documents import DocumentKind
from trunkline.store.mirror import Mirror, SetAside
from trunkline.store.sqlite.store import SqliteStore

KIND = "agent"
TOLD = list[tuple[str, str, str | None]]


def decode(_: str, body: bytes) -> str:
    if body == b"damaged":
        raise ValueError("torn")
    return body.decode()


AGENTS: DocumentKind[str] = DocumentKind(KIND, decode)


class Reader:
    """A mirror with what it has told."""

    def __init__(self, store: SqliteStore) -> None:
        self.told: TOLD = []
        self.mirror = Mirror(store.docs, AGENTS, lambda *change: self.told.append(change))

    @property
    def values(self) -> dict[str, str]:
        return {doc_id: one.value for (_, doc_id), one in self.mirror.documents.items()}


def with_store(work: Callable[[SqliteStore, Reader], Awaitable[None]]) -> None:
    async def main() -> None:
        store = SqliteStore(None, now_ms=lambda: 1)
        await store.open()
        try:
            async with asyncio.timeout(30):
                await work(store, Reader(store))
        finally:
            await store.close()

    asyncio.run(main())


def test_a_mirror_tells_what_is_new_changed_and_gone() -> None:
    async def work(store: SqliteStore, reader: Reader) -> None:
        await store.docs.put("a", KIND, "x", b"1", 0)
        await store.docs.put("b", KIND, "x", b"2", 0)
        await store.docs.put("a", "other", "y", b"3", 0)
        await reader.mirror.refresh()
        await store.docs.put("a", KIND, "x", b"4", 1)
        await store.docs.put("b", KIND, "x", b"2", 1)
        await reader.mirror.refresh()
        assert reader.mirror.documents["b", "x"].rev == 2
        await store.docs.delete("b", KIND, "x")
        await reader.mirror.refresh()
        await reader.mirror.refresh()
        assert reader.told == [("a", "x", "1"), ("b", "x", "2"), ("a", "x", "4"), ("b", "x", None)]
        assert reader.values == {"x": "4"}

    with_store(work)


def test_a_document_that_was_made_anew_is_the_new_one() -> None:
    async def work(store: SqliteStore, reader: Reader) -> None:
        await store.docs.put("a", KIND, "x", b"old", 0)
        await reader.mirror.refresh()
        await store.docs.delete("a", KIND, "x")
        await store.docs.put("a", KIND, "x", b"new", 0)
        await reader.mirror.refresh()
        assert reader.values == {"x": "new"}

    with_store(work)


def test_more_than_a_page_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 3)

    async def work(store: SqliteStore, reader: Reader) -> None:
        for number in range(9):
            await store.docs.put("a", KIND, str(number), b"", 0)
        await reader.mirror.refresh()
        assert len(reader.told) == len(reader.values) == 9

    with_store(work)


def test_a_write_is_known_at_once_and_a_lost_one_never() -> None:
    async def work(_: SqliteStore, reader: Reader) -> None:
        await reader.mirror.put("a", "x", b"1", expected_rev=0)
        with pytest.raises(Conflict):
            await reader.mirror.put("a", "x", b"2", expected_rev=0)
        assert reader.told == [("a", "x", "1")]

    with_store(work)


def test_a_reading_under_way_does_not_undo_a_write() -> None:
    async def work(store: SqliteStore, reader: Reader) -> None:
        await store.docs.put("a", KIND, "x", b"open", 0)
        real, read, go_on = store.docs.changes, asyncio.Event(), asyncio.Event()

        async def changes(kind: str, cursor: str, limit: int) -> object:
            page = await real(kind, cursor, limit)
            read.set()
            await go_on.wait()
            return page

        setattr(reader.mirror._docs, "changes", changes)  # noqa: B010
        reading = asyncio.ensure_future(reader.mirror.refresh())
        await read.wait()
        writing = asyncio.ensure_future(reader.mirror.put("a", "x", b"revoked", expected_rev=1))
        go_on.set()
        await asyncio.gather(reading, writing)
        assert reader.values == {"x": "revoked"}

    with_store(work)


def test_damaged_document_is_set_aside_and_keeps_no_other_out(caplog: pytest.LogCaptureFixture) -> None:
    async def work(store: SqliteStore, reader: Reader) -> None:
        for name, body in (("a", b"1"), ("b", b"damaged"), ("c", b"3")):
            await store.docs.put("t", KIND, name, body, 0)
        for _ in range(2):
            await reader.mirror.refresh()
        assert reader.values == {"a": "1", "c": "3"}
        assert reader.mirror.damaged == {("t", "b"): SetAside(1, 7, "torn")}
        assert (reader.mirror.rev("t", "b"), reader.mirror.rev("t", "none")) == (1, 0)
        # The next write replaces it.
        await reader.mirror.put("t", "b", b"2", expected_rev=reader.mirror.rev("t", "b"))
        assert (reader.values, reader.mirror.damaged) == ({"a": "1", "b": "2", "c": "3"}, {})

    with_store(work)
    assert caplog.text.count("document.damaged kind=agent id='b' tenant='t' error=") == 1


def test_document_that_becomes_damaged_counts_as_gone_and_is_reported() -> None:
    async def work(store: SqliteStore, _: Reader) -> None:
        told: list[tuple[str, ...]] = []
        mirror = Mirror(
            store.docs,
            AGENTS,
            lambda tenant, doc_id, value: told.append((tenant, doc_id, value or "gone")),
            set_aside=lambda tenant, doc_id, reason: told.append((tenant, doc_id, "aside", reason)),
        )
        await mirror.put("a", "x", b"1", expected_rev=0)
        await store.docs.put("a", KIND, "x", b"damaged", 1)
        await mirror.refresh()
        await store.docs.delete("a", KIND, "x")
        await mirror.refresh()
        assert told == [("a", "x", "1"), ("a", "x", "gone"), ("a", "x", "aside", "torn"), ("a", "x", "gone")]
        assert (mirror.documents, mirror.damaged) == ({}, {})

    with_store(work)


def test_refused_document_keeps_no_other_out_and_is_named_each_time() -> None:
    async def work(store: SqliteStore, _: Reader) -> None:
        def refuse(tenant: str, doc_id: str, value: str | None) -> None:
            if value == "wrong":
                raise Misuse(f"{doc_id} is wrong")

        mirror = Mirror(store.docs, AGENTS, refuse)
        for name, body in (("a", b"1"), ("b", b"wrong"), ("c", b"3")):
            await store.docs.put("t", KIND, name, body, 0)
        for _ in range(2):
            with pytest.raises(Misuse, match="b is wrong"):
                await mirror.refresh()
        await mirror.catch_up()
        assert sorted(doc_id for _, doc_id in mirror.documents) == ["a", "c"]
        await store.docs.delete("t", KIND, "b")
        await mirror.refresh()

    with_store(work)


def test_a_tenant_that_has_too_much_writes_no_more_and_keeps_nobody_from_anything() -> None:
    async def work(store: SqliteStore, _: Reader) -> None:
        mirror = Mirror(store.docs, AGENTS, tenant_bytes=10)
        await mirror.put("t", "a", b"12345678", expected_rev=0)
        with pytest.raises(InvalidParams, match="remove some first") as caught:
            await mirror.put("t", "b", b"123", expected_rev=0)
        assert caught.value.details == {"conflict": "TENANT_FULL"}
        assert await store.docs.get("t", KIND, "b") is None, "nothing is written that nobody could read"
        with pytest.raises(InvalidParams):
            await mirror.put("t", "a", b"12345678901", expected_rev=1)
        await mirror.put("other", "b", b"1234567890", expected_rev=0)
        # What got there by another way is known all the same: a start must not fail for it.
        await store.docs.put("t", KIND, "c", b"1234567890", 0)
        await mirror.refresh()
        assert {key: one.size for key, one in mirror.documents.items()} == {
            ("t", "a"): 8, ("other", "b"): 10, ("t", "c"): 10,
        }  # fmt: skip
        await mirror.put("t", "a", b"1234567", expected_rev=1)
        await store.docs.delete("t", KIND, "c")
        await mirror.refresh()
        await mirror.put("t", "b", b"123", expected_rev=0)

    with_store(work)


def test_following_goes_on_when_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async def work(store: SqliteStore, reader: Reader) -> None:
        real, asked, known = store.docs.changes, 0, asyncio.Event()

        async def changes(kind: str, cursor: str, limit: int) -> object:
            nonlocal asked
            asked += 1
            if asked == 1:
                await store.docs.put("a", KIND, "y", b"2", 0)
                raise StoreError("away")
            return await real(kind, cursor, limit)

        setattr(reader.mirror._docs, "changes", changes)  # noqa: B010
        reader.mirror._changed = lambda *_: known.set()
        following = asyncio.ensure_future(reader.mirror.follow())
        await asyncio.sleep(0)
        # Another kind's change is not looked at, this one's is.
        await store.docs.put("a", "other", "x", b"1", 0)
        await store.docs.put("a", KIND, "x", b"1", 0)
        await known.wait()
        await store.close()
        await following

    with_store(work)
    assert "documents.stale kind=agent error=away" in caplog.text
