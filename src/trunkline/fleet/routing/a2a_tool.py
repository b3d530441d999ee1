"""`/a2a list`, `/a2a card NAME`, `/a2a call NAME MESSAGE`: agents elsewhere by a line of text.

The line goes through the operator's API of a hub. Only the message leaves, and each call is a conversation of
its own. What went wrong begins with `ERR:`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import msgspec

from trunkline.config import Secret
from trunkline.errors import TrunklineError
from trunkline.fleet.hub_client import HubClient
from trunkline.net.http import HttpClient

BODY_LIMIT = 16_384
WAIT_S = 300
_SHOWN = 300
_USAGE = "usage: /a2a list | /a2a card NAME | /a2a call NAME MESSAGE"
_CUT = "\n… cut here"
# The tool as models are told of it.
A2A: dict[str, Any] = {
    "name": "a2a",
    "description": "Agents elsewhere: `list` them, read the `card` of one, or `call` one with a message.",
    "parameters": {
        "type": "object",
        "properties": {"line": {"type": "string", "description": _USAGE.partition(": ")[2]}},
        "required": ["line"],
        "additionalProperties": False,
    },
}
# One request to the API: method, path below /api, body; gives the JSON of the answer.
AskHub = Callable[[str, str, dict[str, Any] | None], Awaitable[Any]]


class A2aTool:
    """The tool for one hub and one key."""

    def __init__(self, url: str, key: str | Secret, http_client: HttpClient | None = None) -> None:
        """Take the address of the hub and the agent's own key there."""
        self._hub = HubClient(url, key, http_client)

    async def __call__(self, line: str) -> str:
        """Perform a line; gives its framed result, also of what went wrong."""
        return await perform_line(line, self._ask)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        status, answer = await self._hub.ask(method, path, body)
        found = msgspec.json.decode(answer)
        if status >= 300:
            raise TrunklineError(str(found.get("detail") or found.get("title") or status))
        return found

    async def close(self) -> None:
        """Close the connections to the hub."""
        await self._hub.close()


async def perform_line(line: str, ask: AskHub) -> str:
    """The framed result of a line: a header, the body, and a footer."""
    words = line.strip().removeprefix("/a2a").strip()
    verb, _, rest = words.partition(" ")
    try:
        body = await _performed(verb, rest.strip(), ask)
    except TrunklineError as error:
        body = f"ERR: {str(error)[:_SHOWN]}"
    except msgspec.DecodeError:
        body = "ERR: the hub gave an answer that is no JSON"
    encoded = body.encode(errors="replace")
    if len(encoded) > BODY_LIMIT:
        body = encoded[:BODY_LIMIT].decode(errors="ignore") + _CUT
    head = " ".join(words.split()[: 1 if verb == "list" else 2])
    return f"[/a2a {head}]\n{body}\n[END A2A]"


async def _performed(verb: str, rest: str, ask: AskHub) -> str:
    name, _, message = rest.partition(" ")
    if verb == "list" and not rest:
        return _list((await ask("GET", "/roster", None))["items"])
    if verb == "card" and name and not message:
        return _card(await ask("GET", f"/agents/{quote(name, safe='')}", None))
    if verb == "call" and name and message.strip():
        form = {"agent": name, "message": message.strip(), "wait": WAIT_S}
        return _answer(name, (await ask("POST", "/dispatch", form))["tasks"][0])
    return f"ERR: {_USAGE}"


def _list(rows: list[dict[str, Any]]) -> str:
    count = f"{len(rows)} agent{'' if len(rows) == 1 else 's'} elsewhere"
    return "\n".join([count, *[_row(row) for row in rows]])


def _row(row: dict[str, Any]) -> str:
    if not row["reachable"]:
        return f"{row['name']}: no card now ({row.get('reason', '')})"
    skills = [*row["skills"], *(["…"] if row["more"] else [])]
    return f"{row['name']}: {row['description']} [{', '.join(skills)}]"


def _card(agent: dict[str, Any]) -> str:
    skills = [f"  {one['id']}: {one.get('description', '')}".rstrip(": ") for one in agent["skills"]]
    return "\n".join(
        [
            f"name: {agent['name']}",
            f"url: {agent.get('url', '')}",
            f"protocol: {', '.join(agent['versions'])}",
            f"state: {agent['state']} {agent.get('reason', '')}".rstrip(),
            f"description: {agent['description']}",
            "skills:",
            *skills,
        ]
    )


def _answer(name: str, task: dict[str, Any]) -> str:
    state, said = task["state"], task.get("text") or ""
    if state == "completed":
        return said or "(it gave no text)"
    if state in ("input-required", "auth-required"):
        return f"{name} asks: {said}\n(task {task['taskId']})"
    if state in ("submitted", "working"):
        return f"ERR: {name} is still at work after {WAIT_S} s (task {task['taskId']})"
    return f"ERR: {name} {state}: {task.get('error') or said or 'it gave no reason'}"
