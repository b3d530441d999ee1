"""Where the card of an agent may be, and whether a card that was found there describes that agent. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import unquote, urljoin, urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import RouteNotFound
from trunkline.net.egress import shown, target
from trunkline.wire.codes import AGENT_NOT_FOUND
from trunkline.wire.decode import DECODE_ERRORS
from trunkline.wire.peer_card import PeerCard

WELL_KNOWN, LEGACY = "/.well-known/agent-card.json", "/.well-known/agent.json"
_SUFFIXES = (WELL_KNOWN, LEGACY, "/agent-card.json")
# A URL that ends in one of these is an endpoint: its card is usually next to it, not below it.
_ENDPOINTS = {"a2a", "rpc", "jsonrpc", "v1", "delegate"}
# A hub tags the skills on its own card with this and with the names of the agents that have the skill.
_ROUTED = "routed"
# Limits of what an error quotes from a card.
_MAX_NAMES, _MAX_NAME_LENGTH = 5, 80


def card_places(url: str) -> tuple[str, ...]:
    """Return the URLs at which the card of the agent with this URL may be, the likeliest first.

    A URL that ends in `.json` is the card's own.

    Raises:
        Unreachable: the URL cannot be called.
    """
    target(url)
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    if path.endswith(".json"):
        return (url,)
    bases = card_bases(path)
    found = [origin + base + WELL_KNOWN for base in bases]
    if path:
        found.insert(bases.index(path) + 1, f"{origin}{path}/agent-card.json")
    near = dict.fromkeys((*bases[:2], ""))
    return (*found, *[origin + base + LEGACY for base in near])


def card_bases(path: str) -> tuple[str, ...]:
    """Return the paths below which the card of the agent at this path may be, the likeliest first."""
    if not path:
        return ("",)
    above, _, last = path.rpartition("/")
    near = (above, path) if last.lower() in _ENDPOINTS else (path, above)
    # The nearer folders come first, because the card of the root may describe several agents.
    return tuple(dict.fromkeys((*near, *_folders(above))))


def _folders(path: str) -> Iterable[str]:
    """Yield each folder above a path, the nearest first, at most eight and the root."""
    for _ in range(8):
        path = path.rpartition("/")[0]
        if not path:
            break
        yield path
    yield ""


def describes(card: PeerCard, place: str, url: str) -> bool:
    """Return whether a card that was found at one of the `card_places` of a URL describes the agent there.

    A card at or below the path does. A card above it does if one of its interfaces has that path, or if the
    path is an endpoint directly next to the card. The host is not compared: cards of agents behind a proxy
    name a host that only their own network knows.
    """
    path, base = _path(url), _base(place)
    if path.endswith(".json") or base is None or base == path or not path.startswith(f"{base}/"):
        return True
    above, _, last = path.rpartition("/")
    if above == base and last.lower() in _ENDPOINTS:
        return True
    return any(_path(_absolute(place, one.url)) == path for one in card.interfaces)


class _ListedAgent(Struct, frozen=True):
    """An agent in the list of a hub."""

    name: str


class _AgentList(Struct, frozen=True):
    """A hub's list of its agents, as far as it is read here."""

    items: list[_ListedAgent] = []


def agents_url(place: str) -> str:
    """Return the URL at which a hub lists its agents, if this place holds the card of a hub."""
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc}{_base(place) or ''}/api/agents?limit=200"


def listed_names(body: bytes) -> list[str]:
    """Return the names in a hub's list of agents; none if this is no such list."""
    try:
        return [one.name for one in msgspec.json.decode(body, type=_AgentList).items]
    except DECODE_ERRORS:
        return []


def wrong_card(card: PeerCard, place: str, url: str, listed: Iterable[str] = ()) -> RouteNotFound:
    """Return the error for a URL whose nearest card describes another agent.

    `listed` are the names of the agents that the host lists.
    """
    names = [*listed]
    names += [tag for one in card.skills if _ROUTED in one.tags for tag in one.tags if tag != _ROUTED]
    wanted = _wanted(url)
    close = _closest(wanted, names)
    # An agent with two protocol versions lists each URL twice.
    interfaces = [*dict.fromkeys(shown(_absolute(place, one.url))[:200] for one in card.interfaces)]
    said = [
        f"no agent has the path {_path(url)[:200]!r}: {shown(place)} is the card of {_quoted(card.name)}, "
        f"whose interfaces are {', '.join(interfaces[:_MAX_NAMES]) or 'not named'}"
    ]
    if close:
        said.append(f"the names closest to {_quoted(wanted)} are {', '.join(map(_quoted, close))}")
    said.append("correct the path, or give the URL of the agent's own card")
    return RouteNotFound("; ".join(said), missing=AGENT_NOT_FOUND)


def _wanted(url: str) -> str:
    """Return the segment of a path that names an agent."""
    segments = [one for one in _path(url).split("/") if one]
    while len(segments) > 1 and segments[-1].lower() in _ENDPOINTS:
        segments.pop()
    return unquote(segments[-1]) if segments else ""


def _closest(wanted: str, names: Iterable[str]) -> list[str]:
    """Return the names that resemble the wanted one, whatever their case; if none does, the first names."""
    by_key: dict[str, str] = {}
    for name in names:
        by_key.setdefault(name.casefold(), name)
    close = get_close_matches(wanted.casefold()[:_MAX_NAME_LENGTH], by_key, _MAX_NAMES)
    return [by_key[key] for key in close] or [*by_key.values()][:_MAX_NAMES]


def _quoted(name: str) -> str:
    return ascii(name[:_MAX_NAME_LENGTH])


def _base(place: str) -> str | None:
    """Return the path of the folder that a well-known place belongs to; None for any other URL."""
    path = urlsplit(place).path
    return next((path.removesuffix(one) for one in _SUFFIXES if path.endswith(one)), None)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""


def _absolute(place: str, url: str) -> str:
    base = place.removesuffix(next((one for one in _SUFFIXES if place.endswith(one)), ""))
    try:
        return urljoin(f"{base}/", url)
    except ValueError:
        return ""
