"""Headers that go with every request: shown, like credentials, to the agent's own origin only."""

from __future__ import annotations

from collections.abc import Mapping

from trunkline.net.http import HttpClient, HttpRequest, HttpResponse


class Fixed:
    """The same headers with every request."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = tuple(headers.items())

    async def carry(self, request: HttpRequest, carrier: HttpClient) -> HttpResponse:
        """See `Auth`."""
        headers = (*request.headers, *self._headers)
        return await carrier.open(HttpRequest(request.method, request.url, headers, request.body))
