"""Sessions of browsers: they last as long as their key does, a cookie does, and nobody has ended them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from trunkline.auth.browser_sessions import (
    COOKIE,
    ENDED_OF_KEY,
    KIND,
    LASTS_S,
    BrowserSessions,
    cookie_name,
    session_cookie,
)
from trunkline.auth.identity import ClosedTenants, Identity
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS, Principal, Scope
from trunkline.config import Secret
from trunkline.errors import Unauthenticated, UnsupportedOperation
from trunkline.store.sqlite.store import SqliteStore

NOW = 1_800_000_000_000
FIXED = b"a-key-of-the-settings"
VAULT_KEY = bytes(range(32))


class Office:
    """A store, a clock that stands still, and processes that know sessions."""

    def __init__(self) -> None:
        self.now = NOW
        self.store = SqliteStore(None, now_ms=lambda: self.now)
        self.ring = Keyring([Secret(FIXED.decode())], lambda: self.now)
        self.keys = KeyStore(self.store.docs, self.ring, lambda: self.now)
        self.closed = ClosedTenants()
        self.sessions, self.identity = self.process()

    def process(self, key: bytes | None = VAULT_KEY) -> tuple[BrowserSessions, Identity]:
        sessions = BrowserSessions(self.store.docs, self.ring, lambda: key, lambda: self.now)
        identity = Identity(self.ring, None, ANONYMOUS, self.closed)
        identity.sessions = sessions
        return sessions, identity

    def begin(self, key: bytes = FIXED) -> dict[bytes, bytes]:
        return {b"cookie": b"other=1; " + COOKIE + b"=" + self.sessions.begin(key).encode() + b"; last=2"}

    def name(self, headers: dict[bytes, bytes]) -> str:
        try:
            found = self.identity.known(headers)
        except Unauthenticated:
            return ""
        return "" if found is None else found.name


def at_office(work: Callable[[Office], Awaitable[None]]) -> None:
    async def main() -> None:
        office = Office()
        await office.store.open()
        try:
            await work(office)
        finally:
            await office.store.close()

    asyncio.run(main())


def test_a_session_is_whoever_has_the_key_and_does_not_show_it() -> None:
    async def work(office: Office) -> None:
        made = await office.keys.create("ada", tenant="blue", scopes=["admin"])
        headers = office.begin(made.token.encode())
        assert office.identity.known(headers) == office.ring.find(made.token.encode())
        assert made.token.encode() not in headers[b"cookie"]
        # A key that is shown counts alone, be it wrong.
        assert office.name({**headers, b"x-api-key": FIXED}).startswith("key-")
        assert office.name({**headers, b"x-api-key": b"nobody has this"}) == ""
        with pytest.raises(Unauthenticated):
            office.sessions.begin(b"nobody has this")

    at_office(work)


def test_it_ends_with_its_key_with_its_time_and_with_its_tenant() -> None:
    async def work(office: Office) -> None:
        made = await office.keys.create("ada", tenant="blue")
        headers = office.begin(made.token.encode())
        lasting = office.identity.lasting(headers)
        assert lasting is not None and lasting() and office.name(headers) == "ada"
        office.closed.close("blue")
        assert (office.name(headers), office.identity.signed_in(headers)) == ("", None)
        office.closed.open("blue")
        assert office.name(headers) == "ada" and lasting()
        assert office.identity.signed_in(headers) == office.identity.known(headers)
        await office.keys.revoke(made.key.id)
        assert (office.name(headers), office.identity.signed_in(headers)) == ("", None) and not lasting()
        fixed = office.begin()
        office.now += LASTS_S * 1000 - 1
        assert office.name(fixed)
        office.now += 1
        assert not office.name(fixed)

    at_office(work)


def test_streams_end_whose_key_may_less_or_is_another_ones_now_and_go_on_where_it_may_more() -> None:
    async def work(office: Office) -> None:
        ada = Principal("north", "ada", frozenset({Scope.READ, Scope.ADMIN}))
        named = b"a-key-of-a-file"

        def lasts(now: Principal) -> list[bool]:
            office.ring.take_named([(Secret(named.decode()), ada)])
            shown = ({b"x-api-key": named}, office.begin(named))
            lasting = [office.identity.lasting(headers) for headers in shown]
            office.ring.take_named([(Secret(named.decode()), now)])
            return [one is not None and one() for one in lasting]

        assert lasts(Principal("north", "ada", frozenset({Scope.READ, Scope.ADMIN}))) == [True, True]
        assert lasts(Principal("north", "ada", frozenset({*ada.scopes, Scope.WRITE}))) == [True, True]
        assert lasts(Principal("north", "ada", frozenset({Scope.READ}))) == [False, False]
        assert lasts(Principal("south", "ada", ada.scopes)) == [False, False]
        assert lasts(Principal("north", "bob", ada.scopes)) == [False, False]

    at_office(work)


def test_one_that_is_ended_is_over_at_every_process_and_is_forgotten_in_time() -> None:
    async def work(office: Office) -> None:
        headers, other = office.begin(), office.begin()
        elsewhere, identity = office.process()
        assert identity.known(headers) is not None
        await office.sessions.end(headers)
        await office.sessions.end(headers)
        await elsewhere.mirror.refresh()
        lasting = identity.lasting(headers)
        assert lasting is not None and not lasting()
        with pytest.raises(Unauthenticated):
            identity.known(headers)
        assert office.name(headers) == "" and office.name(other)
        assert len(await office.store.docs.list("default", KIND)) == 1
        office.now += LASTS_S * 1000
        await office.sessions.end(office.begin())
        assert len(await office.store.docs.list("default", KIND)) == 1

    at_office(work)


def test_signing_in_and_out_without_end_leaves_a_bounded_number_behind() -> None:
    async def work(office: Office) -> None:
        made = await office.keys.create("ada", tenant="blue")
        first, others = office.begin(made.token.encode()), office.begin()
        elsewhere, identity = office.process()
        most = 0
        for _ in range(2 * ENDED_OF_KEY + 10):
            headers = office.begin(made.token.encode())
            assert office.name(headers) == "ada"
            await office.sessions.end(headers)
            assert office.name(headers) == ""
            office.now += 1
            most = max(
                most, len(await office.store.docs.list("blue", KIND)), len(office.sessions.mirror.documents)
            )
        assert most == ENDED_OF_KEY + 1
        # Those of this key that were begun before are over with them, at every process; others go on.
        await elsewhere.mirror.refresh()
        with pytest.raises(Unauthenticated):
            identity.known(first)
        assert identity.known(others) is not None
        assert office.name(office.begin(made.token.encode())) == "ada"

    at_office(work)


def test_what_is_over_is_forgotten_bit_by_bit() -> None:
    async def work(office: Office) -> None:
        for number in range(3):
            made = await office.keys.create(f"ada-{number}", tenant="blue")
            for _ in range(ENDED_OF_KEY):
                await office.sessions.end(office.begin(made.token.encode()))
        office.now += LASTS_S * 1000
        for _ in range(3):
            await office.sessions.end(office.begin())
        assert await office.store.docs.list("blue", KIND) == []
        assert len(office.sessions.mirror.documents) == 3

    at_office(work)


def test_what_we_have_not_sealed_is_no_session() -> None:
    async def work(office: Office) -> None:
        good = session_cookie(office.begin())
        for value in ("x", good[:-2], good[::-1], "\xff", "=" * 9, "A" * 9000):
            headers = {b"cookie": COOKIE + b"=" + value.encode("latin-1")}
            assert office.name(headers) == ""
            await office.sessions.end(headers)
        _, stranger = office.process(bytes(32))
        with pytest.raises(Unauthenticated, match="over"):
            stranger.known(office.begin())
        with pytest.raises(Unauthenticated, match="needs a key"):
            office.identity.known({b"cookie": b"theme=dark; x" + COOKIE + b"=1"})

    at_office(work)


def test_where_nothing_can_be_sealed_nobody_signs_in() -> None:
    async def work(office: Office) -> None:
        sessions, identity = office.process(None)
        with pytest.raises(UnsupportedOperation, match="secret_key"):
            sessions.begin(FIXED)
        with pytest.raises(Unauthenticated):
            identity.known(office.begin())

    at_office(work)


def test_two_servers_on_one_host_have_cookies_of_their_own() -> None:
    both = b"trunkline_session_8000=one; trunkline_session_8001=two; trunkline_session=three"
    for host, name, value in [
        (b"localhost:8000", b"trunkline_session_8000", "one"),
        (b"[::1]:8001", b"trunkline_session_8001", "two"),
        (b"hub.example", b"trunkline_session", "three"),
        (b"hub.example:8; x=1", b"trunkline_session", "three"),
    ]:
        headers = {b"host": host, b"cookie": both}
        assert (cookie_name(headers), session_cookie(headers)) == (name, value)
