"""Headers that go with every request: shown, like credentials, to the agent's own origin only."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.net.carrier import Carrier, Reply, Request


class Fixed:
    """The same headers with every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = tuple(headers.items())

    async def carry(self, request: Request, carrier: Carrier) -> Reply:
        """See `Auth`."""
        headers = (*request.headers, *self._headers)
        return await carrier.open(Request(request.method, request.url, headers, request.body))
