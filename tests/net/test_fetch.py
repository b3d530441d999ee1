"""The outbound client against a real server: what it sends, what it reads, what it keeps open."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct

import pytest

from tests.net.targets import OK, Call, fetching, names, site
from trunkline.errors import Unreachable
from trunkline.net import fetch as engine
from trunkline.net import http_client, pool
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher


def refusal(error: pytest.ExceptionInfo[Unreachable]) -> str:
    return error.value.reason


def test_a_post_is_sent_as_given() -> None:
    async def main() -> None:
        async with site() as there, fetching() as client:
            answer = await client.post(
                there.url("/hook?a=b"), b'{"x":1}', [("Content-Type", "application/json")]
            )
            assert (answer.status, answer.body, answer.headers["x-kind"]) == (200, b"ok", "plain")
            [call] = there.calls
            assert call.line == "POST /hook?a=b HTTP/1.1"
            assert call.body == b'{"x":1}'
            assert call.headers == {
                "host": f"hooks.example:{there.port}",
                "user-agent": "trunkline",
                "accept-encoding": "identity",
                "content-length": "7",
                "content-type": "application/json",
            }

    asyncio.run(main())


def test_an_empty_post_says_so_and_a_get_has_no_body() -> None:
    async def main() -> None:
        async with site() as there, fetching() as client:
            await client.post(there.url(), b"", [])
            await client.get(there.url(), headers=[("accept", "application/json")])
            post, get = (call.headers for call in there.calls)
            assert post["content-length"] == "0"
            assert "content-length" not in get
            assert get["accept"] == "application/json"

    asyncio.run(main())


def test_a_connection_is_used_again_without_asking_for_the_name() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def main() -> None:
        egress = Egress(loopback=True, resolver=resolve)
        async with site() as there, fetching(egress=egress) as client:
            for _ in range(5):
                await client.post(there.url(), b"x", [])
            assert len({call.peer for call in there.calls}) == 1
            assert asked == ["hooks.example"]

    asyncio.run(main())


def test_requests_to_one_origin_share_eight_connections() -> None:
    async def main() -> None:
        async with site() as there, fetching() as client:
            await asyncio.gather(*(client.post(there.url(), b"x", []) for _ in range(40)))
            assert len(there.calls) == 40
            assert len({call.peer for call in there.calls}) <= engine.ORIGIN_CONNECTIONS

    asyncio.run(main())


def test_idle_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_S", 0.0)
    monkeypatch.setattr(http_client, "IDLE_S", 0.0)

    async def main() -> None:
        async with site() as there, site() as other, fetching() as client:
            await client.post(there.url(), b"x", [])
            first = there.calls[0].writer
            await client.post(other.url(), b"x", [])
            async with asyncio.timeout(60):
                await first.wait_closed()
            await client.post(there.url(), b"x", [])
            assert there.calls[0].peer != there.calls[1].peer

    asyncio.run(main())


def test_only_so_many_origins_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ORIGINS", 3)

    async def main() -> None:
        async with site() as there, fetching() as client:
            for number in range(6):
                await client.post(there.url(host=f"h{number}.example"), b"x", [])
            async with asyncio.timeout(60):
                for call in there.calls[:3]:
                    await call.writer.wait_closed()
            for number in (5, 0):
                await client.post(there.url(host=f"h{number}.example"), b"x", [])
            peers = [call.peer for call in there.calls]
            assert peers[6] == peers[5]
            assert peers[7] != peers[0]

    asyncio.run(main())


def test_a_server_that_closed_is_dialled_anew() -> None:
    async def main() -> None:
        async with site() as there, fetching() as client:
            await client.post(there.url(), b"x", [])
            gone = there.calls[0].writer
            gone.close()
            async with asyncio.timeout(60):
                await gone.wait_closed()
            for _ in range(5):  # our own loop has yet to see it
                await asyncio.sleep(0)
            assert (await client.post(there.url(), b"x", [])).status == 200
            assert there.calls[0].peer != there.calls[1].peer

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", "protocol"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "protocol"),
    ],
    ids=["nothing", "short", "not-http", "no-length"],
)
def test_answers_that_are_none(answer: bytes, reason: str) -> None:
    async def respond(call: Call) -> bytes:
        call.writer.write(answer)
        call.writer.close()
        return b""

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            with pytest.raises(Unreachable) as error:
                await client.post(there.url("/?token=s3cret"), b"x", [])
            assert refusal(error) == reason
            assert "hooks.example" in str(error.value)
            assert "s3cret" not in str(error.value)

    asyncio.run(main())


def test_a_connection_that_is_reset() -> None:
    async def respond(call: Call) -> bytes:
        call.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")
        await call.writer.drain()
        # Closed without lingering: that is a reset.
        sock = call.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        call.writer.transport.abort()
        return b""

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            with pytest.raises(Unreachable, match="hooks.example") as error:
                await client.post(there.url(), b"x", [])
            assert refusal(error) == "connect"

    asyncio.run(main())


def test_nobody_listens() -> None:
    async def main() -> None:
        async with site() as there:
            url = there.url()
        async with fetching() as client:
            with pytest.raises(Unreachable, match="hooks.example") as error:
                await client.post(url, b"x", [])
            assert refusal(error) == "connect"

    asyncio.run(main())


def test_an_unknown_name() -> None:
    async def main() -> None:
        async with fetching() as client:
            with pytest.raises(Unreachable, match=r"nowhere\.invalid") as error:
                await client.post("http://nowhere.invalid/", b"x", [])
            assert refusal(error) == "name"

    asyncio.run(main())


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\x00b", "tail\n"])
def test_a_header_that_is_none_is_not_quoted(value: str) -> None:
    async def main() -> None:
        async with site() as there, fetching() as client:
            with pytest.raises(Unreachable) as error:
                await client.post(there.url(), b"x", [("Authorization", f"Bearer s3cret{value}")])
            assert refusal(error) == "protocol"
            assert "s3cret" not in str(error.value)
            assert there.calls == []
            assert (await client.post(there.url(), b"x", [])).status == 200

    asyncio.run(main())


def test_headers_of_an_answer_that_come_twice() -> None:
    async def respond(call: Call) -> bytes:
        return b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nX-A: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n"

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            answer = await client.post(there.url(), b"x", [])
            assert answer.status == 429
            assert answer.headers == {"retry-after": "7", "x-a": "1, 2", "content-length": "0"}

    asyncio.run(main())


def test_a_packed_document_is_refused_and_the_answer_to_a_post_stays_as_it_is() -> None:
    packed = gzip.compress(b"0" * 5_000_000)

    async def respond(call: Call) -> bytes:
        return (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed) + packed
        )

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            with pytest.raises(Unreachable, match="packed"):
                await client.get(there.url())
            assert (await client.post(there.url(), b"", ())).body == packed

    asyncio.run(main())


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def main() -> None:
        async with site() as there, fetching() as client:
            assert (await client.post(there.url(), b"x", [])).status == 200

    asyncio.run(main())


def test_many_requests_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IN_FLIGHT", 2)
    most = now = 0

    async def respond(call: Call) -> bytes:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return OK

    async def main() -> None:
        async with site(respond) as there:
            client = Fetcher(Egress(loopback=True, resolver=names()))
            await asyncio.gather(*(client.post(there.url(host=f"h{n}.example"), b"x", []) for n in range(9)))
            await client.close()

    asyncio.run(main())
    assert most == 2
