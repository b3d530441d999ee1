"""The agent under examination: its address, its card, the ways to it, and the tasks made there."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct

from trunkline.config import Secret
from trunkline.doctor.binding import ProbeBinding, ProbeInterface
from trunkline.doctor.exchange import ProbeClient, ProbeExchange
from trunkline.doctor.finding import NotPossible
from trunkline.doctor.fixtures import Fixtures
from trunkline.doctor.json_access import JsonPiece, items, members, state_of, text
from trunkline.errors import Misuse
from trunkline.net.http import Headers, HttpClient, HttpRequest

CARD, LEGACY = "/.well-known/agent-card.json", "/.well-known/agent.json"
TEXT = "This is a probe of trunkline doctor. A short answer is enough."
_PORTS = {"http": 80, "https": 443}
# HTTP+JSON of 0.3 is a dialect of its own, which nobody but its SDKs speaks.
_SPOKEN = frozenset((("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")))
_NAMES = ("url", "protocolBinding", "protocolVersion")
_HOPS = 3
_LONGEST = 200
_REDIRECTS = (301, 302, 303, 307, 308)


class DoctorOptions(Struct, frozen=True, kw_only=True):
    """What the operator chose."""

    # Headers that go to the agent's own host and nowhere else.
    credentials: tuple[tuple[str, Secret], ...] = ()
    text: str = TEXT
    skill: str = ""
    sends: bool = True
    timeout_s: float = 15.0
    # The address under which the agent reaches this machine, for its webhooks.
    receiver: str = "127.0.0.1"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


class MadeTask(Struct):
    """A task that the examination made, and how it was last seen."""

    way: ProbeBinding
    state: str = ""


class Subject:
    """One agent."""

    def __init__(self, url: str, carrier: HttpClient, options: DoctorOptions) -> None:
        self.url = url.rstrip("/")
        self.options = options
        self.place = _parts(url)
        self.credentials: Headers = tuple((name, one.reveal()) for name, one in options.credentials)
        # A run has time for one slow thing after another; none may have all of it.
        # A scheme before the credentials is no secret, and what stands behind it is one by itself.
        secrets = [word for _, value in self.credentials for word in (value, value.rpartition(" ")[2])]
        self.line = ProbeClient(carrier, secrets=secrets, timeout_s=max(options.timeout_s / 4, 0.05))
        self.send_s = max(options.timeout_s / 2, 0.05)
        self.ways: list[ProbeBinding] = []
        self.made: dict[str, MadeTask] = {}
        # Tasks of requests that were wrong on purpose.
        self.odd: set[str] = set()
        self.card: dict[str, Any] = {}
        self.base = self.origin
        # The card as it was found at each of the well-known paths.
        self.found: dict[str, ProbeExchange] = {}
        self._trials: dict[str, Fixtures] = {}

    @property
    def origin(self) -> str:
        """Scheme, host and port of the address that the operator gave."""
        return f"{self.place.scheme}://{self.place.netloc}"

    @property
    def is_local(self) -> bool:
        """Whether the agent is on this machine."""
        return is_loopback(self.place.hostname or "")

    @property
    def is_reached(self) -> bool:
        """Whether the agent can reach this machine under the name that the operator gave for it."""
        return self.is_local or not is_loopback(self.options.receiver)

    @property
    def card_seen(self) -> ProbeExchange:
        """The exchange that brought the card; only if there is one."""
        return next(one for one in self.found.values() if one.status == 200 and members(one.json))

    def flag(self, *names: str) -> bool:
        """Whether the card declares a capability, under any of its names."""
        declared = members(self.card.get("capabilities"))
        return any(declared.get(name) is True or self.card.get(name) is True for name in names)

    def extensions(self, *, required: bool = False) -> list[str]:
        """The URIs of the extensions that the card declares; only those it requires, if told."""
        declared = map(members, items(members(self.card.get("capabilities")).get("extensions")))
        return [text(one.get("uri")) for one in declared if not required or one.get("required") is True]

    def needs(self, name: str) -> None:
        """Go on only if the card declares this.

        Raises:
            NotPossible: it does not.
        """
        if not self.flag(name):
            raise NotPossible(f"the card does not declare {name}")

    def trials(self, way: ProbeBinding) -> Fixtures:
        """The tasks made one way, shared by all who look at them."""
        return self._trials.setdefault(way.name, Fixtures(way))

    def note(self, way: ProbeBinding, piece: JsonPiece | None, *, new: bool) -> None:
        """Remember a task that was made, and its state."""
        if piece is None or piece.kind not in ("task", "status-update"):
            return
        name = text(piece.value.get("id" if piece.kind == "task" else "taskId"))
        if name and (new or name in self.made):
            self.made.setdefault(name, MadeTask(way)).state = state_of(piece.value)

    async def discover(self) -> bool:
        """Look for the card at every place where it may be; False if there is none."""
        given = self.place.path.rstrip("/")
        bases = [self.origin] if not given or given.endswith(".json") else [self.url, self.origin]
        paths = [given, CARD, LEGACY] if given.endswith(".json") else [CARD, LEGACY]
        for base in bases:
            seen = await asyncio.gather(*(self.look_up(base + path) for path in paths))
            self.found = dict(zip(paths, seen, strict=True))
            cards = [members(one.json) for one in seen if one.status == 200 and members(one.json)]
            if cards:
                self.card, self.base = cards[0], base
                return True
        return False

    async def look_up(self, url: str, *, known: bool = True, headers: Headers = ()) -> ProbeExchange:
        """GET a page of the operator's host, through redirects that stay there."""
        sent = (("Accept", "application/json"), *headers, *(self.credentials if known else ()))
        seen = await self.line.fetch(HttpRequest("GET", url, sent), "card")
        for _ in range(_HOPS):
            onward = joined(url, seen.headers.get("location", ""))
            if seen.status not in _REDIRECTS or not same_origin(urlsplit(onward), self.place):
                break
            url = onward
            seen = await self.line.fetch(HttpRequest("GET", url, sent), "card")
        return seen

    async def settle(self) -> None:
        """Choose the ways: each binding and version that the card lists and that the doctor speaks."""
        for interface in interfaces_of(self.card, self.url):
            if any((one.binding, one.version) == (interface.binding, interface.version) for one in self.ways):
                continue
            place = urlsplit(interface.url)
            if same_origin(place, self.place):
                self.ways.append(ProbeBinding(self, interface))
                continue
            self.ways.append(await self._pinned(interface, place))

    async def _pinned(self, interface: ProbeInterface, place: SplitResult) -> ProbeBinding:
        """The same path at the host that the operator named; if nobody answers there, as the card says."""
        moved = ProbeInterface(
            place._replace(scheme=self.place.scheme, netloc=self.place.netloc).geturl(),
            interface.binding,
            interface.version,
            interface.declared,
            interface.tenant,
        )
        here = ProbeBinding(self, moved)
        answer = await here.call("get", {"id": "trunkline-doctor"})
        return here if answer.code else ProbeBinding(self, interface, trusted=False)


def interfaces_of(card: dict[str, Any], url: str) -> list[ProbeInterface]:
    """All that a card of either layout says of where to call, as far as the doctor speaks it."""
    listed = list(map(members, items(card.get("supportedInterfaces"))))
    if text(card.get("url")):
        older = [{"url": card["url"], "transport": card.get("preferredTransport") or "JSONRPC"}]
        older += map(members, items(card.get("additionalInterfaces")))
        version = text(card.get("protocolVersion")) or "0.3"
        listed += [
            {"url": one.get("url"), "protocolBinding": one.get("transport"), "protocolVersion": version}
            for one in older
        ]
    found: list[ProbeInterface] = []
    for one in listed:
        where, binding, declared = (text(one.get(name)) for name in _NAMES)
        version = "1.0" if declared.split(".")[0] == "1" else "0.3" if declared.startswith("0.") else ""
        if where and (binding, version) in _SPOKEN:
            there = joined(f"{url}/", where)
            found.append(ProbeInterface(there, binding, version, declared, text(one.get("tenant"))))
    return found


def joined(base: str, url: str) -> str:
    """An address that an agent gave, whole; one that is no URL at all cannot be taken apart, and says so."""
    try:
        found = urljoin(base, url)
        urlsplit(found)
    except ValueError:
        return f"invalid:{quote(url[:_LONGEST])}"
    return found


def _parts(url: str) -> SplitResult:
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError as error:
        raise Misuse(f"{url!r} is no URL ({error}); give one like https://agent.example") from None
    if found.scheme not in _PORTS or not found.hostname:
        raise Misuse(f"{url!r} is no URL of an agent; give one like https://agent.example")
    if found.username or found.password:
        raise Misuse("the URL holds a login; leave it out and give --header, --key or --bearer")
    return found


def host_of(url: str) -> str:
    """The host of an agent's address.

    Raises:
        Misuse: it is no such address.
    """
    return _parts(url).hostname or ""


def port_of(place: SplitResult) -> int | None:
    """The port, also where it is not spelled out; None if it is no number."""
    try:
        return place.port or _PORTS.get(place.scheme)
    except ValueError:
        return None


def same_origin(one: SplitResult, other: SplitResult) -> bool:
    """Whether two addresses lead to the same place; all names of this machine are one."""
    hosts = {(place.hostname or "").lower() for place in (one, other)}
    same = len(hosts) == 1 or all(is_loopback(host) for host in hosts)
    return same and one.scheme == other.scheme and port_of(one) == port_of(other)


def is_loopback(host: str) -> bool:
    """Whether a host is the machine itself."""
    try:
        found = ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost")
    return found.is_loopback or found.is_unspecified


def is_private(host: str) -> bool:
    """Whether a host is an address that no stranger can reach."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return is_loopback(host)
