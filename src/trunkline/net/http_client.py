"""The HTTP client: HTTP/1.1 over sockets and kept connections, to where the egress guard lets it go.

It unpacks nothing, follows nothing, knows no cookies and no proxies, and never sends anything twice but what
may be sent twice: a safe request on a kept connection that turned out to be closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Protocol

import truststore

from trunkline.errors import Misuse, TimedOut, Unreachable
from trunkline.net.connection import ClientConnection, SocketResponse
from trunkline.net.egress import Egress, HttpTarget, target
from trunkline.net.http import HttpRequest
from trunkline.net.pool import IDLE_S, ConnectionPool

log = logging.getLogger("trunkline.net")
CONNECT_S = 5.0
# Of a name with more addresses than this, all are judged and these are dialled.
DIALS = 4
# Connections to one origin: so many are shared by short calls, and so many may be held by long ones.
CONNECTIONS = 64
MOST_CONNECTIONS = 1000
# Origins whose idle connections are kept.
ORIGINS = 256
# URLs whose pool is remembered; those of tasks differ from each other without end.
ROUTES = 1024
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Headers that nobody else gives.
WRITTEN = frozenset({"connection", "content-length", "transfer-encoding", "upgrade"})
_DEFAULTS: tuple[tuple[str, str], ...] = (
    ("user-agent", "user-agent: trunkline\r\n"),
    # What is sent packed would have to be unpacked, and a small answer can unpack to any size.
    ("accept-encoding", "accept-encoding: identity\r\n"),
)
MakeConnection = Callable[[], ClientConnection]
# Where Linux distributions keep what they trust, for a Python that was built elsewhere.
_BUNDLES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
_HASHED = re.compile(r"[0-9a-fA-F]{8}\.\d")


class Dial(Protocol):
    """Opens a connection to an address, encrypted from its first byte on if a TLS context is given."""

    async def __call__(
        self, make: MakeConnection, address: str, port: int, tls: ssl.SSLContext | None, name: str | None, /
    ) -> ClientConnection:
        """The connection; `name` is what the certificate must be for.

        Raises:
            OSError: nobody answers there.
        """
        ...


async def dial(
    make: MakeConnection, address: str, port: int, tls: ssl.SSLContext | None, name: str | None, /
) -> ClientConnection:
    """A connection over TCP. An address that is a number is not looked up."""
    loop, connection = asyncio.get_running_loop(), make()
    try:
        await loop.create_connection(lambda: connection, address, port, ssl=tls, server_hostname=name)
    except BaseException:
        # Whoever gave up in the moment in which it stood: uvloop would tell nobody that it is gone.
        connection.connection_lost(None)
        raise
    return connection


class SocketHttpClient:
    """An `HttpClient` over sockets, with at most `connections` to one origin at a time."""

    def __init__(
        self,
        egress: Egress,
        *,
        connect_s: float = CONNECT_S,
        tls: ssl.SSLContext | None = None,
        verify: bool = True,
        connections: int = MOST_CONNECTIONS,
        dial: Dial = dial,
    ) -> None:
        self._egress = egress
        # The rule that idle connections were opened under.
        self._rule = egress.rule
        self._connect_s = connect_s
        self._tls = tls
        self._verify = verify
        self._limit = connections
        self._dial = dial
        self._pools: dict[str, ConnectionPool] = {}
        self._routes: dict[str, tuple[HttpTarget, ConnectionPool]] = {}
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        # The event loop that the connections belong to.
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, request: HttpRequest) -> SocketResponse:
        """See `HttpClient`."""
        if self._loop is not asyncio.get_running_loop():
            self._adopt_loop()
        if self._rule is not self._egress.rule:
            self._rule = self._egress.rule
            self.close_idle()
        at, pool = self._routes.get(request.url) or self._route(request.url)
        head = _head(at, request)
        await pool.acquire()
        if self._closed:
            pool.release()
            raise _closed()
        connection, method = pool.take_idle(), request.method
        if connection is None:
            connection = await self._connect(pool)
        elif method in _SAFE:
            try:
                return await connection.ask(head, request.body, method == "HEAD")
            except Unreachable:
                if connection.spoke:
                    raise
            # It was closed while nobody used it, and so were the others, most likely.
            pool.close_idle()
            await pool.acquire()
            connection = await self._connect(pool)
        return await connection.ask(head, request.body, method == "HEAD")

    def close_idle(self) -> None:
        """Let go of the connections that nobody uses now."""
        for pool in self._pools.values():
            pool.close_idle()

    async def close(self) -> None:
        """See `HttpClient`. Whoever still waits for a response hears that there will be none."""
        self._closed = True
        self._adopt_loop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        connections = [one for pool in self._pools.values() for one in pool.connections]
        for connection in connections:
            connection.abort()
        await asyncio.gather(*[connection.gone for connection in connections])
        self._pools.clear()
        self._routes.clear()

    def _adopt_loop(self) -> None:
        """Work in the event loop that runs now. The connections of one that is closed are dead."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise Misuse("this client is used in another event loop; make one for each, or a SyncClient")
            self._pools.clear()
            self._routes.clear()
            self._sweeping = None
        self._loop = loop

    def _route(self, url: str) -> tuple[HttpTarget, ConnectionPool]:
        at = target(url)
        if len(self._routes) >= ROUTES:
            self._routes.clear()
            kept = {
                name: pool for name, pool in self._pools.items() if pool.connections or not pool.is_unused
            }
            self._pools = kept
        pool = self._pools.get(at.origin)
        if pool is None:
            if len(self._pools) >= ORIGINS:
                self._evict()
            pool = ConnectionPool(at, min(CONNECTIONS, self._limit), self._sweep_later, most=self._limit)
            self._pools[at.origin] = pool
        self._routes[url] = at, pool
        return at, pool

    def _evict(self) -> None:
        """Close what was unused longest, so that idle connections are bounded over all origins."""
        unused = sorted(
            [pool for pool in self._pools.values() if pool.is_unused], key=lambda pool: pool.idle_since
        )
        for pool in unused[: len(self._pools) - ORIGINS + 1]:
            pool.close_idle()
            del self._pools[pool.at.origin]
        # Some of them lead to what is gone.
        self._routes.clear()

    async def _connect(self, pool: ConnectionPool) -> ClientConnection:
        """A new connection; the permit to have it is given back where there is none."""
        try:
            connection = await self._connect_judged(pool)
            if self._closed:
                connection.abort()
                raise _closed()
        except BaseException:
            pool.release()
            raise
        return connection

    async def _connect_judged(self, pool: ConnectionPool) -> ClientConnection:
        """Resolve, judge and dial in one step: exactly what the guard has judged is dialled."""
        at = pool.at
        tls, name = None, None
        if at.scheme == "https":
            if self._tls is None:
                # It reads all the certificates of the machine.
                self._tls = await asyncio.to_thread(tls_context, self._verify)
                if not self._verify:
                    log.warning("tls.unverified host=%a", at.host)
            # A name may end with a dot, a certificate's never does.
            tls, name = self._tls, at.host.rstrip(".")

        def make() -> ClientConnection:
            return ClientConnection(pool)

        try:
            async with asyncio.timeout(self._connect_s):
                addresses = await self._egress.addresses(at.host, at.port)
                return await _first_to_answer(
                    addresses, lambda address: self._dial(make, address, at.port, tls, name), self._connect_s
                )
        except ssl.SSLError as error:
            raise untrusted(at.host, error) from error
        except TimeoutError as error:
            message = f"{at.host}:{at.port}: no connection within {self._connect_s:g} seconds"
            raise TimedOut(message, reason="connect") from error
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno else "no connection"
            raise Unreachable(f"{at.host}:{at.port}: {why}", reason="connect") from error

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        for pool in self._pools.values():
            pool.sweep()
        if any(pool.idle for pool in self._pools.values()):
            self._sweep_later()


def untrusted(host: str, error: ssl.SSLError) -> Unreachable:
    """The error for a server without a certificate for its name that could be believed, or without TLS."""
    if error.reason == "WRONG_VERSION_NUMBER":
        return Unreachable(
            f"{host}: the server does not use TLS; its URL begins with http://", reason="plain"
        )
    why = getattr(error, "verify_message", "") or error.reason or "the handshake failed"
    return Unreachable(f"{host}: no trusted TLS connection: {why}", reason="tls")


def _closed() -> Misuse:
    return Misuse("this HTTP client is closed; make another")


async def _first_to_answer(
    addresses: Sequence[str], dial: Callable[[str], Awaitable[ClientConnection]], connect_s: float
) -> ClientConnection:
    """A connection to the first of these addresses that answers; each gets its share of the time.

    Raises:
        OSError: none does; what the last one said. A certificate that is not trusted ends it at once.
    """
    loop = asyncio.get_running_loop()
    addresses = list(dict.fromkeys(addresses))[:DIALS]
    until = loop.time() + connect_s
    failure = OSError("there is no address")
    for left in range(len(addresses), 0, -1):
        try:
            async with asyncio.timeout((until - loop.time()) / left):
                return await dial(addresses[-left])
        except ssl.SSLError:
            raise
        except OSError as error:
            failure = error
    raise failure


def _head(at: HttpTarget, request: HttpRequest) -> bytes:
    names, values = zip(*request.headers) if request.headers else ((), ())  # noqa: B905 - all are pairs
    body, said = request.body, "".join(values)
    template = _template(request.method, names, body is not None)
    if "\n" in said or "\r" in said or "\0" in said:
        # Not which: it may be a credential.
        raise Unreachable("a header's value holds a line break; HTTP has no place for it", reason="protocol")
    try:
        return (template % (at.path, at.authority, len(body or b""), *values)).encode()
    except UnicodeEncodeError:
        # Not with its cause, which holds all of them.
        raise Unreachable(
            "a header's value is no text; HTTP has no place for it", reason="protocol"
        ) from None


@lru_cache(maxsize=512)
def _template(method: str, names: tuple[str, ...], has_body: bool) -> str:
    """The head of a request that has these headers, which is the same again and again but for its blanks.

    They are its path, host and length, and the values of the headers.
    """
    given = "".join([f"{_name(name)}: %s\r\n" for name in names])
    lower = {name.lower() for name in names}
    own = [line for name, line in _DEFAULTS if name not in lower]
    # Where a line is left out, `%.0s` takes its value and writes nothing.
    own.append("%.0s" if "host" in lower else "host: %s\r\n")
    own.append("content-length: %s\r\n" if has_body or method not in _SAFE else "%.0s")
    return f"{_word(method)} %s HTTP/1.1\r\n{''.join(own)}{given}\r\n"


def _name(name: str) -> str:
    word = _word(name)
    if name.lower() in WRITTEN:
        raise Unreachable(f"the header {name.lower()} is the HTTP client's own", reason="protocol")
    return word


def _word(text: str) -> str:
    """A method or the name of a header, as a template has it."""
    if _TOKEN.fullmatch(text) is None:
        raise Unreachable("a method or the name of a header holds what HTTP cannot", reason="protocol")
    return text.replace("%", "%%")


@lru_cache(maxsize=2)
def tls_context(verify: bool) -> ssl.SSLContext:
    """TLS that checks the names and certificates of servers, if asked to. Made once: it takes long."""
    if not verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    paths = ssl.get_default_verify_paths()
    # The environment's choice is found in here, and is all that is trusted then.
    if paths.cafile not in {None, paths.openssl_cafile}:
        return ssl.create_default_context(cafile=paths.cafile)
    if paths.capath not in {None, paths.openssl_capath}:
        return ssl.create_default_context(capath=paths.capath)
    if sys.platform in {"win32", "darwin"}:
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Not by `truststore` here, which loads them again for each handshake, and OpenSSL < 3.4 keeps all copies.
    cafile, capath = paths.cafile, paths.capath
    if capath and not cafile and not any(_HASHED.fullmatch(name) for name in os.listdir(capath)):
        capath = None
    if not cafile and not capath:
        cafile = next(filter(os.path.isfile, _BUNDLES), None)
    if cafile or capath:
        context.load_verify_locations(cafile, capath)
    return context
