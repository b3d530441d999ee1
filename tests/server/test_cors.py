"""Pages of listed origins may call and read; all others are where they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.harness import V1, Agent, ServerProcess, params
from tests.hostile.sockets import flood, one, post, request
from tests.hostile.test_hosts import ROUTES
from trunkline import Agent as Author
from trunkline.errors import Misuse
from trunkline.host import Application
from trunkline.http.host_check import LOOPBACK, HostCheck
from trunkline.server.cors import Cors

PAGE = "https://app.example"
HEADERS = {
    "content-type", "authorization", "x-api-key", "a2a-version", "a2a-extensions", "x-a2a-extensions", "last-event-id",
    "idempotency-key", "traceparent", "tracestate",
}  # fmt: skip
ASKING = (b"Access-Control-Request-Method: POST", b"Access-Control-Request-Headers: content-type,x-api-key")
KEY = "a-key-that-opens"


@pytest.mark.parametrize(
    ("listed", "origin"),
    [
        (PAGE, PAGE),
        ("HTTPS://App.Example", PAGE),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("*", "https://any.example"),
        ("*", "null"),
    ],
)
def test_who_is_listed_may_call(listed: str, origin: str) -> None:
    cors = Cors(["https://other.example", listed])
    assert cors.allows(origin.encode())
    HostCheck(LOOPBACK, cors.allows).check({b"host": b"localhost", b"origin": origin.encode()})


@pytest.mark.parametrize(
    "origin", ["http://app.example", "https://app.example:8443", "https://app.example.evil", "null", "", "*"]
)
def test_nobody_else(origin: str) -> None:
    assert not Cors([PAGE]).allows(origin.encode())


@pytest.mark.parametrize(
    "listed",
    [
        "", "null", "app.example", "ftp://app.example", "https://", "https://app.example/", "https://app.example/path",
        "https://app.example?x", "https://user@app.example", "https://app.example:443", "http://app.example:80",
        "https://*.example", "https://app.example:x", "https://app.example:99999", "https://[::1", "https://a b",
        "https://a,b", "https://a\r\nX: y", "https://\u00fc.example", " https://app.example", "**",
    ],
)  # fmt: skip
def test_what_no_browser_sends_is_refused(listed: str) -> None:
    with pytest.raises(Misuse, match="cors_origins"):
        Cors([listed])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ("--set", f"cors_origins={PAGE}, https://other.example", "--key", KEY, "--metrics")
    place = tmp_path_factory.mktemp("cors")
    with ServerProcess(place, "trunkline.demo:agent", *flags, store="memory:") as server:
        yield server


def test_a_preflight_is_answered_on_every_route_without_a_key(server: ServerProcess) -> None:
    paths = sorted({path for _, path in ROUTES} | {"/admin/keys", "/.well-known/jwks.json"})
    raws = [request("OPTIONS", path, None, f"Origin: {PAGE}".encode(), *ASKING) for path in paths]
    for path, answer in zip(paths, flood(server.port, raws, lines=4), strict=True):
        found = dict(answer.headers)
        assert (answer.status, found[b"access-control-allow-origin"]) == (204, PAGE.encode()), path
        assert found[b"vary"] == b"Origin"
        assert set(found[b"access-control-allow-headers"].decode().split(", ")) == HEADERS
        assert set(found[b"access-control-allow-methods"].split(b", ")) == {
            b"GET",
            b"HEAD",
            b"POST",
            b"DELETE",
        }
        assert int(found[b"access-control-max-age"]) > 0
        assert b"access-control-allow-credentials" not in found


@pytest.mark.parametrize("page", [b"https://evil.example", b"null", b"http://app.example"])
def test_a_page_that_is_not_listed_is_turned_away_as_ever(server: ServerProcess, page: bytes) -> None:
    for raw in (
        request("OPTIONS", "/a2a", None, b"Origin: " + page, *ASKING),
        request("GET", "/tasks", None, b"Origin: " + page, f"X-API-Key: {KEY}".encode()),
    ):
        answer = one(server.port, raw)
        assert answer.status == 403
        assert not any(name.startswith(b"access-control-") for name, _ in answer.headers)


def test_the_host_counts_for_listed_pages_too(server: ServerProcess) -> None:
    for verb, more in (("OPTIONS", ASKING), ("GET", ())):
        raw = request(verb, "/tasks", None, f"Origin: {PAGE}".encode(), *more, host=b"evil.example")
        assert one(server.port, raw).status == 403


def test_an_options_that_is_no_preflight_is_like_any_other_verb(server: ServerProcess) -> None:
    assert one(server.port, request("OPTIONS", "/tasks", None, f"Origin: {PAGE}".encode())).status == 401
    assert one(server.port, request("OPTIONS", "/tasks", None, *ASKING)).status == 401


@pytest.mark.parametrize(
    ("verb", "path", "key", "status"),
    [
        ("GET", "/tasks", True, 200),
        ("GET", "/tasks", False, 401),
        ("GET", "/nowhere", True, 404),
        ("GET", "/.well-known/agent-card.json", False, 200),
        ("GET", "/metrics", True, 200),
        ("GET", "/delegate/tasks/x", True, 404),
        ("POST", "/a2a", True, 415),
        ("GET", "/healthz", False, 200),
    ],
)
def test_answers_and_errors_can_be_read(
    server: ServerProcess, verb: str, path: str, key: bool, status: int
) -> None:
    more = [f"X-API-Key: {KEY}".encode()] if key else []
    body = b"{}" if verb == "POST" else None
    answer = one(server.port, request(verb, path, body, f"Origin: {PAGE}".encode(), *more))
    assert (answer.status, answer.header(b"access-control-allow-origin")) == (status, PAGE.encode())
    exposed = answer.header(b"access-control-expose-headers") or b""
    assert {b"a2a-version", b"a2a-extensions", b"etag", b"retry-after", b"www-authenticate"} == set(
        exposed.split(b", ")
    )
    varies = {value for name, value in answer.headers if name == b"vary"}
    assert b"Origin" in varies and (b"A2A-Version, Host" in varies) == ("card" in path)


def test_a_cache_keeps_answers_for_pages_apart(server: ServerProcess) -> None:
    answer = one(server.port, request("GET", "/.well-known/agent-card.json", None))
    assert (b"vary", b"Origin") in answer.headers
    assert not any(name.startswith(b"access-control-") for name, _ in answer.headers)


def test_streams_can_be_read(server: ServerProcess) -> None:
    agent = Agent(server.base, headers={"X-API-Key": KEY, "Origin": PAGE})
    with agent.stream("SendStreamingMessage", params("echo hi")) as frames:
        assert frames.response.headers["access-control-allow-origin"] == PAGE
        assert frames.all()[-1].result["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    agent.close()


def test_a_body_that_is_refused_can_be_read(server: ServerProcess) -> None:
    key = f"X-API-Key: {KEY}".encode()
    raw = post("/a2a", b"{}", f"Origin: {PAGE}".encode(), key)
    answer = one(server.port, raw)
    assert answer.status == 200 and b"-32600" in answer.body
    assert answer.header(b"access-control-allow-origin") == PAGE.encode()


def _author(**settings: Any) -> Author:
    author = Author("page", store="memory:", drain_limit=0, **settings)
    author.skill(lambda text: text, id="echo")
    return author


def test_mounted() -> None:
    author = _author(cors_origins=("*",))
    host = Starlette(routes=[Mount("/agent", app=author.asgi())], lifespan=author.lifespan)
    with TestClient(host, base_url="http://localhost") as client:
        asked = {"Origin": "https://any.example", "Access-Control-Request-Method": "POST"}
        preflight = client.options("/agent/a2a", headers=asked)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (204, "*")
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params("hi")}
        streamed = client.post("/agent/a2a", json=body, headers={**V1, "Origin": "https://any.example"})
        assert streamed.headers["access-control-allow-origin"] == "*"
        assert "event-stream" in streamed.headers["content-type"]


def _asked(asking: Callable[[httpx2.AsyncClient], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        app = Application(_author(), settings)
        transport = httpx2.ASGITransport(app)
        async with (
            app.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await asking(client)

    return asyncio.run(main())


def test_a_429_can_be_read() -> None:
    async def asking(client: httpx2.AsyncClient) -> httpx2.Response:
        await client.get("/tasks", headers={"Origin": PAGE})
        return await client.get("/tasks", headers={"Origin": PAGE})

    answer = _asked(asking, cors_origins=(PAGE,), rate_limit=0.01, rate_burst=1)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (429, PAGE)
    assert answer.headers["retry-after"] == "100"


def test_a_wrong_setting_is_told_at_the_start() -> None:
    with pytest.raises(Misuse, match="without a path"):
        Application(_author(), {"cors_origins": ("https://app.example/",)})
