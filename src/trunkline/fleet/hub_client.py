"""The operator's API of a hub as tools of agents use it: with the agent's own key, and only there."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.config import Secret
from trunkline.net.egress import Egress, target
from trunkline.net.http import HttpClient, HttpRequest
from trunkline.net.http_client import SocketHttpClient

_ANSWER_BYTES = 4 << 20


class HubClient:
    """The API of one hub for one key, or with an empty one for whoever comes without.

    `http_client` is in the place of a network where one is given.
    """

    def __init__(self, url: str, key: str | Secret, http_client: HttpClient | None = None) -> None:
        self.url = url.rstrip("/")
        self._key = key if isinstance(key, Secret) else Secret(key)
        # Only to the hub, wherever that is: whoever made this knows.
        self._client = http_client or SocketHttpClient(Egress(hosts=[target(url).host]))

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """The status and the body of an answer.

        Raises:
            Unreachable: the hub cannot be reached.
        """
        key = self._key.reveal()
        headers = (("Content-Type", "application/json"), *((("X-API-Key", key),) if key else ()))
        sent = b"" if body is None else msgspec.json.encode(body)
        response = await self._client.open(HttpRequest(method, f"{self.url}/api{path}", headers, sent))
        try:
            return response.status, await response.read(_ANSWER_BYTES)
        finally:
            await response.close()

    async def close(self) -> None:
        """Close the connections to the hub."""
        await self._client.close()
