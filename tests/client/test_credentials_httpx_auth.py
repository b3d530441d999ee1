"""Credentials made for httpx, driven without it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.client.web import Asked, Page, Web
from trunkline.client.credentials import STEPS, HttpxAuth
from trunkline.errors import Misuse
from trunkline.net.http import HttpRequest

HOME = "https://agent.example/a2a?x=1"
REQUEST = HttpRequest("POST", HOME, (("X-One", "a"),), b"body")


def carried(auth: Any, page: Any) -> tuple[int, list[Asked]]:
    async def main() -> tuple[int, list[Asked]]:
        web = Web({"https://agent.example/a2a": page})
        reply = await HttpxAuth(auth).send_authorized(REQUEST, web)
        await reply.close()
        await web.close()
        return reply.status, web.asked

    return asyncio.run(main())


def test_a_login_of_httpx() -> None:
    status, (asked,) = carried(httpx2.BasicAuth("me", "word"), Page())
    assert (status, asked.headers["authorization"], asked.body) == (200, "Basic bWU6d29yZA==", b"body")
    assert asked.headers["x-one"] == "a"


def test_what_a_flow_shows_is_not_read_where_it_is_repeated() -> None:
    async def main() -> bytes:
        web = Web(
            {"https://agent.example/a2a": lambda asked: Page(403, asked.headers["authorization"].encode())}
        )
        reply = await HttpxAuth(httpx2.BasicAuth("me", "word")).send_authorized(REQUEST, web)
        try:
            return await reply.read(100)
        finally:
            await reply.close()
            await web.close()

    assert asyncio.run(main()) == b"Basic ***"


def test_a_challenge_of_httpx() -> None:
    def page(asked: Asked) -> Page:
        if "authorization" in asked.headers:
            return Page(200)
        return Page(401, b"", {"www-authenticate": 'Digest realm="r", nonce="n", qop="auth", algorithm=MD5'})

    status, asked = carried(httpx2.DigestAuth("me", "word"), page)
    assert status == 200
    assert len(asked) == 2
    assert 'uri="/a2a?x=1"' in asked[1].headers["authorization"]
    assert asked[1].body == b"body"


class Looks:
    """Asks of everything that it is given."""

    def auth_flow(self, request: Any) -> Any:
        assert (request.method, request.url.scheme, request.url.host) == ("POST", "https", "agent.example")
        assert (request.url.path, request.url.raw_path) == ("/a2a", b"/a2a?x=1")
        assert request.read() == request.content == b"body"
        assert request.headers["x-ONE"] == "a"
        assert len(request.headers) == 1
        del request.headers["X-one"]
        request.headers["X-Two"] = "b"
        response = yield request
        assert response.status_code == 403
        assert response.headers.get_list("X-Why") == ["so"]
        assert response.headers.get_list("x-other") == []
        assert response.request is request


def test_what_a_flow_sees() -> None:
    status, (asked,) = carried(Looks(), Page(403, b"", {"x-why": "so"}))
    assert status == 403
    assert "x-one" not in asked.headers
    assert asked.headers["x-two"] == "b"


class Turns:
    def __init__(self, work: Any) -> None:
        self.auth_flow = work


def test_a_flow_may_give_a_request_of_its_own() -> None:
    def flow(request: Any) -> Any:
        yield httpx2.Request("POST", str(request.url), headers={"x-three": "c"})

    assert carried(Turns(flow), Page())[1][0].headers["x-three"] == "c"


def test_a_flow_stays_with_its_agent() -> None:
    def flow(request: Any) -> Any:
        yield httpx2.Request("POST", "https://evil.example/a2a", headers=dict(request.headers))

    with pytest.raises(Misuse, match="another host"):
        carried(Turns(flow), Page())


def test_a_flow_without_end_or_one_that_breaks() -> None:
    def endless(request: Any) -> Any:
        while True:
            yield request

    with pytest.raises(Misuse, match=f"more than {STEPS}"):
        carried(Turns(endless), Page())

    def breaks(request: Any) -> Any:
        yield request
        raise KeyError("inner")

    with pytest.raises(KeyError):
        carried(Turns(breaks), Page())


def test_a_flow_that_wants_bodies_is_refused_at_once() -> None:
    class Wants:
        requires_response_body = True

    with pytest.raises(Misuse, match="bodies"):
        HttpxAuth(Wants())
