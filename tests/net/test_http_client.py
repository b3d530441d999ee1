"""The HTTP client over sockets: what it sends, what it keeps, how long it waits, and where it does not go."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tests.net.authority import Authority
from tests.net.targets import OK, Call, Site, listening, names, plain, site
from trunkline.errors import Misuse, TimedOut, Unreachable
from trunkline.net import http_client as module
from trunkline.net import pool
from trunkline.net.egress import Egress
from trunkline.net.http import UNREAD_BYTES, HttpRequest
from trunkline.net.http_client import SocketHttpClient, tls_context

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[SocketHttpClient]:
    egress = options.pop("egress", None) or Egress(loopback=True, resolver=names())
    caller = SocketHttpClient(egress, **options)
    try:
        async with asyncio.timeout(60):
            yield caller
    finally:
        await caller.close()


async def fetch(caller: SocketHttpClient, request: HttpRequest) -> bytes:
    reply = await caller.open(request)
    try:
        return await reply.read(1 << 24)
    finally:
        await reply.close()


def free(caller: SocketHttpClient) -> list[int]:
    return [one.free for one in caller._pools.values()]  # noqa: SLF001 - nothing outside shows it


def test_what_is_sent(run: Any) -> None:
    async def main() -> None:
        async with site() as there, calling() as caller:
            headers = (("X-Key", "k"), ("User-Agent", "mine"))
            assert await fetch(caller, HttpRequest("POST", there.url("/a?b=c d"), headers, b"body")) == b"ok"
            assert await fetch(caller, HttpRequest("DELETE", there.url("/"))) == b"ok"
            assert (
                await fetch(caller, HttpRequest("GET", there.url("/"), (("host", "other.example"),))) == b"ok"
            )
            first, second, third = there.calls
            assert first.line == "POST /a?b=c%20d HTTP/1.1"
            assert first.headers == {
                "accept-encoding": "identity",
                "content-length": "4",
                "host": f"hooks.example:{there.port}",
                "user-agent": "mine",
                "x-key": "k",
            }
            assert first.body == b"body"
            assert second.headers["content-length"] == "0"
            assert second.headers["user-agent"] == "trunkline"
            assert "content-length" not in third.headers
            assert third.headers["host"] == "other.example"
            assert len({call.peer for call in there.calls}) == 1

    run(main())


def test_requests_with_headers_of_the_same_names(run: Any) -> None:
    """What they share is composed once; nothing of the one may be in the other."""

    async def main() -> None:
        async with site() as there, calling() as caller:
            for number, body in enumerate((b"one", b"", b"three")):
                headers = (("X-50%s", f"%d {number}"), ("X-Key", "%" * number))
                await fetch(caller, HttpRequest("P%sT", there.url(f"/{number}%25"), headers, body))
            with pytest.raises(Unreachable, match="line break"):
                await caller.open(HttpRequest("P%sT", there.url(), (("X-50%s", "a\r\nb"), ("X-Key", ""))))
            assert [call.line for call in there.calls] == [
                f"P%sT /{number}%25 HTTP/1.1" for number in range(3)
            ]
            assert [call.headers["x-50%s"] for call in there.calls] == ["%d 0", "%d 1", "%d 2"]
            assert [call.headers["x-key"] for call in there.calls] == ["", "%", "%%"]
            assert [call.body for call in there.calls] == [b"one", b"", b"three"]

    run(main())


@pytest.mark.parametrize(
    ("method", "headers", "words"),
    [
        ("POST", (("x", "s3cret\r\nevil: 1"),), "line break"),
        ("POST", (("x", "s3cret\nevil: 1"),), "line break"),
        ("POST", (("x", "s3cret\r"),), "line break"),
        ("POST", (("x", "s3cret\0"),), "line break"),
        ("POST", (("x: y\r\nz", "s3cret"),), "name of a header"),
        ("POST", (("", "s3cret"),), "name of a header"),
        ("GET / HTTP/1.1\r\nx", (), "method"),
        ("POST", (("Content-Length", "s3cret"),), "content-length"),
        ("POST", (("transfer-encoding", "chunked"),), "transfer-encoding"),
    ],
)
def test_what_http_cannot_say_is_refused_unquoted(method: str, headers: Any, words: str) -> None:
    async def main() -> None:
        async with site() as there, calling() as caller:
            with pytest.raises(Unreachable, match=words) as error:
                await caller.open(HttpRequest(method, there.url(), headers, b""))
            assert error.value.reason == "protocol"
            assert "s3cret" not in str(error.value)
            assert there.calls == []

    asyncio.run(main())


def test_a_large_body_goes_out_and_comes_back(run: Any) -> None:
    async def echo(call: Call) -> bytes:
        return HEAD + b"content-length: %d\r\n\r\n" % len(call.body) + call.body

    async def main() -> None:
        body = bytes(range(256)) * 16_000
        async with site(echo) as there, calling() as caller:
            assert await fetch(caller, HttpRequest("POST", there.url(), (), body)) == body
            assert await fetch(caller, HttpRequest("POST", there.url(), (), b"x")) == b"x"
            assert len({call.peer for call in there.calls}) == 1
            reply = await caller.open(HttpRequest("POST", there.url(), (), body))
            with pytest.raises(Unreachable, match="over 1000 bytes") as error:
                await reply.read(1000)
            assert error.value.reason == "size"
            await reply.close()

    run(main())


def test_an_answer_before_the_end_of_the_request_costs_the_line(run: Any) -> None:
    """Who refuses a body early does not read the rest of it; the next request would be read as body."""

    async def main() -> None:
        accepted: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(1)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
            await asyncio.Event().wait()

        async with listening(serve) as port, calling() as caller:
            for _ in range(2):
                reply = await caller.open(
                    HttpRequest("POST", f"http://hooks.example:{port}/", (), b"x" * (16 << 20))
                )
                assert reply.status == 413
                await reply.close()
            assert len(accepted) == 2

    run(main())


def test_chunks_come_as_they_come_and_the_sender_waits(run: Any) -> None:
    async def main() -> None:
        sent = 0
        piece = b"x" * 65536
        count = 400

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % (count * len(piece)))
            for _ in range(count):
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
            await reader.read()  # who leaves now takes what is still on its way

        async with listening(serve) as port, calling() as caller:
            reply = await caller.open(HttpRequest("GET", f"http://hooks.example:{port}/"))
            chunks = aiter(reply.chunks(idle_s=5))
            total = len(await anext(chunks))
            before = -1
            while sent != before:  # until the sender stands still
                before = sent
                await asyncio.sleep(0.02)
            # The rest is what two kernels hold between them.
            assert sent < count * len(piece)
            assert reply.body._size < UNREAD_BYTES + (1 << 20)  # noqa: SLF001 - nothing outside shows it
            async for chunk in chunks:
                total += len(chunk)
            assert total == count * len(piece)
            await reply.close()

    run(main())


def test_silence_is_timed_out_and_the_line_is_free_again(run: Any) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + b"content-length: 9\r\n\r\nhello")
            await writer.drain()
            await asyncio.Event().wait()

        async with listening(serve) as port, calling() as caller:
            for use in ("read", "chunks"):
                reply = await caller.open(HttpRequest("GET", f"http://hooks.example:{port}/"))
                with pytest.raises(TimedOut, match=r"nothing came for 0.05 seconds") as error:
                    if use == "read":
                        await reply.read(100, idle_s=0.05)
                    else:
                        assert [chunk async for chunk in reply.chunks(idle_s=0.05)] == [b"hello"]
                assert error.value.reason == "idle"
                await reply.close()
                await reply.close()
            assert free(caller) == [module.CONNECTIONS]

    run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with listening(plain) as port:  # type: ignore[arg-type]
            pass
        async with calling() as caller:
            with pytest.raises(Unreachable, match=f"hooks.example:{port}: connection refused") as error:
                await caller.open(HttpRequest("GET", f"http://hooks.example:{port}/"))
            assert error.value.reason == "connect"
            with pytest.raises(Unreachable) as error:
                await caller.open(HttpRequest("GET", "http://unknown.invalid/"))
            assert error.value.reason == "name"
            assert free(caller) == [module.CONNECTIONS, module.CONNECTIONS]

    asyncio.run(main())


def test_no_connection_in_time() -> None:
    async def slow(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    async def main() -> None:
        async with calling(egress=Egress(resolver=slow), connect_s=0.05) as caller:
            with pytest.raises(TimedOut, match=r"no connection within 0.05 seconds") as error:
                await caller.open(HttpRequest("GET", "http://hooks.example/"))
            assert error.value.reason == "connect"
            assert free(caller) == [module.CONNECTIONS]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("url", "addresses", "allowed", "reason"),
    [
        ("http://hooks.example/", ["127.0.0.1"], [], "refused"),
        ("http://hooks.example/", ["169.254.169.254"], [], "refused"),
        ("http://hooks.example/", ["93.184.216.34", "10.0.0.1"], [], "refused"),
        ("http://127.0.0.1:9/", [], ["localhost"], "refused"),
        ("http://user:s3cret@hooks.example/", [], [], "url"),
        ("ftp://hooks.example/", [], [], "url"),
    ],
)
def test_where_it_does_not_go(url: str, addresses: list[str], allowed: list[str], reason: str) -> None:
    """Row 63: what leads to this machine or to its cloud's secrets is refused before anything is dialled."""

    async def main() -> None:
        egress = Egress(hosts=allowed, resolver=names(hooks_example=addresses))
        async with calling(egress=egress) as caller:
            with pytest.raises(Unreachable) as error:
                await caller.open(HttpRequest("GET", url))
            assert error.value.reason == reason
            assert "s3cret" not in str(error.value)

    asyncio.run(main())


def test_every_new_line_is_judged_and_what_was_judged_is_dialled() -> None:
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def moving(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async def main() -> None:
        async with site() as there, calling(egress=Egress(loopback=True, resolver=moving)) as caller:
            for _ in range(2):
                assert await fetch(caller, HttpRequest("GET", there.url())) == b"ok"
            assert len(answers) == 1
            next(iter(caller._pools.values())).close_idle()  # noqa: SLF001 - as if the server had closed it
            with pytest.raises(Unreachable, match="not public"):
                await fetch(caller, HttpRequest("GET", there.url()))
            assert answers == []

    asyncio.run(main())


def test_this_machine_where_the_operator_names_it() -> None:
    async def main() -> None:
        async with site() as there, calling(egress=Egress(hosts=["127.0.0.1"])) as caller:
            assert await fetch(caller, HttpRequest("GET", there.url(host="127.0.0.1"))) == b"ok"

    asyncio.run(main())


async def _closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    gone.set()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_kept_line_that_was_closed_is_noticed_before_it_is_used(run: Any, method: str) -> None:
    async def main() -> None:
        gone = asyncio.Event()
        async with (
            listening(lambda reader, writer: _closing(reader, writer, gone)) as port,
            calling() as caller,
        ):
            for _ in range(3):
                gone.clear()
                assert (
                    await fetch(caller, HttpRequest(method, f"http://hooks.example:{port}/", (), b""))
                    == b"ok"
                )
                await gone.wait()

    run(main())


@pytest.mark.parametrize(("method", "connections"), [("GET", 2), ("POST", 1)])
def test_a_kept_line_that_closes_under_a_request(run: Any, method: str, connections: int) -> None:
    """What may be sent twice is, once; of anything else it is said that it may have been taken."""

    async def main() -> None:
        accepted: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(1)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await reader.readuntil(b"\r\n\r\n")

        async with listening(serve) as port, calling() as caller:
            request = HttpRequest(method, f"http://hooks.example:{port}/", (), b"")
            assert await fetch(caller, request) == b"ok"
            if method == "GET":
                assert await fetch(caller, request) == b"ok"
            else:
                with pytest.raises(Unreachable, match="before an answer") as error:
                    await fetch(caller, request)
                assert error.value.reason == "sent"
            assert len(accepted) == connections
            assert free(caller) == [module.CONNECTIONS]

    run(main())


def test_a_safe_request_is_not_asked_again_when_an_answer_had_begun(run: Any) -> None:
    async def main() -> None:
        accepted: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(1)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 20")
            await writer.drain()

        async with listening(serve) as port, calling() as caller:
            request = HttpRequest("GET", f"http://hooks.example:{port}/")
            await fetch(caller, request)
            with pytest.raises(Unreachable) as error:
                await fetch(caller, request)
            assert (error.value.reason, len(accepted)) == ("sent", 1)

    run(main())


def test_at_most_so_many_lines_and_who_waits_is_served_in_turn(run: Any) -> None:
    async def main() -> None:
        order: list[str] = []
        most = now = 0

        async def slow(call: Call) -> bytes:
            nonlocal most, now
            now += 1
            most = max(most, now)
            order.append(call.path)
            await asyncio.sleep(0.005)
            now -= 1
            return OK

        async with site(slow) as there, calling(connections=2) as caller:
            asked = [HttpRequest("GET", there.url(f"/{number}")) for number in range(12)]
            await asyncio.gather(*[fetch(caller, one) for one in asked])
            assert most == 2
            assert len({call.peer for call in there.calls}) == 2
            assert sorted(order[:2]) == ["/0", "/1"]
            places = [order.index(f"/{number}") for number in range(12)]
            assert all(abs(place - number) <= 1 for number, place in enumerate(places))
            assert free(caller) == [2]

    run(main())


def test_lines_that_nobody_uses_are_closed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # They are looked at often, and are old enough only when the test says so.
    monkeypatch.setattr(module, "IDLE_S", 0.01)
    monkeypatch.setattr(pool, "IDLE_S", 1000.0)

    async def main() -> None:
        async with site() as there, calling() as caller:
            await asyncio.gather(*[fetch(caller, HttpRequest("GET", there.url())) for _ in range(3)])
            (found,) = caller._pools.values()  # noqa: SLF001 - nothing outside shows it
            lines = list(found.connections)
            assert len(lines) == 3
            assert await fetch(caller, HttpRequest("GET", there.url())) == b"ok"
            monkeypatch.setattr(pool, "IDLE_S", 0.0)
            await asyncio.gather(*[line.gone for line in lines])
            assert not found.connections and not found.idle
            assert caller._sweeping is None  # noqa: SLF001 - nothing outside shows it
            assert await fetch(caller, HttpRequest("GET", there.url())) == b"ok"

    run(main())


def test_a_line_that_has_rested_too_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with site() as there, calling() as caller:
            await fetch(caller, HttpRequest("GET", there.url()))
            monkeypatch.setattr(pool, "IDLE_S", 0.0)
            await fetch(caller, HttpRequest("POST", there.url(), (), b""))
            assert len({call.peer for call in there.calls}) == 2

    asyncio.run(main())


def test_closed_is_closed(run: Any) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def never(call: Call) -> bytes:
            asked.set()
            await asyncio.Event().wait()
            return OK

        async with site(never) as there:
            caller = SocketHttpClient(Egress(loopback=True, resolver=names()), connections=1)
            waiting = [
                asyncio.ensure_future(fetch(caller, HttpRequest("POST", there.url(), (), b"")))
                for _ in range(3)
            ]
            async with asyncio.timeout(60):
                await asked.wait()
                await caller.close()
                ends = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(end) for end in ends] == [Unreachable, Misuse, Misuse]
            with pytest.raises(Misuse, match="closed"):
                await caller.open(HttpRequest("GET", there.url()))
            await caller.close()

    run(main())


def test_closed_while_it_dials() -> None:
    async def main() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def resolve(host: str, port: int) -> list[str]:
            asked.set()
            await go.wait()
            return ["127.0.0.1"]

        async with site() as there, asyncio.timeout(60):
            caller = SocketHttpClient(Egress(loopback=True, resolver=resolve))
            opening = asyncio.ensure_future(caller.open(HttpRequest("GET", there.url())))
            await asked.wait()
            await caller.close()
            go.set()
            with pytest.raises(Misuse, match="closed"):
                await opening
            assert there.calls == []

    asyncio.run(main())


def test_addresses_without_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES", 4)

    async def main() -> None:
        async with site() as there, site() as other, calling() as caller:
            for number in range(10):
                await fetch(caller, HttpRequest("GET", there.url(f"/{number}")))
                assert len(caller._routes) <= 4  # noqa: SLF001 - nothing outside shows it
            await fetch(caller, HttpRequest("GET", other.url()))
            assert len({call.peer for call in there.calls}) == 1
            (first, _) = caller._pools.values()  # noqa: SLF001 - nothing outside shows it
            first.close_idle()
            await asyncio.gather(*[line.gone for line in list(first.connections)])
            for number in range(10):
                await fetch(caller, HttpRequest("GET", other.url(f"/{number}")))
            assert len(caller._pools) == 1  # noqa: SLF001 - nothing outside shows it

    asyncio.run(main())


# TLS.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_tls_by_name(authority: Authority, run: Any) -> None:
    shown: list[str | None] = []
    context = authority.server("hooks.example")
    context.sni_callback = lambda _sock, name, _context: shown.append(name)

    async def main() -> None:
        async with site(plain, context) as there, calling(tls=authority.client()) as caller:
            for host in ("hooks.example", "hooks.example.", "hooks.example"):
                assert await fetch(caller, HttpRequest("GET", there.url(host=host, scheme="https"))) == b"ok"

    run(main())
    assert shown == ["hooks.example", "hooks.example"]


def test_tls_that_is_not_believed(authority: Authority, run: Any) -> None:
    async def main() -> None:
        context = authority.server("other.example")
        async with site(plain, context) as there, calling(tls=authority.client()) as caller:
            with pytest.raises(
                Unreachable, match=r"hooks.example: no trusted TLS connection.*mismatch"
            ) as error:
                await caller.open(HttpRequest("GET", there.url(scheme="https")))
            assert error.value.reason == "tls"
            assert there.calls == []
            assert free(caller) == [module.CONNECTIONS]

    run(main())


def test_tls_unverified_only_when_asked(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    context = authority.server("other.example", self_signed=True)

    async def main(there: Site, verify: bool) -> bytes:
        async with calling(verify=verify) as caller:
            return await fetch(caller, HttpRequest("GET", there.url(scheme="https")))

    async def both() -> None:
        async with site(plain, context) as there:
            with pytest.raises(Unreachable) as error:
                await main(there, True)
            assert error.value.reason == "tls"
            with caplog.at_level(logging.WARNING):
                assert [await main(there, False), await main(there, False)] == [b"ok", b"ok"]

    asyncio.run(both())
    # Each HTTP client warns, though the context is made once.
    assert caplog.text.count("tls.unverified host='hooks.example'") == 2
    tls_context.cache_clear()  # noqa: SLF001 - the next test makes its own


def test_a_server_that_hangs_up_on_everybody(run: Any) -> None:
    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with listening(serve) as port, calling() as caller:
            with pytest.raises(Unreachable) as error:
                await caller.open(HttpRequest("POST", f"http://hooks.example:{port}/", (), b""))
            assert error.value.reason in ("connect", "sent")
            assert free(caller) == [module.CONNECTIONS]

    run(main())


def test_an_ssl_context_is_made_once() -> None:
    assert tls_context(True) is tls_context(True)  # noqa: SLF001 - it reads a thousand certificates
    assert tls_context(True).verify_mode is ssl.CERT_REQUIRED  # noqa: SLF001 - as above


def test_who_gives_up_in_the_moment_in_which_a_connection_stands_leaves_none_behind(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with site() as there:
            caller = SocketHttpClient(Egress(loopback=True, resolver=names()))
            opening = asyncio.create_task(caller.open(HttpRequest("GET", there.url())))
            stands = module.ClientConnection.connection_made

            def given_up(connection: Any, transport: asyncio.BaseTransport) -> None:
                stands(connection, transport)
                opening.cancel()

            monkeypatch.setattr(module.ClientConnection, "connection_made", given_up)
            await asyncio.wait([opening])
            assert opening.cancelled() and free(caller) == [module.CONNECTIONS]
            async with asyncio.timeout(10):
                await caller.close()

    run(main())
