"""Host and Origin allow-lists, against DNS rebinding and pages that call home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from trunkline.config import Settings
from trunkline.errors import Forbidden, Misuse

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_READING = ("GET", "HEAD")
_ELSEWHERE = (b"cross-site", b"same-site")
_NO_NAME = frozenset("@/\\?# \t\r\n\0")


def is_loopback(host: str) -> bool:
    """Whether a bind address is this machine alone."""
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        # A name such as 127.example.org may lead anywhere.
        return host == "localhost"


def spelled(address: str) -> str:
    """The address of a connection as a Host header names it."""
    bare = address.partition("%")[0]
    if ":" not in bare:
        return bare
    mapped = IPv6Address(bare).ipv4_mapped
    return f"[{bare}]" if mapped is None else str(mapped)


class HostCheck:
    """Checks the Host and Origin of every request; an empty list lets every Host in."""

    def __init__(
        self, hosts: Iterable[str], pages: Callable[[bytes], bool] | None = None, public_url: str = ""
    ) -> None:
        """Take the names to let in, with or without a port, which does not count, and whose pages may call.

        The public URL is where browsers find our own pages, if that is not the Host of their requests.

        Raises:
            Misuse: one of them is no host; an empty list by mistake would let everybody in.
        """
        self._hosts = frozenset(map(_listed, hosts))
        self._pages = pages
        self._public = urlsplit(public_url).netloc.lower().encode()
        # Hosts repeat; judging each spelling once keeps this off the hot path. Only good ones are kept.
        self._passed: set[bytes] = set()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Let the request in or not.

        Raises:
            Forbidden: its Host or its Origin is not on the list.
        """
        host = headers.get(b"host", b"")
        if host not in self._passed:
            self._judge(host)
        origin = headers.get(b"origin")
        if origin is not None and not (self._pages is not None and self._pages(origin)):
            self._judge_origin(origin, host)

    def check_own(self, method: str, headers: Mapping[bytes, bytes]) -> None:
        """Let in what a browser sends by itself, as it does cookies, only if a page of our own asked for it.

        Raises:
            Forbidden: a page of somebody else did, even one at another port, or nobody says whose it was.
        """
        origin = headers.get(b"origin")
        if origin is not None:
            place = origin.partition(b"://")[2].lower()
            is_own = bool(place) and place in (headers.get(b"host", b"").lower(), self._public)
        else:
            # Browsers leave it out only where nothing is changed. A link may lead here from anywhere, a
            # script may fetch from nowhere else.
            is_linked = headers.get(b"sec-fetch-mode") == b"navigate"
            is_own = method in _READING and (is_linked or headers.get(b"sec-fetch-site") not in _ELSEWHERE)
        if not is_own:
            raise Forbidden("a session is only for pages of this server; send a key instead", field="Origin")

    def lists(self, host: str) -> bool:
        """Whether a Host, with or without a port, is on the list; an empty one lists nobody."""
        return host_name(host) in self._hosts

    def _judge(self, host: bytes) -> None:
        if self._hosts and not self.lists(host.decode("latin-1")):
            raise Forbidden(
                "this Host is not served here; add it to allowed_hosts or set public_url", field="Host"
            )
        if len(self._passed) < 64:
            self._passed.add(host)

    def _judge_origin(self, origin: bytes, host: bytes) -> None:
        scheme, _, given = origin.partition(b"://")
        name = host_name(given.decode("latin-1")) if scheme in (b"http", b"https") else ""
        if not name or (name not in self._hosts and given.lower() != host.lower()):
            raise Forbidden(
                "pages of this Origin may not call this agent; cors_origins lists those that may",
                field="Origin",
            )


def host_name(host: str) -> str:
    """The name in a Host header, without its port; nothing if it is not one of these two and no more."""
    bare = host.lower()
    if bare.startswith("["):
        name, bracket, rest = bare.partition("]")
        name += bracket
    else:
        name, colon, port = bare.partition(":")
        rest = colon + port
    good = not rest or (rest[0] == ":" and rest[1:].isascii() and rest[1:].isdigit())
    return name if good and not _NO_NAME.intersection(name) else ""


def _listed(host: str) -> str:
    # A bare IPv6 address has brackets in a Host header.
    name = host_name(f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host.strip())
    if not name:
        raise Misuse(f"allowed_hosts: {host!r} is not the name of a host")
    return name


def hosts_of(settings: Settings) -> list[str]:
    """The names by which the server may be called; none lets every name in."""
    hosts = list(settings.allowed_hosts)
    if settings.public_url:
        hosts.append(urlsplit(settings.public_url).hostname or "")
    return [*hosts, *LOOPBACK] if is_loopback(settings.host) else hosts
