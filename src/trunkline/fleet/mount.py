"""The place of the operator's API in a host: its routes, each with the scope that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline.auth.principal import Scope as AuthScope
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.mounts import PUBLIC, WEBSOCKET, App, Mount, Route
from trunkline.telemetry.counters import AgentSample
from trunkline.wire.codes import write_problem

if TYPE_CHECKING:
    from trunkline.fleet.api import ApiHost
    from trunkline.fleet.health.fleet_health import FleetHealth
    from trunkline.fleet.route import ApiRoute

PREFIX = "/api"
_BODY_LIMIT = 1 << 20
# Subscribers have nothing to say.
_MESSAGE_LIMIT = 1024
_READ, _WRITE, _ANSWER = AuthScope.READ, AuthScope.WRITE, AuthScope.ANSWER
# Of the routes that every host has, known here so that a host starts without loading them.
SCOPES: dict[str, AuthScope | None] = {
    "GET /tasks": _READ,
    "GET /tasks/{id}": _READ,
    "GET /tasks/{id}/log": _READ,
    "GET /tasks/{id}/events": _READ,
    "POST /tasks/{id}/cancel": _WRITE,
    "POST /tasks:cancel": _WRITE,
    "GET /conversations": _READ,
    "GET /conversations/{id}/messages": _READ,
    "DELETE /conversations/{id}": _WRITE,
    "GET /inbox": _ANSWER,
    "POST /inbox/{id}": _ANSWER,
    # Whoever calls it has the token of one task, and no key.
    "POST /a2a/callback/{id}": None,
    "GET /deliveries": AuthScope.ADMIN,
    "GET /settings": AuthScope.ADMIN,
    "GET /nodes": AuthScope.ADMIN,
    "GET /fleet/health": _READ,
    "GET /series": _READ,
    "GET /cost-summaries": _READ,
    "GET /confidence-summaries": _READ,
    "GET /calls": _READ,
    "GET /bus/subscribe": AuthScope.ADMIN,
    "GET /bus/history": AuthScope.ADMIN,
    "GET /openapi.json": _READ,
}


class ApiMount(Mount):
    """The API of a host, mounted there; it is loaded when somebody first asks for it."""

    def __init__(self, host: ApiHost) -> None:
        self._host = host
        self._loaded: App | None = None
        self._added: list[ApiRoute] = []
        self._health: FleetHealth | None = None
        routes = [_route(pattern, scope) for pattern, scope in SCOPES.items()]
        super().__init__(PREFIX, self._serve, routes, write_problem)

    @property
    def health(self) -> FleetHealth | None:
        """The health of the fleet of a host that follows it always, whether somebody asks or not."""
        return self._health

    @health.setter
    def health(self, health: FleetHealth) -> None:
        self._health = health
        self._loaded = None

    def samples(self) -> Sequence[AgentSample] | None:
        """How the agents of that fleet did, for the page of metrics; None where nobody follows it."""
        return None if self._health is None else self._health.samples()

    def add(self, routes: Sequence[ApiRoute]) -> None:
        """Serve further routes: those of parts that only some hosts have, such as a hub's catalogue.

        One that was added before is answered by the part that came last.
        """
        known = {one.pattern for one in self._added}
        self._added += routes
        self.extend([_route(one.pattern, one.scope) for one in routes if one.pattern not in known])
        self._loaded = None

    def take_websockets(self) -> None:
        """Tell topics over WebSockets too, for which a server needs the extra `websocket`."""
        self.extend([Route(f"{WEBSOCKET} /bus/subscribe", AuthScope.ADMIN.value, _MESSAGE_LIMIT)])

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._loaded
        if app is None:
            from trunkline.fleet.api import OperatorApi

            app = self._loaded = OperatorApi(self._host, self._added, self._health)
        await app(scope, receive, send)


def _route(pattern: str, scope: AuthScope | None) -> Route:
    named = PUBLIC if scope is None else scope.value
    return Route(pattern, named, 0 if pattern.startswith("GET ") else _BODY_LIMIT)
