"""Credentials: what each sends, to whom it is shown, and what is said when they are missing."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from base64 import b64encode
from typing import Any

import pytest

from tests.client.web import Asked, Page, Web
from trunkline.client.credentials import (
    ApiKey,
    Basic,
    Bearer,
    Fields,
    Guarded,
    HttpxAuth,
    Unset,
    credentials,
    describe_refusal,
)
from trunkline.client.oauth import ClientCredentials
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.net.http import HttpRequest
from trunkline.wire.peer_card import PeerCard, PeerScheme

HOME = "https://agent.example/a2a"
KEY = "s3cret-5f0c1e"


def shown(auth: Any, url: str = HOME, *, card: PeerCard | None = None) -> Asked:
    """The request that went out to `url` from a client that was made for HOME."""

    async def main() -> Asked:
        web = Web({url.partition("?")[0]: Page()})
        guarded = Guarded(web, auth, HOME)
        if card is not None:
            guarded.fit(card)
        reply = await guarded.open(HttpRequest("POST", url, (("x", "y"),), b"body"))
        await reply.close()
        await guarded.close()
        assert web.asked[0].body == b"body"
        return web.asked[0]

    return asyncio.run(main())


def wanting(*schemes: PeerScheme, required: bool = True) -> PeerCard:
    named = {f"s{number}": scheme for number, scheme in enumerate(schemes)}
    return PeerCard(
        name="a", schemes=named, requirements=tuple((name,) for name in named) if required else ()
    )


def test_what_each_sends() -> None:
    assert shown(Bearer(KEY)).headers["authorization"] == f"Bearer {KEY}"
    assert shown(Bearer(Secret(KEY))).headers["authorization"] == f"Bearer {KEY}"
    login = b64encode(f"me:{KEY}".encode()).decode()
    assert shown(Basic("me", KEY)).headers["authorization"] == f"Basic {login}"
    assert shown(ApiKey(KEY)).headers["x-api-key"] == KEY
    assert shown(ApiKey(KEY, name="X-Mine")).headers["x-mine"] == KEY
    assert shown(ApiKey("a&b c", name="key", place="query")).url == f"{HOME}?key=a%26b%20c"
    assert shown(ApiKey("k", name="key", place="query"), f"{HOME}?a=b").url == f"{HOME}?a=b&key=k"
    assert shown(ApiKey("k;", name="key", place="cookie")).headers["cookie"] == "key=k%3B"
    assert "authorization" not in shown(None).headers


def test_an_api_key_goes_where_the_card_wants_it() -> None:
    card = wanting(PeerScheme("http", scheme="bearer"), PeerScheme("apiKey", "header", "X-Agent-Key"))
    assert shown(ApiKey(KEY), card=card).headers["x-agent-key"] == KEY
    assert shown(ApiKey(KEY, name="X-Mine"), card=card).headers["x-mine"] == KEY
    assert shown(ApiKey(KEY), card=wanting(PeerScheme("apiKey", "query", "k"))).url == f"{HOME}?k={KEY}"
    assert shown(ApiKey(KEY), card=wanting(PeerScheme("apiKey", "body", "k"))).headers["k"] == KEY
    assert shown(ApiKey(KEY), card=wanting(PeerScheme("http"))).headers["x-api-key"] == KEY
    both = wanting(PeerScheme("apiKey", "query", "k"), PeerScheme("apiKey", "header", "x-api-key"))
    assert shown(ApiKey(KEY), card=both).headers["x-api-key"] == KEY
    assert shown(Bearer(KEY), card=card).headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://agent.example/other", True),
        ("https://agent.example:443/", True),
        ("https://AGENT.example/", True),
        ("http://agent.example/a2a", False),
        ("https://agent.example:8443/a2a", False),
        ("https://evil.example/a2a", False),
        ("https://agent.example.evil.example/", False),
    ],
)
def test_only_its_own_origin_sees_it(url: str, seen: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        headers = shown(Bearer(KEY), url).headers
    assert ("authorization" in headers) is seen
    assert ("client.credentials_withheld" in caplog.text) is not seen
    assert KEY not in caplog.text


def test_it_is_said_who_was_not_shown_any() -> None:
    async def main() -> None:
        guarded = Guarded(Web({}), Bearer(KEY), HOME)
        assert guarded.describe_refusal(None, "no") == describe_refusal(None, guarded.auth, "no")
        await (await guarded.open(HttpRequest("GET", "https://api.example/"))).close()
        said = guarded.describe_refusal(None, "no")
        assert "only agent.example was shown credentials, not api.example: give that URL" in said

    asyncio.run(main())


def test_verdicts_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.client.credentials._JUDGED", 2)

    async def main() -> None:
        guarded = Guarded(Web({}), Bearer(KEY), HOME)
        for number in (0, 0, 1, 2, 3, 4):
            await (await guarded.open(HttpRequest("GET", f"https://agent.example/{number}"))).close()
            assert len(guarded._judged) <= 2  # noqa: SLF001 - nothing outside shows it

    asyncio.run(main())


def test_nothing_holds_on_to_credentials_that_are_done_with() -> None:
    async def main() -> None:
        guarded = Guarded(Web({}), Bearer(KEY), HOME)
        await (await guarded.open(HttpRequest("GET", HOME))).close()
        kept = weakref.ref(guarded)
        gc.disable()
        try:
            del guarded
            assert kept() is None
        finally:
            gc.enable()

    asyncio.run(main())


def test_nothing_prints() -> None:
    made = [Bearer(KEY), Basic("me", KEY), ApiKey(KEY), ClientCredentials("https://id.example/", "me", KEY)]
    assert KEY not in repr([(one, vars(one)) for one in made])
    assert repr(Fields({"Authorization": KEY})) == "Fields(['authorization'])"


def test_one_of_many(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("AGENT_KEY", KEY)
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    assert credentials() is None
    assert shown(credentials(api_key=KEY)).headers["x-api-key"] == KEY
    assert shown(credentials(api_key=Secret(KEY))).headers["x-api-key"] == KEY
    assert shown(credentials(bearer=KEY)).headers["authorization"] == f"Bearer {KEY}"
    assert shown(credentials(api_key_env="AGENT_KEY")).headers["x-api-key"] == KEY
    assert shown(credentials(bearer_env="AGENT_KEY")).headers["authorization"] == f"Bearer {KEY}"
    given = Bearer(KEY)
    assert credentials(given) is given
    with pytest.raises(Misuse, match="one of api_key and bearer_env"):
        credentials(api_key=KEY, bearer_env="AGENT_KEY")
    with pytest.raises(Misuse, match="one of auth and bearer"):
        credentials(given, bearer=KEY)
    with pytest.raises(Misuse, match="auth_flow"):
        credentials(("me", KEY))
    with pytest.raises(Misuse, match="header, the query or a cookie"):
        ApiKey(KEY, place="body")
    with pytest.raises(Misuse, match="colon"):
        Basic("a:b", KEY)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        unset = credentials(api_key_env="NO_SUCH_KEY")
    assert "client.credentials_unset variable='NO_SUCH_KEY'" in caplog.text
    assert isinstance(unset, Unset)
    assert "x-api-key" not in shown(unset).headers


class Flow:
    """As httpx has it."""

    def auth_flow(self, request: Any) -> Any:
        request.headers["Authorization"] = "mine"
        yield request


def test_an_httpx_style_object_will_do() -> None:
    auth = credentials(Flow())
    assert isinstance(auth, HttpxAuth)
    assert shown(auth).headers["authorization"] == "mine"


@pytest.mark.parametrize(
    ("card", "given", "words"),
    [
        (wanting(PeerScheme("apiKey", "header", "X-API-Key")), None, "requires an API key in X-API-Key (give api_key="),
        (wanting(PeerScheme("apiKey", "query", "k")), None, "an API key in the query as k"),
        (wanting(PeerScheme("http", scheme="Bearer"), required=False), None, "a bearer token (give bearer="),
        (wanting(PeerScheme("http", scheme="basic")), None, "Basic(name, password)"),
        (wanting(PeerScheme("http", scheme="Digest")), None, "the HTTP scheme Digest"),
        (
            wanting(PeerScheme("oauth2", token_url="https://id.example/t", scopes=("a", "b"))),
            None,
            "a token from https://id.example/t with the scopes a b (give auth=ClientCredentials",
        ),
        (wanting(PeerScheme("oauth2")), None, "a bearer token (give"),
        (wanting(PeerScheme("openIdConnect", discovery_url="https://id.example")), None, "from https://id.example"),
        (wanting(PeerScheme("mutualTLS")), None, "a client certificate"),
        (wanting(PeerScheme("http"), PeerScheme("apiKey", "header", "K")), None, ") or an API key in K"),
        (wanting(PeerScheme("http", scheme="bearer")), ApiKey(KEY), "refused the credentials: who are you?; it accepts a bearer"),
        (PeerCard(name="a"), None, "who are you?; its card names none; try api_key="),
        (PeerCard(name="a"), Bearer(KEY), "the agent refused the credentials: who are you?"),
        (None, None, "it has no card"),
        (None, Unset("MY_KEY"), "the variable MY_KEY is not set"),
        (wanting(PeerScheme("http", scheme="bearer")), Unset("MY_KEY"), "MY_KEY is not set; the agent requires a bearer"),
        (PeerCard(name="a", requirements=(("lost",), ())), None, "the agent requires lost"),
        (
            PeerCard(
                name="a",
                schemes={"k": PeerScheme("apiKey", name="K"), "m": PeerScheme("mutualTLS")},
                requirements=(("k", "m"),),
            ),
            None,
            "an API key in K (give api_key=…) and a client certificate",
        ),
    ],
)  # fmt: skip
def test_what_is_said_to_who_is_not_let_in(card: PeerCard | None, given: Any, words: str) -> None:
    said = describe_refusal(card, given, "who are you?")
    assert words in said
    assert KEY not in said
