"""The egress guard: a URL is taken apart, its name resolved, and every address of the name judged.

`check` asks when a URL is saved. The HTTP client asks again at every new connection and dials what was
judged, so that a name which moves in between gains nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import cast
from urllib.parse import quote, urljoin

import idna
from msgspec import Struct

from trunkline.errors import Unreachable
from trunkline.net.resolver import Resolver, ResolverBusy, ask_system, check_system

log = logging.getLogger("trunkline.net")
_PORTS = {"http": 80, "https": 443}
_MOST_CHARACTERS = 65536
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?:(.*)@)?(\[.*\]|[^:@]*)(?::(.*))?", re.DOTALL)
# What a path and a query may hold as it is; the rest is written as percent signs.
_IN_PATH = "!$%&'()*+,/:;=@[\\]^|"
_IN_QUERY = _IN_PATH + "?`{}"
_IPV4 = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+")
# What a host may be once it is ASCII: a name, or an IPv6 address without a zone.
_HOST = re.compile(r"(?=.{1,254}$)(?!\.|.*\.\.|.*[a-z0-9_-]{64})[a-z0-9_.-]+|[0-9a-f]*:[0-9a-f:.]+")
_NAME_S = 5.0
_SHOWN = 300
# The narrowest network that holds an address says what it is.
_NETWORKS = {
    "6to4": "192.88.99.0/24 2002::/16",
    "AMT": "192.52.193.0/24 2001:3::/32",
    "AS112": "192.31.196.0/24 192.175.48.0/24 2001:4:112::/48 2620:4f:8000::/48",
    "NAT64": "64:ff9b::/96 64:ff9b:1::/48",
    "ORCHID": "2001:10::/28 2001:20::/28",
    "SRv6": "5f00::/16",
    "Teredo": "2001::/32",
    "benchmarking": "198.18.0.0/15 2001:2::/48",
    "broadcast": "255.255.255.255/32",
    "carrier-grade NAT": "100.64.0.0/10",
    "discard": "100::/64",
    "documentation": "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20",
    "link-local": "169.254.0.0/16 fe80::/10",
    "loopback": "127.0.0.0/8 ::1/128",
    # 168.63.129.16 is a public number that clouds route to the machine beneath.
    "metadata": "100.100.100.200/32 168.63.129.16/32 169.254.169.254/32 169.254.170.0/24 192.0.0.192/32"
    " fd00:ec2::254/128 fd20:ce::254/128",
    "multicast": "224.0.0.0/4 ff00::/8",
    "private": "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7",
    # Of all IPv6 only 2000::/3 is given out; the last three are the rest.
    "reserved": "192.0.0.0/24 240.0.0.0/4 2001::/23 3ffe::/16 ::/3 4000::/2 8000::/1",
    "site-local": "fec0::/10",
    "unspecified": "0.0.0.0/8 ::/128",
    "v4-compatible": "::/96",
    "v4-mapped": "::ffff:0:0/96",
    "v4-translated": "::ffff:0:0:0/96",
}
_RANGES = sorted(
    [(ip_network(text), why) for why, texts in _NETWORKS.items() for text in texts.split()],
    key=lambda found: -found[0].prefixlen,
)


class HttpTarget(Struct, frozen=True):
    """The parts of a URL that a request needs: what is judged and what is dialled are read by one parser."""

    scheme: str
    host: str
    port: int
    # With the port where it is not the scheme's own.
    authority: str
    path: str

    @property
    def origin(self) -> str:
        """Scheme, host and port, with the port spelled out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@lru_cache(maxsize=1024)
def target(url: str) -> HttpTarget:
    """A URL that could be called, taken apart.

    Raises:
        Unreachable: it is none; the text does not repeat it, for it may hold credentials.
    """
    parts = _URL.fullmatch(url) if _is_plain(url) else None
    if parts is None:
        raise _no_url()
    scheme, authority, path, query = parts.groups("")
    scheme = scheme.lower()
    if scheme not in _PORTS:
        raise Unreachable("only http and https URLs are called", reason="url")
    # Any text matches.
    inner = cast("re.Match[str]", _AUTHORITY.fullmatch(authority))
    login, host, port_text = inner.groups("")
    if login:
        raise Unreachable("the URL holds a login; leave out what stands before the @", reason="url")
    try:
        host = _ascii_host(host)
        port = int(port_text) if port_text else _PORTS[scheme]
        raw_path = quote(_without_dots(path) or "/", safe=_IN_PATH) + quote(query, safe=_IN_QUERY)
    except ValueError:
        raise _no_url() from None
    if not _HOST.fullmatch(host):
        raise Unreachable("the URL has no host name or a malformed one", reason="url")
    if not 0 < port < 65536:
        raise Unreachable("the URL's port must be between 1 and 65535", reason="url")
    name = f"[{host}]" if ":" in host else host
    shown_authority = name if port == _PORTS[scheme] else f"{name}:{port}"
    return HttpTarget(scheme, host, port, shown_authority, raw_path)


def join(url: str, location: str) -> str:
    """Where a redirect from this URL leads.

    Raises:
        Unreachable: nowhere.
    """
    try:
        # The library would drop what cannot be printed, and read the rest as if it had never been there.
        if not _is_plain(location):
            raise ValueError("unprintable")
        return urljoin(url, location)
    except ValueError:
        raise Unreachable(f"{target(url).host}: redirects to no URL", reason="url") from None


def _no_url() -> Unreachable:
    return Unreachable("this is no URL; give one like https://hooks.example/path", reason="url")


def _is_plain(text: str) -> bool:
    return len(text) <= _MOST_CHARACTERS and all([one.isprintable() or not one.isascii() for one in text])


def _ascii_host(host: str) -> str:
    """A host as it is looked up: without brackets, small letters, other alphabets by IDNA 2008.

    Raises:
        ValueError: it is no address, though it looks like one, or no name.
    """
    if host.startswith("["):
        IPv6Address(host[1:-1])
        return host[1:-1].lower()
    if _IPV4.fullmatch(host):
        return str(IPv4Address(host))
    return host.lower() if host.isascii() else idna.encode(host.lower()).decode("ascii")


def _without_dots(path: str) -> str:
    """A path in which `.` and `..` have been walked, as every server would (RFC 3986, 5.2.4)."""
    segments = path.split("/")
    if "." not in segments and ".." not in segments:
        return path
    walked: list[str] = []
    for segment in segments:
        if segment == "..":
            if walked not in ([], [""]):
                walked.pop()
        elif segment != ".":
            walked.append(segment)
    return "/".join(walked)


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
        resolver: Resolver | None = None,
        tenant: str = "",
    ) -> None:
        """Allow public addresses, these hosts and networks, and loopback.

        Args:
            tenant: whose settings these are, for errors. Default: they are those of the server.
        """
        self._tenant = tenant
        self.rule: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self.allow(hosts, networks)
        self._loopback = loopback
        self._resolver = resolver or ask_system
        self._check_resolver = resolver or check_system

    def allow(self, hosts: Iterable[str], networks: Iterable[str]) -> None:
        """Allow these hosts and networks from now on, and no others beside public addresses."""
        given = (tuple(hosts), tuple(networks))
        if given != self.rule:
            # Another object for another rule: clients close by that what they opened under the one before.
            self.rule = given
            self._hosts = {host for text in given[0] if (host := _host(text)) is not None}
            self._networks = [network for text in given[1] if (network := _network(text)) is not None]

    async def check(self, url: str) -> None:
        """Let a URL pass if it could be called now.

        Raises:
            Unreachable: it is malformed (`url`), unknown (`name`) or forbidden (`refused`), or nobody could
                be asked (`busy`).
        """
        found = target(url)
        await self._judged(found.host, found.port, self._check_resolver)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, all of which may be dialled. One refused address refuses the host.

        Raises:
            Unreachable: the name has no address (`name`), one of them is refused (`refused`), or too many
                names are being resolved (`busy`). The first two have the same text.
        """
        return await self._judged(host, port, self._resolver)

    async def _judged(self, host: str, port: int, resolver: Resolver) -> Sequence[str]:
        allowed = host.rstrip(".") in self._hosts
        try:
            found = await _resolved(host, port, resolver)
            if not allowed:
                for address in found:
                    self._pass(host, address)
        except Unreachable as error:
            if allowed or error.reason == "busy":
                raise
            # Callers choose host names: one text keeps them from learning which names exist inside.
            log.info("egress.refused host=%a reason=%s error=%a", host, error.reason, str(error))
            text = (
                f"{host} cannot be called: its name is not known, or leads to an address that is not public; "
            )
            raise Unreachable(text + self._remedy(host), reason=error.reason) from error
        return found

    def _remedy(self, host: str) -> str:
        if self._tenant:
            return f"an operator allows it with: trunkline tenant set {self._tenant} --egress-host {host}"
        return (
            f"the operator allows it with egress_hosts = {host} or its network in egress_networks, "
            "or while developing with --dev"
        )

    def _pass(self, host: str, address: str) -> None:
        why = judge(address)
        if why and not (why == "loopback" and self._loopback) and not self._is_allowed(address):
            raise Unreachable(f"{host} leads to {address}, which is not public ({why})", reason="refused")

    def _is_allowed(self, address: str) -> bool:
        """Whether the operator has allowed its network; one with a zone id, and what is none, is in none."""
        found = None if "%" in address else _address(address)
        return found is not None and any(found in network for network in self._networks)


async def _resolved(host: str, port: int, resolver: Resolver) -> Sequence[str]:
    # An address in its usual spelling: there is nothing to look up.
    if _address(host) is not None:
        return [host]
    try:
        async with asyncio.timeout(_NAME_S):
            found = await resolver(host, port)
    except ResolverBusy as error:
        raise Unreachable(f"{host}: too many names are being looked up", reason="busy") from error
    # Some names do not even get as far as the resolver.
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"{host}: the name cannot be resolved", reason="name") from error
    if not found:
        raise Unreachable(f"{host}: the name has no address", reason="name")
    return found


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def host_name(text: str) -> str:
    """A host as URLs name it, however the operator writes it; empty if it is none."""
    given = text.strip().rstrip(".")
    try:
        host = _ascii_host(f"[{given}]" if ":" in given and not given.startswith("[") else given)
    except ValueError:
        return ""
    return host if _HOST.fullmatch(host) else ""


def _host(text: str) -> str | None:
    if host := host_name(text):
        return host
    log.warning("egress.ignored host=%a", text)
    return None


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        log.warning("egress.ignored network=%a", text)
        return None


def judge(address: str) -> str:
    """Why this address may not be dialled, in a word or two; empty if it may."""
    if "%" in address:
        return "zone id"
    found = _address(address)
    if found is None:
        return "malformed"
    return next((why for network, why in _RANGES if found in network), "")
