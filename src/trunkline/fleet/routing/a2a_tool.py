"""`/a2a list`, `/a2a card NAME`, `/a2a call NAME MESSAGE`: agents elsewhere by a line of text.

The line goes through the operator's API of a hub. Only the message leaves, and each call is a conversation of
its own. What went wrong begins with `ERR:`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.config import Secret
from trunkline.errors import Misuse, TrunklineError
from trunkline.fleet.call import ApiStruct
from trunkline.fleet.catalogue.entry import EntrySkill
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.roster import RosterRow
from trunkline.fleet.hub_client import HubClient
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient

BODY_LIMIT = 16_384
WAIT_S = 300
_SHOWN = 300
USAGE = "usage: /a2a list | /a2a card NAME | /a2a call NAME MESSAGE"
_CUT = "\n… cut here"
# Where a line of a body looks like one of the frame.
_FRAME = re.compile(r"(?:^|(?<=[\n\r\v\f\x85\u2028\u2029]))(?=\[(?:END A2A\]|/a2a ))")
# The tool as models are told of it.
A2A: dict[str, Any] = {
    "name": "a2a",
    "description": "Agents elsewhere: `list` them, read the `card` of one, or `call` one with a message.",
    "parameters": {
        "type": "object",
        "properties": {"line": {"type": "string", "description": USAGE.partition(": ")[2]}},
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


class A2aLine(Struct, frozen=True):
    """What a line asks for; `name` and `message` only where the verb takes them."""

    verb: Literal["list", "card", "call"]
    name: str = ""
    message: str = ""


class AgentCardLines(ApiStruct, frozen=True, kw_only=True):
    """The card of an agent elsewhere, as `/a2a card` shows it."""

    name: str
    url: str = ""
    versions: tuple[str, ...] = ()
    version: str = ""
    state: str = ""
    reason: str = ""
    description: str = ""
    skills: tuple[EntrySkill, ...] = ()


def read_line(line: str) -> A2aLine:
    """What a line asks for, with or without its `/a2a`.

    Raises:
        Misuse: it is none of the three; the text says how they are written.
    """
    verb, _, rest = _words(line).partition(" ")
    name, _, message = rest.strip().partition(" ")
    message = message.strip()
    match verb:
        case "list" if not name:
            return A2aLine("list")
        case "card" if name and not message:
            return A2aLine("card", name)
        case "call" if name and message:
            return A2aLine("call", name, message)
        case _:
            raise Misuse(USAGE)


def framed(line: str, body: str) -> str:
    """A result between its header and its footer, cut where it is too long."""
    # Others say what is in it, and none of them ends it or begins another one.
    encoded = _FRAME.sub(" ", body).encode(errors="replace")
    body = encoded[:BODY_LIMIT].decode(errors="ignore") + (_CUT if len(encoded) > BODY_LIMIT else "")
    words = _words(line).split()
    head = " ".join(words[: 1 if words[:1] == ["list"] else 2])
    return f"[/a2a {head[:_SHOWN]}]\n{body}\n[END A2A]"


async def perform_line(line: str, ask: AskHub) -> str:
    """The framed result of a line: a header, the body, and a footer."""
    try:
        body = await _performed(read_line(line), ask)
    except TrunklineError as error:
        body = f"ERR: {str(error)[:_SHOWN]}"
    except msgspec.DecodeError:
        body = "ERR: the hub gave an answer that is no JSON"
    return framed(line, body)


async def _performed(asked: A2aLine, ask: AskHub) -> str:
    if asked.verb == "list":
        return list_text(msgspec.convert((await ask("GET", "/roster", None))["items"], list[RosterRow]))
    if asked.verb == "card":
        found = await ask("GET", f"/agents/{quote(asked.name, safe='')}", None)
        return card_text(msgspec.convert(found, AgentCardLines))
    found = msgspec.convert(await ask("GET", f"/agents/{quote(asked.name, safe='')}", None), AgentCardLines)
    if found.state == "unreachable":
        # A dispatched task would wait for the agent to recover; the model can ask another one now.
        raise TrunklineError(f"{asked.name} cannot be reached now: {found.reason}")
    form = {"agent": asked.name, "message": asked.message, "wait": WAIT_S}
    return _answer(asked.name, (await ask("POST", "/dispatch", form))["tasks"][0])


def _words(line: str) -> str:
    return line.strip().removeprefix("/a2a").strip()


def list_text(rows: Sequence[RosterRow]) -> str:
    """What `list` shows: how many there are, and a line for each."""
    count = f"{len(rows)} agent{'' if len(rows) == 1 else 's'} elsewhere"
    return "\n".join([count, *[_row(row) for row in rows]])


def _row(row: RosterRow) -> str:
    if not row.reachable:
        return f"{row.name}: no card now ({row.reason})"
    skills = [*row.skills, *(["…"] if row.more else [])]
    return f"{row.name}: {row.description} [{', '.join(skills)}]"


def card_lines(listed: Listed) -> AgentCardLines:
    """The lines of `/a2a card` for an agent of the catalogue."""
    peer = listed.entry.peer
    return AgentCardLines(
        name=listed.entry.name,
        url="" if peer is None else shown(peer.url),
        versions=listed.versions,
        version=listed.version,
        state=listed.state,
        reason=listed.reason,
        description=listed.description,
        skills=listed.skills,
    )


def card_text(card: AgentCardLines) -> str:
    """The answer to `/a2a card`, as text."""
    skills = [f"  {one.id}: {_on_one_line(one.description)}".rstrip(": ") for one in card.skills]
    return "\n".join(
        [
            f"name: {card.name}",
            f"url: {card.url}",
            f"protocol: {', '.join(card.versions)}",
            f"version: {card.version}",
            f"state: {card.state} {card.reason}".rstrip(),
            f"description: {_on_one_line(card.description)}",
            "skills:",
            *skills,
        ]
    )


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def _answer(name: str, task: dict[str, Any]) -> str:
    state, said = task["state"], task.get("text") or ""
    if state == "completed":
        return said or "(it gave no text)"
    if state in ("input-required", "auth-required"):
        return f"{name} asks: {said}\n(task {task['taskId']})"
    if state in ("submitted", "working"):
        return f"ERR: {name} is still at work after {WAIT_S} s (task {task['taskId']})"
    return f"ERR: {name} {state}: {task.get('error') or said or 'it gave no reason'}"
