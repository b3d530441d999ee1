"""Every route of a hub, as the hub itself lists them, asked by another tenant for what is not its own.

What a tenant owns is answered to the others like what nobody owns, and its names are in no answer to them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.conformance.wire.routes import PREFIXES, PROBES, Answer, Ask, Ids, ask, rest, rpc
from tests.hub.test_hub_tenants import FLOW
from trunkline.hub.hub import Hub
from trunkline.wire.operations import METHODS_V03, METHODS_V1, routes

OPERATOR = (b"x-api-key", b"operators-key-1")
CANARY = "canary-of-the-north"
AGENTS = """
agents:
  - {name: local, import: "matrix_agent:agent", tenants: all}
  - {name: northern, url: "http://127.0.0.1:1", tenants: [north]}
"""
LOCAL = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def work(turn: Turn) -> str:
    await turn.ask("Which one? " + turn.text)
    return "done"
"""
VARIABLE = re.compile(r"\{[a-z_]+(\.\.\.)?\}")
TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
UUID = re.compile(rb"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
RETRY = re.compile(rb"retry: \d+")
# They say something to whoever follows them, for ever.
ENDLESS = {"GET /api/bus/subscribe"}
# Bodies that get as far as looking somebody up; `{id}` is who.
BODIES = {
    "POST /api/inbox/{id}": '{"decision":"respond","text":"ours"}',
    "POST /api/tasks:cancel": '{"ids":["{id}"]}',
    "POST /api/dispatch": '{"message":"go","agent":"{id}","wait":5}',
    "POST /api/a2a/chat": '{"agent":"{id}","message":"go"}',
    "POST /api/a2a/delegate": '{"agent":"{id}","message":"go"}',
    "PUT /api/agents/{name}": '{"url":"http://127.0.0.1:1"}',
    "PUT /api/announce/{name}": '{"url":"http://127.0.0.1:1","ttl":60}',
    "POST /api/ceremonies/{id}/update": '{"name":"Ours"}',
    "POST /v1/chat/completions": '{"model":"{id}","messages":[{"role":"user","content":"go"}]}',
    "PATCH /admin/tenants/{id}": '{"disabled":true}',
}
QUERIES = {
    "GET /api/tasks": "?contextId={id}",
    "GET /api/route": "?agent={id}",
    "GET /api/deliveries": "?task={id}",
    "GET /api/fleet/health": "?agent={id}",
    "GET /api/series": "?agent={id}",
    "GET /api/bus/history": "?correlationId={id}",
}


class World(NamedTuple):
    """A hub, the key of a tenant that owns nothing, and what another one owns."""

    hub: Hub
    key: tuple[bytes, bytes]
    owned: dict[str, str]


async def _said(hub: Hub, asked: Ask, key: tuple[bytes, bytes]) -> Any:
    answer = await ask(hub.host, asked, key)
    assert answer.status < 300, (asked, answer.body)
    return msgspec.json.decode(answer.body)


def _posted(path: str, **body: Any) -> Ask:
    return Ask(path, "POST", path, msgspec.json.encode(body))


@asynccontextmanager
async def _world(workspace: Path) -> AsyncGenerator[World]:
    (workspace / "agents.yaml").write_text(AGENTS)
    (workspace / "matrix_agent.py").write_text(LOCAL)
    flags = {"store": "memory:", "keys": (OPERATOR[1].decode(),)}
    hub = Hub(workspace, {**flags, "drain_limit": 0.2, "cancel_limit": 0.2, "log_level": "error"}, {})
    async with hub.host.lifespan():
        keys = [
            (await _said(hub, _posted("/admin/tenants", name=name), OPERATOR))["token"].encode()
            for name in ("north", "south")
        ]
        north, south = ((b"x-api-key", key) for key in keys)
        form = {"id": "north-watch", "name": CANARY, "schedule": "0 3 * * *", "skill": "work"}
        await _said(hub, _posted("/api/ceremonies/create", **form), north)
        made = await _said(hub, _posted("/admin/keys", owner="northman", tenant="north"), OPERATOR)
        sent = _posted(
            "/api/dispatch", agent="local", message=CANARY, contextId="context-of-the-north", wait=30
        )
        task = (await _said(hub, sent, north))["tasks"][0]
        assert task["state"] == "input-required", task
        owned = {
            "task": task["taskId"], "context": "context-of-the-north", "agent": "northern",
            "ceremony": "north-watch", "key": made["key"]["id"], "tenant": "north",
        }  # fmt: skip
        yield World(hub, south, owned)


def _unknown(text: str) -> str:
    """An id of the same form that nobody has."""
    return "".join([chr((ord(one) - 97 + 13) % 26 + 97) if one.islower() else one for one in text[::-1]])


def _patterns(hub: Hub) -> list[str]:
    """Every mounted route by its method and its whole path, such as `GET /api/tasks/{id}`."""
    return [
        f"{each.method} {mount.prefix}{each.route.pattern.partition(' ')[2]}"
        for mount in hub.host.mounts._mounts
        for each in mount.compiled
    ]


def _asks(hub: Hub, wanted: str, tenant: str, *, speaks: bool) -> Iterator[Ask]:
    """Every route with one id in every place where an id can be; also those of A2A if it `speaks` that."""
    for pattern in _patterns(hub):
        verb, _, path = pattern.partition(" ")
        query, body = QUERIES.get(pattern, ""), BODIES.get(pattern, "{}" if verb != "GET" else "")
        if verb == "WEBSOCKET" or pattern in ENDLESS:
            continue
        where = VARIABLE.sub(wanted, path) + query.replace("{id}", wanted)
        form = "" if verb == "DELETE" else body.replace("{id}", wanted)
        yield Ask(pattern, verb, where, form.encode())
        yield Ask(f"{pattern} of it", verb, f"{where}{'&' if query else '?'}tenant={tenant}", form.encode())
    if not speaks:
        return
    ids = Ids(wanted, wanted, wanted, wanted, wanted, wanted, "1", tenant, wanted, wanted)
    for base in ("", "/v1/a2a/agents/local", f"/v1/a2a/agents/{wanted}"):
        for table in (METHODS_V1, METHODS_V03):
            for method, operation in table.items():
                for name, probe in PROBES[operation].items():
                    yield rpc(method, probe(ids), f"{base} {name}", f"{base}/a2a")
        for verb, path, operation in routes():
            for prefix in PREFIXES:
                for name, probe in PROBES[operation].items():
                    made = rest(verb, path, operation, probe(ids), prefix, tenant)
                    yield made._replace(name=f"{made.name} {name} {base}", path=base + made.path)
    for card in ("agent-card.json", ".well-known/agent-card.json"):
        yield Ask(card, "GET", f"/v1/a2a/agents/{wanted}/{card}")


def _plain(answer: Answer, *names: str) -> tuple[int, bytes]:
    body = answer.body
    for name in sorted(names, key=len, reverse=True):
        body = body.replace(name.encode(), b"<it>")
    return answer.status, RETRY.sub(b"retry: <some>", UUID.sub(b"<id>", TIME.sub(b"<time>", body)))


def _with(workspace: Path, case: Callable[[World], Any]) -> Any:
    async def whole() -> Any:
        async with _world(workspace) as world:
            return await case(world)

    return asyncio.run(whole())


def test_what_another_tenant_owns_is_answered_like_what_nobody_owns(tmp_path: Path) -> None:
    async def case(world: World) -> tuple[list[str], int]:
        different: list[str] = []
        count = 0
        for kind, foreign in world.owned.items():
            unknown = _unknown(foreign)
            speaks = kind in ("task", "context", "agent")
            pairs = zip(
                _asks(world.hub, foreign, "north", speaks=speaks),
                _asks(world.hub, unknown, "abegu", speaks=speaks),
                strict=True,
            )
            for theirs, nobodys in pairs:
                count += 1
                answers = [await ask(world.hub.host, one, world.key) for one in (theirs, nobodys)]
                told = [_plain(one, foreign, unknown, "north", "abegu") for one in answers]
                if told[0] != told[1]:
                    different.append(f"{kind}: {theirs.name}: {told[0]} and not {told[1]}")
                if CANARY.encode() in answers[0].body:
                    different.append(f"{kind}: {theirs.name}: tells {CANARY}")
        return different, count

    different, count = _with(tmp_path, case)
    assert different == []
    assert count > 500


def test_every_variable_route_of_the_hub_is_asked(tmp_path: Path) -> None:
    """A body or a query in the tables is one of a route that there is."""

    async def case(world: World) -> set[str]:
        return set(_patterns(world.hub))

    patterns = _with(tmp_path, case)
    assert {*BODIES, *QUERIES, *ENDLESS} <= patterns
    assert {"GET /api/agents", "GET /admin/audit/", "POST /admin/tenants/{id}:rotate"} <= patterns


def test_an_operator_names_a_tenant_on_every_room_of_v1_and_nobody_else_does(tmp_path: Path) -> None:
    async def case(world: World) -> None:
        for path in ("/v1/models", "/v1/models/northern", "/v1/executions", "/v1/workflows/none"):
            theirs = Ask(path, "GET", f"{path}?tenant=north")
            assert (await ask(world.hub.host, theirs, world.key)).status == 403, path
        found = await _said(world.hub, Ask("", "GET", "/v1/models?tenant=north"), OPERATOR)
        assert "northern" in [one["id"] for one in found["data"]]
        form = {"model": "local", "messages": [{"role": "user", "content": "go"}]}
        assert (
            await ask(world.hub.host, _posted("/v1/chat/completions?tenant=north", **form), world.key)
        ).status == 403
        done = await _said(world.hub, _posted("/v1/chat/completions?tenant=north", **form), OPERATOR)
        task = f"/api/tasks/{done['metadata']['taskId']}"
        assert (await ask(world.hub.host, Ask("", "GET", task), OPERATOR)).status == 404
        assert (await ask(world.hub.host, Ask("", "GET", f"{task}?tenant=north"), OPERATOR)).status == 200

    _with(tmp_path, case)


def test_nothing_is_changed_for_what_is_no_tenant(tmp_path: Path) -> None:
    chat = {"model": "local", "messages": [{"role": "user", "content": "go"}]}

    async def case(world: World) -> None:
        async def made(tenant: str) -> list[int]:
            form = {"id": "watch", "name": "Watch", "schedule": "0 3 * * *", "skill": "work"}
            asks = [
                _posted(f"/api/ceremonies/create?tenant={tenant}", **form),
                _posted(f"/api/dispatch?tenant={tenant}", agent="local", message="go"),
                _posted(f"/v1/chat/completions?tenant={tenant}", **chat),
                _posted(f"/v1/workflows?tenant={tenant}", definition=FLOW),
            ]
            return [(await ask(world.hub.host, one, OPERATOR)).status for one in asks]

        assert await made("nort") == [404] * 4
        assert await made("north") == [200, 200, 200, 201]
        # One that only a key names is one.
        await _said(world.hub, _posted("/admin/keys", owner="first", tenant="keyed"), OPERATOR)
        assert await made("keyed") == [200, 200, 200, 201]
        # Nor does anything begin for one that is disabled.
        await _said(world.hub, Ask("", "PATCH", "/admin/tenants/north", b'{"disabled":true}'), OPERATOR)
        start = _posted("/v1/workflows/short/executions?tenant=north", input={})
        closed = await ask(world.hub.host, start, OPERATOR)
        assert closed.status == 409 and b'"TENANT_DISABLED"' in closed.body
        gone = Ask("", "DELETE", "/admin/tenants/north", b"")
        assert (await ask(world.hub.host, gone, OPERATOR)).status == 200
        assert await made("north") == [404] * 4

    _with(tmp_path, case)
