"""A host: one process with one store, one runner, one HTTP surface and any number of agents.

The composition root, and the only file that knows every room.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from functools import partial
from time import monotonic
from typing import Any, Protocol
from weakref import WeakValueDictionary

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import DriftMonitor
from trunkline.auth.browser_sessions import BrowserSessions
from trunkline.auth.identity import Identity, Verifier
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import RESERVED
from trunkline.auth.principal import Scope as AuthScope
from trunkline.auth.signing import Signer
from trunkline.auth.vault import can_seal, find_key
from trunkline.clock import Ids, now_ms
from trunkline.config import Settings, exposure
from trunkline.errors import Misuse, StoreInUse
from trunkline.fleet.announcement import Announcement
from trunkline.fleet.mount import ApiMount
from trunkline.hosting import ExecutorFactory, SiteFactory, check_agents, settings_of
from trunkline.http.asgi import AsgiExchange, Receive, Scope, Send
from trunkline.http.exchange import Exchange
from trunkline.http.host_check import HostCheck, hosts_of
from trunkline.http.mounts import PUBLIC, App, Mount, Mounts, Route
from trunkline.mcp.mount import McpMount, MetadataMount
from trunkline.mcp.watched import WatchedServers
from trunkline.net.egress import Egress
from trunkline.net.fetch import TenantFetchers
from trunkline.peer.callbacks import Callbacks, Following
from trunkline.run.executor import Executor
from trunkline.run.hops import Bounds
from trunkline.run.limits import Quota
from trunkline.run.node import BackgroundWork, HostedAgent, Limits, keep_running
from trunkline.run.notifier import Notifier
from trunkline.run.runner import Runner
from trunkline.server.admin import Admin
from trunkline.server.admission import Admission
from trunkline.server.cors import Cors
from trunkline.server.router import AGENTS, FleetSites, Render, Router
from trunkline.server.site import Site
from trunkline.server.streams import Streams
from trunkline.store.documents import Kinds
from trunkline.store.mirror import Mirror
from trunkline.store.url import shown, store_from_url
from trunkline.telemetry import traces
from trunkline.telemetry.counters import Counters, TaskObserver
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import STATES

log = logging.getLogger("trunkline")
_STATES: dict[Enum, str] = {state: plain_state(state) for state in STATES}
# The hosts of this process that have their store open, by its address.
_serving: WeakValueDictionary[str, Host] = WeakValueDictionary()


class HostedFleet(FleetSites, Protocol):
    """What a hub has its host do: answer at the origin for all agents of a catalogue, and carry them."""

    @property
    def mirrors(self) -> Sequence[Mirror[Any]]:
        """The copies of documents that are loaded after a repair."""
        ...

    @property
    def executor(self) -> Executor:
        """The executor of tasks that no agent could be given: it runs none of them."""
        ...

    def assemble(self, host: Host) -> Site:
        """The site at the origin, made whenever the host has a new store and runner."""
        ...

    def identity(self, settings: Settings, tokens: Verifier | None) -> tuple[Keyring, Identity]:
        """The keys that open the hub, and who is known by them, by tokens or by neither."""
        ...

    async def start(self) -> list[BackgroundWork]:
        """Begin, once the store is open and the runner at work; gives what goes on beside it."""
        ...

    async def close(self) -> None:
        """Let go of everything, before the store is closed."""
        ...


class Host:
    """The agents of one process with everything they share; ASGI, with the first agent at the origin."""

    def __init__(
        self, agents: Sequence[tuple[Agent, Mapping[str, object]]], fleet: HostedFleet | None = None
    ) -> None:
        """Take agents, each with the settings that win over its author's, the file's and the environment's.

        With a fleet the one agent given is the name under which that answers at the origin.

        Raises:
            Misuse: a setting does not fit, two agents have one id, or disagree on what is the host's.
        """
        # What each agent has of its own, in the settings of the whole host.
        self._agents = list(zip([agent for agent, _ in agents], settings_of(agents), strict=True))
        self._fleet = fleet
        if fleet is None:
            check_agents([agent for agent, _ in agents])
        self.settings = self._agents[0][1]
        # Whether other machines reach it by its own port, so that it must not be open to everybody.
        self.exposed = False
        self.mounts, self.api, self.mcp = Mounts(), ApiMount(self), McpMount(self)
        for mount in (self.api, self.mcp, *([MetadataMount(self.settings)] if self.settings.issuers else [])):
            self.mounts.add(mount)
        for agent, _ in agents:
            for prefix, app, routes in agent.mounts:
                self.mount(prefix, app, routes=routes)
        self._live = self._started = False
        self._ending: asyncio.Task[None] | None = None
        settings = self.settings
        self.callbacks = Callbacks(settings)
        # How the work that remote agents do is followed.
        self.following = Following(
            callbacks=self.callbacks, poll_s=settings.poll_interval, silence_s=settings.task_max_age
        )
        # Made once, here: it says which of its entries are none, and once is enough.
        hosts, networks = settings.egress_hosts, settings.egress_networks
        self.egress = Egress(hosts=hosts, networks=networks, loopback=settings.dev)
        self._assemble()

    def _assemble(self) -> None:
        settings = self.settings
        self.store = store_from_url(settings.store)
        self.fetchers = TenantFetchers(self.egress, timeout_s=settings.push_timeout)
        self._counts = Counters(_STATES.values())
        # The runs whose effects were not those that their skill declares.
        self.drift = DriftMonitor(self._counts.drift)
        bounds = Bounds(settings.hop_limit, settings.task_budget)
        self.tools = WatchedServers(settings.mcp_manifest)
        self.executors = ExecutorFactory(self.drift, bounds, self.agents, self.following, self.tools)
        self.runner = Runner(
            self.store,
            self._hosted(),
            Ids(),
            Limits(
                settings.cancel_limit, settings.drain_limit, takeovers=settings.takeover_limit, bounds=bounds
            ),
            dev=settings.dev,
        )
        self.streams = Streams(self.store.log, settings.keep_alive, settings.write_limit)
        self.notifier = self._notifier()
        self.announcement = Announcement(settings, self.agents, AGENTS)
        keyring, self.identity = self._known()
        self.key_store = KeyStore(self.store.docs, keyring, now_ms)
        self.sessions = BrowserSessions(self.store.docs, keyring, partial(find_key, settings), now_ms)
        self.identity.sessions = self.sessions
        self.admin = Admin(self.store, self.key_store, self._signer, self.runner.tasks)
        self.admin.kinds, self.admin.mirrors = _document_kinds, self._mirrors
        cors = Cors(settings.cors_origins) if settings.cors_origins else None
        admission = self._admission(cors)
        self.sites = SiteFactory(self.runner, admission, pushes=self.notifier is not None)
        self.router = Router(
            self._sites(),
            self.mounts,
            admission,
            streams=self.streams,
            cors=cors,
            unready=self._unready,
            counts=self._counts,
            admin=self.admin,
            metrics=self._metrics() if settings.metrics else None,
            jwks=None if self.notifier is None else self._jwks,
            fleet=self._fleet,
        )

    def _hosted(self) -> list[HostedAgent]:
        if self._fleet is not None:
            return [HostedAgent(self.agents[0], self._fleet.executor, retention_s=self.settings.kept_s)]
        return [hosted for agent, own in self._agents for hosted in self.executors.of(agent, own)]

    def _sites(self) -> dict[str, Site]:
        if self._fleet is not None:
            return {self.agents[0]: self._fleet.assemble(self)}
        return {agent.id: self.sites.of(agent, own) for agent, own in self._agents}

    def _notifier(self) -> Notifier | None:
        settings, runner = self.settings, self.runner
        if not settings.push or not can_seal(settings):
            return None
        whole = [agent.id for agent, own in self._agents if own.push_format == "task"]
        names = {name for agent in whole for name in runner.names_of(agent)}
        everybody = self._fleet is not None and settings.push_format == "task"
        return Notifier(runner.tasks, runner.ids, settings, None if everybody else names)

    def _known(self) -> tuple[Keyring, Identity]:
        """The keys that open this host, and who is known by them."""
        if self._fleet is not None:
            return self._fleet.identity(self.settings, self._tokens())
        keyring = Keyring(self.settings.keys)
        return keyring, Identity(keyring, self._tokens())

    def _signer(self) -> Signer | None:
        return None if self.notifier is None else self.notifier.signer

    def _mirrors(self) -> list[Mirror[Any]]:
        own: list[Mirror[Any]] = [self.key_store.mirror, self.sessions.mirror]
        signer = self._signer()
        return [
            *own,
            *([] if signer is None else [signer.mirror]),
            *([] if self._fleet is None else self._fleet.mirrors),
        ]

    def _jwks(self) -> bytes:
        signer = self._signer()
        return b"" if signer is None else signer.jwks()

    def _tokens(self) -> Verifier | None:
        if not self.settings.issuers:
            return None
        # Only who needs it waits for the library to load.
        from trunkline.auth.jwt import TokenVerifier

        return TokenVerifier(self.settings.issuers, self.fetchers.shared, now_ms=now_ms, clock=monotonic)

    def _admission(self, cors: Cors | None) -> Admission:
        settings = self.settings
        quota = None
        if settings.rate_limit or settings.concurrency_limit:
            quota = Quota(settings.rate_limit, settings.rate_burst, settings.concurrency_limit, monotonic)
        return Admission(
            HostCheck(hosts_of(settings), None if cors is None else cors.allows, settings.public_url),
            self.identity,
            self.streams,
            quota,
            settings,
            clock=monotonic,
        )

    def _unready(self) -> str:
        if self.runner.draining or self.streams.closing:
            return "draining"
        return "" if self.runner.ready else "store"

    def _metrics(self) -> Render:
        try:
            from trunkline.telemetry.metrics import Metrics
        except ModuleNotFoundError as error:
            hint = "pip install 'trunkline[metrics]'"
            raise Misuse(f"metrics need {error.name}: {hint}", hint=hint) from None
        self.store.observe(self._counts.group)
        deliveries = None if self.notifier is None else self.notifier.counts
        return Metrics(self._counts, self.runner, self.streams, deliveries, self.api.samples).render

    @property
    def agents(self) -> list[str]:
        """The ids of the agents; the first is at the origin."""
        return [agent.id for agent, _ in self._agents]

    def mount(self, prefix: str, app: App, *, routes: Sequence[Route]) -> None:
        """Serve another ASGI application below a prefix, behind the same admission. Its lifespan is not run.

        Raises:
            Misuse: the prefix is taken or ours, or a route does not say what it needs and how much it takes.
        """
        mount = Mount(prefix, app, routes)
        first = prefix.split("/")[1]
        if first in {*RESERVED, ".well-known"}:
            raise Misuse(f"{prefix} would hide what is served at /{first}; mount it below another prefix")
        unknown = mount.scopes - {PUBLIC, *(scope.value for scope in AuthScope)}
        if unknown:
            raise Misuse(f"{prefix}: there is no scope {', '.join(sorted(unknown))}")
        self.mounts.add(mount)

    # Answering.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI: HTTP, WebSocket and lifespan."""
        await self.serve(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send, agent: str | None = None) -> None:
        """Serve ASGI: all agents, or this one alone at the root of the path."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
            return
        if not self._live:
            raise RuntimeError(
                "the agent has not been started: serve it on its own, or pass lifespan=agent.lifespan, "
                "for several lifespan=trunkline.lifespan(one, two), to the application that it is mounted in"
            )
        if scope["type"] == "http":
            alone = None if agent is None else self.router.sites[agent]
            await self.router.answer(AsgiExchange(scope, receive, send), alone)
        else:
            await self.router.connect(scope, receive, send)

    @property
    def answer(self) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
        """What answers a request that came by a connection of our own server."""
        return self.router.answer

    def crowded(self) -> None:
        """Count a connection that was one too many and was turned away before it could ask for anything."""
        self._counts.request("Connect", "CONNECTION_LIMIT")

    def load(self) -> Mapping[str, int]:
        """How many skills and streams still run, for the log."""
        return {"tasks": self.runner.running, "streams": len(self.streams)}

    # Living.

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            log.error("app.failed error=%s", error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.shutdown.complete"})

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Open the store, take up what was left, and put everything back at the end."""
        if self._live:
            # Mounted in a host that runs both its own and our lifespan: the first one counts.
            yield
            return
        # Not before: whoever sets up logging or an SDK has done so by now.
        traces.find_tracer()
        self.runner.tasks.watch = TaskObserver(self._counts, _STATES)
        await self._open()
        self._live = True
        try:
            ticking = await self._begin()
            try:
                yield
            finally:
                try:
                    await self._end()
                finally:
                    for each in ticking:
                        each.cancel()
                    await asyncio.gather(*ticking, return_exceptions=True)
        finally:
            self._live = self._started = False
            self._ending = None
            if self._fleet is not None:
                await self._fleet.close()
            if self.notifier is not None:
                await self.notifier.stop()
            await self.mcp.close()
            await self.tools.close()
            await self.fetchers.close()
            await self.store.close()
            # A host may start again, as hosts do in tests; a store and its runner cannot.
            self._assemble()

    async def _open(self) -> None:
        other = _serving.get(address := self.settings.store)
        try:
            await self.store.open()
        except StoreInUse:
            if other is None or not other._live:
                raise
            raise Misuse(
                f"{', '.join(other.agents)} and {', '.join(self.agents)} of this process would each open "
                f"{shown(address)}: start them with trunkline.lifespan(…), or give one another store="
            ) from None
        _serving[address] = self

    async def _begin(self) -> list[asyncio.Task[None]]:
        """Take up the work, once it is clear who may ask for any; gives what goes on beside it."""
        self.tools.check()
        await self.key_store.mirror.refresh()
        await self.sessions.mirror.refresh()
        self.key_store.report_reserved([prefix.split("/")[1] for prefix in self.mounts.prefixes])
        if self.exposed and not self.identity.enforced:
            raise exposure(self.settings)
        if self.notifier is not None:
            await self.notifier.start(self.fetchers.find)
            self.sites.push_by(self.notifier.push)
        elif self.settings.push:
            log.warning("push.off reason=no_secret_key fix=TRUNKLINE_SECRET_KEY")
        elif await self.store.outbox.list(state="pending", limit=1):
            # From a time when it pushed. They are kept, and posted by whoever pushes here next.
            log.warning("push.off reason=setting pending=yes fix=push")
        await self.runner.start()
        self._started = True
        beside: list[BackgroundWork] = [self.streams.watch, self.mounts.watch, self.announcement.run]
        if self._fleet is not None:
            beside += await self._fleet.start()
        if self.store.shared:
            beside += [self.key_store.mirror.follow, self.sessions.mirror.follow]
        return [asyncio.create_task(keep_running(work)) for work in beside]

    def drain(self) -> None:
        """The server is going down: take nothing new, end the streams, let running skills come to an end.

        Streams first: their readers come back elsewhere while the last answers are still on their way here.
        """
        self.runner.drain()
        self.streams.close()
        self.mounts.close()
        if self._started and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._stop())

    @property
    def drained(self) -> bool:
        """Whether no skill runs here any more, and none will."""
        return self._ending is not None and self._ending.done()

    async def _stop(self) -> None:
        try:
            await asyncio.gather(self.runner.stop(), self.announcement.withdraw())
        finally:
            # A task that moved to another process is answered as it stands.
            self.runner.tasks.end_waits()

    async def _end(self) -> None:
        self.drain()
        if self._ending is not None:
            await self._ending


def _document_kinds() -> Kinds:
    # A start does not need every kind.
    from trunkline.gateway.documents import DOCUMENT_KINDS

    return DOCUMENT_KINDS


class Application:
    """One agent as an ASGI application: a site of a host, which it may share with other agents."""

    def __init__(self, agent: Agent, settings: Mapping[str, object]) -> None:
        """Take an agent, and settings that win over all others.

        Raises:
            Misuse: a setting does not fit.
        """
        self.agent = agent
        self.given = settings
        # Until it is started together with others: see `lifespan`.
        self.host = Host([(agent, settings)])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI."""
        await self.host.serve(scope, receive, send, self.agent.id)

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """Start the host, and stop it at the end."""
        return self.host.lifespan()

    def card_application(self, path: str) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Only the card, for an application that owns the well-known paths; the agent is under `path`."""

        async def card(scope: Scope, receive: Receive, send: Send) -> None:
            # The prefix of the whole application, where a proxy strips one, comes before the mount.
            base = scope.get("app_root_path", "") + path.rstrip("/")
            name = scope["path"].rsplit("/", 1)[-1]
            inner = {**scope, "root_path": base, "path": f"{base}/.well-known/{name}"}
            await self(inner, receive, send)

        return card


def lifespan(*agents: Agent) -> Callable[..., AbstractAsyncContextManager[None]]:
    """What starts agents that are mounted in one application: `FastAPI(lifespan=lifespan(one, two))`.

    Those that are given no store of their own, or the same file or database, share one host and its store.
    """

    @contextlib.asynccontextmanager
    async def living(app: object = None) -> AsyncGenerator[None]:
        del app
        async with contextlib.AsyncExitStack() as stack:
            for host in _together([agent.asgi() for agent in agents]):
                await stack.enter_async_context(host.lifespan())
            yield

    return living


def _together(applications: Sequence[Application]) -> list[Host]:
    """The hosts of these applications: one for each store."""
    groups: dict[object, list[Application]] = {}
    for application in applications:
        address = application.host.settings.store
        own = "store" in application.agent.settings or "store" in application.given
        groups.setdefault(application if own and address == "memory:" else address, []).append(application)
    for group in groups.values():
        # Started with others before, one may still have their host.
        if len(group) != len(group[0].host.agents):
            host = Host([(application.agent, application.given) for application in group])
            for application in group:
                application.host = host
    return [group[0].host for group in groups.values()]
