"""The sign-in page: a key becomes a cookie that only pages of the server itself can use."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from trunkline import Agent as Author
from trunkline.host import Application

KEY = "the-key-of-one-person"
OWN = {"Origin": "http://localhost"}


def _serve(asking: Callable[[httpx2.AsyncClient], Awaitable[Any]], **flags: object) -> Any:
    author = Author("door")
    author.skill(lambda text: text, id="echo")

    async def main() -> Any:
        app = Application(author, {"store": "memory:", "keys": (KEY,), **flags})
        transport = httpx2.ASGITransport(app, client=("203.0.113.5", 999))
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await asking(client)

    return asyncio.run(main())


async def _sign_in(client: httpx2.AsyncClient, key: str = KEY, **form: str) -> httpx2.Response:
    return await client.post("/ui/sign-in", data={"key": key, **form}, headers=OWN)


def test_a_key_becomes_a_session_that_ends_with_signing_out() -> None:
    async def asking(client: httpx2.AsyncClient) -> None:
        page = await client.get("/ui/sign-in?next=/api/tasks%3Flimit=2")
        assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        assert 'value="/api/tasks?limit=2"' in page.text and "form-action 'self'" in str(page.headers)
        assert (await client.get("/api/tasks")).status_code == 401
        answer = await _sign_in(client, next="/api/tasks?limit=2")
        assert (answer.status_code, answer.headers["location"]) == (303, "/api/tasks?limit=2")
        kept = answer.headers["set-cookie"]
        assert re.fullmatch(r"trunkline_session=[\w-]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax", kept)
        assert KEY not in kept
        stolen = {"Cookie": kept.partition(";")[0]}
        assert (await client.get("/api/tasks")).status_code == 200
        assert "signed in as key-" in (await client.get("/ui/sign-in")).text
        left = await client.post("/ui/sign-out", headers=OWN)
        assert (left.status_code, left.headers["location"]) == (303, "/ui/sign-in")
        assert "Max-Age=0" in left.headers["set-cookie"]
        # Not only the browser has forgotten it.
        again = await client.get("/api/tasks", headers=stolen)
        assert again.status_code == 401 and "over" in again.json()["detail"]

    _serve(asking)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (OWN, 200),
        ({"Origin": "http://LOCALHOST"}, 200),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "https://page.example"}, 403),
        ({"Origin": "http://"}, 403),
    ],
)
def test_only_a_page_of_the_server_changes_anything_with_it(headers: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}

    async def asking(client: httpx2.AsyncClient) -> None:
        assert (await _sign_in(client)).status_code == 303
        said = await client.post("/a2a", json=body, headers={"A2A-Version": "1.0", **headers})
        assert said.status_code == status, said.text
        # With a key, which no browser sends by itself, a page that cors_origins lists may do it.
        keyed = {"A2A-Version": "1.0", "X-API-Key": KEY, "Origin": "https://page.example"}
        assert (await client.post("/a2a", json=body, headers=keyed)).status_code == 200
        if status == 403:
            for path in ("/ui/sign-in", "/ui/sign-out"):
                refused = await client.post(path, data={"key": KEY}, headers=headers)
                assert refused.status_code == 403 and "set-cookie" not in refused.headers
            assert (await client.get("/api/tasks")).status_code == 200

    _serve(asking, cors_origins=("https://page.example",))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
    ],
)
def test_reading_is_for_links_and_for_our_own_pages(headers: dict[str, str], status: int) -> None:
    async def asking(client: httpx2.AsyncClient) -> None:
        assert (await _sign_in(client)).status_code == 303
        assert (await client.get("/api/tasks", headers=headers)).status_code == status

    _serve(asking)


def test_behind_a_proxy_the_public_url_is_the_servers_own_page() -> None:
    async def asking(client: httpx2.AsyncClient) -> None:
        headers = {"Origin": "https://hub.example"}
        answer = await client.post("/ui/sign-in", data={"key": KEY}, headers=headers)
        assert answer.status_code == 303 and answer.headers["set-cookie"].endswith("; Secure")

    _serve(asking, public_url="https://hub.example")


def test_wrong_keys_are_told_on_the_page_and_counted() -> None:
    async def asking(client: httpx2.AsyncClient) -> None:
        for key, status in (("", 401), ("nobody has this", 401), (KEY, 303)):
            answer = await _sign_in(client, key)
            assert answer.status_code == status
            assert ('role="alert"' in answer.text) == (status == 401)
        assert "nobody has this" not in answer.text
        client.cookies.clear()
        last = None
        for _ in range(1100):
            last = await _sign_in(client, "nobody has this")
        assert last is not None and last.status_code == 429 and int(last.headers["retry-after"]) >= 1

    _serve(asking)


def test_what_is_no_form_is_refused_and_a_way_out_is_not_followed() -> None:
    async def asking(client: httpx2.AsyncClient) -> None:
        for following in (
            "https://evil.example",
            "//evil.example",
            "/\\evil.example",
            "x",
            "/\r\nX: y",
            "/ü",
        ):
            answer = await _sign_in(client, next=following)
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/sign-in")
        assert (await client.post("/ui/sign-in", json={"key": KEY}, headers=OWN)).status_code == 415
        big = {"key": "x" * 20_000}
        assert (await client.post("/ui/sign-in", data=big, headers=OWN)).status_code == 413
        many = "&".join(f"a{number}=1" for number in range(9))
        form = {"Content-Type": "application/x-www-form-urlencoded", **OWN}
        assert (await client.post("/ui/sign-in", content=many, headers=form)).status_code == 400
        wrong = await client.get("/ui/sign-out")
        assert wrong.status_code in (404, 405) and wrong.headers["allow"] == "POST"

    _serve(asking)


def test_without_keys_nobody_needs_to_sign_in() -> None:
    async def asking(client: httpx2.AsyncClient) -> str:
        return (await client.get("/ui/sign-in")).text

    assert "No key is needed" in _serve(asking, keys=())
