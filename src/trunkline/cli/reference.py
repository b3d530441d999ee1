"""Which agent is meant: a host, a URL, a card's URL or a card in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from trunkline.cli.choices import Choices
from trunkline.errors import Misuse, RouteNotFound, Unreadable
from trunkline.wire.peer_card import PeerCard, read_card

_SCHEMES = ("http://", "https://", "file://")
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
MISSING = "no agent is named: give its URL first, or -a REF, or set A2ACLI_AGENT_CARD"


class Reference(Struct, frozen=True):
    """An agent as it was named, where it is, and its card where that was a file."""

    told: str
    url: str
    card: PeerCard | None = None


def named(given: Sequence[str], flags: Mapping[str, Any], choices: Choices) -> tuple[str, tuple[str, ...]]:
    """The agent and the other words. Without -a, a first word that is a URL is the agent.

    Only what was typed decides which word is which, never what is configured.

    Raises:
        Misuse: no agent is named.
    """
    words = tuple(given)
    if "agent_card" in flags:
        return str(flags["agent_card"]), words
    if words and words[0].startswith(_SCHEMES):
        return words[0], words[1:]
    told = choices.text("agent-card")
    if not told and len(words) > 1:
        raise Misuse(
            f"{words[0]!r} is no whole URL: begin it with http:// or https://, or give -a {words[0]}"
        )
    if not told:
        raise Misuse(MISSING)
    return told, words


def named_alone(given: Sequence[str], flags: Mapping[str, Any], choices: Choices) -> str:
    """The agent of a command that takes no other word, however it is spelled.

    Raises:
        Misuse: none is named, or two.
    """
    words = tuple(given)
    if len(words) > 1 or (words and "agent_card" in flags):
        raise Misuse(f"one agent at a time: {' '.join(words)!r} is too much")
    told = words[0] if words else choices.text("agent-card")
    if not told:
        raise Misuse(MISSING)
    return told


def refer(told: str) -> Reference:
    """Where that agent is.

    Raises:
        Misuse: it is no reference.
        RouteNotFound: the file it names is not there.
        Unreadable: the file holds no card.
    """
    if told.startswith(("http://", "https://")):
        if not urlsplit(told).hostname:
            raise Misuse(f"{told!r} names no host")
        return Reference(told, told)
    path = _path(told)
    if path is not None:
        return _from_file(told, path)
    host = urlsplit(f"//{told}").netloc
    if not host or any(sign.isspace() for sign in told):
        raise Misuse(f"{told!r} is no agent: give a host, a URL or the file of a card")
    name = host.rpartition(":")[0] or host
    scheme = "http" if {host, name} & _LOOPBACK else "https"
    return Reference(told, f"{scheme}://{told}")


def _path(told: str) -> Path | None:
    if told.startswith("file://"):
        return Path(unquote(urlsplit(told).path))
    path = Path(told).expanduser()
    looks = told.startswith((".", "/", "~")) or told.endswith(".json")
    return path if looks or path.is_file() else None


def _from_file(told: str, path: Path) -> Reference:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise RouteNotFound(f"{path}: {error.strerror}") from None
    card = read_card(raw)
    if not card.interfaces:
        raise Unreadable(f"{path}: the card names no interface")
    return Reference(told, card.interfaces[0].url, card)
