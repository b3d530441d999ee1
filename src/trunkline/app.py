"""Composition root: the only file that knows every room."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from enum import Enum
from urllib.parse import urlsplit

from trunkline.agent.agent import Agent
from trunkline.agent.executor import SkillExecutor
from trunkline.agent.turn import Coalesce
from trunkline.clock import now_ms, random_bits
from trunkline.config import Settings, load
from trunkline.errors import Misuse
from trunkline.log.decide import plain
from trunkline.log.ids import Ids
from trunkline.run.runner import Limits, Runner
from trunkline.server.app import Render, Server
from trunkline.server.calls import Calls
from trunkline.server.card import Cards
from trunkline.server.exchange import Receive, Scope, Send
from trunkline.server.guard import LOOPBACK, Guard, is_loopback
from trunkline.server.health import Health
from trunkline.server.streams import Streams
from trunkline.store.url import store_from_url
from trunkline.telemetry import traces
from trunkline.telemetry.counts import Counts
from trunkline.telemetry.watch import Watch
from trunkline.wire.card import Card, Skill
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline")
_TEXT = ("text/plain",)
_STATES: dict[Enum, str] = {state: plain(state) for state in TaskState}


class Application:
    """An agent, its store, its runner and its server: one ASGI application."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        if not agent.skills:
            raise Misuse(f"agent {agent.name} has no skill; decorate a function with @agent.skill")
        self.settings = settings
        self._agent = agent
        self._live = 0
        self._started = False
        self._ending: asyncio.Task[None] | None = None
        self._assemble()

    def _assemble(self) -> None:
        agent, settings = self._agent, self.settings
        self.store = store_from_url(settings.store)
        limits = Limits(settings.stall_limit, settings.cancel_limit, settings.drain_limit, settings.kept_s)
        coalesce = Coalesce(settings.coalesce_characters, settings.coalesce_milliseconds)
        executor = SkillExecutor(agent.name, agent.skills, agent.default, coalesce)
        self.runner = Runner(self.store, executor, Ids(now_ms, random_bits), limits, dev=settings.dev)
        self.streams = Streams(self.store, settings.keep_alive, settings.write_limit)
        calls = Calls(self.runner, wait_limit_s=settings.wait_limit, streaming=agent.streaming)
        self._counts = Counts(_STATES.values())
        self.server = Server(
            calls,
            self.streams,
            Cards(card_of(agent), settings),
            settings,
            Guard(_hosts(settings)),
            health=Health(self._unready),
            counts=self._counts,
            metrics=self._metrics() if settings.metrics else None,
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
        return Metrics(self._counts, self.runner, self.streams).render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI: HTTP and lifespan."""
        if scope["type"] == "http":
            if not self._live:
                raise RuntimeError(
                    "the agent has not been started: serve it on its own, "
                    "or pass lifespan=agent.lifespan to the host"
                )
            await self.server(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1003})

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
        self.runner.tasks.watch = Watch(self._counts, _STATES)
        await self.store.open()
        self._live = 1
        try:
            await self.runner.start()
            self._started = True
            ticking = asyncio.get_running_loop().create_task(self.streams.watch())
            try:
                yield
            finally:
                try:
                    await self._end()
                finally:
                    ticking.cancel()
        finally:
            self._live = 0
            self._started = False
            self._ending = None
            await self.store.close()
            # A host may start again, as hosts do in tests; a store and its runner cannot.
            self._assemble()

    def drain(self) -> None:
        """The server is going down: take nothing new, end the streams, let running skills come to an end.

        Streams first: their readers come back elsewhere while the last answers are still on their way here.
        """
        self.runner.drain()
        self.streams.close()
        if self._started and self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._stop())

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


def _hosts(settings: Settings) -> list[str]:
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
        provider=agent.provider,
        icon_url=agent.icon_url,
        documentation_url=agent.documentation_url,
    )


def _modes(given: tuple[str, ...], of_skills: list[tuple[str, ...]]) -> tuple[str, ...]:
    return given or tuple(dict.fromkeys(mode for modes in of_skills for mode in modes)) or _TEXT
