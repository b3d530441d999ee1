"""The agent under examination: its address, its card, its interfaces, and the tasks made there."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from trunkline.client.card_places import agents_url, card_bases, describes, listed_names, wrong_card
from trunkline.config import Secret
from trunkline.doctor.exchange import ProbeClient, ProbeExchange, ProtocolObject, at, members, objects, text
from trunkline.doctor.probe import DeclaredInterface, InterfaceProbe
from trunkline.errors import Misuse, Unreadable
from trunkline.net.http import Headers, HttpClient, HttpRequest
from trunkline.wire.peer_card import PeerCard, read_card

CARD, LEGACY = "/.well-known/agent-card.json", "/.well-known/agent.json"
TEXT = "This is a probe of trunkline doctor. A short answer is enough."
_PORTS = {"http": 80, "https": 443}
# HTTP+JSON of 0.3 is a dialect of its own, which nobody but its SDKs speaks.
_SPOKEN = frozenset((("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0")))
_NAMES = ("url", "protocolBinding", "protocolVersion")
_REDIRECT_LIMIT = 3
_LONGEST = 200
_REDIRECTS = (301, 302, 303, 307, 308)


class DoctorOptions(Struct, frozen=True, kw_only=True):
    """The options of an examination."""

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

    probe: InterfaceProbe
    state: str = ""


class Subject:
    """One agent under examination."""

    def __init__(self, url: str, http_client: HttpClient, options: DoctorOptions) -> None:
        self.url = url.rstrip("/")
        self.options = options
        self.address = agent_address(url)
        self.credentials: Headers = tuple((name, one.reveal()) for name, one in options.credentials)
        # A scheme before the credentials is no secret, and what stands behind it is one by itself.
        secrets = [word for _, value in self.credentials for word in (value, value.rpartition(" ")[2])]
        # An examination has time for one slow thing after another; none may have all of it.
        self.client = ProbeClient(http_client, secrets=secrets, timeout_s=max(options.timeout_s / 4, 0.05))
        self.send_s = max(options.timeout_s / 2, 0.05)
        self.probes: list[InterfaceProbe] = []
        self.tasks: dict[str, MadeTask] = {}
        # Tasks of requests that were wrong on purpose.
        self.malformed_tasks: set[str] = set()
        self.card: dict[str, Any] = {}
        self.base = self.origin
        # Why the card that was found is not used: it describes another agent.
        self.wrong_card = ""
        # The card, or what came instead, at each of the well-known paths.
        self.cards: dict[str, ProbeExchange] = {}

    @property
    def origin(self) -> str:
        """Scheme, host and port of the address that the operator gave."""
        return f"{self.address.scheme}://{self.address.netloc}"

    @property
    def is_local(self) -> bool:
        """Whether the agent is on this machine."""
        return is_loopback(self.address.hostname or "")

    @property
    def is_reached(self) -> bool:
        """Whether the agent can reach this machine under the name that the operator gave for it."""
        return self.is_local or not is_loopback(self.options.receiver)

    @property
    def card_exchange(self) -> ProbeExchange:
        """The exchange that brought the card; only if there is one."""
        return next(one for one in self.cards.values() if is_card(one))

    def flag(self, *names: str) -> bool:
        """Whether the card declares a capability, under any of its names."""
        declared = members(self.card.get("capabilities"))
        return any(declared.get(name) is True or self.card.get(name) is True for name in names)

    def extensions(self, *, required: bool = False) -> list[str]:
        """The URIs of the extensions that the card declares; with `required`, only those it requires."""
        declared = objects(at(self.card, "capabilities", "extensions"))
        return [text(one.get("uri")) for one in declared if not required or one.get("required") is True]

    def record_task(self, probe: InterfaceProbe, found: ProtocolObject, *, new: bool) -> None:
        """Remember a task that was made, and its state, so that it can be ended."""
        known = found.kind in ("task", "status-update") and found.task_id
        if known and (new or found.task_id in self.tasks):
            self.tasks.setdefault(found.task_id, MadeTask(probe)).state = found.state

    async def discover(self) -> bool:
        """Search for the card wherever it may be, and return whether it was found."""
        given = self.address.path.rstrip("/")
        is_card_url = given.endswith(".json")
        paths = [given, CARD, LEGACY] if is_card_url else [CARD, LEGACY]
        for base in ("",) if is_card_url else card_bases(given):
            found = await asyncio.gather(*(self.get_card(self.origin + base + path) for path in paths))
            self.cards = dict(zip(paths, found, strict=True))
            if is_card_url and not is_card(found[0]):
                # A card at the root may describe another agent.
                self.cards = dict.fromkeys((CARD, LEGACY), found[0])
                return False
            if not any(map(is_card, found)):
                continue
            # Redirects may have led to the card of another agent.
            if await self._describes(self.card_exchange.request.url):
                self.card, self.base = members(self.card_exchange.json), self.origin + base
                return True
        if self.wrong_card:
            # The checks of the card examine what this agent serves, which is nothing.
            self.cards, self.base = {}, self.url
        return False

    async def _describes(self, place: str) -> bool:
        """Return whether the card at this place describes the agent; record the error if it does not."""
        try:
            card = read_card(self.card_exchange.body)
        except Unreadable:
            # The checks of the card say what is wrong with it.
            card = PeerCard(name="")
        if describes(card, place, self.url):
            return True
        if not self.wrong_card:
            agents = await self.get_card(agents_url(place))
            self.wrong_card = wrong_card(card, place, self.url, listed_names(agents.body)).message
        return False

    async def get_card(self, url: str, *, known: bool = True, headers: Headers = ()) -> ProbeExchange:
        """GET a card from the operator's host, through redirects that stay there."""
        sent = (("Accept", "application/json"), *headers, *(self.credentials if known else ()))
        exchange = await self.client.fetch(HttpRequest("GET", url, sent), "card")
        for _ in range(_REDIRECT_LIMIT):
            target = joined(url, exchange.headers.get("location", ""))
            if exchange.status not in _REDIRECTS or not same_origin(urlsplit(target), self.address):
                break
            url = target
            exchange = await self.client.fetch(HttpRequest("GET", url, sent), "card")
        return exchange

    async def choose_interfaces(self) -> None:
        """Take each binding and version that the card lists and that the doctor speaks."""
        for interface in interfaces_of(self.card, self.url):
            known = ((one.binding, one.version) for one in self.probes)
            if (interface.binding, interface.version) not in known:
                self.probes.append(await self._reachable(interface))

    async def _reachable(self, interface: DeclaredInterface) -> InterfaceProbe:
        """An interface at the host that the operator named; if nobody answers there, where the card says.

        A card behind a proxy often names the address that the agent listens at, which cannot be reached.
        """
        address = urlsplit(interface.url)
        if same_origin(address, self.address):
            return InterfaceProbe(self, interface)
        moved = address._replace(scheme=self.address.scheme, netloc=self.address.netloc).geturl()
        probe = InterfaceProbe(self, replace(interface, url=moved))
        answer = await probe.call("get", {"id": "trunkline-doctor"})
        return probe if answer.code else InterfaceProbe(self, interface, trusted=False)


def is_card(exchange: ProbeExchange) -> bool:
    """Whether a JSON object came, which is taken for a card."""
    return exchange.status == 200 and bool(members(exchange.json))


def interfaces_of(card: dict[str, Any], url: str) -> list[DeclaredInterface]:
    """The interfaces of a card of either layout, as far as the doctor speaks them."""
    listed = objects(card.get("supportedInterfaces"))
    if text(card.get("url")):
        older = [{"url": card["url"], "transport": card.get("preferredTransport") or "JSONRPC"}]
        older += objects(card.get("additionalInterfaces"))
        version = text(card.get("protocolVersion")) or "0.3"
        listed += [
            {"url": one.get("url"), "protocolBinding": one.get("transport"), "protocolVersion": version}
            for one in older
        ]
    found: list[DeclaredInterface] = []
    for one in listed:
        where, binding, declared = (text(one.get(name)) for name in _NAMES)
        version = "1.0" if declared.split(".")[0] == "1" else "0.3" if declared.startswith("0.") else ""
        if where and (binding, version) in _SPOKEN:
            where = joined(f"{url}/", where)
            found.append(DeclaredInterface(where, binding, version, declared, text(one.get("tenant"))))
    return found


def joined(base: str, url: str) -> str:
    """The absolute form of an address that an agent gave; what is no URL gets the scheme `invalid`."""
    try:
        found = urljoin(base, url)
        urlsplit(found)
    except ValueError:
        return f"invalid:{quote(url[:_LONGEST])}"
    return found


def agent_address(url: str) -> SplitResult:
    """The parts of an agent's address.

    Raises:
        Misuse: it is no such address.
    """
    try:
        found = urlsplit(url)
        _ = found.port
    except ValueError as error:
        raise Misuse(f"{url!r} is no URL ({error}); give one like https://agent.example") from None
    if found.scheme not in _PORTS or not found.hostname:
        text = f"{url!r} is not the URL of an agent; give one like https://agent.example"
        raise Misuse(text, hint="trunkline doctor http://HOST:PORT")
    if found.username or found.password:
        raise Misuse("the URL holds a login; leave it out and give --header, --key or --bearer")
    return found


def port_of(address: SplitResult) -> int | None:
    """The port, also where it is not spelled out; None if it is no number."""
    try:
        return address.port or _PORTS.get(address.scheme)
    except ValueError:
        return None


def same_origin(one: SplitResult, other: SplitResult) -> bool:
    """Whether two addresses have scheme, host and port in common; all names of this machine are one."""
    hosts = {(address.hostname or "").lower() for address in (one, other)}
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
