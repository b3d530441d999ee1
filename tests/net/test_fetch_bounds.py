"""Targets that send too much, too slowly or without end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.net.targets import OK, Call, Respond, fetching, site
from trunkline.errors import Unreachable
from trunkline.net import fetch as engine
from trunkline.net.fetch import GET_BYTES, ORIGIN_CONNECTIONS, POST_BYTES, Fetcher

MIB = 1 << 20
HEAD = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(b"0" * 20_000_000)


def endless(start: bytes, more: bytes) -> Respond:
    async def respond(call: Call) -> bytes:
        call.writer.write(start)
        while True:
            call.writer.write(more)
            await call.writer.drain()

    return respond


def drip(start: bytes, byte: bytes) -> Respond:
    async def respond(call: Call) -> bytes:
        call.writer.write(start)
        while True:
            call.writer.write(byte)
            await call.writer.drain()
            await asyncio.sleep(0.02)

    return respond


async def bomb(call: Call) -> bytes:
    return HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(BOMB) + BOMB


async def silent(call: Call) -> bytes:
    await asyncio.Event().wait()
    return OK


SIZED = endless(HEAD + b"content-length: 10000000000\r\n\r\n", b"x" * 65536)
CHUNKED = endless(HEAD + b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n")
UNSIZED = endless(HEAD + b"\r\n", b"x" * 65536)
HEADERS = endless(HEAD, b"x-more: " + b"y" * 1000 + b"\r\n")
ONE_HEADER = endless(HEAD + b"x-more: ", b"y" * 65536)
STATUS = endless(b"HTTP/1.1 200 ", b"y" * 65536)
INTERIM = endless(b"", b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" * 100)
TRAILERS = endless(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"x-more: y\r\n" * 1000)
SLOW_HEAD = drip(HEAD, b"x")
SLOW_BODY = drip(HEAD + b"content-length: 1000\r\n\r\n", b"x")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def attempt(respond: Respond, call: Callable[[Fetcher, str], object], timeout_s: float = 0.3) -> object:
    """What came of a call: an answer, or the reason why there is none."""

    async def main() -> object:
        async with site(respond) as there, fetching(timeout_s=timeout_s) as client:
            try:
                # What has no end but by a limit of the client's would run into this one.
                async with asyncio.timeout(60):
                    return await call(client, there.url())
            except Unreachable as error:
                return error.reason

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("respond", "outcome"),
    [
        (SIZED, POST_BYTES),
        (CHUNKED, POST_BYTES),
        (UNSIZED, POST_BYTES),
        (bomb, len(BOMB)),
        (HEADERS, "protocol"),
        (ONE_HEADER, "protocol"),
        (STATUS, "protocol"),
        (INTERIM, "protocol"),
        (TRAILERS, "protocol"),
        (SLOW_HEAD, "timeout"),
        (SLOW_BODY, "timeout"),
        (silent, "timeout"),
    ],
    ids=[
        "sized", "chunked", "unsized", "gzip", "headers", "one-header", "status", "interim", "trailers",
        "slow-head", "slow-body", "silent",
    ],
)  # fmt: skip
def test_a_post_reads_little_and_not_for_long(respond: Respond, outcome: int | str) -> None:
    async def call(client: Fetcher, url: str) -> int | str:
        return len((await client.post(url, b"x", [])).body)

    # What the first call of a kind loads is not growth.
    attempt(respond, call)
    before = resident()
    assert attempt(respond, call) == outcome
    assert resident() - before <= 2 * MIB


@pytest.mark.parametrize("respond", [SIZED, CHUNKED, UNSIZED], ids=["sized", "chunked", "unsized"])
def test_a_get_refuses_what_is_too_large(respond: Respond) -> None:
    async def call(client: Fetcher, url: str) -> int:
        return len((await client.get(url)).body)

    assert attempt(respond, call, 5) == "size"


@pytest.mark.parametrize(("size", "outcome"), [(GET_BYTES, GET_BYTES), (GET_BYTES + 1, "size")])
def test_a_get_takes_a_mebibyte(size: int, outcome: int | str) -> None:
    async def respond(call: Call) -> bytes:
        return HEAD + b"content-length: %d\r\n\r\n" % size + b"x" * size

    async def call(client: Fetcher, url: str) -> int:
        return len((await client.get(url)).body)

    assert attempt(respond, call, 5) == outcome


def test_a_connection_with_an_answer_half_read_is_not_used_again() -> None:
    async def respond(call: Call) -> bytes:
        return HEAD + b"content-length: 9000000\r\n\r\n" + b"x" * 9000000

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            for _ in range(2):
                assert (await client.post(there.url(), b"x", [])).body == b"x" * POST_BYTES
            assert there.calls[0].peer != there.calls[1].peer

    asyncio.run(main())


def test_a_post_is_answered_by_its_status_however_slow_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BODY_S", 0.1)

    async def call(client: Fetcher, url: str) -> int:
        return (await client.post(url, b"x", [])).status

    assert attempt(SLOW_BODY, call, 5) == 200


def test_all_hops_share_one_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.fetch.HOPS", 100)

    async def respond(call: Call) -> bytes:
        await asyncio.sleep(0.1)
        return b"HTTP/1.1 302 Away\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n"

    async def call(client: Fetcher, url: str) -> int:
        return (await client.get(url)).status

    assert attempt(respond, call, 0.25) == "timeout"


def test_a_call_that_is_cancelled_leaves_nothing_behind() -> None:
    calls: list[Call] = []

    async def main() -> None:
        full = asyncio.Event()

        async def respond(call: Call) -> bytes:
            calls.append(call)
            if len(calls) == ORIGIN_CONNECTIONS:
                full.set()
            return await silent(call)

        async with site(respond) as there, fetching() as client:
            flights = [asyncio.ensure_future(client.post(there.url(), b"x", [])) for _ in range(20)]
            async with asyncio.timeout(60):
                await full.wait()
                for flight in flights:
                    flight.cancel()
                await asyncio.wait(flights)
                for call in calls:
                    assert await call.reader.read() == b""
            assert all(flight.cancelled() for flight in flights)
            assert len(calls) == ORIGIN_CONNECTIONS

    asyncio.run(main())
