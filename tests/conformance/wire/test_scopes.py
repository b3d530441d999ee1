"""Every route × every kind of credential: a caller can do what the scopes of its credential name, and no more.

The routes are those that a running hub and a running server list themselves. A route without a row here
fails `test_every_route_has_a_row`; a scope without a credential fails `test_every_scope_has_its_credentials`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.auth import issuing
from tests.conformance.wire.routes import ACTS, Ask
from tests.hub.test_hub_tenants import FLOW
from trunkline import Agent
from trunkline.auth.principal import Scope
from trunkline.host import Host
from trunkline.http.mounts import PUBLIC, Route
from trunkline.hub.hub import Hub
from trunkline.server.site import DELEGATE_ROUTES
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation, routes

READ, WRITE, ANSWER, ANNOUNCE = "tasks:read", "tasks:write", "answer", "announce"
METRICS, ADMIN, OPERATOR = "metrics", "admin", "operator"
START, RESUME, SUBMIT, HISTORY = "start", "resume", "submit_activity", "read_history"
WORKFLOW = (START, RESUME, SUBMIT, HISTORY)
EVERY = frozenset([one.value for one in Scope])
# A wider scope allows what the narrower one does.
WIDER = {START: WRITE, RESUME: WRITE, SUBMIT: WRITE, HISTORY: READ}

# Any of these allows an operation of A2A, in every binding.
OPERATIONS: dict[Operation, set[str]] = {
    Operation.SEND: {WRITE, ANSWER},
    Operation.STREAM: {WRITE, ANSWER},
    Operation.GET: {READ, ANSWER},
    # Without a filter for tasks that ask something, which the scope answer allows as well.
    Operation.LIST: {READ},
    Operation.CANCEL: {WRITE},
    Operation.SUBSCRIBE: {READ},
    Operation.PUSH_SET: {WRITE},
    Operation.PUSH_GET: {READ},
    Operation.PUSH_LIST: {READ},
    Operation.PUSH_DELETE: {WRITE},
    Operation.EXTENDED_CARD: {READ},
}
# Mounted routes of every host, then those of a hub. The admin of a tenant may use each of them, save those
# that need the scope operator.
SERVER = {
    "GET /api/tasks": READ,
    "GET /api/tasks/{id}": READ,
    "GET /api/tasks/{id}/log": READ,
    "GET /api/tasks/{id}/events": READ,
    "POST /api/tasks/{id}/cancel": WRITE,
    "POST /api/tasks:cancel": WRITE,
    "GET /api/conversations": READ,
    "GET /api/conversations/{id}/messages": READ,
    "DELETE /api/conversations/{id}": WRITE,
    "GET /api/inbox": ANSWER,
    "POST /api/inbox/{id}": ANSWER,
    "POST /api/a2a/callback/{id}": PUBLIC,
    "GET /api/deliveries": ADMIN,
    "GET /api/settings": ADMIN,
    "GET /api/nodes": ADMIN,
    "GET /api/fleet/health": READ,
    "GET /api/series": READ,
    "GET /api/cost-summaries": READ,
    "GET /api/confidence-summaries": READ,
    "GET /api/calls": READ,
    "GET /api/bus/subscribe": ADMIN,
    "GET /api/bus/history": ADMIN,
    "GET /api/openapi.json": READ,
    "POST /mcp/": WRITE,
    "GET /mcp/": WRITE,
    "DELETE /mcp/": WRITE,
    "GET /.well-known/oauth-protected-resource/": PUBLIC,
    "GET /.well-known/oauth-protected-resource/mcp": PUBLIC,
}
HUB = {
    **SERVER,
    "WEBSOCKET /api/bus/subscribe": ADMIN,
    "POST /api/dispatch": WRITE,
    "GET /api/route": READ,
    "GET /api/tasks/{id}/route": READ,
    "POST /api/a2a/chat": WRITE,
    "GET /api/a2a/task/{id}": READ,
    "POST /api/a2a/delegate": WRITE,
    "GET /api/ceremonies": READ,
    "POST /api/ceremonies/create": WRITE,
    "POST /api/ceremonies/{id}/update": WRITE,
    "POST /api/ceremonies/{id}/delete": WRITE,
    "POST /api/ceremonies/{id}/run": WRITE,
    "GET /api/ceremonies/{id}/runs": READ,
    "GET /api/agents": READ,
    "POST /api/agents": ADMIN,
    "GET /api/agents/{name}": READ,
    "PUT /api/agents/{name}": ADMIN,
    "DELETE /api/agents/{name}": ADMIN,
    "POST /api/agents/{name}/refresh": ADMIN,
    "POST /api/agents/{name}/enable": ADMIN,
    "POST /api/agents/{name}/disable": ADMIN,
    "POST /api/agents/{name}/drain": ADMIN,
    "PUT /api/announce/{name}": ANNOUNCE,
    "POST /api/a2a/probe": WRITE,
    "GET /api/roster": READ,
    "GET /v1/models/": READ,
    "GET /v1/models/{id...}": READ,
    "POST /v1/chat/completions": WRITE,
    "POST /v1/workflows/": START,
    "GET /v1/workflows/{id}": HISTORY,
    "POST /v1/workflows/{id}/executions": START,
    "GET /v1/executions/": HISTORY,
    "POST /v1/executions/": START,
    "GET /v1/executions/{id...}/events": HISTORY,
    "GET /v1/executions/{id...}/checkpoint": HISTORY,
    "GET /v1/executions/{id...}": HISTORY,
    "POST /v1/executions/{id...}": START,
    "POST /v1/executions/{id...}:resume": RESUME,
    "POST /v1/executions/{id...}:submit_activity": SUBMIT,
    "POST /v1/executions/{id...}:signal": SUBMIT,
    "POST /v1/executions/{id...}:cancel": START,
}
# Mounted routes of a hub that only its operator may use, and those that have a token of their own.
TENANTS = {
    "GET /admin/tenants/": OPERATOR,
    "POST /admin/tenants/": OPERATOR,
    "GET /admin/tenants/{id}": OPERATOR,
    "PATCH /admin/tenants/{id}": OPERATOR,
    "POST /admin/tenants/{id}:rotate": OPERATOR,
    "DELETE /admin/tenants/{id}": OPERATOR,
    "GET /admin/audit/": OPERATOR,
    "GET /answer/{token}": PUBLIC,
    "POST /answer/{token}": PUBLIC,
    "POST /channels/{name}": PUBLIC,
    "POST /discord/interactions": PUBLIC,
}
PROVEN = {"POST /api/a2a/callback/{id}", "POST /channels/{name}", "POST /discord/interactions"}
# Paths of the host itself, with what allows them; a star stands for what is below.
OWN: dict[str, tuple[str, set[str]]] = {
    "/healthz": ("GET", {PUBLIC}),
    "/readyz": ("GET", {PUBLIC}),
    "/.well-known/jwks.json": ("GET", {PUBLIC}),
    "/ui/sign-in": ("GET", {PUBLIC}),
    "/metrics": ("GET", {METRICS, ADMIN, OPERATOR}),
}
# Any of these allows reading the card of an agent at a hub that hides cards.
CARD_READERS = frozenset({READ, WRITE, ANSWER, ADMIN})
# Those of each site.
SITE: dict[str, set[str]] = {
    "/": set(),
    "/a2a": set(),
    "/a2a/": set(),
    "/a2a/agent-card.json": {PUBLIC},
    "/.well-known/agent-card.json": {PUBLIC},
    "/.well-known/agent.json": {PUBLIC},
}
AGENTS = """
agents:
  - {name: local, import: "scopes_agent:agent", tenants: all}
  - {name: short, workflow: short.flow.json, tenants: all}
"""
LOCAL = """
from trunkline import Agent

agent = Agent("Local")

@agent.skill
async def work(text: str) -> str:
    return text
"""
KEYS = "keys:\n  filed: {env: SCOPES_FILED_KEY, scopes: [tasks:read]}\n"
TOKENS = [{"token": f"flow-token-{name}", "scopes": [name]} for name in WORKFLOW] + [
    {"token": "flow-token-all", "scopes": list(WORKFLOW)}
]
VARIABLE = re.compile(r"\{[a-z_]+(\.\.\.)?\}")
NOBODY = "nobody-00000000"
# Each request comes from elsewhere: too many wrong keys of one address would be refused for that.
PLACES = (f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in count())
REFUSED = b"this needs the scope"
SETTINGS: dict[str, Any] = {
    "store": "memory:", "log_level": "error", "drain_limit": 0.2, "cancel_limit": 0.2, "metrics": True,
    "push": True, "secret_key": "0123456789abcdef0123456789abcdef",
}  # fmt: skip
Headers = tuple[tuple[bytes, bytes], ...]


class Row(NamedTuple):
    """A request to one route, and the scopes of which any allows it; `PUBLIC` is everybody."""

    ask: Ask
    allows: frozenset[str]
    # Whether the operator of this machine is known there by the token that the server writes for it.
    takes_local: bool = False


class Credential(NamedTuple):
    """What a caller shows, and the scopes that it has; None is a credential that nobody issued."""

    name: str
    headers: Headers
    scopes: frozenset[str] | None


def _mounted(table: Mapping[str, str]) -> Iterator[Row]:
    for pattern, scope in table.items():
        verb, _, path = pattern.partition(" ")
        allows = {scope, WIDER.get(scope, scope)} | (set() if scope in (PUBLIC, OPERATOR) else {ADMIN})
        # A path that ends in a slash is that of the mount itself.
        where = VARIABLE.sub(NOBODY, path).rstrip("/")
        body = b"{}" if verb in ("POST", "PUT", "PATCH") else b""
        yield Row(Ask(pattern, verb, where, body), frozenset(allows), takes_local=True)


def _of_site(base: str) -> Iterator[Row]:
    for path, allows in SITE.items():
        if allows:
            yield Row(Ask(f"GET {base}{path}", "GET", base + path), frozenset(allows))
    for path in (one for one, allows in SITE.items() if not allows):
        for table, version in ((METHODS_V1, ((b"a2a-version", b"1.0"),)), (METHODS_V03, ())):
            for method, operation in table.items():
                form = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": NOBODY}}
                made = Ask(f"{method} {base}{path}", "POST", base + path, msgspec.json.encode(form), version)
                yield Row(made, frozenset(OPERATIONS[operation]))
    for verb, path, operation in routes():
        where = path.format(task=NOBODY, config=NOBODY, tenant="default")
        body = b"" if verb in ("GET", "DELETE") else b"{}"
        for before, version in (("", b"1.0"), ("", b"0.3"), ("/v1", b"0.3"), ("/default", b"1.0")):
            at = base + before + where
            made = Ask(f"{verb} {at} {version.decode()}", verb, at, body, ((b"a2a-version", version),))
            yield Row(made, frozenset(OPERATIONS[operation]))
    for path, verb in DELEGATE_ROUTES.items():
        at, body = base + path.format(task=NOBODY), b"{}" if verb == "POST" else b""
        yield Row(Ask(f"{verb} {at}", verb, at, body), frozenset({WRITE if verb == "POST" else READ}))


def _rows(table: Mapping[str, str], *bases: str) -> list[Row]:
    own = [Row(Ask(path, verb, path), frozenset(allows)) for path, (verb, allows) in OWN.items()]
    acts = [
        Row(
            Ask(f"{verb} /admin/{kind} {act}", verb, f"/admin/{kind}{':' if act else ''}{act}".format(id=NOBODY),
                b"{}" if body else b""),
            frozenset({ADMIN}),
            takes_local=True,
        )
        for (verb, kind, act), body in ACTS.items()
    ]  # fmt: skip
    return [*own, *acts, *_mounted(table), *[row for base in bases for row in _of_site(base)]]


async def _verdict(host: Host, row: Row, headers: Headers) -> str:
    """Ask one route until its answer begins: `allowed`, `refused`, or `unknown` for a credential of nobody."""
    asked, left, begun = row.ask, asyncio.Event(), asyncio.Event()
    is_socket = asked.verb == "WEBSOCKET"
    length = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(asked.body)))
    given = {
        b"host": b"localhost",
        **dict(length if asked.body else ()),
        **dict(asked.headers),
        **dict(headers),
    }
    scope = {
        "type": "websocket" if is_socket else "http", "method": asked.verb, "path": asked.path,
        "raw_path": asked.path.encode(), "query_string": b"", "headers": list(given.items()),
        "client": (next(PLACES), 1), "scheme": "ws" if is_socket else "http",
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    first = {"type": "websocket.connect"} if is_socket else {"type": "http.request", "body": asked.body}
    waiting = iter([{**first, "more_body": False}])
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if (message := next(waiting, None)) is not None:
            return message
        await left.wait()
        return {"type": "websocket.disconnect" if is_socket else "http.disconnect", "code": 1000}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)
        begun.set()

    running = asyncio.ensure_future(host(scope, receive, send))
    begins = asyncio.ensure_future(begun.wait())
    async with asyncio.timeout(60):
        await asyncio.wait((running, begins), return_when=asyncio.FIRST_COMPLETED)
        if said and said[0].get("status", 200) < 400:
            # A stream would go on for ever; whoever is let in has been seen by now.
            left.set()
        await asyncio.gather(running, begins)
    if said[0]["type"] == "websocket.accept":
        return "allowed"
    status, body = said[0]["status"], b"".join([one.get("body", b"") for one in said[1:]])
    assert status != 500, (asked, body)
    if status == 401:
        return "unknown"
    return "refused" if status == 403 and REFUSED in body else "allowed"


async def _differences(host: Host, rows: list[Row], credentials: list[Credential]) -> list[str]:
    wrong: list[str] = []
    for row in rows:
        for one in credentials:
            found = await _verdict(host, row, one.headers)
            if PUBLIC in row.allows:
                # Some have a proof of their own in the request.
                expected = found if row.ask.name in PROVEN else "allowed"
            elif one.scopes is None or (one.name == "local" and not row.takes_local):
                expected = "unknown"
            else:
                expected = "allowed" if row.allows & one.scopes else "refused"
            if found != expected:
                wrong.append(f"{one.name}, {row.ask.name}: {found}, not {expected}")
    return wrong


def _patterns(host: Host) -> set[str]:
    return {
        f"{each.method} {mount.prefix}{each.route.pattern.partition(' ')[2]}"
        for mount in host.mounts._mounts
        for each in mount.compiled
    }


def _bearer(token: str) -> Headers:
    return ((b"authorization", b"Bearer " + token.encode()),)


async def _keys(host: Host) -> list[Credential]:
    """API keys of the store: each scope alone, each way it can be sent, and those of another tenant."""
    made: list[Credential] = []
    for scope in sorted(EVERY):
        token = (await host.key_store.create(f"with-{scope.replace(':', '-')}", scopes=[scope])).token
        made.append(Credential(f"key {scope}", ((b"x-api-key", token.encode()),), frozenset({scope})))
    plain = (await host.key_store.create("plain")).token
    made.append(Credential("key without scopes named", _bearer(plain), frozenset({READ, WRITE})))
    south = (await host.key_store.create("southman", tenant="south", scopes=[READ, WRITE])).token
    return [*made, Credential("key of another tenant", _bearer(south), frozenset({READ, WRITE}))]


async def _session(host: Host) -> Credential:
    """The session of a browser that has signed in with a key which only reads."""
    token = (await host.key_store.create("browser", scopes=[READ])).token
    form = f"key={token}".encode()
    said: list[dict[str, Any]] = []
    bodies = iter([{"type": "http.request", "body": form, "more_body": False}])
    headers = {
        b"host": b"localhost", b"origin": b"http://localhost", b"content-length": b"%d" % len(form),
        b"content-type": b"application/x-www-form-urlencoded",
    }  # fmt: skip
    scope = {
        "type": "http", "method": "POST", "path": "/ui/sign-in", "raw_path": b"/ui/sign-in",
        "query_string": b"", "headers": list(headers.items()), "client": ("127.0.0.1", 1),
    }  # fmt: skip

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    async def receive() -> dict[str, Any]:
        return next(bodies)

    await host(scope, receive, send)
    cookie = dict(said[0]["headers"])[b"set-cookie"].partition(b";")[0]
    return Credential("session", ((b"cookie", cookie), (b"origin", b"http://localhost")), frozenset({READ}))


def _jwts() -> list[Credential]:
    """Tokens of an issuer: each scope alone, one of a scope that is none of ours, and a false one."""
    key = issuing.key("EC", "k1")
    named = {scope: frozenset({scope}) & EVERY for scope in sorted(EVERY)} | {"openid": frozenset({READ})}
    made = [
        Credential(f"jwt {scope}", _bearer(issuing.token(key, issuing.claims(scope=scope)).decode()), has)
        for scope, has in named.items()
    ]
    false = issuing.token(issuing.key("EC", "k2"), issuing.claims(scope=READ), kid="k1").decode()
    return [*made, Credential("jwt of a false issuer", _bearer(false), None)]


def _trust_issuer(host: Host) -> None:
    """Have the host take the tokens of `_jwts`; what they name none of ours for may read."""
    net = issuing.Net({issuing.JWKS: issuing.public(issuing.key("EC", "k1"))})
    issuer = issuing.issuer(scopes=tuple(sorted(EVERY)), default_scopes=(READ,))
    host.identity._tokens = issuing.tokens(net, issuer)


NOBODYS = [
    Credential("none", (), None),
    Credential("unknown key", ((b"x-api-key", b"nobody has this one"),), None),
    Credential("unknown token", _bearer("nobody-has-this-one"), None),
]


@asynccontextmanager
async def _hub(workspace: Path, monkeypatch: pytest.MonkeyPatch, **flags: Any) -> AsyncGenerator[Hub]:
    monkeypatch.setenv("SCOPES_FILED_KEY", "filed-key-0001")
    monkeypatch.setenv("WORKFLOW_ENGINE_AUTH_TOKENS", msgspec.json.encode(TOKENS).decode())
    (workspace / "agents.yaml").write_text(AGENTS)
    (workspace / "scopes_agent.py").write_text(LOCAL)
    (workspace / "short.flow.json").write_bytes(msgspec.json.encode(FLOW))
    (workspace / "keys.yaml").write_text(KEYS)
    hub = Hub(workspace, {**SETTINGS, "issuers": (issuing.issuer(),), **flags}, {})
    async with hub.host.lifespan():
        _trust_issuer(hub.host)
        yield hub


def test_a_hub_allows_what_the_scopes_of_a_credential_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case() -> tuple[list[str], int]:
        async with _hub(tmp_path, monkeypatch, keys=("operators-key-1",)) as hub:
            host = hub.host
            credentials = [
                *NOBODYS,
                *await _keys(host),
                *_jwts(),
                *[Credential(f"flow {one['token']}", _bearer(str(one["token"])), frozenset(one["scopes"])) for one in TOKENS],
                Credential("key of a setting", _bearer("operators-key-1"), EVERY),
                Credential("key of the workspace", _bearer("filed-key-0001"), frozenset({READ})),
                Credential("local", _bearer(host.admin.token.reveal()), EVERY),
                await _session(host),
            ]  # fmt: skip
            assert hub.shared
            rows = _rows({**HUB, **TENANTS}, "", "/v1/a2a/agents/local", "/v1/a2a/agents/short")
            # Where there are several tenants, metrics name the agents of all of them, and so do cards.
            metrics = {METRICS, OPERATOR}
            rows = [
                one._replace(allows=frozenset(metrics)) if one.ask.path == "/metrics" else one for one in rows
            ]
            rows = [
                one._replace(allows=CARD_READERS)
                if one.ask.path.startswith("/v1/a2a/") and PUBLIC in one.allows
                else one
                for one in rows
            ]
            return await _differences(host, rows, credentials), len(rows) * len(credentials)

    wrong, tried = asyncio.run(case())
    assert wrong == [], f"{len(wrong)} of {tried}: {wrong[:40]}"
    assert tried > 5000


def test_a_hub_without_keys_takes_everybody_for_the_admin_of_its_one_tenant(tmp_path: Path) -> None:
    async def case() -> list[str]:
        (tmp_path / "agents.yaml").write_text(AGENTS)
        (tmp_path / "scopes_agent.py").write_text(LOCAL)
        (tmp_path / "short.flow.json").write_bytes(msgspec.json.encode(FLOW))
        hub = Hub(tmp_path, SETTINGS, {})
        async with hub.host.lifespan():
            table = {name: scope for name, scope in HUB.items() if "oauth" not in name}
            rows = _rows({**table, **TENANTS}, "", "/v1/a2a/agents/local", "/v1/a2a/agents/short")
            return await _differences(hub.host, rows, [Credential("anybody", (), EVERY - {OPERATOR})])

    assert asyncio.run(case()) == []


async def _mounted_app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


def _server(**settings: Any) -> Any:
    agent = Agent("Plain")
    agent.skill(lambda text: text, id="echo")
    mounted = [Route("GET /it", READ, 0), Route("POST /it", START, 100), Route("GET /all", PUBLIC, 0)]
    agent.mount("/files", _mounted_app, routes=mounted)
    return agent.asgi(**{**SETTINGS, **settings})


FILES = {"GET /files/it": READ, "POST /files/it": START, "GET /files/all": PUBLIC}


def test_a_server_allows_what_the_scopes_of_a_credential_name() -> None:
    async def case() -> tuple[list[str], int]:
        application = _server(keys=("settings-key-1",), issuers=(issuing.issuer(),))
        async with application.lifespan():
            host = application.host
            _trust_issuer(host)
            assert _patterns(host) == {*SERVER, *FILES}
            credentials = [
                *NOBODYS,
                *await _keys(host),
                *_jwts(),
                Credential("key of a setting", _bearer("settings-key-1"), frozenset({READ, WRITE, METRICS})),
                Credential("local", _bearer(host.admin.token.reveal()), EVERY),
                await _session(host),
            ]
            rows = _rows({**SERVER, **FILES}, "", f"/agents/{host.agents[0]}")
            rows = [
                one._replace(allows=frozenset({METRICS, ADMIN})) if one.ask.path == "/metrics" else one
                for one in rows
            ]
            return await _differences(host, rows, credentials), len(rows) * len(credentials)

    wrong, tried = asyncio.run(case())
    assert wrong == [], f"{len(wrong)} of {tried}: {wrong[:40]}"
    assert tried > 5000


def test_every_route_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case() -> None:
        async with _hub(tmp_path, monkeypatch, keys=("operators-key-1",)) as hub:
            assert _patterns(hub.host) == {*HUB, *TENANTS}, "a mounted route without a row"
            router = hub.host.router
            own = {*router._probes, *router._fixed}
            # Signing out takes a form and leads elsewhere, with a key and without one.
            assert own - {"/ui/sign-out"} == set(OWN), "a path of the host without a row"
            assert set(router.origin.handlers) == set(SITE), "a path of a site without a row"
            assert {path.rstrip("/") for path in router._below} == {"/admin", "/v1/a2a/agents"}
        assert set(OPERATIONS) == set(Operation)

    asyncio.run(case())


def test_every_scope_has_its_credentials() -> None:
    assert {*EVERY} == {READ, WRITE, ANSWER, ANNOUNCE, METRICS, ADMIN, OPERATOR, *WORKFLOW}
