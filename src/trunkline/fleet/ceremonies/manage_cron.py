"""`manage_cron`: how an agent looks after its ceremonies at a hub, as a call and as a tool of a model.

It uses the operator's API with the agent's own key. Whatever happens, the answer is a short text that a
model can read; one that begins with `Error` is a failure.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from trunkline.config import Secret
from trunkline.errors import Misuse, TrunklineError
from trunkline.fleet.ceremonies.ceremony import CEREMONY_ID
from trunkline.fleet.hub_client import HubClient
from trunkline.net.http import HttpClient

Action = Literal["list", "create", "update", "delete", "run"]
TIMEOUT_S = 15.0
_SHOWN = 300
_TEXT: dict[str, Any] = {"type": "string"}
# The tool as models are told of it.
MANAGE_CRON: dict[str, Any] = {
    "name": "manage_cron",
    "description": "List, create, update, delete or run what the hub does by schedule for you.",
    "parameters": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list", "create", "update", "delete", "run"]},
            "id": {**_TEXT, "description": "Letters, digits, dots, hyphens and underscores."},
            "name": _TEXT,
            "schedule": {**_TEXT, "description": "Five fields of cron in UTC, or one ISO date and time."},
            "skill": {**_TEXT, "description": "The skill that is asked for."},
            "targets": {**_TEXT, "description": "Names of agents with commas between them, or all."},
            "enabled": {"type": "boolean", "description": "Leave it out to leave it as it is."},
            "notifyChannel": _TEXT,
        },
        "required": ["action"],
        "additionalProperties": False,
    },
}
_MEMBERS = ("name", "schedule", "skill", "targets", "enabled", "notifyChannel")


class CronTool:
    """The tool for one hub and one key; `http_client` is in the place of a network where one is given."""

    def __init__(self, url: str, key: str | Secret, *, http_client: HttpClient | None = None) -> None:
        """Take the address of the hub, and the agent's own key there."""
        self._hub = HubClient(url, key, http_client)

    async def __call__(self, action: Action, **arguments: Any) -> str:
        """Do one thing; only members that are given are sent."""
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            method, path, body = _request(action, given)
            async with asyncio.timeout(TIMEOUT_S):
                status, answer = await self._hub.ask(method, f"/ceremonies{path}", body)
        except TimeoutError:
            return f"Error: the hub did not answer within {TIMEOUT_S:g} seconds"
        except TrunklineError as error:
            return f"Error: {error}"
        if status != 200:
            return f"Error {status}: {answer.decode(errors='replace')[:_SHOWN]}"
        return _told(action, msgspec.json.decode(answer))

    async def close(self) -> None:
        """Close the connections to the hub."""
        await self._hub.close()


def _request(action: str, given: dict[str, Any]) -> tuple[str, str, dict[str, Any] | None]:
    if action == "list":
        return "GET", "?limit=200", None
    if action not in ("create", "update", "delete", "run"):
        raise Misuse(f"there is no action {action!r}; there are list, create, update, delete and run")
    ceremony_id = str(given.pop("id", ""))
    if CEREMONY_ID.fullmatch(ceremony_id) is None:
        raise Misuse(f"{ceremony_id[:80]!r} is no id of a ceremony")
    unknown = [name for name in given if name not in _MEMBERS]
    if unknown:
        raise Misuse(f"there is no {unknown[0]!r}; there are {', '.join(_MEMBERS)}")
    if isinstance(given.get("targets"), str):
        given["targets"] = [name.strip() for name in given["targets"].split(",") if name.strip()]
    if action == "create":
        return "POST", "/create", {"id": ceremony_id, **given}
    if action == "update" and not given:
        raise Misuse("nothing is to be changed; give at least one member")
    return "POST", f"/{quote(ceremony_id)}/{action}", given if action == "update" else {}


def _told(action: str, answer: Any) -> str:
    if action == "list":
        rows = [f"{one['id']}: {one['state']}, {one['schedule']}, {one['skill']}" for one in answer["items"]]
        return "\n".join(rows) or "There are no ceremonies."
    if action == "run":
        return f"Run {answer['runId']} has begun: task {answer['taskId']}."
    if action == "delete":
        return f"Ceremony {answer['id']} is deleted."
    fires = answer["nextFires"]
    return f"Ceremony {answer['id']} is {answer['state']}" + (f", next at {fires[0]}." if fires else ".")
