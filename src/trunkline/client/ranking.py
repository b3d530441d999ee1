"""Which of an agent's interfaces is spoken to, in which version, and where: decisions, and one question.

The operator's URL is believed over the card's: agents in containers advertise addresses that only they can
reach. What the card says is tried in its order; where it turns out to be wrong, other versions and the usual
places are asked for a task that does not exist, so that no work is ever done twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from trunkline.client.transport import Call, Transport
from trunkline.clock import new_id
from trunkline.errors import (
    ContentTypeNotSupported,
    Forbidden,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PeerError,
    Refused,
    RouteNotFound,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unreadable,
    VersionNotSupported,
)
from trunkline.net.egress import judge, shown
from trunkline.wire.peer_card import Interface, PeerCard
from trunkline.wire.types import TaskQuery

log = logging.getLogger("trunkline.client")
_HERE = {"localhost", "127.0.0.1", "::1"}
BINDINGS = ("JSONRPC", "HTTP+JSON", "DELEGATE")
VERSIONS = ("1.0", "0.3")
_PORTS = {"http": 80, "https": 443}
# Names that mean something only where they are written.
_NEAR = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
# What is answered by somebody who does not speak this language in this place.
STRANGE = (
    MethodNotFound,
    RouteNotFound,
    VersionNotSupported,
    ContentTypeNotSupported,
    ParseError,
    InvalidRequest,
    Unreachable,
    Unreadable,
)


# Refusals that say the same however it is asked: who you are, or that there is no time.
FINAL = (Unauthenticated, Forbidden, TooManyRequests, Unavailable)


class RankedInterface(Struct, frozen=True):
    """An interface to try. `pinned_from` is the address in the card where the operator's took its place."""

    interface: Interface
    why: str
    pinned_from: str = ""


def rank(
    card: PeerCard | None,
    operator_url: str,
    *,
    version: str = "",
    bindings: Sequence[str] = (),
    adapters: Collection[str] = (),
) -> tuple[list[RankedInterface], list[str]]:
    """The interfaces of a card in its order, and notes on those that are not tried.

    Preferred `bindings` come first, and those of `adapters` are spoken too. A pinned version is the only one.
    Without a card, or one that names no interface, it is a guess.
    """
    found: list[RankedInterface] = []
    notes: list[str] = []
    # Where a pinned address turns out to be wrong, the card may have been right.
    later: list[RankedInterface] = []
    known = {binding.upper() for binding in (*BINDINGS, *adapters)}
    for interface in card.interfaces if card is not None else ():
        where = f"{interface.binding} {interface.version or '(no version)'} at {shown(interface.url)}"
        if interface.binding.upper() not in known:
            notes.append(
                f"{where}: not tried, as {interface.binding} is not spoken here without one in transports="
            )
            continue
        if interface.binding.upper() not in BINDINGS:
            # Versions and addresses of a vendor's own way are its adapter's business.
            found.append(RankedInterface(interface, "it stands in the card"))
            continue
        spoken = _spoken(interface, version)
        if not spoken:
            notes.append(f"{where}: not tried, as version {interface.version} is not spoken here")
            continue
        for place, one in enumerate(spoken):
            first, other = _placed(one, operator_url)
            (later if place else found).append(first)
            if other is not None:
                later.append(other)
    if not found:
        found = _guesses(card, operator_url, version)
    if "DELEGATE" in [binding.upper() for binding in bindings]:
        # No card tells of it, as it is not A2A's. The name of the agent is whom submissions are for.
        agent = Interface(_base(operator_url), "DELEGATE", tenant=card.name if card is not None else "")
        found.append(RankedInterface(agent, "it is asked for"))
    ordered = _preferred([*found, *later], bindings, notes)
    for one in ordered:
        if one.pinned_from:
            _log_pinned(one.pinned_from, one.interface.url)
    return ordered, notes


def probes(operator_url: str, failed: Interface, *, version: str = "") -> tuple[Interface, ...]:
    """Where else to ask when an interface does not understand: its other version, then the usual places."""
    versions = (version,) if version else VERSIONS
    base = _trimmed(operator_url)
    above = base.removesuffix("/a2a")
    guesses = [msgspec.structs.replace(failed, version=one, words="") for one in versions]
    for url in (f"{above}/a2a", f"{above}/", base):
        guesses.extend(Interface(url, "JSONRPC", one) for one in versions)
    tried = {(failed.url, failed.binding, failed.words or plain_version(failed.version)): failed}
    for one in guesses:
        tried.setdefault((one.url, one.binding, one.version), one)
    return tuple([one for one in tried.values() if one is not failed])


async def probe(transport: Transport, call: Call) -> TrunklineError | None:
    """Ask for a task that does not exist; None if that was understood, else what came instead.

    Raises:
        Refused: somebody understood, and wants credentials or has no time.
    """
    # An id that no task has; a UUID, as some agents take nothing else.
    query = TaskQuery(new_id())
    try:
        await transport.get(query, call)
    except STRANGE as error:
        return error
    except PeerError as error:
        # A status of HTTP means that nobody read the question; a JSON-RPC code means that somebody did.
        return error if error.code > 0 else None
    except FINAL:
        raise
    except Refused:
        # That there is no such task, or anything else that only a reader of the question says.
        return None
    return None


def no_interface(
    operator_url: str, attempts: Sequence[tuple[Interface, str]], notes: Sequence[str] = ()
) -> RouteNotFound:
    """The error that says everything that was tried, what came of it, and what was not tried and why."""
    tried = "; ".join(f"{named(interface)}: {got}" for interface, got in attempts)
    said = [f"no way was found to speak to {shown(operator_url)}", *notes, f"tried {tried or 'nothing'}"]
    return RouteNotFound(f"{'; '.join(said)}. Is it the URL of an A2A agent?")


def named(interface: Interface) -> str:
    """An interface in words."""
    words = f" in the words of {interface.words}" if interface.words else ""
    return f"{interface.binding} {interface.version}{words} at {shown(interface.url)}"


def plain_version(version: str) -> str:
    """1.0 or 0.3, if it is any of theirs; else nothing."""
    if version == "1" or version.startswith("1.0"):
        return "1.0"
    return "0.3" if version.startswith(("0.2", "0.3")) else ""


def _spoken(interface: Interface, version: str) -> list[Interface]:
    """The interface as it is spoken to, the likeliest way first; nothing if its version is unknown."""
    if version:
        words = interface.words if interface.words != version else ""
        same = plain_version(interface.version) == version
        return [msgspec.structs.replace(interface, version=version, words=words if same else "")]
    said = plain_version(interface.version)
    if interface.version and not said:
        return []
    # One that is not said may be any.
    return [msgspec.structs.replace(interface, version=one) for one in ((said,) if said else VERSIONS)]


def _guesses(card: PeerCard | None, operator_url: str, version: str) -> list[RankedInterface]:
    why = (
        "there is no card, so this is a guess" if card is None else "the card names none that is spoken here"
    )
    base = _base(operator_url)
    # A URL with a path is most likely where the agent is spoken to.
    has_path = bool(urlsplit(base).path.strip("/"))
    urls = (base, f"{base}/a2a") if has_path else (f"{base}/a2a", f"{base}/")
    return [
        RankedInterface(Interface(url, "JSONRPC", one), why)
        for url in urls
        for one in ((version,) if version else VERSIONS)
    ]


def _base(operator_url: str) -> str:
    """Where the agent seems to be, whether its own address or that of its card was given."""
    base = _trimmed(operator_url)
    if base.endswith(".json"):
        return base.partition("/.well-known/")[0].removesuffix("/agent-card.json")
    return base


def _preferred(
    found: list[RankedInterface], bindings: Sequence[str], notes: list[str]
) -> list[RankedInterface]:
    """In the order of the preferred bindings, and within one of them in the card's."""
    order = {binding.upper(): place for place, binding in enumerate(bindings)}
    for binding in bindings:
        if not any(one.interface.binding.upper() == binding.upper() for one in found):
            notes.append(f"{binding} is preferred, but the card does not offer it")
    return sorted(found, key=lambda one: order.get(one.interface.binding.upper(), len(order)))


def _placed(interface: Interface, operator_url: str) -> tuple[RankedInterface, RankedInterface | None]:
    """The interface where it is tried first, and where it is tried after all others."""
    operator = urlsplit(operator_url)
    try:
        named_url = urljoin(f"{_trimmed(operator_url)}/", interface.url)
    except ValueError:
        named_url = ""
    at = _split(named_url)
    as_said = RankedInterface(msgspec.structs.replace(interface, url=named_url), "it stands in the card")
    if at is not None and _origin(at) == _origin(operator):
        return as_said, None
    wrong = _wrong(at, operator)
    if not wrong and operator.path.endswith(".json"):
        # The card was given, not the agent: it may well stand elsewhere.
        return as_said, None
    path, query = (operator.path, "") if at is None else (at.path, at.query)
    url = urlunsplit((operator.scheme, operator.netloc, path, query, ""))
    said = f"the card says {shown(interface.url)}, which {wrong or 'is another host'}"
    why = f"{said}; the given host is taken instead"
    pinned = RankedInterface(msgspec.structs.replace(interface, url=url), why, interface.url)
    if wrong:
        return pinned, None
    last = msgspec.structs.replace(as_said, why="it stands in the card; credentials are not shown there")
    return pinned, last


def _log_pinned(said: str, used: str) -> None:
    first, second = _split(said), _split(used)
    level = logging.WARNING
    if first is not None and second is not None and first.port == second.port:
        # Two names of this machine are no news.
        level = logging.INFO if {first.hostname, second.hostname} <= _HERE else level
    log.log(level, "client.card_url_pinned card=%a used=%a", shown(said), shown(used))


def _wrong(at: SplitResult | None, operator: SplitResult) -> str:
    """Why a card's address cannot be meant for this caller; empty if it might be."""
    if at is None:
        return "is no address"
    host = (at.hostname or "").rstrip(".")
    if operator.scheme == "https" and at.scheme == "http":
        return "is http where https was given"
    if host == (operator.hostname or "").rstrip("."):
        return ""
    if host == "localhost" or host.endswith(_NEAR) or ("." not in host and ":" not in host):
        return "only its own network knows"
    is_number = ":" in host or host.replace(".", "").isdecimal()
    why = judge(host) if is_number else ""
    return f"is not public ({why})" if why else ""


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme in _PORTS and parts.hostname else None


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)


def _trimmed(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))
