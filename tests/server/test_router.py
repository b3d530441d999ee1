"""What is mounted is judged as everything else, before it sees a request; over HTTP and WebSocket."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.harness import NO_TLS, ServerProcess
from trunkline import Agent, Misuse, Route
from trunkline.errors import InvalidParams
from trunkline.http import mounts
from trunkline.http import server as http_server
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

pytest.importorskip("trunkline.http.websocket", exc_type=ImportError)

KEY = "a-key-for-the-mounted"
AGENT = """
import asyncio, json
from trunkline import Agent, Route

agent = Agent("host")

@agent.skill
def echo(text: str) -> str:
    return text

async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": scope["trunkline.principal"].name + " " + scope["path"]})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": (message.get("text") or "").upper()})
        return
    message = await receive()
    about = {"path": scope["path"], "root": scope["root_path"], "body": len(message["body"]),
             "principal": scope["trunkline.principal"].name}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    if scope["path"].endswith("/forever"):
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await receive()
        return
    await send({"type": "http.response.body", "body": json.dumps(about).encode()})

agent.mount("/files", app, routes=[
    Route("GET /open", "public", 0),
    Route("GET /{name}", "tasks:read", 0),
    Route("GET /forever", "tasks:read", 0),
    Route("POST /{name}", "tasks:write", 10),
    Route("GET /admin/all", "admin", 0),
    Route("WEBSOCKET /live", "tasks:read", 10),
])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("mounted")
    (directory / "hosted.py").write_text(AGENT)
    with ServerProcess(directory, "hosted:agent", "--key", KEY, store="memory:") as started:
        yield started


def _ask(server: ServerProcess, method: str, path: str, **more: Any) -> httpx2.Response:
    headers = {"X-API-Key": KEY, **more.pop("headers", {})}
    return httpx2.request(method, server.base + path, headers=headers, verify=NO_TLS, **more)


def test_a_registered_route_is_reached(server: ServerProcess) -> None:
    answer = _ask(server, "GET", "/files/one").json()
    assert answer["principal"].startswith("key-")
    assert (answer["path"], answer["root"]) == ("/files/one", "/files")
    assert _ask(server, "POST", "/files/one", content=b"x" * 10).json()["body"] == 10


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/files/one", {"headers": {"X-API-Key": ""}}, 401),
        ("GET", "/files/not/there", {"headers": {"X-API-Key": ""}}, 401),
        ("GET", "/files/not/there", {}, 404),
        ("PUT", "/files/one", {}, 405),
        ("GET", "/files/admin/all", {}, 403),
        ("GET", "/files/one", {"headers": {"Host": "evil.example"}}, 403),
        ("GET", "/files/open", {"headers": {"Host": "evil.example"}}, 403),
        ("GET", "/files/one", {"headers": {"Origin": "https://evil.example"}}, 403),
        ("POST", "/files/one", {"content": b"x" * 11}, 413),
        ("GET", "/files/a%2fb", {}, 404),
        ("GET", "/files/live", {}, 200),
    ],
)  # fmt: skip
def test_the_host_judges_first(
    server: ServerProcess, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    assert _ask(server, method, path, **more).status_code == status


def test_a_public_route_needs_no_key(server: ServerProcess) -> None:
    assert _ask(server, "GET", "/files/open", headers={"X-API-Key": ""}).json()["principal"] == "anonymous"


def _live(server: ServerProcess, **more: Any) -> Any:
    headers = {"X-API-Key": KEY, **more.pop("headers", {})}
    base = server.base.replace("http://", "ws://")
    return connect(f"{base}{more.pop('path', '/files/live')}", additional_headers=headers, **more)


def test_a_websocket_under_serve(server: ServerProcess) -> None:
    async def main() -> list[str | bytes]:
        async with _live(server) as socket:
            said = [await socket.recv()]
            await socket.send("hello")
            said.append(await socket.recv())
            return said

    principal, echo = asyncio.run(main())
    assert str(principal).startswith("key-") and str(principal).endswith("/files/live")
    assert echo == "HELLO"


def test_a_message_over_the_limit_ends_a_websocket(server: ServerProcess) -> None:
    async def main() -> int:
        async with _live(server) as socket:
            await socket.recv()
            await socket.send("x" * 11)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            return closed.value.rcvd.code if closed.value.rcvd else 0

    assert asyncio.run(main()) == 1009


def test_a_message_that_no_route_takes_is_not_gathered(server: ServerProcess) -> None:
    async def main() -> int:
        ended = asyncio.Event()

        async def pieces() -> AsyncIterator[str]:
            yield "x" * 11
            # The rest of the message never comes: only a limit of its pieces can end this.
            await ended.wait()
            yield "x"

        async with _live(server) as socket:
            await socket.recv()
            sending = asyncio.create_task(socket.send(pieces()))
            await socket.wait_closed()
            ended.set()
            await asyncio.gather(sending, return_exceptions=True)
            return socket.close_code or 0

    assert asyncio.run(asyncio.wait_for(main(), 30)) == 1009


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"headers": {"X-API-Key": "wrong-key"}}, 401),
        ({"origin": "https://evil.example"}, 403),
        ({"path": "/files/nowhere/live"}, 404),
        ({"path": "/a2a"}, 404),
    ],
)
def test_a_websocket_is_judged_before_it_is_accepted(
    server: ServerProcess, more: dict[str, Any], status: int
) -> None:
    async def main() -> int:
        with pytest.raises(InvalidStatus) as refused:
            async with _live(server, **more):
                pass
        return refused.value.response.status_code

    assert asyncio.run(main()) == status


def test_the_end_of_the_server_ends_what_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "hosted.py").write_text(AGENT)
    flags = ("--set", "drain_limit=1", "--set", "cancel_limit=1")
    with ServerProcess(tmp_path, "hosted:agent", "--key", KEY, *flags, store="memory:") as started:

        async def main() -> int:
            async with _live(started) as socket, httpx2.AsyncClient(verify=NO_TLS) as http:
                await socket.recv()
                headers = {"X-API-Key": KEY}
                async with http.stream("GET", f"{started.base}/files/forever", headers=headers) as streaming:
                    pieces = streaming.aiter_raw()
                    assert await anext(pieces) == b"begun"
                    loop = asyncio.get_running_loop()
                    began = loop.time()
                    code = await loop.run_in_executor(None, started.stop)
                    assert loop.time() - began < 60
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1012
                return code

        assert asyncio.run(main()) == 0


def _agent(app: Any, *routes: Route, prefix: str = "/files") -> Agent:
    agent = Agent("mounted")

    @agent.skill
    def echo(text: str) -> str:
        return text

    agent.mount(prefix, app, routes=routes)
    return agent


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    raise ValueError("it breaks")


def test_a_route_with_a_scope_that_nobody_can_have_does_not_start() -> None:
    with pytest.raises(Misuse, match="there is no scope nonsense"):
        _agent(nothing, Route("GET /x", "nonsense", 0)).asgi(store="memory:")


@pytest.mark.parametrize("prefix", ["/tasks", "/a2a", "/admin/keys", "/agents", "/.well-known", "/healthz"])
def test_a_mount_that_would_hide_a_path_of_the_host_does_not_start(prefix: str) -> None:
    with pytest.raises(Misuse, match=f"{prefix} would hide what is served at /"):
        _agent(nothing, Route("GET /x", "public", 0), prefix=prefix).asgi(store="memory:")


def test_websockets_without_their_library_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if "websockets" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "websockets", None)
    _refused(monkeypatch, r"need websockets: pip install 'trunkline\[websocket\]'")


def test_websockets_on_an_older_uvicorn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(WebSocketsSansIOProtocol, "pause_writing")
    _refused(monkeypatch, r"need uvicorn 0.52.1 or newer: pip install 'trunkline\[websocket\]'")


def _refused(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    monkeypatch.delitem(sys.modules, "trunkline.http.websocket")
    host = _agent(nothing, Route("WEBSOCKET /x", "tasks:read", 10)).asgi(store="memory:")
    limits = http_server.ServerLimits(0, 1.0, 1.0)
    with pytest.raises(Misuse, match=why):
        http_server.HttpServer(host.host, limits, started=print)


def test_an_application_that_breaks_is_answered_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        host = _agent(nothing, Route("GET /x", "public", 0)).asgi(store="memory:", drain_limit=0)
        async with host.lifespan():
            inside = InProcessHttpClient(host)
            reply = await inside.open(HttpRequest("GET", "http://localhost/files/x"))
            await reply.close()
            return reply.status

    assert asyncio.run(main()) == 500
    assert "it breaks" in caplog.text


def test_nothing_holds_on_to_a_request_that_was_refused_or_left() -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        raise InvalidParams("not this")

    async def ask(host: Any, path: str, *messages: dict[str, Any]) -> list[BaseException]:
        coming = iter(messages)
        given = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": given, "client": ("127.0.0.1", 1)}

        async def receive() -> dict[str, Any]:
            return next(coming)

        async def send(message: Any) -> None:
            del message

        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await host(scope, receive, send)
            gc.collect()
            return [found for found in gc.garbage if isinstance(found, BaseException)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    async def main() -> None:
        host = _agent(refusing, Route("POST /x", "public", 9)).asgi(store="memory:", drain_limit=0)
        async with host.lifespan():
            whole = {"type": "http.request", "body": b"{}"}
            half, gone = {**whole, "more_body": True}, {"type": "http.disconnect"}
            assert await ask(host, "/files/x", whole) == []
            for path in ("/files/x", "/a2a", "/message:send", "/delegate/tasks"):
                assert await ask(host, path, half, gone) == []

    asyncio.run(main())


def test_under_another_server_a_websocket_is_judged_the_same() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})

    async def main() -> list[Any]:
        host = _agent(app, Route("WEBSOCKET /live", "tasks:read", 10)).asgi(
            store="memory:", drain_limit=0, keys=(KEY,)
        )
        async with host.lifespan():
            return [
                await _knock(host, headers, {})
                for headers in ({"x-api-key": KEY}, {}, {"x-api-key": KEY, "origin": "http://evil.example"})
            ]

    accepted, anonymous, foreign = asyncio.run(main())
    assert accepted == [{"type": "websocket.accept"}]
    assert anonymous == foreign == [{"type": "websocket.close", "code": 1008}]
    assert seen == ["/files/live"]


async def _knock(host: Any, headers: dict[str, str], extensions: dict[str, Any]) -> list[Any]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())]
    scope = {"type": "websocket", "path": "/files/live", "headers": given, "extensions": extensions}
    await host(scope, receive, send)
    return sent


def test_who_loses_its_key_loses_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "WATCH_S", 0.01)

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        assert (await receive())["type"] == "http.disconnect"

    async def pieces(host: Any, token: str) -> AsyncIterator[bytes]:
        inside = InProcessHttpClient(host)
        reply = await inside.open(HttpRequest("GET", "http://localhost/files/x", (("x-api-key", token),)))
        async for piece in reply.chunks():
            yield piece

    async def main() -> None:
        host = _agent(endless, Route("GET /x", "tasks:read", 0)).asgi(store="memory:", drain_limit=0)
        async with host.lifespan():
            made = await host.host.key_store.create("somebody")
            streamed = pieces(host, made.token)
            assert await anext(streamed) == b"begun"
            await host.host.key_store.revoke(made.key.id)
            async with asyncio.timeout(60):
                while True:
                    try:
                        await anext(streamed)
                    except Exception:  # noqa: BLE001 - however it ends, it ends
                        break

    asyncio.run(main())


def test_a_browser_gets_a_page_that_says_what_is_here(server: ServerProcess) -> None:
    answer = _ask(server, "GET", "/", headers={"Accept": "text/html,*/*", "X-API-Key": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<h1>host</h1>" in answer.text and 'href=".well-known/agent-card.json"' in answer.text
    assert _ask(server, "GET", "/", headers={"Accept": "application/json"}).status_code == 404
    assert json.loads(_ask(server, "POST", "/", headers={"Accept": "text/html"}).text)
