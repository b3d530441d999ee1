"""`chat_with_agent`: how an agent talks to another one of a hub, as a call and as a tool of a model.

It uses the operator's API with the agent's own key. What takes long is asked for again, for a while.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from trunkline.config import Secret
from trunkline.errors import TrunklineError
from trunkline.fleet.hub_client import HubClient
from trunkline.net.http import HttpClient

EVERY_S, AT_MOST_S = 5.0, 240.0
# A hub answers a message within half a minute, if only with where the answer will be.
TIMEOUT_S = 60.0
_SHOWN = 300
_TEXT: dict[str, Any] = {"type": "string"}
# The tool as models are told of it.
CHAT_WITH_AGENT: dict[str, Any] = {
    "name": "chat_with_agent",
    "description": "Say something to another agent and get its answer. It may ask something back.",
    "parameters": {
        "type": "object",
        "properties": {
            "agent": {**_TEXT, "description": "The name of the agent."},
            "message": {**_TEXT, "description": "What you say to it."},
            "contextId": {**_TEXT, "description": "Of an earlier answer: goes on with that conversation."},
            "taskId": {**_TEXT, "description": "Of an answer that asks something: answers the question."},
            "skill": {**_TEXT, "description": "Which skill of it is meant, if it has several."},
            "done": {"type": "boolean", "description": "True with your last message: closes it."},
        },
        "required": ["agent", "message"],
        "additionalProperties": False,
    },
}


class ChatTool:
    """The tool for one hub and one key."""

    def __init__(
        self,
        url: str,
        key: str | Secret,
        *,
        http_client: HttpClient | None = None,
        every_s: float = EVERY_S,
        at_most_s: float = AT_MOST_S,
    ) -> None:
        """Take the address of the hub and the agent's own key there; then how long to wait for an answer."""
        self._hub = HubClient(url, key, http_client)
        self._every_s = every_s
        self._at_most_s = at_most_s

    async def __call__(self, agent: str, message: str, **members: Any) -> dict[str, Any]:
        """Send a message and return the answer of `POST /api/a2a/chat`, or `{"error": …}`.

        An answer that is still `pending` after the wait has a `pollUrl`.
        """
        given = {name: value for name, value in members.items() if value is not None}
        try:
            answer = await self._ask("POST", "/a2a/chat", {"agent": agent, "message": message, **given})
            left = self._at_most_s
            while answer.get("pending") and left > 0:
                await asyncio.sleep(min(self._every_s, left))
                left -= self._every_s
                answer = (await self._ask("GET", answer["pollUrl"].removeprefix("/api"))).get("reply", answer)
        except TimeoutError:
            return {"error": f"the hub did not answer within {TIMEOUT_S:g} seconds"}
        except TrunklineError as error:
            return {"error": str(error)}
        return answer

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_S):
            status, answer = await self._hub.ask(method, path, body)
        if status != 200:
            return {"error": f"{status}: {answer.decode(errors='replace')[:_SHOWN]}"}
        return msgspec.json.decode(answer, type=dict[str, Any])

    async def close(self) -> None:
        """Close the connections to the hub."""
        await self._hub.close()
