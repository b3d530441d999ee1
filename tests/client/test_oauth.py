"""OAuth2 client credentials: one token for many, replaced before its end and after a 401."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import parse_qs, quote_plus

import msgspec
import pytest

from tests.client.web import Asked, Page, Web
from trunkline.client import oauth
from trunkline.client.credentials import Guarded
from trunkline.client.oauth import EXCHANGE, ClientCredentials, TokenExchange
from trunkline.client.retry import Fate, fate_of
from trunkline.errors import Misuse, TimedOut, TrunklineError, Unauthenticated, Unreachable
from trunkline.net.http import HttpRequest

ISSUER = "https://id.example/token"
HOME = "https://agent.example/a2a"
SECRET = "s3cret:/ü"


class Issuer:
    """Gives tokens t1, t2 …, and knows which are good."""

    def __init__(self, **more: Any) -> None:
        self.given = 0
        self.refused: set[str] = set()
        self.more = more

    async def token(self, asked: Asked) -> Page:
        await asyncio.sleep(0)
        self.given += 1
        answer = {"access_token": f"t{self.given}", "token_type": "bearer", "expires_in": 3600} | self.more
        return Page(200, msgspec.json.encode(answer))

    def agent(self, asked: Asked) -> Page:
        token = asked.headers.get("authorization", "")
        return Page(401 if not token or token in self.refused else 200, token.encode())


def made(**options: Any) -> ClientCredentials:
    return ClientCredentials(ISSUER, "me", SECRET, **options)


async def call(http_client: Any) -> tuple[int, str]:
    reply = await http_client.open(HttpRequest("POST", HOME, (), b"x"))
    try:
        return reply.status, (await reply.read(1000)).decode()
    finally:
        await reply.close()


def test_one_token_for_many() -> None:
    async def main() -> None:
        issuer = Issuer()
        web = Web({ISSUER: issuer.token, HOME: issuer.agent})
        http_client = Guarded(web, made(scopes=("read", "write"), audience="agents"), HOME)
        assert await asyncio.gather(*[call(http_client) for _ in range(20)]) == [(200, "Bearer t1")] * 20
        assert issuer.given == 1
        asked = web.asked[0]
        assert (asked.method, asked.url) == ("POST", ISSUER)
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        login = b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode()
        assert login == "me:s3cret%3A%2F%C3%BC"
        assert parse_qs(asked.body.decode()) == {
            "grant_type": ["client_credentials"],
            "scope": ["read write"],
            "audience": ["agents"],
        }

    asyncio.run(main())


def test_the_login_in_the_body() -> None:
    async def main() -> None:
        issuer = Issuer()
        web = Web({ISSUER: issuer.token, HOME: issuer.agent})
        await call(Guarded(web, made(login="body"), HOME))
        assert "authorization" not in web.asked[0].headers
        form = parse_qs(web.asked[0].body.decode())
        assert (form["client_id"], form["client_secret"]) == (["me"], [SECRET])

    asyncio.run(main())


def test_a_token_is_replaced_once_after_a_401() -> None:
    async def main() -> None:
        issuer = Issuer()
        http_client = Guarded(Web({ISSUER: issuer.token, HOME: issuer.agent}), made(), HOME)
        await call(http_client)
        issuer.refused.add("Bearer t1")
        found = await asyncio.gather(*[call(http_client) for _ in range(10)])
        assert found == [(200, "Bearer t2")] * 10
        assert issuer.given == 2
        issuer.refused |= {f"Bearer t{number}" for number in range(10)}
        assert (await call(http_client))[0] == 401
        assert issuer.given == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "lasts"),
    [(3600, 3570), ("120", 90), (20, 10), (None, 270), ("soon", 270), (-5, 270), (float("1e300"), 270)],
)
def test_a_token_is_replaced_before_its_end(said: Any, lasts: float) -> None:
    async def main() -> None:
        issuer = Issuer(expires_in=said)
        auth = made()
        http_client = Guarded(Web({ISSUER: issuer.token, HOME: issuer.agent}), auth, HOME)
        begun = asyncio.get_running_loop().time()
        await call(http_client)
        assert abs(auth._until - begun - lasts) < 5  # noqa: SLF001 - an hour is long to wait
        auth._until = begun  # noqa: SLF001 - as above
        assert await call(http_client) == (200, "Bearer t2")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("page", "error", "words"),
    [
        (Page(400, b'{"error":"invalid_client","error_description":"no such client"}'), Unauthenticated,
         r"id.example gives no token \(HTTP 400\): invalid_client: no such client"),
        (Page(500, b"<html>"), Unreachable, r"gives no token now \(HTTP 500\)$"),
        (Page(429, b"{}"), Unreachable, r"gives no token now \(HTTP 429\)$"),
        (Page(200, b'{"error":"x\\u0007"}'), Unauthenticated, r"gives no token \(HTTP 200\)$"),
        (Page(200, b"{}"), Unauthenticated, "without a bearer token"),
        (Page(200, b"[]"), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"a":' + b"[" * 30_000), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"access_token":"\xff"}'), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"access_token":"t","token_type":"mac"}'), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"access_token":"t\\r\\nX-Evil: 1"}'), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"access_token":"t\xc3\xbc"}'), Unauthenticated, "without a bearer token"),
        (Page(200, b'{"access_token":"%s"}' % (b"t" * 20_000)), Unauthenticated, "without a bearer token"),
    ],
)  # fmt: skip
def test_no_token(page: Page, error: type[Exception], words: str) -> None:
    async def main() -> None:
        web = Web({ISSUER: page, HOME: Page()})
        with pytest.raises(error, match=words) as caught:
            await call(Guarded(web, made(), HOME))
        assert SECRET not in str(caught.value)
        assert web.urls == [ISSUER]

    asyncio.run(main())


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("exchanged", ["", "subject+token/1"])
def test_an_endpoint_that_repeats_a_secret_is_not_quoted(status: int, exchanged: str) -> None:
    def repeats(asked: Asked) -> Page:
        told = asked.headers.get("authorization", "") or asked.body.decode()
        return Page(status, msgspec.json.encode({"error": "odd", "error_description": f"you sent {told}"}))

    async def main() -> None:
        auth = TokenExchange(ISSUER, exchanged) if exchanged else made()
        with pytest.raises(TrunklineError, match=r"you sent .*\*\*\*") as caught:
            await call(Guarded(Web({ISSUER: repeats, HOME: Page()}), auth, HOME))
        login = b64encode(f"me:{quote_plus(SECRET)}".encode()).decode()
        assert login not in str(caught.value) and "token%2F1" not in str(caught.value)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("lost", "fate"),
    [
        (TimedOut("nothing came", reason="idle"), Fate.UNTAKEN),
        (Unreachable("it broke off", reason="protocol"), Fate.UNTAKEN),
        (Unreachable("it is not public", reason="refused"), Fate.ANSWERED),
    ],
)
def test_whatever_becomes_of_a_token_the_request_it_is_for_was_not_sent(
    lost: Unreachable, fate: Fate
) -> None:
    class Broken(Web):
        async def open(self, request: HttpRequest) -> Any:
            raise lost

    async def main() -> None:
        with pytest.raises(TrunklineError) as caught:
            await call(Guarded(Broken({}), made(), HOME))
        assert fate_of(caught.value) is fate

    asyncio.run(main())


def test_an_endpoint_that_does_not_come_to_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "_FETCH_S", 0.01)
    issuer = Issuer()

    async def never(asked: Asked) -> Page:
        await asyncio.Event().wait()
        return Page()

    async def main() -> None:
        web = Web({ISSUER: never, HOME: issuer.agent})
        http_client = Guarded(web, made(), HOME)
        async with asyncio.timeout(60):
            with pytest.raises(Unreachable, match="id.example gives no token within") as caught:
                await call(http_client)
        # Nothing of the request itself was sent, and whoever waited for the same token asks for it anew.
        assert fate_of(caught.value) is Fate.UNTAKEN and web.urls == [ISSUER]
        monkeypatch.undo()
        web.pages[ISSUER] = issuer.token
        assert (await call(http_client))[0] == 200

    asyncio.run(main())


def test_a_fetch_that_is_given_up_is_done_by_the_next() -> None:
    async def main() -> None:
        issuer = Issuer()
        http_client = Guarded(Web({ISSUER: issuer.token, HOME: issuer.agent}), made(), HOME)
        first, second = asyncio.create_task(call(http_client)), asyncio.create_task(call(http_client))
        await asyncio.sleep(0)
        first.cancel()
        async with asyncio.timeout(60):
            assert (await second)[0] == 200

    asyncio.run(main())


def test_a_secret_is_not_sent_in_the_clear() -> None:
    with pytest.raises(Misuse, match="https://"):
        ClientCredentials("http://id.example/token", "me", SECRET)
    ClientCredentials("http://localhost:9/token", "me", SECRET)


@pytest.mark.parametrize("secret", ["", SECRET])
def test_a_token_of_ours_is_exchanged(secret: str) -> None:
    async def main() -> None:
        issuer = Issuer()
        web = Web({ISSUER: issuer.token, HOME: issuer.agent})
        auth = TokenExchange(
            ISSUER, "ours", client_id="me", client_secret=secret, scopes=("read",), audience="b"
        )
        assert await call(Guarded(web, auth, HOME)) == (200, "Bearer t1")
        form = parse_qs(web.asked[0].body.decode())
        assert (form["grant_type"], form["subject_token"], form["audience"]) == ([EXCHANGE], ["ours"], ["b"])
        assert form["subject_token_type"] == ["urn:ietf:params:oauth:token-type:access_token"]
        assert ("authorization" in web.asked[0].headers) is bool(secret)
        assert ("client_id" in form) is not bool(secret)

    asyncio.run(main())
