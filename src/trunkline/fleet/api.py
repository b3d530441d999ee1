"""The operator's API: an ASGI application that a host mounts under `/api`.

It reads the log and calls the runner, and keeps nothing of its own. Whatever it raises is answered by the
door that it is behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trunkline.auth.principal import Scope as AuthScope
from trunkline.config import Settings
from trunkline.fleet.answer import answer_route
from trunkline.fleet.callback import CallbackApi
from trunkline.fleet.conversations import ConversationApi
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.health.routes import HealthApi
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.mount import PREFIX
from trunkline.fleet.openapi import describe
from trunkline.fleet.route import ApiRoute, api_route, routes_of
from trunkline.fleet.server_lists import ServerApi
from trunkline.fleet.tasks import TaskApi
from trunkline.fleet.topics.routes import TopicApi
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.peer.callbacks import Callbacks
from trunkline.run.runner import Runner


class ApiHost(Protocol):
    """What the API needs of the host that mounts it; a host that starts again has another runner."""

    @property
    def runner(self) -> Runner:
        """The runner that carries the tasks of this host."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the host."""
        ...

    @property
    def agents(self) -> list[str]:
        """The ids of its agents."""
        ...

    @property
    def callbacks(self) -> Callbacks:
        """Where remote agents tell of the tasks that they do for this host."""
        ...


class OperatorApi:
    """Answers the routes that every host has, and those that were added."""

    def __init__(
        self, host: ApiHost, added: Sequence[ApiRoute] = (), health: FleetHealth | None = None
    ) -> None:
        """Take the health of a fleet that is followed anyway; else it is followed once somebody asks."""
        self._host = host
        self._added = added
        self._health = health
        self._runner = host.runner
        self.routes = self._made()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI; the door has found the route and read the body.

        Raises:
            Refused: it cannot be done as asked.
            StoreError: the store does not answer.
        """
        if self._runner is not self._host.runner:
            self._runner = self._host.runner
            self.routes = self._made()
        await answer_route(self.routes, scope, receive, send)

    def _made(self) -> dict[str, ApiRoute]:
        runner, settings = self._runner, self._host.settings

        health = self._health or FleetHealth(
            runner.tasks.store,
            origin=runner.origin,
            window_s=settings.health_window_s,
            registered=lambda _tenant: self._host.agents,
        )
        parts = (
            TaskApi(runner, settings.keep_alive),
            inbox_of(runner),
            ConversationApi(runner),
            CallbackApi(runner, self._host.callbacks),
            ServerApi(runner.tasks.store, settings, runner.origin, health.registered),
            HealthApi(health),
            TopicApi(runner.tasks, runner.origin, settings.keep_alive),
            self,
        )
        declared = [route for part in parts for route in routes_of(part)]
        return {route.pattern: route for route in (*declared, *self._added)}

    @api_route("GET /openapi.json", AuthScope.READ)
    async def description(self) -> dict[str, Any]:
        """This description."""
        return describe([*self.routes.values()], PREFIX)
