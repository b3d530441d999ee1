"""Who may knock: Host and Origin allow-lists, against DNS rebinding and pages that call home."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from trunkline.errors import Forbidden

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether a bind address is this machine alone."""
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


class Guard:
    """Checks the Host and Origin of every request; an empty list lets every Host in."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(host.lower() for host in hosts)
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
        if origin is not None:
            self._judge_origin(origin, host)

    def _judge(self, host: bytes) -> None:
        if self._hosts and _name(host.decode("latin-1")) not in self._hosts:
            raise Forbidden("this Host is not served here; add it to allowed_hosts or set public_url", field="Host")
        if len(self._passed) < 64:
            self._passed.add(host)

    def _judge_origin(self, origin: bytes, host: bytes) -> None:
        given = urlsplit(origin.decode("latin-1")).netloc
        if given.encode("latin-1") == host and given:
            return
        if not given or _name(given) not in self._hosts:
            raise Forbidden("pages of this Origin may not call this agent", field="Origin")


def _name(host: str) -> str:
    """A Host without its port."""
    bare = host.lower()
    if bare.startswith("["):
        return bare.partition("]")[0] + "]"
    return bare.partition(":")[0]
