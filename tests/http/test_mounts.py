"""Which requests a mounted application sees, and how its messages become an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.http.transport import Line, get, post, run
from trunkline.errors import Misuse, RouteNotFound
from trunkline.http.exchange import Exchange
from trunkline.http.mounts import WATCH_S, Mount, MountedCall, MountedSocket, Mounts, Route, scope_of


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nobody calls it")


def mount(*patterns: str, prefix: str = "/files") -> Mount:
    return Mount(prefix, nothing, [Route(pattern, "tasks:read", 100) for pattern in patterns])


@pytest.mark.parametrize("prefix", ["", "/", "files", "/files/", "/a b", "/.hidden", "//x", "/a//b"])
def test_a_prefix_that_is_none(prefix: str) -> None:
    with pytest.raises(Misuse, match="is no prefix"):
        mount("GET /", prefix=prefix)


def test_without_routes_it_does_not_start() -> None:
    with pytest.raises(Misuse, match="list them, each with scope and body_limit"):
        Mount("/files", nothing, [])


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (Route("GET /x", "", 0), "has no scope"),
        (Route("GET /x", "public", -1), "needs a body_limit"),
        (Route("/x", "public", 0), "is no route"),
        (Route("GET x", "public", 0), "is no route"),
        (Route("GET /{", "public", 0), "is no route"),
        (Route("GET /{a b}", "public", 0), "is no route"),
    ],
)
def test_a_route_that_says_too_little_does_not_start(route: Route, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        Mount("/files", nothing, [route])


def test_a_route_without_a_scope_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        Route("GET /x")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "path", "pattern"),
    [
        ("GET", "/files", "GET /"),
        ("GET", "/files/", "GET /"),
        ("GET", "/files/one", "GET /{name}"),
        ("HEAD", "/files/one", "GET /{name}"),
        ("PUT", "/files/one", "PUT /{name}"),
        ("GET", "/files/one/pages/2", "GET /{name}/pages/{page}"),
        ("GET", "/files/static/a/b.css", "GET /static/{rest...}"),
        ("GET", "/files/one:act", "GET /{name}"),
    ],
)
def test_a_path_and_its_route(method: str, path: str, pattern: str) -> None:
    made = mount("GET /", "GET /{name}", "PUT /{name}", "GET /{name}/pages/{page}", "GET /static/{rest...}")
    assert made.match(method, path).pattern == pattern


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/files/one", "GET, PUT"),
        ("GET", "/files/one/two", ""),
        ("GET", "/files//", ""),
        ("GET", "/files/live", "PUT"),
        ("GET", "/files/one\n", ""),
    ],
)
def test_what_is_not_registered_is_not_found(method: str, path: str, allow: str) -> None:
    made = mount("GET /one", "PUT /one", "PUT /live", "WEBSOCKET /live")
    with pytest.raises(RouteNotFound) as raised:
        made.match(method, path)
    assert raised.value.allow == allow


def test_the_longest_prefix_wins_and_none_is_there_twice() -> None:
    mounts = Mounts()
    for prefix in ("/a", "/a/b", "/c"):
        mounts.add(mount("GET /", prefix=prefix))
    found = {
        path: getattr(mounts.find(path), "prefix", None) for path in ("/a", "/a/b/x", "/a/bc", "/ab", "/c/")
    }
    assert found == {"/a": "/a", "/a/b/x": "/a/b", "/a/bc": "/a", "/ab": None, "/c/": "/c"}
    with pytest.raises(Misuse, match="two applications are mounted at /a"):
        mounts.add(mount("GET /", prefix="/a"))


def answers(*messages: dict[str, Any]) -> Callable[..., Any]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.request"
        for message in messages:
            await send(message)

    return app


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(piece: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}


async def _said(app: Callable[..., Any], raw: bytes) -> bytes:
    async def answer(exchange: Exchange) -> None:
        call = MountedCall(exchange, await exchange.body(100, 5), None)
        await call.run(app, scope_of(exchange, "/files"))

    line = Line(answer)
    await line.feed(raw)
    return line.said


TEXT = (b"Content-Type", b"text/plain")


@pytest.mark.parametrize(
    ("messages", "raw", "said"),
    [
        (
            [start(201, TEXT, (b"X-More", b"1"), (b"Content-Length", b"99")), body(b"hello")],
            get("/files/x"),
            b"HTTP/1.1 201 Created\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n"
            b"x-more: 1\r\n\r\nhello",
        ),
        (
            [start(200, TEXT), body(b"one", more=True), body(b"two", more=True), body(b"")],
            get("/files/x"),
            b"HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
        ),
        (
            [start(200, TEXT, (b"content-length", b"12")), body(b"")],
            get("/files/x", verb=b"HEAD"),
            b"HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-type: text/plain\r\ncontent-length: 12\r\n\r\n",
        ),
        (
            [start(299), body(b"")],
            get("/files/x"),
            b"HTTP/1.1 299 \r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 0\r\n\r\n",
        ),
    ],
    ids=["whole", "pieces", "head", "odd status"],
)
def test_messages_become_an_answer(messages: list[dict[str, Any]], raw: bytes, said: bytes) -> None:
    assert run(lambda: _said(answers(*messages), raw)) == said


def test_the_scope_is_that_of_a_mount() -> None:
    seen: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.extend((scope, await receive()))
        await send(start())
        await send(body(b"x"))

    run(lambda: _said(app, post(b"hello", b"X-Y: 1", path="/files/a%20b?q=1")))
    scope, request = seen
    assert request == {"type": "http.request", "body": b"hello", "more_body": False}
    assert (scope["path"], scope["root_path"]) == ("/files/a b", "/files")
    assert (scope["raw_path"], scope["query_string"]) == (b"/files/a%20b", b"q=1")
    assert (b"x-y", b"1") in scope["headers"]
    assert scope["method"] == "POST"


def test_an_application_hears_that_its_caller_left() -> None:
    heard: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(start())
        await send(body(b"first", more=True))
        heard.append(await receive())
        await send(body(b"too late", more=True))

    async def main() -> None:
        async def answer(exchange: Exchange) -> None:
            await MountedCall(exchange, b"", None).run(app, scope_of(exchange, "/files"))
            heard.append("ended")

        line = Line(answer)
        await line.feed(get("/files/x"))
        line.lose()
        await asyncio.sleep(0.01)

    run(main)
    assert heard == [{"type": "http.disconnect"}, "ended"]


def test_end_of_stream_after_disconnect_raises_nothing() -> None:
    heard: list[object] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(start())
        await send(body(b"whole result", more=True))
        heard.append(await receive())
        await send(body(b"", more=False))
        heard.append("sent")

    async def main() -> None:
        async def answer(exchange: Exchange) -> None:
            await MountedCall(exchange, b"", None).run(app, scope_of(exchange, "/files"))

        line = Line(answer)
        await line.feed(get("/files/x"))
        line.lose()
        await asyncio.sleep(0.01)

    run(main)
    assert heard == [{"type": "http.disconnect"}, "sent"]


def test_whoever_is_let_in_no_longer_is_cut_off_though_another_one_takes_nothing() -> None:
    async def case() -> list[str]:
        mounts, told, ended = Mounts(), list[str](), asyncio.Event()

        async def forever(*_: Any) -> Any:
            await asyncio.Event().wait()

        async def hear(scope: Any, receive: Any, send: Any) -> None:
            del send
            told.append(f"{scope['who']} {(await receive())['type']}")
            if len(told) == 3:
                ended.set()

        watching = asyncio.create_task(mounts.watch())
        open_now = list[asyncio.Task[None]]()

        async def serve(who: str) -> None:
            socket = MountedSocket(forever, forever, 10, lambda: False)
            with mounts.opened(socket):
                await socket.run(hear, {"who": who})

        for who in ("one", "two", "three"):
            open_now.append(asyncio.create_task(serve(who)))
        # Each of them keeps whoever writes to it waiting, for the close too.
        async with asyncio.timeout(2 * WATCH_S):
            await ended.wait()
        for task in (watching, *open_now):
            task.cancel()
        await asyncio.gather(watching, *open_now, return_exceptions=True)
        return sorted(told)

    assert asyncio.run(case()) == [f"{who} websocket.disconnect" for who in ("one", "three", "two")]


def test_nothing_more_is_said_to_whom_is_let_in_no_longer() -> None:
    async def case() -> list[Any]:
        said: list[Any] = []

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)

        socket = MountedSocket(receive, send, 10, None)

        async def talk(scope: Any, receive: Any, send: Any) -> None:
            del scope, receive
            await send({"type": "websocket.send", "text": "before"})
            socket.cut()
            await send({"type": "websocket.send", "text": "after"})

        await socket.run(talk, {})
        return [one.get("text", one.get("code")) for one in said]

    assert asyncio.run(case()) == ["before", 1008]


def test_who_is_let_in_no_longer_is_cut_off_though_the_application_has_nothing_to_say() -> None:
    async def case() -> list[Any]:
        said, closed = list[Any](), asyncio.Event()

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            said.append(message)
            closed.set()

        async def wait(*_: Any) -> None:
            await asyncio.Event().wait()

        socket = MountedSocket(receive, send, 10, None)
        running = asyncio.create_task(socket.run(wait, {}))
        socket.cut()
        async with asyncio.timeout(5):
            await closed.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return said

    assert asyncio.run(case()) == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("rounds", range(5))
def test_a_message_that_comes_when_an_application_gives_up_waiting_is_the_next_one(rounds: int) -> None:
    async def case() -> list[str]:
        arriving, heard = asyncio.Queue[Any](), list[str]()

        async def send(message: Any) -> None:
            raise AssertionError(message)

        async def hear(scope: Any, receive: Any, send: Any) -> None:
            del scope, send
            waiting = asyncio.create_task(receive())
            # It waits.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for text in ("one", "two"):
                arriving.put_nowait({"type": "websocket.receive", "text": text})
            for _ in range(rounds):
                await asyncio.sleep(0)
            waiting.cancel()
            for found in await asyncio.gather(waiting, return_exceptions=True):
                if isinstance(found, dict):
                    heard.append(found["text"])
            while len(heard) < 2:
                heard.append((await receive())["text"])

        async with asyncio.timeout(5):
            await MountedSocket(arriving.get, send, 10, None).run(hear, {})
        return heard

    assert asyncio.run(case()) == ["one", "two"]
