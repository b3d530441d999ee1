"""The router of a host: lets each request in and gives it to a site, to operators or to what is mounted.

Host and Origin, who asks, how much of it, and whether the server goes down are judged before any of those
sees a request. Only probes have no admission.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from trunkline import errors
from trunkline.auth.principal import DEFAULT_TENANT, Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.http.asgi import AsgiExchange, Receive, Scope, Send
from trunkline.http.exchange import Disconnected, Exchange, read_query, text
from trunkline.http.mounts import (
    PUBLIC,
    WEBSOCKET,
    Lasting,
    Mount,
    MountedCall,
    MountedSocket,
    Mounts,
    Route,
    scope_of,
)
from trunkline.server import rest
from trunkline.server.admin import LOCAL, PREFIX, Admin
from trunkline.server.admission import Admission
from trunkline.server.caller import ADMIN, METRICS, READ, permit, reads_cards
from trunkline.server.card import CARD_BESIDE, Cards, respond
from trunkline.server.cors import PREFLIGHT, Cors
from trunkline.server.pages import HEADERS, HTML, SIGN_IN, SIGN_OUT, SignInPages, page, wants_page
from trunkline.server.refusals import note, refusal_of
from trunkline.server.site import Following, Handler, Site
from trunkline.server.streams import Streams
from trunkline.telemetry import traces
from trunkline.telemetry.counters import Counters
from trunkline.telemetry.traces import TraceSeen

log = logging.getLogger("trunkline.server")
AGENTS = "/agents/"
CATALOGUE = "/v1/a2a/agents/"
# The page of metrics and its media type, for what the reader accepts.
Render = Callable[[str], tuple[bytes, bytes]]
CARD = "/.well-known/agent-card.json"
CARDS = frozenset({CARD, "/.well-known/agent.json", CARD_BESIDE})
# Beside the address itself, where a catalogue's readers look.
CARD_HERE = "agent-card.json"
_NOT_ALLOWED = 1008
_ALIVE = b'{"status":"ok"}'
_READY = b'{"status":"ready"}'
_CACHED = (b"cache-control", b"no-store")
_GET = (b"allow", b"GET, HEAD")


class FleetSites(Protocol):
    """The agents of a catalogue, each tenant's own, and what the hub shows of them at the origin."""

    @property
    def shared(self) -> bool:
        """Whether there is more than one tenant, so that what is shown depends on who asks."""
        ...

    @property
    def hides_cards(self) -> bool:
        """Whether callers that have not said who they are see no agent."""
        ...

    def find_site(self, tenant: str, name: str) -> Site | None:
        """The site of an agent of a tenant."""
        ...

    def cards(self, tenant: str | None) -> Cards:
        """What a tenant is shown at the origin; None is whoever has not said who it is."""
        ...


class Router:
    """Answers every request of a host."""

    def __init__(
        self,
        sites: Mapping[str, Site],
        mounts: Mounts,
        admission: Admission,
        *,
        streams: Streams,
        cors: Cors | None,
        unready: Callable[[], str],
        counts: Counters,
        admin: Admin,
        metrics: Render | None,
        jwks: Callable[[], bytes] | None,
        fleet: FleetSites | None = None,
    ) -> None:
        """Take the sites by agent id, the first is also at the origin; and the agents of a catalogue."""
        self.sites = sites
        self.origin = next(iter(sites.values()))
        self._mounts = mounts
        self._admission = admission
        self._refusals = admission.refusals
        self._streams = streams
        self._identity = admission.identity
        self._cors = cors
        self._counts = counts
        self._admin = admin
        # Why the server takes no work now, in a word of ours; nothing if it does.
        self._unready = unready
        self._probes = {"/healthz": self._alive, "/readyz": self._ready}
        guard, public = self._refusals.guard, admission.public
        self._preflight = public("Preflight", self._answer_preflight)
        pages = SignInPages(admission)
        self._fixed: dict[str, Handler] = {
            SIGN_IN: guard("SignIn", pages.sign_in),
            SIGN_OUT: guard("SignOut", pages.sign_out),
        }
        if metrics is not None:
            self._fixed["/metrics"] = guard("Metrics", partial(self._metrics, metrics))
        if jwks is not None:
            self._fixed["/.well-known/jwks.json"] = public("Jwks", partial(self._jwks, jwks))
        self._below: dict[str, Handler] = {PREFIX: guard("Admin", self._operate)}
        self._fleet = fleet
        if fleet is not None:
            self._below[CATALOGUE] = guard("Agent", partial(self._listed, fleet))
            self._shown = public("AgentCard", partial(self._show, fleet))

    async def answer(self, exchange: Exchange, site: Site | None = None) -> None:
        """Serve one HTTP request; a site is given where that agent alone is mounted."""
        if self._cors is not None:
            self._cors.mark(exchange)
        probe = self._probes.get(exchange.path)
        if probe is not None:
            await probe(exchange)
            return
        seen = TraceSeen()
        handler = self._handler(exchange, site)
        try:
            if traces.tracing():
                with traces.request(exchange.headers, seen):
                    following = await handler(exchange, seen)
            else:
                following = await handler(exchange, seen)
            self._counts.request(seen.operation, seen.outcome)
            if following is not None:
                # From here: a stream may stay for days, and its request should not stay in memory with it.
                lasting = self._identity.lasting(exchange.headers)
                exchange.headers = {}
                await self._streams.serve(exchange, *following, lasting)
        except Disconnected:
            log.debug("request.left path=%a", exchange.path[:64])
            self._counts.request(seen.operation, "DISCONNECTED")
        finally:
            if seen.holds is not None:
                self._admission.leave(seen)

    def _handler(self, exchange: Exchange, alone: Site | None) -> Handler:
        path, site = exchange.path, alone or self.origin
        if self._cors is not None and self._cors.is_preflight(exchange):
            return self._preflight
        if path == "/" and wants_page(exchange):
            return self._admission.public("Page", partial(self._answer_page, alone))
        if path in CARDS and self._fleet is not None and self._fleet.hides_cards:
            return self._shown
        found = site.handlers.get(path) or self._fixed.get(path)
        if found is not None:
            return found
        # Before what is below a prefix of ours: a hub has its tenants beside the other acts of operators.
        if (mount := self._mounts.find(path)) is not None:
            return partial(self._mounted, mount)
        for prefix, handler in self._below.items():
            if path.startswith(prefix):
                return handler
        if path.startswith(AGENTS):
            return self._refusals.guard("Agent", partial(self._agent, alone))
        return site.handler(path)

    async def _agent(self, alone: Site | None, exchange: Exchange, seen: TraceSeen) -> Following | None:
        """A request for an agent of the host by its id."""
        agent, _, path = exchange.path.removeprefix(AGENTS).partition("/")
        site = self.sites.get(agent)
        # Where one is mounted alone, the application has said where the others are, or that they are nowhere.
        if site is None or (alone is not None and site is not alone):
            raise await self._no_agent(exchange, seen)
        self._place(AGENTS + agent, path, exchange)
        return await site.handler(exchange.path)(exchange, seen)

    async def _listed(self, fleet: FleetSites, exchange: Exchange, seen: TraceSeen) -> Following | None:
        """A request for an agent of the catalogue by its name, which each tenant has for itself."""
        name, _, path = exchange.path.removeprefix(CATALOGUE).partition("/")
        principal = await self._principal(exchange)
        tenant = None if principal is None else principal.tenant
        if tenant is None and not fleet.hides_cards:
            # A public card is that of the only tenant, and the site itself refuses the rest.
            tenant = DEFAULT_TENANT
        site = None if tenant is None else fleet.find_site(tenant, name)
        if site is None:
            raise await self._no_agent(exchange, seen)
        self._place(CATALOGUE + name, path, exchange)
        if exchange.path in CARDS and fleet.hides_cards:
            principal = await self._admission.admit(exchange, seen)
            if not reads_cards(principal):
                permit(principal, READ)
            await site.cards.answer(exchange, keyed=True)
            return None
        return await site.handler(exchange.path)(exchange, seen)

    async def _show(self, fleet: FleetSites, exchange: Exchange) -> None:
        """Answer with the card of the caller's tenant, or with one that names no agent."""
        principal = await self._principal(exchange)
        tenant = principal.tenant if principal is not None and reads_cards(principal) else None
        await fleet.cards(tenant).answer(exchange, keyed=tenant is not None)

    async def _principal(self, exchange: Exchange) -> Principal | None:
        """Return the caller before anything is counted, or None if its credential is not accepted."""
        try:
            return await self._identity.ask(exchange.headers)
        except (errors.Unauthenticated, errors.Unavailable):
            return None

    async def _no_agent(self, exchange: Exchange, seen: TraceSeen) -> errors.Refused:
        # Who is not let in does not learn which agents there are.
        await self._admission.admit(exchange, seen)
        return errors.RouteNotFound("there is no such agent here")

    def _place(self, prefix: str, path: str, exchange: Exchange) -> None:
        """Have a request come to the site of an agent: what is behind its id is relative to it."""
        exchange.prefix = prefix
        exchange.path = CARD if path == CARD_HERE else f"/{path}"

    async def _answer_preflight(self, exchange: Exchange) -> None:
        await exchange.respond(204, b"", headers=PREFLIGHT)

    async def _answer_page(self, alone: Site | None, exchange: Exchange) -> None:
        here = self.sites if alone is None else {"": alone}
        several = len(here) > 1
        shown = [
            (f"{AGENTS[1:]}{agent}/" if several else "", site.cards.public) for agent, site in here.items()
        ]
        if self._fleet is not None and self._fleet.hides_cards:
            shown = [("", self._fleet.cards(None).public)]
        await exchange.respond(200, page(shown), HTML, HEADERS)

    async def _metrics(self, render: Render, exchange: Exchange, seen: TraceSeen) -> None:
        principal = await self._admission.admit(exchange, seen)
        # They name the agents of all tenants: where there are several, its admin sees no more than its own.
        shared = self._fleet is not None and self._fleet.shared
        if (AuthScope.OPERATOR if shared else ADMIN) not in principal.scopes:
            permit(principal, METRICS)
        if exchange.method not in ("GET", "HEAD"):
            raise errors.RouteNotFound("metrics take GET only", allow="GET, HEAD")
        await exchange.respond(200, *render(text(exchange, b"accept") or ""))

    async def _operate(self, exchange: Exchange, seen: TraceSeen) -> None:
        principal = await self._admit(exchange, seen)
        permit(principal, ADMIN)
        rest.check_path(exchange)
        asked, known = read_query(exchange.query_string), None if principal is LOCAL else principal
        body = await self._admission.read_json(exchange, known)
        status, answer = await self._admin.perform(
            exchange.method, exchange.path, asked, body, principal=principal
        )
        await exchange.respond(status, answer, headers=[(b"cache-control", b"no-store")])

    async def _admit(self, exchange: Exchange, seen: TraceSeen) -> Principal:
        """Who asks, if it may: the operator on this machine, or somebody with a key."""
        self._admission.check(exchange)
        return self._admin.operator(exchange.headers) or await self._admission.admit(exchange, seen)

    async def _jwks(self, jwks: Callable[[], bytes], exchange: Exchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            raise errors.RouteNotFound("the keys take GET only", allow="GET, HEAD")
        await respond(exchange, jwks())

    # What is mounted.

    async def _mounted(self, mount: Mount, exchange: Exchange, seen: TraceSeen) -> None:
        seen.operation = "Mount"
        call: MountedCall | None = None
        try:
            route, known, lasting = await self._admit_route(mount, exchange, seen)
            if not route.takes_slashes:
                rest.check_path(exchange)
            asked_by = None if lasting is None else known["trunkline.principal"]
            body = await self._admission.read_body(exchange, asked_by, route.body_limit)
            call = MountedCall(exchange, body, lasting)
            with self._mounts.opened(call):
                await call.run(mount.app, {**scope_of(exchange, mount.prefix), **known})
        except Exception as error:
            if call is not None and call.begun:
                # Half an answer is out; the connection is cut, which says so.
                raise
            # Kept in no name here: the traceback of a refusal leads to this frame, which holds the body.
            await self._refuse(mount, exchange, seen, refusal_of(error))

    async def _refuse(
        self, mount: Mount, exchange: Exchange, seen: TraceSeen, refused: errors.Refused
    ) -> None:
        write = mount.write_refusal or self._refusals.writer(exchange)
        more = mount.refusal_headers(exchange, refused)
        await self._refusals.answer_by(write, exchange, seen, refused, more=more)

    async def _admit_route(
        self, mount: Mount | None, exchange: Exchange, seen: TraceSeen
    ) -> tuple[Route, Scope, Lasting | None]:
        """The route of a request, what its application is told of who asks, and whether that one may stay."""
        try:
            if mount is None:
                raise errors.RouteNotFound("no such path here")
            route = mount.match(exchange.method, exchange.path)
        except errors.RouteNotFound:
            # Who is not let in does not learn which paths there are.
            await self._admit(exchange, seen)
            raise
        lasting = None
        if route.scope == PUBLIC:
            principal = self._admission.admit_anyone(exchange, seen)
        else:
            principal = await self._admit(exchange, seen)
            # The admin of a tenant may do everything but what concerns the whole server.
            needed = AuthScope(route.scope)
            permit(principal, needed, None if needed is AuthScope.OPERATOR else ADMIN)
            lasting = None if principal is LOCAL else self._identity.lasting(exchange.headers)
        return route, {"trunkline.principal": principal, "trunkline.route": route.pattern}, lasting

    async def connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket, which only mounted applications take."""
        exchange = AsgiExchange({**scope, "method": WEBSOCKET}, receive, send)
        seen = TraceSeen()
        seen.operation = "WebSocket"
        mount = self._mounts.find(exchange.path)
        try:
            route, known, lasting = await self._admit_route(mount, exchange, seen)
            if mount is not None:
                base = scope.get("root_path", "") + mount.prefix
                socket = MountedSocket(receive, send, route.body_limit, lasting)
                with self._mounts.opened(socket):
                    await socket.run(mount.app, {**scope, "root_path": base, **known})
        except errors.Refused as refused:
            await self._deny(mount, exchange, seen, refused)
        finally:
            self._counts.request(seen.operation, seen.outcome)
            self._admission.leave(seen)

    async def _deny(
        self, mount: Mount | None, exchange: AsgiExchange, seen: TraceSeen, refused: errors.Refused
    ) -> None:
        note(exchange, seen, refused)
        await exchange.receive()
        if "websocket.http.response" not in exchange.scope.get("extensions", {}):
            # There it is a plain 403.
            await exchange.send({"type": "websocket.close", "code": _NOT_ALLOWED})
            return
        write = (mount and mount.write_refusal) or self._refusals.writer(exchange)
        status, body, media_type = write(refused)
        headers = [(b"content-type", media_type), *self._refusals.headers(refused)]
        await exchange.send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await exchange.send({"type": "websocket.http.response.body", "body": body})

    # Probes: a kubelet calls them by the address of the pod, which no list of hosts knows.

    async def _alive(self, exchange: Exchange) -> None:
        """The process answers, so its loop turns."""
        await _probed(exchange, 200, _ALIVE)

    async def _ready(self, exchange: Exchange) -> None:
        """Whether the store takes writes and the server is not going down."""
        reason = self._unready()
        if reason:
            more = (b"retry-after", b"1")
            await _probed(exchange, 503, b'{"status":"unready","reason":"%b"}' % reason.encode(), more)
        else:
            await _probed(exchange, 200, _READY)


async def _probed(exchange: Exchange, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    if exchange.method not in ("GET", "HEAD"):
        await exchange.respond(405, b"", headers=[_GET])
    else:
        await exchange.respond(status, body, headers=[_CACHED, *more])
