"""The place of tenants in a hub: their routes below `/admin`, each for operators alone."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trunkline.auth.identity import ClosedTenants
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import Principal, Scope, tenant_of
from trunkline.clock import now_ms
from trunkline.errors import RouteNotFound
from trunkline.fleet.call import ApiCall, read_body, read_form
from trunkline.fleet.route import ApiRoute, routes_of
from trunkline.gateway.audit import Audit
from trunkline.gateway.tenant_api import AuditApi, TenantApi
from trunkline.gateway.tenants import TenantBook
from trunkline.http.mounts import App, Mount, Route
from trunkline.store.base import Store
from trunkline.wire.codes import write_problem

TENANTS, AUDIT = "/admin/tenants", "/admin/audit"
_BODY_LIMIT = 64 << 10
# Known here, so that they can be mounted before there is a store.
_PATTERNS = {
    TENANTS: ("POST /", "GET /", "GET /{id}", "PATCH /{id}", "DELETE /{id}", "POST /{id}:rotate"),
    AUDIT: ("GET /",),
}


def tenant_mounts(app: App) -> list[Mount]:
    """The mounts whose requests an application answers by the routes of `mounted_routes`."""
    return [
        Mount(prefix, app, [_route(pattern) for pattern in patterns], write_problem)
        for prefix, patterns in _PATTERNS.items()
    ]


def mounted_routes(api: TenantApi) -> dict[str, dict[str, ApiRoute]]:
    """The routes of both mounts, by prefix and pattern."""
    parts = {TENANTS: api, AUDIT: AuditApi(api.audit)}
    return {prefix: {one.pattern: one for one in routes_of(part)} for prefix, part in parts.items()}


async def perform_tenants(
    store: Store, method: str, path: str, query: Mapping[str, str], body: bytes, *, principal: Principal
) -> bytes:
    """One act on tenants right on a store: a hub on it follows, and one that starts later does.

    Raises:
        Refused: it cannot be done as asked.
    """
    keys = KeyStore(store.docs, Keyring(()), now_ms)
    book = TenantBook(store.docs, ClosedTenants())
    await book.mirror.refresh()
    routes = mounted_routes(TenantApi(book, keys, Audit(store.docs, now_ms), now_ms))
    for mount in tenant_mounts(_nobody):
        if path == mount.prefix or path.startswith(f"{mount.prefix}/"):
            route = routes[mount.prefix][mount.match(method, path).pattern]
            asked = read_form(query, route.query)
            named = path.removeprefix(mount.prefix).removeprefix("/")
            call = ApiCall(principal, tenant_of(principal, asked.tenant), named)
            form = None if route.body is None else read_body(body, route.body)
            return msgspec.json.encode(await route.act(call, asked, form))
    raise RouteNotFound("there is no such act for operators")


def is_of_tenants(path: str) -> bool:
    """Whether a path is one of tenants or their audit."""
    return any([path == prefix or path.startswith(f"{prefix}/") for prefix in _PATTERNS])


def _route(pattern: str) -> Route:
    return Route(pattern, Scope.OPERATOR.value, 0 if pattern.startswith(("GET ", "DELETE ")) else _BODY_LIMIT)


async def _nobody(*_: object) -> None:
    """An application that serves nothing: only its patterns are asked for."""
