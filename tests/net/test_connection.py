"""One connection: what odd, hostile and broken servers answer, whole and byte by byte."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tests.net.targets import listening, names
from trunkline.errors import Unreachable
from trunkline.net.connection import HEAD_LIMIT
from trunkline.net.egress import Egress
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient

OK = b"HTTP/1.1 200 OK\r\n"
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[tuple[SocketHttpClient, str, list[int]]]:
    """A caller, and a server that answers each request with these pieces and then hangs up.

    The list has one entry for each connection: how many requests came over it.
    """
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(served)
        served.append(0)
        while await reader.readuntil(b"\r\n\r\n"):
            served[mine] += 1
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if b"keep" not in b"".join(pieces):
                return

    async with listening(serve) as port:
        caller = SocketHttpClient(Egress(loopback=True, resolver=names()))
        try:
            yield caller, f"http://agent.example:{port}/", served
        finally:
            await caller.close()


async def ask(caller: SocketHttpClient, url: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    async with asyncio.timeout(60):
        reply = await caller.open(HttpRequest(method, url))
        try:
            return reply.status, reply.headers, await reply.read(1 << 20, idle_s=5)
        finally:
            await reply.close()


GOOD: dict[str, tuple[bytes, int, bytes]] = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", 200, b"hello"),
    "nothing": (OK + b"content-length: 0\r\n\r\n", 200, b""),
    "chunks": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 200, b"hello"),
    "chunks-odd": (
        OK + b"Transfer-Encoding: Chunked\r\n\r\n0005;name=x\r\nhello\r\n1\r\n!\r\n000\r\nx-late: 1\r\n\r\n",
        200,
        b"hello!",
    ),
    "until-close": (OK + b"\r\nhello", 200, b"hello"),
    "until-close-empty": (OK + b"\r\n", 200, b""),
    "old": (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello"),
    "interim": (
        b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n"
        + OK
        + b"content-length: 2\r\n\r\nok",
        200,
        b"ok",
    ),
    "no-content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not-modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 900\r\n\r\n", 304, b""),
    "no-reason": (b"HTTP/1.1 500\r\ncontent-length: 1\r\n\r\nx", 500, b"x"),
    "identity": (OK + b"content-encoding: identity\r\ncontent-length: 1\r\n\r\nx", 200, b"x"),
}


@pytest.mark.parametrize("name", GOOD)
def test_answers_whole_and_byte_by_byte(run: Any, name: str) -> None:
    raw, status, body = GOOD[name]

    async def main() -> None:
        async with answering(raw) as (caller, url, _):
            assert (await ask(caller, url))[::2] == (status, body)
        async with answering(*[raw[at : at + 1] for at in range(len(raw))]) as (caller, url, _):
            assert (await ask(caller, url))[::2] == (status, body)

    run(main())


BAD: dict[str, tuple[bytes, str, str]] = {
    # What the reader says, and at which point: `sent` where no answer has begun.
    "nothing": (b"", "sent", "before an answer"),
    "half-a-head": (OK + b"content-le", "sent", "before an answer"),
    "only-interim": (b"HTTP/1.1 100 Continue\r\n\r\n", "sent", "before an answer"),
    "words": (b"220 mail.example ESMTP\r\n\r\n", "sent", "not HTTP"),
    "tls": (b"\x16\x03\x01\x02\x00", "sent", "not HTTP"),
    "two-lengths": (OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\nab", "sent", "not HTTP"),
    "length-and-chunks": (
        OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "sent",
        "not HTTP",
    ),
    "bad-length": (OK + b"content-length: five\r\n\r\nhello", "sent", "not HTTP"),
    "negative-length": (OK + b"content-length: -5\r\n\r\nhello", "sent", "not HTTP"),
    "unknown-coding": (OK + b"transfer-encoding: gzip\r\n\r\nhello", "sent", "not HTTP"),
    "two-codings": (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "sent", "not HTTP"),
    "space-in-name": (OK + b"content length: 5\r\n\r\nhello", "sent", "not HTTP"),
    "folded": (OK + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n", "sent", "not HTTP"),
    "switched": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "sent", "protocol"),
    "short": (OK + b"content-length: 9\r\n\r\nhello", "protocol", "too soon"),
    "cut-chunk": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel", "protocol", "too soon"),
    "no-last-chunk": (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", "protocol", "too soon"),
    "bad-chunk": (OK + b"transfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n", "protocol", "not HTTP"),
    "huge-chunk": (
        OK + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n",
        "protocol",
        "not HTTP",
    ),
    "packed": (OK + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x08", "protocol", "packed"),
    "long-head": (OK + b"x: " + b"y" * (HEAD_LIMIT + 100) + b"\r\n\r\n", "sent", "over 65536 bytes"),
    "long-line": (b"HTTP/1.1 200 " + b"y" * (HEAD_LIMIT + 100), "sent", "over 65536 bytes"),
    "many-headers": (
        OK + b"".join(b"x%d: y\r\n" % n for n in range(9000)) + b"\r\n",
        "sent",
        "over 65536 bytes",
    ),
    "many-interims": (b"HTTP/1.1 100 Continue\r\n\r\n" * 3000, "sent", "over 65536 bytes"),
    "long-trailer": (
        OK + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"late: yes\r\n" * 9000,
        "protocol",
        "over 65536 bytes",
    ),
    # Sixteen times the body is not enough of a bound: the parser gathers one header whole, again and again.
    "long-trailer-of-a-long-body": (
        OK
        + b"transfer-encoding: chunked\r\n\r\n40000\r\n%b\r\n0\r\nlate: " % (b"x" * 0x40000)
        + b"y" * (1 << 20),
        "protocol",
        "what follows the answer's body is over 65536 bytes",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_broken_answers_are_errors(run: Any, name: str) -> None:
    raw, reason, words = BAD[name]

    async def main() -> None:
        pieces = [raw] if len(raw) > 400 else [raw[at : at + 1] for at in range(len(raw))]
        for given in ([raw], pieces):
            async with answering(*given) as (caller, url, _):
                with pytest.raises(Unreachable) as error:
                    await ask(caller, url, "POST")
                assert (error.value.reason, words in str(error.value)) == (reason, True), error.value
                assert "agent.example" in str(error.value)

    run(main())


def test_headers_are_in_lower_case_and_joined(run: Any) -> None:
    raw = OK + b"X-One: a\r\nx-one: b\r\nX-Text: \xe9\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

    async def main() -> dict[str, str]:
        async with answering(raw) as (caller, url, _):
            return (await ask(caller, url))[1]

    headers = run(main())
    assert headers["x-one"] == "a, b"
    assert headers["x-text"] == "\xe9"
    assert set(headers) == {"x-one", "x-text", "connection", "content-length"}


def test_a_head_request_has_no_body_and_ends_its_line(run: Any) -> None:
    async def main() -> None:
        async with answering(OK + b"x: keep\r\ncontent-length: 900\r\n\r\n") as (caller, url, served):
            for _ in range(2):
                assert (await ask(caller, url, "HEAD"))[::2] == (200, b"")
            assert served == [1, 1]

    run(main())


@pytest.mark.parametrize(
    ("raw", "connections"),
    [
        (OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok", 1),
        (OK + b"x: keep\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 204 No\r\nx: keep\r\n\r\n", 1),
        (OK + b"x: keep\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\nx: keep\r\ncontent-length: 2\r\n\r\nok", 3),
        # Whatever comes behind an answer must not become the next one.
        (OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok" + OK + b"content-length: 4\r\n\r\nevil", 3),
        (OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok garbage", 3),
        (OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok\r\n", 1),
        (b"HTTP/1.1 204 No\r\nx: keep\r\n\r\nbody after all", 3),
    ],
    ids=["length", "chunks", "empty", "close", "old", "second", "garbage", "line-end", "body-of-204"],
)
def test_when_a_line_is_used_again(run: Any, raw: bytes, connections: int) -> None:
    async def main() -> list[int]:
        async with answering(raw) as (caller, url, served):
            for _ in range(3):
                assert (await ask(caller, url))[2] in (b"ok", b"")
            return served

    assert len(run(main())) == connections


def test_what_comes_unasked_between_two_requests_closes_the_line(run: Any) -> None:
    async def main() -> None:
        spoken = asyncio.Event()
        peers: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.append(1)
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK + b"content-length: 2\r\n\r\nok")
                await writer.drain()
                await spoken.wait()
                writer.write(OK + b"content-length: 4\r\n\r\nevil")
                await writer.drain()

        async with listening(serve) as port:
            caller = SocketHttpClient(Egress(loopback=True, resolver=names()))
            url = f"http://agent.example:{port}/"
            assert (await ask(caller, url))[2] == b"ok"
            spoken.set()
            pool = caller._routes[url][1]  # noqa: SLF001 - nothing outside shows it
            async with asyncio.timeout(60):
                await asyncio.gather(*[line.gone for line in pool.connections])
            assert (await ask(caller, url))[2] == b"ok"
            assert len(peers) == 2
            await caller.close()

    run(main())


def test_who_gives_up_late_harms_nobody(run: Any) -> None:
    """A caller may be cancelled when its answer has come and its line already carries another request."""

    async def main() -> None:
        async with answering(OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok") as (caller, url, served):
            await ask(caller, url)
            pool = caller._routes[url][1]  # noqa: SLF001 - nothing outside shows it
            await pool.acquire()
            line = pool.take_idle()
            assert line is not None
            head = b"GET / HTTP/1.1\r\nhost: agent.example\r\n\r\n"
            # By hand: it must not hear yet that its answer has come.
            first = line.ask(head, None, False)
            first.send(None)
            async with asyncio.timeout(60):
                for _ in range(10_000):
                    await asyncio.sleep(0)
                    if not line.busy:
                        break
                assert pool.idle == [line]
                await pool.acquire()
                assert pool.take_idle() is line
                second = asyncio.ensure_future(line.ask(head, None, False))
                await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    first.throw(asyncio.CancelledError())
                assert await (await second).read(10) == b"ok"
            assert served == [3]

    run(main())


def test_a_line_that_is_gone(run: Any) -> None:
    async def main() -> None:
        async with answering(OK + b"x: keep\r\ncontent-length: 2\r\n\r\nok") as (caller, url, _):
            await ask(caller, url)
            pool = caller._routes[url][1]  # noqa: SLF001 - nothing outside shows it
            await pool.acquire()
            line = pool.take_idle()
            assert line is not None and line.is_fresh()
            line.abort()
            await line.gone
            line.abort()
            assert not line.is_fresh()
            with pytest.raises(Unreachable, match="hangs up") as error:
                await line.ask(b"GET / HTTP/1.1\r\n\r\n", None, False)
            assert error.value.reason == "connect"
            assert pool.free == pool.limit

    run(main())


def test_a_reset_after_the_head(run: Any) -> None:
    async def main() -> None:
        headed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK + b"content-length: 9\r\n\r\nhello")
            await headed.wait()
            line = writer.get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

        async with listening(serve) as port, asyncio.timeout(60):
            caller = SocketHttpClient(Egress(loopback=True, resolver=names()))
            reply = await caller.open(HttpRequest("GET", f"http://agent.example:{port}/"))
            headed.set()
            with pytest.raises(Unreachable, match="broke off") as error:
                await reply.read(100)
            assert error.value.reason == "connect"
            await caller.close()

    run(main())
