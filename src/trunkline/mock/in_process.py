"""Mocks and agents in this process, and clients to them, as the pytest plugin gives them to a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack
from weakref import WeakKeyDictionary

from trunkline.agent.agent import Agent
from trunkline.client.client import Client
from trunkline.client.sync import ClientOptions, SyncClient
from trunkline.errors import Misuse
from trunkline.mock.app import Mock
from trunkline.mock.scenario import Reply, Rule, Scenario
from trunkline.mock.script import load_scenarios, read_scenarios
from trunkline.mock.serve import BackgroundServer
from trunkline.net.http import HttpClient, HttpRequest
from trunkline.net.in_process import BASE, InProcessHttpClient, InProcessResponse
from trunkline.wire.types import Message

Script = Scenario | Sequence[Rule] | Reply | Path | str


class _InProcess:
    """An application in this process, whose clients need no socket; it can listen on one too."""

    def __init__(self, make: Callable[[], Any], http_client: HttpClient) -> None:
        self._make = make
        self._http_client = http_client
        self._listening: BackgroundServer | None = None

    @property
    def url(self) -> str:
        """The URL on a socket once it listens, else one that only its own clients can call."""
        return BASE if self._listening is None else self._listening.url

    def client(self, **options: Unpack[ClientOptions]) -> Client:
        """A client to it, for code with an event loop."""
        return Client(self.url, **self._options(options))

    def sync_client(self, **options: Unpack[ClientOptions]) -> SyncClient:
        """A client to it, for code without an event loop."""
        return SyncClient(self.url, **self._options(options))

    def _options(self, options: ClientOptions) -> ClientOptions:
        if self._listening is None:
            options.setdefault("http_client", self._http_client)
        return options

    def listen(self) -> str:
        """Serve it on a free port of this machine too, for whoever needs a real URL; gives that URL."""
        if self._listening is None:
            self._listening = BackgroundServer(self._make())
            self._listening.start()
        return self._listening.url

    def close(self) -> None:
        """Stop serving it on a port."""
        if self._listening is not None:
            self._listening.close()


class InProcessMock(_InProcess):
    """A mock in this process; its clients need no socket."""

    def __init__(self, script: Script) -> None:
        self.mock = Mock(scenario_of(script))
        # Every request, in order; how often the work of each message was begun, and each rule was hit.
        self.received, self.runs, self.hits = self.mock.received, self.mock.runs, self.mock.hits
        super().__init__(lambda: self.mock, InProcessHttpClient(self.mock))

    @property
    def messages(self) -> list[Message]:
        """Every message, each time it came."""
        return self.mock.messages

    def verify(self) -> None:
        """Compare what happened with what the scenario expects.

        Raises:
            AssertionError: it differs; the text says how.
        """
        wrong = self.mock.check()
        if wrong:
            raise AssertionError(f"{self.mock.scenario.agent.name}: " + "; ".join(wrong))


class InProcessAgent(_InProcess):
    """A real agent in this process, with a store in memory: one for each event loop that calls it.

    On a socket it has one store for all who call it there.
    """

    def __init__(self, agent: Agent, **settings: object) -> None:
        given = {"store": "memory:", "drain_limit": 1, **settings}

        def make() -> Any:
            return agent.asgi(**given)

        super().__init__(make, _LoopBoundClient(make))


class _LoopBoundClient:
    """An HTTP client into an application that is started once for each event loop that calls it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._running: WeakKeyDictionary[asyncio.AbstractEventLoop, _RunningApp] = WeakKeyDictionary()

    async def open(self, request: HttpRequest) -> InProcessResponse:
        """See `HttpClient`."""
        loop = asyncio.get_running_loop()
        app = self._running.get(loop)
        if app is None:
            app = self._running[loop] = _RunningApp(self._make())
        await app.started()
        return await app.http_client.open(request)

    async def close(self) -> None:
        """See `HttpClient`; the applications end with their loops."""


class _RunningApp:
    """An application that runs until its event loop ends."""

    def __init__(self, app: Any) -> None:
        self.http_client = InProcessHttpClient(app)
        self._app = app
        self._started = asyncio.Event()
        # Whoever ends the loop cancels what still runs in it, and waits.
        self._task = asyncio.get_running_loop().create_task(self._lifespan())

    async def started(self) -> None:
        waiting = asyncio.ensure_future(self._started.wait())
        await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task

    async def _lifespan(self) -> None:
        async with self._app.lifespan():
            self._started.set()
            await asyncio.Event().wait()


def scenario_of(script: Script) -> Scenario:
    """A scenario, or what stands for one: rules, one reply to everything, a YAML file or its text.

    Raises:
        Misuse: it is none, or holds several.
    """
    if isinstance(script, Scenario):
        return script
    if isinstance(script, Reply):
        return Scenario(rules=(Rule(reply=script),))
    if not isinstance(script, Path | str):
        return Scenario(rules=tuple(script))
    is_yaml = isinstance(script, str) and ("\n" in script or ":" in script)
    scenarios = read_scenarios(str(script)) if is_yaml else load_scenarios(script)
    if len(scenarios) != 1:
        names = ", ".join(scenario.name for scenario in scenarios)
        raise Misuse(f"the file holds several agents ({names}); read it with load_scenarios and take one")
    return scenarios[0]


Target = InProcessMock | InProcessAgent | Agent | Script


def connect(target: Target, **options: Unpack[ClientOptions]) -> SyncClient:
    """A client to whatever stands for an agent; a text that begins with http is the URL of one elsewhere."""
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return SyncClient(target, **options)
    if isinstance(target, Agent):
        target = InProcessAgent(target)
    elif not isinstance(target, InProcessMock | InProcessAgent):
        target = InProcessMock(target)
    return target.sync_client(**options)
