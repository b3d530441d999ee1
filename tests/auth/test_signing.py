"""The server's signing keys: made once, replaced with a day of both, never readable without the vault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from trunkline.auth import signing
from trunkline.auth.signing import GRACE_MS, Signer
from trunkline.auth.vault import Vault
from trunkline.clock import Ids, random_bits
from trunkline.errors import Conflict, Misuse, StoreError, Unauthenticated
from trunkline.net import webhook_signature
from trunkline.store.records import Doc, DocChange
from trunkline.store.sqlite.store import SqliteStore

KEY = bytes(32)
NOW = 1_800_000_000_000


class Bench:
    """A store in memory, a clock that stands still, and as many signers as one likes."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = SqliteStore(None, now_ms=lambda: self.now)

    def signer(self, key: bytes = KEY, docs: Any = None) -> Signer:
        now = lambda: self.now  # noqa: E731
        return Signer(docs or self.store.docs, Vault(key), now, Ids(now, random_bits))


def with_bench(work: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench()
        await bench.store.open()
        try:
            await work(bench)
        finally:
            await bench.store.close()

    asyncio.run(main())


def kids(signer: Signer) -> list[str]:
    return [key["kid"] for key in json.loads(signer.jwks())["keys"]]


def verified(signer: Signer, jwks: bytes, body: bytes = b"{}") -> str:
    header = signer.sign("msg_1", 1_800_000_000, body)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1800000000", "webhook-signature": header}
    return webhook_signature.verify(headers, b"{}", webhook_signature.jwks_keys(jwks), now_s=1_800_000_000)


def test_the_first_start_makes_a_key_and_the_next_finds_it() -> None:
    async def work(bench: Bench) -> None:
        first, second = bench.signer(), bench.signer()
        await first.start()
        await second.start()
        assert first.jwks() == second.jwks()
        (key,) = json.loads(first.jwks())["keys"]
        assert {name: key[name] for name in ("kty", "crv", "use", "alg")} == {
            "kty": "OKP",
            "crv": "Ed25519",
            "use": "sig",
            "alg": "EdDSA",
        }
        assert "=" not in key["x"] and set(key) == {"kty", "crv", "use", "alg", "kid", "x"}
        assert verified(second, first.jwks()) == "msg_1"
        with pytest.raises(Unauthenticated):
            verified(second, first.jwks(), b"other")

    with_bench(work)


def test_many_that_start_at_once_end_with_one_key() -> None:
    async def work(bench: Bench) -> None:
        signers = [bench.signer() for _ in range(8)]
        await asyncio.gather(*(signer.start() for signer in signers))
        assert len({signer.jwks() for signer in signers}) == 1

    with_bench(work)


def test_no_private_half_is_in_the_store() -> None:
    async def work(bench: Bench) -> None:
        signer = bench.signer()
        await signer.start()
        (doc,) = await bench.store.docs.list("default", signing.KIND)
        text = json.loads(doc.body)["keys"][0]
        assert set(text) == {"kid", "public", "sealed", "created_at", "retires_at"}
        assert "whsk_" not in doc.body.decode()
        assert webhook_signature.signing_key(Vault(KEY).open(text["sealed"], f"signing key {text['kid']}"))

    with_bench(work)


def test_a_rotation_signs_with_both_for_a_day() -> None:
    async def work(bench: Bench) -> None:
        signer = bench.signer()
        await signer.start()
        before = signer.jwks()
        (old,) = kids(signer)
        new = await signer.rotate()
        assert kids(signer) == [new, old]
        assert len(signer.sign("msg_1", 1, b"").split(" ")) == 2
        assert verified(signer, before) == verified(signer, signer.jwks()) == "msg_1"
        bench.now += GRACE_MS
        assert kids(signer) == [new]
        assert len(signer.sign("msg_1", 1, b"").split(" ")) == 1
        with pytest.raises(Unauthenticated):
            verified(signer, before)
        last = await signer.rotate()
        assert kids(signer) == [last, new], "what had retired is not kept"

    with_bench(work)


def test_a_retired_key_keeps_its_day_through_more_rotations() -> None:
    async def work(bench: Bench) -> None:
        signer = bench.signer()
        await signer.start()
        first = kids(signer)
        second = await signer.rotate()
        bench.now += GRACE_MS // 2
        third = await signer.rotate()
        assert kids(signer) == [third, second, *first]
        bench.now += GRACE_MS // 2
        assert kids(signer) == [third, second]

    with_bench(work)


def test_another_process_takes_a_rotation_up() -> None:
    async def work(bench: Bench) -> None:
        one, other = bench.signer(), bench.signer()
        await one.start()
        await other.start()
        await one.rotate()
        assert kids(other) != kids(one)
        await other.mirror.refresh()
        assert other.jwks() == one.jwks()
        await asyncio.gather(one.rotate(), other.rotate())
        await one.mirror.refresh()
        await other.mirror.refresh()
        assert other.jwks() == one.jwks()
        assert len(kids(one)) == 4

    with_bench(work)


def test_another_secret_is_refused_until_a_rotation() -> None:
    async def work(bench: Bench) -> None:
        signer = bench.signer()
        await signer.start()
        old = kids(signer)
        stranger = bench.signer(b"\1" * 32)
        with pytest.raises(Misuse, match="trunkline keys rotate --signing"):
            await stranger.start()
        new = await stranger.rotate()
        assert kids(stranger) == [new, *old], "what the old one signed can still be verified"
        assert len(stranger.sign("msg_1", 1, b"").split(" ")) == 1
        assert verified(stranger, stranger.jwks()) == "msg_1"

    with_bench(work)


class Restless:
    """Documents that change under everybody's hands."""

    async def get(self, tenant: str, kind: str, doc_id: str) -> Doc | None:
        return None

    async def changes(self, kind: str, cursor: str, limit: int) -> tuple[list[DocChange], str]:
        return [], ""

    async def put(
        self, tenant: str, kind: str, doc_id: str, body: bytes, expected_rev: int, **_: object
    ) -> int:
        raise Conflict(7)


def test_keys_that_never_stand_still_are_an_error() -> None:
    async def work(bench: Bench) -> None:
        signer = bench.signer(docs=Restless())
        with pytest.raises(StoreError, match="faster"):
            await signer.start()
        with pytest.raises(StoreError, match="faster"):
            await signer.rotate()

    with_bench(work)


def test_damaged_keys_sign_nothing_until_they_are_rotated() -> None:
    async def work(bench: Bench) -> None:
        await bench.store.docs.put("default", signing.KIND, "ring", b"{}", 0)
        signer = bench.signer()
        await signer.start()
        with pytest.raises(StoreError, match="run trunkline keys rotate --signing"):
            signer.sign("id", 1, b"body")
        assert (await bench.store.docs.get("default", signing.KIND, "ring")).body == b"{}"
        await signer.rotate()
        assert signer.sign("id", 1, b"body").startswith("v1a,")

    with_bench(work)
