"""The HTTP client into an application in this process: scopes, bodies, disconnects and applications that break."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from trunkline.errors import Misuse, TimedOut, Unreachable
from trunkline.net import in_process as module
from trunkline.net.http import UNREAD_BYTES, HttpRequest
from trunkline.net.in_process import InProcessHttpClient

START = {"type": "http.response.start", "status": 200, "headers": [(b"X-One", b"a"), (b"x-one", b"b")]}


def body(piece: bytes = b"", more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": piece, "more_body": more}


def run(work: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(main())


async def whole(inside: InProcessHttpClient, request: HttpRequest) -> tuple[int, dict[str, str], bytes]:
    reply = await inside.open(request)
    try:
        return reply.status, reply.headers, await reply.read(1 << 20)
    finally:
        await reply.close()


def test_the_scope_is_that_of_a_server() -> None:
    scopes: list[dict[str, Any]] = []
    taken: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)
        taken.append(await receive())
        await send(START)
        await send(body(b"hello"))

    async def work() -> None:
        inside = InProcessHttpClient(app, base="https://agent.example")
        url = "https://agent.example/a%20b/ü?q=1&r=ä b"
        found = await whole(inside, HttpRequest("POST", url, (("X-Key", "k"),), b"in"))
        assert found == (200, {"x-one": "a, b"}, b"hello")
        await whole(inside, HttpRequest("GET", "https://agent.example:443", (("Host", "other.example"),)))
        await inside.close()

    run(work)
    first, second = scopes
    assert (first["method"], first["scheme"], first["http_version"]) == ("POST", "https", "1.1")
    assert (first["path"], first["raw_path"]) == ("/a b/ü", b"/a%20b/%C3%BC")
    assert first["query_string"] == b"q=1&r=%C3%A4%20b"
    assert first["server"] == ("agent.example", 443)
    assert first["client"] == ("127.0.0.1", 0)
    assert first["headers"] == [(b"host", b"agent.example"), (b"x-key", b"k"), (b"content-length", b"2")]
    assert (second["path"], second["raw_path"], second["query_string"]) == ("/", b"/", b"")
    assert second["headers"] == [(b"host", b"other.example")]
    assert taken[0] == {"type": "http.request", "body": b"in", "more_body": False}


@pytest.mark.parametrize("url", ["http://other.example/", "https://localhost/", "http://localhost:81/"])
def test_only_its_own_origin_is_inside(url: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"any"))

    async def work() -> None:
        with pytest.raises(Unreachable, match="http://localhost:80 is in this process") as error:
            await InProcessHttpClient(app).open(HttpRequest("GET", url))
        assert error.value.reason == "connect"
        assert (await whole(InProcessHttpClient(app, base=""), HttpRequest("GET", url)))[2] == b"any"

    run(work)


def test_what_is_no_origin_or_url() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(Misuse, match="without a path"):
        InProcessHttpClient(app, base="http://localhost/mount")

    async def work() -> None:
        with pytest.raises(Unreachable) as error:
            await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost:port/"))
        assert error.value.reason == "url"

    run(work)


def test_chunks_come_as_they_are_sent() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for number in range(3):
            await send(body(b"%d" % number, True))
            await asyncio.sleep(0)
        await send(body())

    async def work() -> list[bytes]:
        reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        return [chunk async for chunk in reply.chunks(idle_s=1)]

    assert b"".join(run(work)) == b"012"
    assert len(run(work)) > 1


def test_a_sender_waits_for_its_reader() -> None:
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(START)
        for _ in range(20):
            await send(body(b"x" * (UNREAD_BYTES // 4), True))
            sent += 1
        await send(body())

    async def work() -> None:
        nonlocal sent
        for way in ("chunks", "read"):
            sent = 0
            reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
            for _ in range(30):
                await asyncio.sleep(0)
            assert sent < 6
            if way == "read":
                assert len(await reply.read(1 << 24)) == UNREAD_BYTES * 5
            else:
                assert sum([len(chunk) async for chunk in reply.chunks()]) == UNREAD_BYTES * 5

    run(work)


def test_leaving_is_a_disconnect() -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        await send(body(b"first", True))
        heard.append(await receive())
        await send(body(b"nobody reads this", True))

    async def work() -> None:
        reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        chunks = reply.chunks()
        assert await anext(chunks) == b"first"
        await reply.close()
        await reply.close()
        await reply.ended()
        with pytest.raises(Unreachable, match="closed before"):
            await reply.read(10)

    run(work)
    assert heard == [{"type": "http.disconnect"}]


def test_a_caller_who_gives_up_before_the_head() -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        heard.append(await receive())

    async def work() -> None:
        inside = InProcessHttpClient(app)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await inside.open(HttpRequest("GET", "http://localhost/"))
        await inside.close()
        assert len(asyncio.all_tasks()) == 1

    run(work)
    assert heard == [{"type": "http.disconnect"}]


def test_closing_ends_those_who_do_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAVE_S", 0.01)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"first", True))
        await asyncio.Event().wait()

    async def work() -> None:
        inside = InProcessHttpClient(app)
        reply = await inside.open(HttpRequest("GET", "http://localhost/"))
        await inside.close()
        await inside.close()
        assert len(asyncio.all_tasks()) == 1
        with pytest.raises(Unreachable):
            await reply.read(10)

    run(work)


def test_an_application_that_breaks_before_its_answer() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        raise KeyError("inner")

    async def silent(scope: Any, receive: Any, send: Any) -> None: ...

    async def work() -> None:
        with pytest.raises(Unreachable, match="the application broke") as error:
            await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        assert error.value.reason == "sent"
        assert isinstance(error.value.__cause__, KeyError)
        with pytest.raises(Unreachable, match="without an answer") as error:
            await InProcessHttpClient(silent).open(HttpRequest("GET", "http://localhost/"))
        assert error.value.reason == "sent"

    run(work)


@pytest.mark.parametrize("breaks", [True, False])
def test_an_application_that_stops_in_the_middle(breaks: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"half", True))
        if breaks:
            raise KeyError("inner")

    async def work() -> None:
        reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        with pytest.raises(Unreachable, match="too soon") as error:
            await reply.read(100)
        assert error.value.reason == "protocol"
        assert isinstance(error.value.__cause__, KeyError) is breaks
        reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        taken: list[bytes] = []
        with pytest.raises(Unreachable):
            async for chunk in reply.chunks():
                taken.append(chunk)
        assert taken == [b"half"]

    run(work)


def test_what_breaks_after_the_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"ok"))
        raise KeyError("inner")

    async def work() -> bytes:
        reply = await InProcessHttpClient(app).open(HttpRequest("GET", "http://localhost/"))
        await reply.ended()
        return await reply.read(10)

    with caplog.at_level(logging.ERROR):
        assert run(work) == b"ok"
    assert "inside.broke" in caplog.text


@pytest.mark.parametrize(
    "messages",
    [
        [body(b"early")],
        [START, START],
        [START, {"type": "http.response.trailers"}],
    ],
)
def test_messages_in_the_wrong_order(messages: list[Any]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def work() -> None:
        with pytest.raises(Unreachable) as error:
            await whole(InProcessHttpClient(app), HttpRequest("GET", "http://localhost/"))
        assert isinstance(error.value.__cause__, RuntimeError)

    run(work)


def test_silence_inside_is_timed_out() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"first", True))
        await receive()
        await receive()

    async def work() -> None:
        inside = InProcessHttpClient(app)
        reply = await inside.open(HttpRequest("GET", "http://localhost/"))
        with pytest.raises(TimedOut) as error:
            await reply.read(10, idle_s=0.01)
        assert error.value.reason == "idle"
        await inside.close()

    run(work)
