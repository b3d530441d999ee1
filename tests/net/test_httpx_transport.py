"""The client of httpx2 for foreign libraries: what goes out by ours, and what of an answer comes in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.net.targets import OK, Call, Site, listening, names, site
from trunkline.errors import Unreachable
from trunkline.net import httpx_transport as module
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.httpx_transport import guarded_client

HEAD = b"HTTP/1.1 200 OK\r\n"


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 30))


@asynccontextmanager
async def calling(egress: Egress | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    rule = egress or Egress(loopback=True, resolver=names())
    async with guarded_client(SocketHttpClient(rule)) as client:
        yield client


def test_a_request_goes_out_whole_and_asks_for_nothing_packed() -> None:
    async def scene() -> None:
        async with site() as there, calling() as client:
            for _ in range(2):
                url = there.url("/v1/chat?a=b%20c")
                answer = await client.post(url, json={"n": 1}, headers={"x-api-key": "k"})
                assert (answer.status_code, answer.text, answer.headers["x-kind"]) == (200, "ok", "plain")
            first, second = there.calls
            assert first.line == "POST /v1/chat?a=b%20c HTTP/1.1" and first.body == b'{"n":1}'
            assert first.headers["x-api-key"] == "k" and first.headers["accept-encoding"] == "identity"
            assert first.headers["host"] == f"hooks.example:{there.port}"
            # One connection, kept.
            assert first.peer == second.peer

    run(scene())


def test_an_answer_comes_in_pieces_and_no_further_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 100_000)
    begun, gone = asyncio.Event(), asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"\r\n: begun\n\n")
        # On a busy machine all that is allowed, and more, would come at once.
        await begun.wait()
        try:
            while True:
                writer.write(b": nothing\n\n" * 100)
                await writer.drain()
        except ConnectionError:
            gone.set()

    async def scene() -> None:
        async with listening(endless) as port, calling() as client:
            taken = 0
            with pytest.raises(Unreachable, match="over 100000 bytes") as error:
                async with client.stream("GET", f"http://hooks.example:{port}/") as answer:
                    async for piece in answer.aiter_bytes():
                        taken += len(piece)
                        begun.set()
            assert error.value.reason == "size" and 0 < taken <= 100_000
            # And nobody goes on listening.
            await gone.wait()

    run(scene())


def test_a_redirect_is_an_answer() -> None:
    async def scene() -> None:
        async with site() as other, site(_to(other)) as there, calling() as client:
            answer = await client.post(there.url(), content=b"secret")
            assert answer.status_code == 307 and other.calls == []

    def _to(other: Site) -> Any:
        async def respond(call: Call) -> bytes:
            location = other.url("/elsewhere").encode()
            return b"HTTP/1.1 307 R\r\nlocation: " + location + b"\r\ncontent-length: 0\r\n\r\n"

        return respond

    run(scene())


def test_what_the_rule_refuses_is_not_dialled(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with site() as there, calling(Egress(resolver=names())) as client:
            with pytest.raises(httpx2.ConnectError, match="not public"):
                await client.post(there.url("/a?key=secret"), content=b"x")
            assert there.calls == []

    run(scene())
    assert "reason=refused" in caplog.text and "secret" not in caplog.text


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"", httpx2.RemoteProtocolError),
        (b"nonsense\r\n\r\n", httpx2.RemoteProtocolError),
        (HEAD + b"content-length: 9\r\n\r\nabc", httpx2.RemoteProtocolError),
        (HEAD + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", httpx2.RemoteProtocolError),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_library(raw: bytes, error: type[Exception]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()

    async def scene() -> None:
        async with listening(serve) as port, calling() as client:
            with pytest.raises(error):
                await client.get(f"http://hooks.example:{port}/")

    run(scene())


@pytest.mark.parametrize("head", [b"", HEAD + b"content-length: 9\r\n\r\n"])
def test_a_library_waits_no_longer_than_it_says(head: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        await reader.read()

    async def scene() -> None:
        async with listening(serve) as port, calling() as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(f"http://hooks.example:{port}/", timeout=httpx2.Timeout(5.0, read=0.05))

    run(scene())


def test_nothing_of_the_environment_changes_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")

    async def scene() -> None:
        async with site() as there, calling() as client:
            assert (await client.get(there.url())).content == OK[-2:]

    run(scene())
