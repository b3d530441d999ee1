"""Keys: who gets in, as whom, and what is kept of them."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

import pytest

from trunkline.auth import keys as module
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS, DEFAULT_TENANT
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated

ONE, TWO = "first-key-12345", "second-key-6789"


@pytest.fixture
def ring() -> Keyring:
    return Keyring([Secret(ONE), Secret(TWO)])


def test_without_keys_everybody_is_anonymous() -> None:
    ring = Keyring([])
    assert not ring
    assert ring.principal({}) is ANONYMOUS
    assert ring.principal({b"x-api-key": b"whatever"}) is ANONYMOUS


@pytest.mark.parametrize(
    "headers",
    [
        {b"x-api-key": ONE.encode()},
        {b"authorization": b"Bearer " + ONE.encode()},
        {b"authorization": b"bearer " + ONE.encode()},
        {b"authorization": b"BEARER   " + ONE.encode() + b" "},
        {b"x-api-key": b"", b"authorization": b"Bearer " + ONE.encode()},
    ],
)
def test_either_header_opens(ring: Keyring, headers: Mapping[bytes, bytes]) -> None:
    assert ring.principal(headers) == ring.principal({b"x-api-key": ONE.encode()})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"x-api-key": b""},
        {b"x-api-key": b"wrong"},
        {b"x-api-key": ONE.encode() + b"x"},
        {b"x-api-key": ONE.encode()[:-1]},
        {b"x-api-key": ONE.upper().encode()},
        {b"x-api-key": b"wrong", b"authorization": b"Bearer " + ONE.encode()},
        {b"authorization": ONE.encode()},
        {b"authorization": b"Basic " + ONE.encode()},
        {b"authorization": b"Bearer"},
        {b"authorization": b"Bearer "},
        {b"authorization": b"Bearer " + ONE.encode() + b", Bearer " + TWO.encode()},
        {b"authorization": b"Bearer\t" + ONE.encode()},
        {b"cookie": b"x-api-key=" + ONE.encode()},
        {b"x-api-key": b"\xff" * 100_000},
    ],
)
def test_anything_else_stays_out(ring: Keyring, headers: Mapping[bytes, bytes]) -> None:
    with pytest.raises(Unauthenticated) as caught:
        ring.principal(headers)
    assert ONE not in caught.value.message and TWO not in caught.value.message


def test_each_key_is_a_principal_of_its_own(ring: Keyring) -> None:
    first, second = (ring.principal({b"x-api-key": key.encode()}) for key in (ONE, TWO))
    assert first != second
    assert first.tenant == second.tenant == DEFAULT_TENANT
    assert first == Keyring([Secret(ONE)]).principal({b"x-api-key": ONE.encode()}), (
        "a name survives a restart"
    )


def test_no_key_is_kept_in_clear(ring: Keyring) -> None:
    kept = repr(vars(ring)) + repr(ring)
    assert ONE not in kept and TWO not in kept
    assert ONE not in ring.principal({b"x-api-key": ONE.encode()}).name


def test_every_key_is_compared_in_constant_time(ring: Keyring, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    real = hmac.compare_digest
    monkeypatch.setattr(module.hmac, "compare_digest", watch)
    ring.principal({b"x-api-key": ONE.encode()})
    # The first key fits and the second is compared all the same, digest with digest.
    assert compared == [(32, 32), (32, 32)]


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
    assert Keyring([Secret(key)]).principal({b"authorization": b"Bearer " + key.encode()})
