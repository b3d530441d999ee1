"""A little web in this process: pages by URL, and what was asked of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from trunkline.net.in_process import InProcessHttpClient


class Asked(Struct, frozen=True):
    """A request as it came."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class Page(Struct, frozen=True):
    """What is answered."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}


Answer = Page | Callable[[Asked], Page] | Callable[[Asked], Awaitable[Page]]


class Web(InProcessHttpClient):
    """An HTTP client to these pages, by URL without the query; any other is 404."""

    def __init__(self, pages: dict[str, Any]) -> None:
        super().__init__(self._answer, base="")
        self.pages = pages
        self.asked: list[Asked] = []

    @property
    def urls(self) -> list[str]:
        """What was asked for, in order."""
        return [one.url for one in self.asked]

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        taken = await receive()
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        url = f"{scope['scheme']}://{headers['host']}{scope['raw_path'].decode()}"
        query = scope["query_string"].decode()
        asked = Asked(scope["method"], f"{url}?{query}" if query else url, headers, taken["body"])
        self.asked.append(asked)
        found = self.pages.get(url, Page(404, b"nothing here"))
        if not isinstance(found, Page):
            found = found(asked)
        if not isinstance(found, Page):
            found = await found
        pairs = [(name.encode(), value.encode()) for name, value in found.headers.items()]
        await send({"type": "http.response.start", "status": found.status, "headers": pairs})
        await send({"type": "http.response.body", "body": found.body})
