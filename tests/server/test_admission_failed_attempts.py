"""Wrong keys: so many of an address, so many of all, and never in the way of who has the right one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from trunkline.auth.principal import CALLER, Principal
from trunkline.config import Settings
from trunkline.errors import TooManyRequests, Unauthenticated
from trunkline.http.asgi import AsgiExchange
from trunkline.http.host_check import LOOPBACK, HostCheck
from trunkline.server import admission
from trunkline.server.admission import Admission
from trunkline.telemetry.traces import TraceSeen

ALICE = Principal("t", "alice", CALLER)
RIGHT, WRONG = "right", "wrong"


class Keys:
    """Knows one key; a token that begins with `ey` is asked about."""

    def __init__(self) -> None:
        self.looked = 0

    def known(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        if headers.get(b"authorization", b"").startswith(b"Bearer ey"):
            return None
        self.looked += 1
        if headers.get(b"x-api-key") != RIGHT.encode():
            raise Unauthenticated("the key is not known here")
        return ALICE

    async def ask(self, headers: Mapping[bytes, bytes]) -> Principal:
        self.looked += 1
        raise Unauthenticated("the token is not accepted")


class Open:
    closing = False


class Door:
    """An admission, a clock, and who comes."""

    def __init__(self, *, trust: bool = False) -> None:
        self.now = 100.0
        self.keys = Keys()
        self.admission = Admission(
            HostCheck(LOOPBACK),
            self.keys,
            Open(),
            None,
            Settings(trust_forwarded=trust),
            clock=lambda: self.now,
        )

    def come(self, place: str, key: str = WRONG, **headers: str) -> str:
        async def nothing(*_: object) -> None:
            raise AssertionError

        named = (
            {"host": "localhost", "x-api-key": key, **headers} if key else {"host": "localhost", **headers}
        )
        sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
        scope = {"type": "http", "method": "GET", "path": "/", "client": (place, 1), "headers": sent}
        try:
            asyncio.run(self.admission.admit(AsgiExchange(scope, nothing, nothing), TraceSeen()))
        except Unauthenticated:
            return "401"
        except TooManyRequests as refused:
            assert refused.retry_after_s >= 1
            return "429"
        return "200"


@pytest.fixture(autouse=True)
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "PLACE_BURST", 100)
    monkeypatch.setattr(admission, "ALL_BURST", 1000)


@pytest.mark.parametrize("place", ["93.184.216.34", "127.0.0.1", "10.0.0.7", "2606:4700::1"])
def test_a_guesser_is_stopped_before_its_next_key_is_looked_at(place: str) -> None:
    """2.8: 4 581 wrong keys a second were answered."""
    door = Door()
    said = Counter(door.come(place) for _ in range(400))
    assert said == {"401": admission.PLACE_BURST, "429": 400 - admission.PLACE_BURST}
    looked = door.keys.looked
    assert looked <= admission.PLACE_BURST + 1
    assert door.come(place, RIGHT) == "429", "else it would know the right one when it finds it"
    assert door.keys.looked == looked
    # The rightful holder is elsewhere; and who says nothing hears what is needed.
    assert door.come("93.184.216.99", RIGHT) == "200"
    assert door.come(place, "") == "401"
    door.now += 2
    assert door.come(place, RIGHT) == "200"


def test_tokens_count_too() -> None:
    door = Door()
    said = Counter(door.come("1.1.1.1", "", authorization=f"Bearer ey{n}") for n in range(150))
    assert said["429"] == 150 - admission.PLACE_BURST


def test_many_addresses_are_bounded_together_and_lock_out_nobody_else() -> None:
    door = Door()
    places = [f"93.184.{n // 50}.{n % 50}" for n in range(50)]
    said = Counter(door.come(place) for _ in range(40) for place in places)
    assert said["401"] == admission.ALL_BURST
    assert [door.come(place, RIGHT) for place in places[:3]] == ["429"] * 3
    assert door.come("8.8.8.8", RIGHT) == "200"


def test_behind_a_proxy_that_is_not_trusted_the_right_key_is_let_in() -> None:
    """There everybody has one address, and a stranger would lock out all of them."""
    door = Door()
    said = Counter(door.come("10.0.0.1", x_forwarded_for="1.2.3.4") for _ in range(300))
    assert said == {"401": admission.PLACE_BURST, "429": 300 - admission.PLACE_BURST}
    assert door.come("10.0.0.1", RIGHT, x_forwarded_for="5.6.7.8") == "200"
    # From outside the header is of no use.
    assert {door.come("93.184.216.34", x_forwarded_for="x") for _ in range(300)} == {"401", "429"}
    assert door.come("93.184.216.34", RIGHT, x_forwarded_for="x") == "429"


def test_a_trusted_proxy_tells_them_apart() -> None:
    door = Door(trust=True)
    for _ in range(300):
        door.come("10.0.0.1", x_forwarded_for="1.2.3.4")
    assert door.come("10.0.0.1", RIGHT, x_forwarded_for="1.2.3.4") == "429"
    assert door.come("10.0.0.1", RIGHT, x_forwarded_for="5.6.7.8") == "200"


def test_what_is_remembered_is_bounded() -> None:
    door = Door()
    for n in range(1300):
        door.come(f"93.{n // 250}.{n % 250}.1")
        door.now += 2
    assert len(door.admission._failed._of_place) < 1100
