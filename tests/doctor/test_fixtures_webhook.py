"""The webhook of an examination."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from trunkline.doctor.fixtures import NotificationProbe


async def _post(url: str, raw: bytes) -> bytes:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(raw)
    if not raw.endswith(b"}"):
        writer.write_eof()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_it_keeps_what_it_is_told(host: str) -> None:
    async def main() -> None:
        hook = NotificationProbe(host)
        try:
            path = urlsplit(hook.url).path
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Token: t\r\nContent-Length: 2\r\n\r\n".encode()
            async with asyncio.timeout(60):
                assert (await _post(hook.url, head + b"{}")).startswith(b"HTTP/1.1 200")
                await hook.wait_for(lambda one: one.body == b"{}", 5)
            assert hook.received[0].headers["x-token"] == "t"
        finally:
            await hook.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /other HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n{}",
        b"nonsense",
    ],
)
def test_strangers_are_not_kept(raw: bytes) -> None:
    async def main() -> None:
        hook = NotificationProbe("127.0.0.1")
        try:
            async with asyncio.timeout(60):
                assert b" 200 " not in await _post(hook.url, raw)
            assert hook.received == []
        finally:
            await hook.close()

    asyncio.run(main())


def test_waiting_has_an_end() -> None:
    async def main() -> None:
        hook = NotificationProbe("127.0.0.1")
        try:
            async with asyncio.timeout(60):
                await hook.wait_for(lambda _: True, 0.01)
        finally:
            await hook.close()

    asyncio.run(main())
