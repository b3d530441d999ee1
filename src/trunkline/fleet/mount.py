"""The place of the operator's API in a host: its routes, each with the scope that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.auth.principal import Scope as AuthScope
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.mounts import App, Mount, Route
from trunkline.wire.problem import write_problem

if TYPE_CHECKING:
    from trunkline.fleet.api import ApiHost

PREFIX = "/api"
_BODY_LIMIT = 1 << 20
_READ, _WRITE, _ANSWER = AuthScope.READ, AuthScope.WRITE, AuthScope.ANSWER
SCOPES = {
    "GET /tasks": _READ,
    "GET /tasks/{id}": _READ,
    "GET /tasks/{id}/log": _READ,
    "GET /tasks/{id}/events": _READ,
    "POST /tasks/{id}/cancel": _WRITE,
    "POST /tasks:cancel": _WRITE,
    "GET /inbox": _ANSWER,
    "POST /inbox/{id}": _ANSWER,
    "GET /deliveries": AuthScope.ADMIN,
    "GET /settings": AuthScope.ADMIN,
    "GET /openapi.json": _READ,
}


def mount_of(host: ApiHost) -> Mount:
    """The API of a host, to be mounted there; it is loaded when somebody first asks for it."""
    app: App | None = None

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal app
        if app is None:
            from trunkline.fleet.api import OperatorApi

            app = OperatorApi(host)
        await app(scope, receive, send)

    routes = [
        Route(pattern, scope.value, 0 if pattern.startswith("GET ") else _BODY_LIMIT)
        for pattern, scope in SCOPES.items()
    ]
    return Mount(PREFIX, serve, routes, write_problem)
