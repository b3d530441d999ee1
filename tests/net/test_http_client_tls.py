"""Connecting: TLS by name to a judged number, and one address after the other."""

from __future__ import annotations

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from tests.net.authority import Authority
from tests.net.targets import OK, Call, Wire, fetching, listening, names, plain, site
from trunkline.errors import TimedOut, Unreachable
from trunkline.net import http_client as module
from trunkline.net.connection import ClientConnection
from trunkline.net.egress import Egress
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import MakeConnection, SocketHttpClient, tls_context

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest):
    with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
        yield runner.run


def test_host_and_sni_are_the_name(authority: Authority, run: Any) -> None:
    shown: list[str | None] = []
    context = authority.server("hooks.example", "127.0.0.1")
    context.sni_callback = lambda _sock, name, _context: shown.append(name)

    async def main() -> None:
        async with site(plain, context) as there, fetching(tls=authority.client()) as client:
            for host in ("hooks.example", "hooks.example.", "127.0.0.1"):
                assert (await client.post(there.url(host=host, scheme="https"), b"x", [])).body == b"ok"
            assert [call.headers["host"] for call in there.calls] == [
                f"{host}:{there.port}" for host in ("hooks.example", "hooks.example.", "127.0.0.1")
            ]

    run(main())
    assert shown == ["hooks.example", "hooks.example", None]


@pytest.mark.parametrize(
    ("made", "host", "why"),
    [
        ({"names": ["other.example"]}, "hooks.example", "mismatch"),
        # The number that is dialled does not make up for the name.
        ({"names": ["127.0.0.1"]}, "hooks.example", "mismatch"),
        ({"names": ["hooks.example"]}, "127.0.0.1", "mismatch"),
        ({"names": ["*.example"]}, "a.b.example", "mismatch"),
        ({"names": ["hooks.example"], "expired": True}, "hooks.example", "expired"),
        ({"names": ["hooks.example"], "self_signed": True}, "hooks.example", "self"),
    ],
    ids=["other-name", "number-for-name", "name-for-number", "two-labels", "expired", "self-signed"],
)
def test_certificates_that_are_not_believed(
    authority: Authority, run: Any, made: dict[str, Any], host: str, why: str
) -> None:
    async def main() -> None:
        context = authority.server(*made.pop("names"), **made)
        async with site(plain, context) as there, fetching(tls=authority.client()) as client:
            with pytest.raises(Unreachable) as error:
                await client.post(there.url("/?s3cret", host=host, scheme="https"), b"x", [])
            assert error.value.reason == "tls"
            assert host in str(error.value) and why in str(error.value)
            assert there.calls == []

    made = dict(made)
    run(main())


def test_an_unknown_authority_and_a_trusted_file(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = authority.server("hooks.example")

    async def main() -> int:
        async with site(plain, context) as there, fetching() as client:
            return (await client.get(there.url(scheme="https"))).status

    with pytest.raises(Unreachable, match="unable to get local issuer") as error:
        asyncio.run(main())
    assert error.value.reason == "tls"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    tls_context.cache_clear()
    assert asyncio.run(main()) == 200
    tls_context.cache_clear()


def test_a_target_that_speaks_no_tls(authority: Authority, run: Any) -> None:
    async def main() -> None:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await writer.drain()
            writer.close()

        async with listening(shout) as port, fetching(tls=authority.client()) as client:
            with pytest.raises(Unreachable) as error:
                await client.post(f"https://hooks.example:{port}/", b"x", [])
            assert error.value.reason == "plain"

    run(main())


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""], ids=["words", "end"]
)
def test_what_comes_before_tls_is_never_read(authority: Authority, run: Any, first: bytes) -> None:
    """Somebody on the way could say it, and let the true target finish the handshake."""

    async def main() -> None:
        async def inject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(first)
            writer.write_eof()
            await reader.read()
            writer.close()

        async with listening(inject) as port, fetching(tls=authority.client()) as client, asyncio.timeout(60):
            with pytest.raises(Unreachable) as error:
                await client.post(f"https://hooks.example:{port}/", b"x", [])
            assert error.value.reason == ("plain" if first else "connect")

    run(main())


def test_a_target_that_hangs_up_at_once(authority: Authority, run: Any) -> None:
    async def main() -> None:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()

        async with listening(leave) as port, fetching(tls=authority.client()) as client:
            for scheme in ("http", "https") * 50:
                with pytest.raises(Unreachable) as error:
                    await client.post(f"{scheme}://hooks.example:{port}/", b"x" * 100_000, [])
                assert error.value.reason in {"connect", "protocol", "tls"}

    run(main())


def test_a_target_that_hangs_up_during_the_handshake(authority: Authority, run: Any) -> None:
    async def main() -> None:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.transport.abort()

        async with listening(leave) as port, fetching(tls=authority.client()) as client:
            with pytest.raises(Unreachable) as error:
                await client.post(f"https://hooks.example:{port}/", b"x", [])
            assert error.value.reason == "connect"

    run(main())


def test_a_handshake_that_never_ends_leaves_nothing_open(authority: Authority, run: Any) -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(65536):
                pass
            gone.set()
            writer.close()

        async with listening(silent) as port, fetching(tls=authority.client(), timeout_s=0.05) as client:
            with pytest.raises(Unreachable) as error:
                await client.post(f"https://hooks.example:{port}/", b"x", [])
            assert error.value.reason == "timeout"
            async with asyncio.timeout(60):
                await gone.wait()

    run(main())


def refuse_client(listener: socket.socket, context: ssl.SSLContext) -> None:
    """The server's side of a handshake in which the client has no certificate to show."""
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as secret:
        secret.settimeout(60)
        with pytest.raises(ssl.SSLError):
            secret.do_handshake()
        # Read to the end, or the alert would be lost in a reset.
        secret.shutdown(socket.SHUT_WR)
        while secret.recv(65536):
            pass


def test_a_target_that_wants_a_certificate_of_ours(authority: Authority, run: Any) -> None:
    context = authority.server("hooks.example")
    context.verify_mode = ssl.CERT_REQUIRED

    async def main(port: int) -> None:
        async with fetching(tls=authority.client()) as client:
            await client.post(f"https://hooks.example:{port}/", b"x", [])

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        refused = threads.submit(refuse_client, listener, context)
        with pytest.raises(Unreachable, match="hooks.example") as error:
            run(main(listener.getsockname()[1]))
        refused.result(5)
    assert error.value.reason == "tls"


def test_a_redirect_from_https_to_http(authority: Authority) -> None:
    async def main() -> None:
        async with site() as clear:

            async def respond(call: Call) -> bytes:
                return f"HTTP/1.1 302 Away\r\nlocation: {clear.url()}\r\ncontent-length: 0\r\n\r\n".encode()

            context = authority.server("hooks.example")
            async with site(respond, context) as there, fetching(tls=authority.client()) as client:
                with pytest.raises(Unreachable, match="from https to http") as error:
                    await client.get(there.url(scheme="https"))
                assert error.value.reason == "refused"
            assert clear.calls == []

    asyncio.run(main())


def reached(answers: dict[str, Any], asked: list[str], **options: Any) -> None:
    """Call a name that has these addresses, each of which answers, fails or hangs."""

    async def dial(make: MakeConnection, address: str, port: int, tls: Any, name: Any) -> ClientConnection:
        asked.append(address)
        if answers[address] == "hang":
            await asyncio.Event().wait()
        if isinstance(answers[address], OSError):
            raise answers[address]
        connection = make()
        connection.connection_made(Wire(connection, [OK]))
        return connection

    async def main() -> None:
        egress = Egress(resolver=names(many_test=list(answers) * 2))
        client = SocketHttpClient(egress, dial=dial, **options)
        assert (await client.open(HttpRequest("GET", "http://many.test/"))).status == 200
        await client.close()

    asyncio.run(main())


def test_addresses_are_tried_one_after_the_other() -> None:
    asked: list[str] = []
    answers = {"9.9.9.1": OSError("no"), "9.9.9.2": "hang", "9.9.9.3": "ok", "9.9.9.4": "ok"}
    reached(answers, asked, connect_s=0.05)
    assert asked == ["9.9.9.1", "9.9.9.2", "9.9.9.3"]


@pytest.mark.parametrize(("last", "kind"), [("hang", TimedOut), (OSError("no"), Unreachable)])
def test_no_address_answers(last: Any, kind: type[Unreachable]) -> None:
    asked: list[str] = []
    with pytest.raises(Unreachable, match="many.test:80") as error:
        reached({"9.9.9.1": "hang", "9.9.9.2": last}, asked, connect_s=0.2)
    assert (type(error.value), error.value.reason) == (kind, "connect")
    assert asked == ["9.9.9.1", "9.9.9.2"]


def test_a_name_with_very_many_addresses() -> None:
    asked: list[str] = []
    with pytest.raises(Unreachable):
        reached({f"9.9.9.{n}": OSError("no") for n in range(200)}, asked)
    assert len(asked) == module.DIALS
