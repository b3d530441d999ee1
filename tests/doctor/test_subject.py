"""Agents that are no patients but attackers: the examination ends as always, and stays small."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.net.targets import listening
from trunkline.config import Secret
from trunkline.doctor.exchange import ProbeClient
from trunkline.doctor.run import DoctorReport, examine
from trunkline.doctor.subject import DoctorOptions
from trunkline.net.egress import Egress
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient

SECRET = "s3cret-text"


def answer(value: Any, status: str = "200 OK", more: str = "") -> bytes:
    body = msgspec.json.encode(value)
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def examined(said: bytes) -> DoctorReport:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()
        writer.close()

    async def main() -> DoctorReport:
        async with listening(serve) as port, asyncio.timeout(60):
            options = DoctorOptions(timeout_s=2, credentials=(("X-API-Key", Secret(SECRET)),))
            return await examine(f"http://127.0.0.1:{port}", options)

    return asyncio.run(main())


@pytest.mark.parametrize(
    "url", ["http://[bad/", "http://a\u2100b/", "http://127.0.0.1:99999/", "x" * 100_000]
)
def test_addresses_that_are_none(url: str) -> None:
    interface = {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    report = examined(answer({"name": "x", "url": url, "supportedInterfaces": [interface]}))
    assert report.failed() and SECRET not in repr(report)


def test_a_redirect_to_nothing() -> None:
    assert examined(answer({}, "302 Found", "location: http://[bad/\r\n")).nothing


def test_card_that_a_wrong_path_redirects_to_is_refused() -> None:
    interface = {"url": "/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    card = answer({"name": "other", "supportedInterfaces": [interface]})
    redirect = answer({}, "302 Found", "location: /.well-known/agent-card.json\r\n")
    served: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(card if served[-1].startswith(b"GET /.well-known/agent-card.json ") else redirect)
        await writer.drain()
        writer.close()

    async def main() -> DoctorReport:
        async with listening(serve) as port, asyncio.timeout(60):
            return await examine(f"http://127.0.0.1:{port}/agents/buyer", DoctorOptions(timeout_s=2))

    report = asyncio.run(main())
    assert "no agent has the path '/agents/buyer'" in report.nothing
    assert not any(one.startswith(b"POST") for one in served)


def test_a_stream_without_end_is_cut_by_its_size() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b"data: %b\n\n" % (b"x" * 60_000))
            await writer.drain()

    async def main() -> None:
        async with listening(serve) as port, asyncio.timeout(60):
            http_client = SocketHttpClient(Egress(loopback=True))
            client = ProbeClient(http_client, timeout_s=10)
            request = HttpRequest("GET", f"http://127.0.0.1:{port}/")
            seen = await client.fetch(request, enough=lambda _: False)
            await http_client.close()
        assert "is over" in seen.trouble and not seen.closed
        assert sum(len(event.data) for event in seen.events) <= 8 << 20

    asyncio.run(main())
