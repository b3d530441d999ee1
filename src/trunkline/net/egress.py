"""Who may be called: a name is resolved, and every address it has is judged.

`check` asks when a URL is saved. `net.dial` asks again at every new connection and dials what was judged, so
that a name which moves in between gains nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from asyncio import AbstractEventLoop, Future
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Protocol

import httpx2
from msgspec import Struct

from trunkline.errors import Unreachable
from trunkline.net.addresses import judge

log = logging.getLogger("trunkline.net")
_PORTS = {"http": 80, "https": 443}
# What is left when the parser has done its part: a name, or an IPv6 address without a zone.
_HOST = re.compile(r"(?=.{1,254}$)(?!\.|.*\.\.|.*[a-z0-9_-]{64})[a-z0-9_.-]+|[0-9a-f]*:[0-9a-f:.]+")
_NAME_S = 5.0
_THREADS = 32
_SHOWN = 300


class Target(Struct, frozen=True):
    """The parts of a URL that a request needs, as the HTTP client's own parser reads them."""

    scheme: str
    host: str
    port: int
    # With the port where it is not the scheme's own.
    authority: bytes
    path: bytes

    @property
    def lane(self) -> str:
        """Its origin, with the port spelled out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Resolver(Protocol):
    """Finds the addresses of a name."""

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        """All of them, as numbers.

        Raises:
            OSError: there are none.
        """
        ...


class _System:
    """The machine's own resolver, off the event loop.

    A name that hangs holds a thread for as long as the system likes: one at most, and none that others need.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="trunkline-names")
        self._asked: dict[tuple[AbstractEventLoop, str, int], Future[Sequence[str]]] = {}

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        loop = asyncio.get_running_loop()
        key = (loop, host, port)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = loop.run_in_executor(self._threads, _look_up, host, port)
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [str(address[0]) for *_, address in found]


ask_system = _System()


@lru_cache(maxsize=1024)
def target(url: str) -> Target:
    """A URL that could be called, taken apart.

    Raises:
        Unreachable: it is none; the text does not repeat it, for it may hold credentials.
    """
    try:
        parsed = httpx2.URL(url)
        # A zone that is no ASCII gets as far as this.
        host = parsed.raw_host.decode("ascii").lower()
    except (httpx2.InvalidURL, ValueError):
        message = "this is no URL; give one like https://hooks.example/path"
        raise Unreachable(message, reason="url") from None
    if parsed.scheme not in _PORTS:
        raise Unreachable("only http and https URLs are called", reason="url")
    if parsed.userinfo:
        raise Unreachable("the URL holds a login; leave out what stands before the @", reason="url")
    if not _HOST.fullmatch(host):
        raise Unreachable("the URL has no host name or a malformed one", reason="url")
    port = _PORTS[parsed.scheme] if parsed.port is None else parsed.port
    if not 0 < port < 65536:
        raise Unreachable("the URL's port must be between 1 and 65535", reason="url")
    return Target(parsed.scheme, host, port, parsed.netloc, parsed.raw_path)


def shown(url: str) -> str:
    """A URL as logs and errors name it: on one line, without a login and a query, which may be secrets."""
    plain, mark, _ = url.partition("#")[0].partition("?")
    scheme, slashes, rest = plain.partition("://")
    authority, slash, path = rest.partition("/")
    text = f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    text = "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])
    return f"{text}?…" if mark else text


class Egress:
    """Where calls may go: public addresses, and what the operator has allowed."""

    def __init__(
        self,
        *,
        hosts: Iterable[str] = (),
        networks: Iterable[str] = (),
        loopback: bool = False,
        resolver: Resolver = ask_system,
        name_s: float = _NAME_S,
    ) -> None:
        self._hosts = {host for text in hosts if (host := _host(text)) is not None}
        self._networks = [network for text in networks if (network := _network(text)) is not None]
        self._loopback = loopback
        self._resolver = resolver
        self._name_s = name_s

    async def check(self, url: str) -> None:
        """Let a URL pass if it could be called now.

        Raises:
            Unreachable: it is malformed (`url`), unknown (`name`) or forbidden (`refused`).
        """
        found = target(url)
        await self.addresses(found.host, found.port)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a host, each of which may be dialled. One bad address spoils them all.

        Raises:
            Unreachable: there is none (`name`), or one may not be dialled (`refused`).
        """
        try:
            async with asyncio.timeout(self._name_s):
                found = await self._resolver(host, port)
        # Some names do not even get as far as the resolver.
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{host}: the name cannot be resolved", reason="name") from error
        if not found:
            raise Unreachable(f"{host}: the name has no address", reason="name")
        if host.rstrip(".") not in self._hosts:
            for address in found:
                self._pass(host, address)
        return found

    def _pass(self, host: str, address: str) -> None:
        why = judge(address)
        if not why or (why == "loopback" and self._loopback) or self._is_allowed(address):
            return
        # The address stays unsaid: the caller who chose the name may not know the inner network.
        fix = f"allow it with egress_hosts = {host} or with its network in egress_networks"
        develop = ", or serve with --dev" if why == "loopback" else ""
        message = f"{host} leads to an address that is not public ({why}); {fix}{develop}"
        raise Unreachable(message, reason="refused")

    def _is_allowed(self, address: str) -> bool:
        """Whether the operator has allowed its network; a zone id or a text in no network is in none."""
        try:
            found = ip_address(address)
        except ValueError:
            return False
        return "%" not in address and any(found in network for network in self._networks)


def _host(text: str) -> str | None:
    """A host as the parser reads it, however the operator writes it."""
    try:
        host = httpx2.URL(scheme="http", host=text.strip().rstrip(".")).raw_host.decode("ascii").lower()
    except (httpx2.InvalidURL, ValueError):
        host = ""
    if _HOST.fullmatch(host):
        return host
    log.warning("egress.ignored host=%a", text)
    return None


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        log.warning("egress.ignored network=%a", text)
        return None
