"""The book of keys: what is made is told once, what is changed counts at once, and elsewhere soon."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from trunkline.auth.key_store import KIND, KeyStore, has_keys
from trunkline.auth.keys import Keyring, StoredKey
from trunkline.auth.principal import Principal, Scope
from trunkline.errors import Conflict, Misuse, StoreError, Unauthenticated
from trunkline.store.sqlite.store import SqliteStore

NOW = 1_800_000_000_000


class Desk:
    """A store, a clock that stands still, and a process that keeps the book."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = SqliteStore(None, now_ms=lambda: self.now)
        self.ring, self.book = self.process()

    def process(self) -> tuple[Keyring, KeyStore]:
        ring = Keyring([], lambda: self.now)
        return ring, KeyStore(self.store.docs, ring, lambda: self.now)


def at_desk(work: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        desk = Desk()
        await desk.store.open()
        try:
            await work(desk)
        finally:
            await desk.store.close()

    asyncio.run(main())


def opens(ring: Keyring, token: str) -> Principal | None:
    try:
        return ring.find(token.encode())
    except Unauthenticated:
        return None


def test_a_new_key_opens_at_once() -> None:
    async def work(desk: Desk) -> None:
        assert not await has_keys(desk.store.docs)
        made = await desk.book.create("alice")
        assert re.fullmatch(r"tl_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", made.token)
        assert made.token.split("_")[1] == made.key.id
        assert opens(desk.ring, made.token) == Principal(
            "default", "alice", frozenset({Scope.READ, Scope.WRITE})
        )
        assert (made.first, (await desk.book.create("bob")).first) == (True, False)
        assert await has_keys(desk.store.docs)

    at_desk(work)


def test_only_digests_are_stored_and_shown() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.book.create(
            "alice", tenant="blue", scopes=["admin", "metrics", "admin"], lasts_ms=5
        )
        again = await desk.book.rotate(made.key.id, 1000)
        (doc,) = await desk.store.docs.list("default", KIND)
        for token in (made.token, again.token):
            assert token.encode() not in doc.body
            assert token.split("_", 2)[2].encode() not in doc.body
        kept = json.loads(doc.body)
        assert (kept["owner"], kept["tenant"], kept["scopes"]) == ("alice", "blue", ["admin", "metrics"])
        (shown,) = await desk.book.list()
        assert kept["digest"] not in repr(shown) and kept["previous"] not in repr(shown)
        assert shown.expires == "2027-01-15T08:00:00.005Z"

    at_desk(work)


def test_a_key_can_be_for_a_while() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.book.create("alice", lasts_ms=1000)
        assert opens(desk.ring, made.token)
        desk.now += 1000
        assert not opens(desk.ring, made.token)
        assert [key.state for key in await desk.book.list()] == ["expired"]

    at_desk(work)


def test_a_revoked_key_is_out_and_stays_in_the_book() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.book.create("alice")
        assert (await desk.book.revoke(made.key.id)).state == "revoked"
        assert not opens(desk.ring, made.token)
        assert desk.ring, "nobody opens the door by revoking the last key"
        before = await desk.store.docs.get("default", KIND, made.key.id)
        desk.now += 1000
        assert (await desk.book.revoke(made.key.id)).state == "revoked"
        after = await desk.store.docs.get("default", KIND, made.key.id)
        assert before is not None and after is not None and before.body == after.body
        with pytest.raises(Misuse, match="was revoked"):
            await desk.book.rotate(made.key.id, 1000)
        assert [key.state for key in await desk.book.list()] == ["revoked"]

    at_desk(work)


def test_a_rotated_key_has_a_new_secret_and_the_same_rights() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.book.create("alice", scopes=["tasks:read"])
        again = await desk.book.rotate(made.key.id, 1000)
        assert again.key == made.key and again.token != made.token
        assert opens(desk.ring, made.token) == opens(desk.ring, again.token) is not None
        desk.now += 1000
        assert not opens(desk.ring, made.token)
        at_once = await desk.book.rotate(made.key.id, 0)
        assert not opens(desk.ring, again.token)
        assert opens(desk.ring, at_once.token)

    at_desk(work)


@pytest.mark.parametrize("act", ["revoke", "rotate"])
def test_a_key_that_is_not_there(act: str) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(Misuse, match=r"there is no key 'nobody'"):
            await (desk.book.revoke("nobody") if act == "revoke" else desk.book.rotate("nobody", 1))

    at_desk(work)


@pytest.mark.parametrize(
    ("owner", "tenant", "scopes", "words"),
    [
        ("", "default", [], "an owner is a printable name"),
        ("   ", "default", [], "an owner is"),
        ("line\nend", "default", [], "an owner is"),
        ("x" * 129, "default", [], "an owner is"),
        ("alice", "", [], "cannot be a tenant"),
        ("alice", "a/b", [], "cannot be a tenant"),
        ("alice", "..", [], "cannot be a tenant"),
        ("alice", "admin", [], "none of a2a, admin, agents, all, api, card, delegate, extendedAgentCard, healthz, mcp"),
        ("alice", "default", ["tasks:read", "root"], "no scope 'root': choose tasks:read, tasks:write, answer, announce, metrics, admin"),
    ],
)  # fmt: skip
def test_what_a_key_cannot_be_made_of(owner: str, tenant: str, scopes: list[str], words: str) -> None:
    async def work(desk: Desk) -> None:
        with pytest.raises(Misuse, match=words):
            await desk.book.create(owner, tenant=tenant, scopes=scopes)
        assert not await has_keys(desk.store.docs)

    at_desk(work)


def test_another_process_takes_changes_up() -> None:
    async def work(desk: Desk) -> None:
        ring, other = desk.process()
        made = await desk.book.create("alice")
        assert ring.is_empty
        await other.mirror.refresh()
        assert opens(ring, made.token)
        await desk.book.revoke(made.key.id)
        await other.mirror.refresh()
        assert not opens(ring, made.token)

    at_desk(work)


def test_two_that_rotate_at_once_leave_one_secret_and_the_one_before() -> None:
    async def work(desk: Desk) -> None:
        ring, other = desk.process()
        made = await desk.book.create("alice")
        one, two = await asyncio.gather(desk.book.rotate(made.key.id, 1000), other.rotate(made.key.id, 1000))
        await desk.book.mirror.refresh()
        await other.mirror.refresh()
        for each in (ring, desk.ring):
            assert [bool(opens(each, token)) for token in (one.token, two.token)] == [True, True]
            assert not opens(each, made.token)

    at_desk(work)


def test_a_key_that_never_stands_still_is_an_error() -> None:
    async def work(desk: Desk) -> None:
        made = await desk.book.create("alice")

        class Restless:
            get = desk.store.docs.get

            async def put(self, *_: object, **__: object) -> int:
                raise Conflict(7)

        desk.book.mirror._docs = Restless()
        with pytest.raises(StoreError, match="faster"):
            await desk.book.revoke(made.key.id)

    at_desk(work)


NO_DIGEST = b'{"id":"damaged","tenant":"default","owner":"a","scopes":[],"digest":"no hex","created_at":1}'


def test_a_damaged_key_does_not_keep_another_ones_revocation_out() -> None:
    async def work(desk: Desk) -> None:
        ring, other = desk.process()
        made = await desk.book.create("alice")
        await other.mirror.refresh()
        # Before and after it in any order of ids.
        for name in ("0", "zzzzzzzzzzzzz"):
            await desk.store.docs.put("default", KIND, name, NO_DIGEST, 0)
        await desk.book.revoke(made.key.id)
        await other.mirror.refresh()
        assert not opens(ring, made.token)

    at_desk(work)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"id":7}', b"\xff", NO_DIGEST])
def test_damaged_key_does_not_open_the_door(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def work(desk: Desk) -> None:
        ring, other = desk.process()
        await desk.store.docs.put("default", KIND, "damaged", body, 0)
        await other.mirror.refresh()
        assert not ring.is_empty, "its absence would open the host to everybody"
        with pytest.raises(StoreError, match="document 'damaged' of kind api-key is damaged"):
            await other.revoke("damaged")
        made = await desk.book.create("alice")
        await other.mirror.refresh()
        assert opens(ring, made.token)
        # A key that becomes damaged while it is known opens nothing any more.
        await desk.store.docs.put("default", KIND, made.key.id, body, 1)
        await other.mirror.refresh()
        assert not opens(ring, made.token) and not ring.is_empty

    at_desk(work)
    assert "document.damaged kind=api-key id='damaged' tenant='default'" in caplog.text


def test_keys_of_a_tenant_whose_name_was_reserved_later_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(desk: Desk) -> None:
        for owner, tenant, revoked in (("a", "ui", 0), ("b", "files", 0), ("c", "blue", 0), ("d", "mcp", 1)):
            key = StoredKey(
                id=owner, tenant=tenant, owner=owner, scopes=(), digest="00", created_at=1, revoked_at=revoked
            )
            await desk.store.docs.put("default", KIND, owner, msgspec.json.encode(key), 0)
        await desk.book.mirror.refresh()
        desk.book.report_reserved(["files"])

    at_desk(work)
    assert [record.args[0] for record in caplog.records if record.args] == ["files", "ui"]
