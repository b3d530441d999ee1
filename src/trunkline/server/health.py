"""For whoever keeps the server running: is it alive, does it take work. No key, no Host check, no data."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.http.exchange import Exchange

_ALIVE = b'{"status":"ok"}'
_READY = b'{"status":"ready"}'
_CACHED = (b"cache-control", b"no-store")
_GET = (b"allow", b"GET, HEAD")


class Health:
    """Answers probes; a kubelet calls them by the address of the pod, which no list of hosts knows."""

    def __init__(self, unready: Callable[[], str]) -> None:
        # Why the server takes no work now, in a word of ours; nothing if it does.
        self._unready = unready

    async def alive(self, exchange: Exchange) -> None:
        """The process answers, so its loop turns."""
        await self._answer(exchange, 200, _ALIVE)

    async def ready(self, exchange: Exchange) -> None:
        """Whether the store takes writes and the server is not going down."""
        reason = self._unready()
        if reason:
            await self._answer(exchange, 503, b'{"status":"unready","reason":"%b"}' % reason.encode())
        else:
            await self._answer(exchange, 200, _READY)

    async def _answer(self, exchange: Exchange, status: int, body: bytes) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await exchange.respond(405, b"", headers=[_GET])
        elif status == 200:
            await exchange.respond(status, body, headers=[_CACHED])
        else:
            await exchange.respond(status, body, headers=[_CACHED, (b"retry-after", b"1")])
