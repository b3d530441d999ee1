"""Composition root: the only file that knows every room."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import DriftMonitor
from trunkline.agent.executor import SkillExecutor
from trunkline.agent.turn import Coalesce
from trunkline.auth.identity import Identity, Verifier
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import Scope as AuthScope
from trunkline.auth.signing import Signer
from trunkline.auth.vault import can_seal
from trunkline.clock import Ids, now_ms
from trunkline.config import Settings, load
from trunkline.errors import Misuse
from trunkline.http.asgi import AsgiExchange, Receive, Scope, Send
from trunkline.http.exchange import Exchange
from trunkline.http.host_check import LOOPBACK, HostCheck, is_loopback
from trunkline.http.mounts import PUBLIC, App, Mount, Mounts, Route
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.run.hops import Bounds
from trunkline.run.limits import Quota
from trunkline.run.node import HostedAgent, Limits
from trunkline.run.notifier import Notifier
from trunkline.run.runner import Runner
from trunkline.server.admin import Admin
from trunkline.server.admission import Admission
from trunkline.server.card import Cards
from trunkline.server.cors import Cors
from trunkline.server.encoding import EncodedOperations
from trunkline.server.health import Health
from trunkline.server.operations import Operations
from trunkline.server.refusals import BodyReader, Refusals
from trunkline.server.router import Render, Router
from trunkline.server.site import Site
from trunkline.server.streams import Streams
from trunkline.store.url import store_from_url
from trunkline.telemetry import traces
from trunkline.telemetry.counters import Counters, TaskObserver
from trunkline.wire.card import Card, Extension, Skill
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import STATES

log = logging.getLogger("trunkline")
_TEXT = ("text/plain",)
_IDEMPOTENT = Extension(
    IDEMPOTENT_SEND,
    "The same message, known by a messageId that is a UUID or by Idempotency-Key, is the same task for a day",
    required=False,
)
_STATES: dict[Enum, str] = {state: plain_state(state) for state in STATES}


class Application:
    """An agent, its store, its runner and its server: one ASGI application."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        if not agent.skills:
            raise Misuse(f"agent {agent.name} has no skill; decorate a function with @agent.skill")
        self.settings = settings
        self._agent = agent
        # Whether other machines reach it by its own port, so that it must not be open to everybody.
        self.exposed = False
        self._live = 0
        self._started = False
        self._ending: asyncio.Task[None] | None = None
        # Made once, here: it says which of its entries are none, and once is enough.
        self._egress = Egress(
            hosts=settings.egress_hosts, networks=settings.egress_networks, loopback=settings.dev
        )
        self.mounts = Mounts()
        for prefix, app, routes in agent.mounts:
            self.mount(prefix, app, routes=routes)
        self._assemble()

    def mount(self, prefix: str, app: App, *, routes: Sequence[Route]) -> None:
        """Serve another ASGI application below a prefix, behind the same admission. Its lifespan is not run.

        Raises:
            Misuse: the prefix is taken, or a route does not say which scope it needs and how much it takes.
        """
        mount = Mount(prefix, app, routes)
        unknown = mount.scopes - {PUBLIC, *(scope.value for scope in AuthScope)}
        if unknown:
            raise Misuse(f"{prefix}: there is no scope {', '.join(sorted(unknown))}")
        self.mounts.add(mount)

    @property
    def has_websockets(self) -> bool:
        """Whether anything mounted takes WebSockets."""
        return self.mounts.has_websockets

    def _assemble(self) -> None:
        agent, settings = self._agent, self.settings
        self.store = store_from_url(settings.store)
        self.fetcher = Fetcher(self._egress, timeout_s=settings.push_timeout)
        bounds = Bounds(settings.hop_limit, settings.task_budget)
        limits = Limits(
            settings.cancel_limit, settings.drain_limit, takeovers=settings.takeover_limit, bounds=bounds
        )
        coalesce = Coalesce(settings.coalesce_characters, settings.coalesce_milliseconds)
        self._counts = Counters(_STATES.values())
        self.drift = DriftMonitor(self._counts.drift)
        executor = SkillExecutor(agent.name, agent.skills, agent.default, coalesce, self.drift, bounds=bounds)
        hosted = HostedAgent("", executor, settings.stall_limit, settings.kept_s)
        self.runner = Runner(self.store, [hosted], Ids(), limits, dev=settings.dev)
        self.streams = Streams(self.store.log, settings.keep_alive, settings.write_limit)
        self.postroom = self._postroom()
        ring = Keyring(settings.keys)
        self.book = KeyStore(self.store.docs, ring, now_ms)
        self.identity = Identity(ring, self._tokens())
        self.operators = Admin(self.store, self.book, self._signer, self.runner.tasks.forget)
        calls = Operations(self.runner, wait_limit_s=settings.wait_limit, streaming=agent.streaming)
        self.calls = calls
        cors = Cors(settings.cors_origins) if settings.cors_origins else None
        admission, refusals = self._door(cors), Refusals(self.identity)
        read_body = BodyReader(settings.body_limit, settings.body_timeout)
        site = self._site(calls, admission, refusals, read_body)
        self.server = Router(
            {agent.name: site},
            self.mounts,
            admission,
            refusals,
            streams=self.streams,
            identity=self.identity,
            read_body=read_body,
            cors=cors,
            health=Health(self._unready),
            counts=self._counts,
            admin=self.operators,
            metrics=self._metrics() if settings.metrics else None,
            jwks=None if self.postroom is None else self._jwks,
        )

    def _site(
        self, operations: Operations, admission: Admission, refusals: Refusals, read_body: BodyReader
    ) -> Site:
        agent, settings = self._agent, self.settings
        return Site(
            EncodedOperations(operations, settings.kept_s),
            Cards(
                replace(card_of(agent), push=self.postroom is not None),
                settings,
                self.identity,
                HostCheck(hosts_of(settings)),
                [skill.id for skill in agent.skills.values() if not skill.public],
            ),
            admission,
            refusals,
            read_body=read_body,
            wait=settings.reply == "wait",
        )

    def _postroom(self) -> Notifier | None:
        settings, runner = self.settings, self.runner
        if not settings.push or not can_seal(settings):
            return None
        return Notifier(runner.tasks, runner.ids, settings)

    def _signer(self) -> Signer | None:
        return None if self.postroom is None else self.postroom.signer

    def _jwks(self) -> bytes:
        signer = self._signer()
        return b"" if signer is None else signer.jwks()

    def _tokens(self) -> Verifier | None:
        if not self.settings.issuers:
            return None
        # Only who needs it waits for the library to load.
        from trunkline.auth.jwt import TokenVerifier

        return TokenVerifier(self.settings.issuers, self.fetcher, now_ms=now_ms, clock=monotonic)

    def _door(self, cors: Cors | None) -> Admission:
        settings = self.settings
        guard = HostCheck(hosts_of(settings), None if cors is None else cors.allows)
        quota = None
        if settings.rate_limit or settings.concurrency_limit:
            quota = Quota(settings.rate_limit, settings.rate_burst, settings.concurrency_limit, monotonic)
        return Admission(
            guard,
            self.identity,
            self.streams,
            quota,
            clock=monotonic,
            trust_forwarded=settings.trust_forwarded,
        )

    def _unready(self) -> str:
        if self.runner.draining or self.streams.closing:
            return "draining"
        return "" if self.runner.ready else "store"

    def _metrics(self) -> Render:
        try:
            from trunkline.telemetry.metrics import Metrics
        except ModuleNotFoundError as error:
            raise Misuse(f"metrics need {error.name}: pip install 'trunkline[metrics]'") from None
        self.store.observe(self._counts.group)
        tally = None if self.postroom is None else self.postroom.counts
        return Metrics(self._counts, self.runner, self.streams, tally).render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI: HTTP and lifespan."""
        if scope["type"] == "http":
            if not self._live:
                raise RuntimeError(
                    "the agent has not been started: serve it on its own, "
                    "or pass lifespan=agent.lifespan to the host"
                )
            await self.server.answer(AsgiExchange(scope, receive, send))
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self.server.connect(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
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
        await self.store.open()
        self._live = 1
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
            self._live = 0
            self._started = False
            self._ending = None
            if self.postroom is not None:
                await self.postroom.stop()
            await self.fetcher.close()
            await self.store.close()
            # A host may start again, as hosts do in tests; a store and its runner cannot.
            self._assemble()

    async def _begin(self) -> list[asyncio.Task[None]]:
        """Take up the work, once it is clear who may ask for any; gives what goes on beside it."""
        await self.book.refresh()
        if self.exposed and not self.identity.enforced:
            raise exposure(self.settings)
        if self.postroom is not None:
            await self.postroom.start(self.fetcher)
            self.calls.push = self.postroom.push
        elif self.settings.push:
            log.warning("push.off reason=no_secret_key fix=TRUNKLINE_SECRET_KEY")
        elif await self.store.outbox.list(state="pending", limit=1):
            # From a time when it pushed. They are kept, and posted by whoever pushes here next.
            log.warning("push.off reason=setting pending=yes fix=push")
        await self.runner.start()
        self._started = True
        loop = asyncio.get_running_loop()
        ticking = [loop.create_task(self.streams.watch())]
        if self.mounts:
            ticking.append(loop.create_task(self.mounts.watch()))
        if self.store.shared:
            ticking.append(loop.create_task(self.book.follow()))
        return ticking

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
    def answer(self) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
        """What answers a request that came by a connection of our own server."""
        return self.server.answer

    def crowded(self) -> None:
        """Count a connection that was one too many."""
        self.server.crowded()

    def load(self) -> Mapping[str, int]:
        """How many skills and streams still run, for the log."""
        return {"tasks": self.runner.running, "streams": len(self.streams)}

    @property
    def drained(self) -> bool:
        """Whether no skill runs here any more, and none will."""
        return self._ending is not None and self._ending.done()

    async def _stop(self) -> None:
        try:
            await self.runner.stop()
        finally:
            # A task that moved to another process is answered as it stands.
            self.runner.tasks.end_waits()

    async def _end(self) -> None:
        self.drain()
        if self._ending is not None:
            await self._ending

    def cards(self, path: str) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        """Only the card, for a host that owns the origin's well-known paths; the agent is under `path`."""

        async def card(scope: Scope, receive: Receive, send: Send) -> None:
            # The host's own prefix, where a proxy strips one, comes before the mount.
            base = scope.get("app_root_path", "") + path.rstrip("/")
            name = scope["path"].rsplit("/", 1)[-1]
            inner = {**scope, "root_path": base, "path": f"{base}/.well-known/{name}"}
            await self(inner, receive, send)

        return card


def build(agent: Agent, flags: Mapping[str, object]) -> Application:
    """The application of an agent, with settings from everywhere.

    Raises:
        Misuse: a setting does not fit.
    """
    return Application(agent, load(agent.settings, flags))


def exposure(settings: Settings) -> Misuse:
    """Why an agent is not served."""
    return Misuse(
        f"{settings.host} is reachable by other machines and no key is set: "
        "make one with trunkline keys create, give --key KEY, or --open to let anybody in"
    )


def hosts_of(settings: Settings) -> list[str]:
    """The names by which the server may be called; none lets every name in."""
    hosts = list(settings.allowed_hosts)
    if settings.public_url:
        hosts.append(urlsplit(settings.public_url).hostname or "")
    return [*hosts, *LOOPBACK] if is_loopback(settings.host) else hosts


def card_of(agent: Agent) -> Card:
    """What the card says of an agent; flags follow from what it does."""
    skills = tuple(
        Skill(
            id=skill.id,
            name=skill.name,
            description=skill.description,
            tags=skill.tags,
            examples=skill.examples,
            input_modes=skill.input_modes,
            output_modes=skill.output_modes,
        )
        for skill in agent.skills.values()
    )
    return Card(
        name=agent.name,
        description=agent.description,
        version=agent.version,
        rpc_url="",
        rest_url="",
        skills=skills,
        default_input_modes=_modes(agent.input_modes, [skill.input_modes for skill in skills]),
        default_output_modes=_modes(agent.output_modes, [skill.output_modes for skill in skills]),
        streaming=agent.streaming,
        extensions=(*agent.extensions, _IDEMPOTENT),
        provider=agent.provider,
        icon_url=agent.icon_url,
        documentation_url=agent.documentation_url,
    )


def _modes(given: tuple[str, ...], of_skills: list[tuple[str, ...]]) -> tuple[str, ...]:
    return given or tuple(dict.fromkeys(mode for modes in of_skills for mode in modes)) or _TEXT
