"""Keys: who gets in, as whom, for how long, and what is kept of them."""

from __future__ import annotations

import hmac
from typing import Any

import pytest

from trunkline.auth import keys as module
from trunkline.auth.keys import Keyring, StoredKey, digest_of
from trunkline.auth.principal import DEFAULT_TENANT, Scope
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated

ONE, TWO = "first-key-12345", "second-key-6789"
NOW = 1_800_000_000_000
TOKEN = b"tl_abcdefghijkl_the-secret_of-it"


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def stored(token: bytes = TOKEN, **more: Any) -> StoredKey:
    plain: dict[str, Any] = {
        "id": "abcdefghijkl",
        "tenant": "blue",
        "owner": "alice",
        "scopes": ("tasks:read", "of-a-newer-version"),
        "digest": digest_of(token).hex(),
        "created_at": NOW - 10,
    }
    return StoredKey(**{**plain, **more})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ring(clock: Clock) -> Keyring:
    return Keyring([Secret(ONE), Secret(TWO)], clock)


def refused(ring: Keyring, token: bytes) -> str:
    with pytest.raises(Unauthenticated) as caught:
        ring.find(token)
    return caught.value.message


def test_a_ring_without_keys_is_false_and_opens_nothing() -> None:
    assert Keyring([]).is_empty
    refused(Keyring([]), ONE.encode())


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"wrong",
        ONE.encode() + b"x",
        ONE.encode()[:-1],
        ONE.upper().encode(),
        b"\xff" * 100_000,
        b"tl_",
        b"tl__",
        b"tl_abcdefghijkl",
        b"tl_abcdefghijkl_",
        TOKEN[:-1],
        TOKEN + b"x",
        TOKEN.upper(),
        b"tl_ABCDEFGHIJKL_the-secret_of-it",
        b"tl_zzzzzzzzzzzz_the-secret_of-it",
        b"abcdefghijkl_the-secret_of-it",
        bytes(32),
    ],
)
def test_anything_else_stays_out_and_hears_the_same(ring: Keyring, token: bytes) -> None:
    assert refused(ring, token) == "the key is not known here"
    ring.take(stored())
    assert refused(ring, token) == "the key is not known here"


def test_each_fixed_key_is_a_principal_of_its_own(ring: Keyring) -> None:
    first, second = (ring.find(key.encode()) for key in (ONE, TWO))
    assert first != second
    assert first.tenant == second.tenant == DEFAULT_TENANT
    assert first.scopes == {Scope.READ, Scope.WRITE, Scope.METRICS}
    assert first == Keyring([Secret(ONE)]).find(ONE.encode()), "a name survives a restart"
    assert first.name.startswith("key-") and len(first.name) == 16


def test_a_stored_key_is_its_owner(ring: Keyring) -> None:
    ring.take(stored())
    found = ring.find(TOKEN)
    assert (found.tenant, found.name, found.scopes) == ("blue", "alice", {Scope.READ})
    assert ring.find(ONE.encode()).name.startswith("key-"), "the others go on"


def test_one_that_ends_has_ended_at_that_moment(ring: Keyring, clock: Clock) -> None:
    ring.take(stored(expires_at=NOW + 5))
    assert ring.find(TOKEN)
    clock.now += 5
    assert refused(ring, TOKEN) == "the key is not known here"


@pytest.mark.parametrize("expires_at", [0, NOW + 5])
def test_a_revoked_one_is_out_but_keeps_the_door_shut(clock: Clock, expires_at: int) -> None:
    ring = Keyring([], clock)
    ring.take(stored())
    ring.take(stored(revoked_at=NOW, expires_at=expires_at))
    assert not ring.is_empty
    assert refused(ring, TOKEN) == "the key is not known here"


def test_after_a_rotation_both_open_for_a_while(ring: Keyring, clock: Clock) -> None:
    fresh = b"tl_abcdefghijkl_another-secret"
    rotated = stored(fresh, previous=digest_of(TOKEN).hex(), previous_until=NOW + 5)
    ring.take(rotated)
    assert ring.find(fresh) == ring.find(TOKEN)
    clock.now += 5
    assert ring.find(fresh)
    refused(ring, TOKEN)
    clock.now = NOW
    ring.take(stored(fresh, previous=rotated.previous, previous_until=NOW + 5, revoked_at=NOW))
    refused(ring, TOKEN)


def test_no_key_is_kept_in_clear(ring: Keyring) -> None:
    ring.take(stored())
    kept = repr(vars(ring)) + repr(ring)
    assert ONE not in kept and TWO not in kept and "the-secret" not in kept
    assert ONE not in ring.find(ONE.encode()).name


@pytest.mark.parametrize(
    "token", [ONE.encode(), TOKEN, b"tl_zzzzzzzzzzzz_x", b"tl_abcdefghijkl_wrong", b"nothing"]
)
def test_every_token_costs_the_same_comparisons(
    ring: Keyring, monkeypatch: pytest.MonkeyPatch, token: bytes
) -> None:
    ring.take(stored())
    compared: list[tuple[int, int]] = []

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    real = hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", watch)
    try:
        ring.find(token)
    except Unauthenticated:
        pass
    # Both fixed keys, then the digest of now and the one before of the stored key, or of nobody.
    assert compared == [(32, 32)] * 4


@pytest.mark.parametrize("key", ["", "1234567", "seven77"])
def test_a_short_key_is_refused(key: str) -> None:
    with pytest.raises(Misuse, match="at least 8") as caught:
        Keyring([Secret(ONE), Secret(key)])
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    "key", ["line\nend-12345", "nul\0-1234567", " around-12345", "around-12345 ", "tab\t-1234567", "        "]
)
def test_a_key_no_header_can_carry_is_refused(key: str) -> None:
    with pytest.raises(Misuse, match="printable") as caught:
        Keyring([Secret(key)])
    assert key.strip()[-5:] not in str(caught.value) or not key.strip()


def test_a_key_may_be_any_printable_text() -> None:
    key = "schl\u00fcssel-\U0001f511"
    assert Keyring([Secret(key)]).find(key.encode())
