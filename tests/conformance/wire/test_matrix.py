"""Rows 51 and 52, SEC-01, SEC-03, SEC-04: every route that the server has, asked by those it is not for.

The routes come from the server itself: one that has no row here fails.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import string
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.wire import routes as table
from tests.conformance.wire.routes import (
    ACTS,
    API,
    KEYED,
    OPEN,
    OWN,
    PROBES,
    Answer,
    Ask,
    Ids,
    Probe,
    ask,
    every,
    plain,
)
from tests.conftest import Shelf
from trunkline import Agent, Turn
from trunkline.auth.principal import RESERVED
from trunkline.fleet import mount
from trunkline.server.admin import OF_SERVER, Admin
from trunkline.server.pages import SIGN_OUT
from trunkline.server.router import AGENTS, Router
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation, routes

CANARY = "canary-of-the-owner"
TENANT, ELSEWHERE = "north", "south"
# Who asks: the tenant, and what the key allows.
CALLERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "owner": (TENANT, ()),
    "neighbour": (TENANT, ()),
    "stranger": (ELSEWHERE, ()),
    "reader": (TENANT, ("tasks:read",)),
    "writer": (TENANT, ("tasks:write",)),
    "meter": (TENANT, ("metrics",)),
    "operator": (TENANT, ("admin",)),
}
OTHERS = ("neighbour", "stranger")
SETTINGS: dict[str, object] = {
    "dev": True, "secret_key": "sixteen or more of them", "metrics": True,
    "drain_limit": 0.2, "cancel_limit": 0.2, "log_level": "error",
}  # fmt: skip
WRITES = {Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE}
READS = {Operation.GET, Operation.SUBSCRIBE, Operation.PUSH_GET, Operation.PUSH_LIST}


def _agent() -> Agent:
    agent = Agent("Matrix", description="Echoes, asks and holds", version="1.0.0")

    @agent.skill(id="echo")
    async def echo(turn: Turn) -> str:
        """Give back what was sent; ask, or stay."""
        if turn.text.startswith("ask"):
            await turn.ask(f"Which one? {CANARY}")
        if turn.text.startswith("hold"):
            await asyncio.Event().wait()
        return turn.text

    return agent


class World(NamedTuple):
    """A running application, the tasks of the owner, and who else asks."""

    application: Any
    keys: dict[str, tuple[bytes, bytes]]
    owned: list[Ids]
    own_tasks: dict[str, str]


@asynccontextmanager
async def _world(store: str) -> AsyncGenerator[World]:
    application = _agent().asgi(store=store, **SETTINGS)
    async with application.lifespan():
        made = {
            who: await application.host.key_store.create(who, tenant=tenant, scopes=scopes)
            for who, (tenant, scopes) in CALLERS.items()
        }
        keys = {who: (b"x-api-key", one.token.encode()) for who, one in made.items()}
        mine = [await _own(application, keys["owner"], word) for word in ("echo", "ask", "hold")]
        listed = table.rpc("ListTasks", Probe(query={"pageSize": 1}))
        token = (await _result(application, keys["owner"], listed))["nextPageToken"]
        rows = [
            made["owner"].key.id,
            *(one.id for one in await application.host.store.outbox.list(tenant=TENANT)),
        ]
        owned = [ids._replace(token=token, row=row) for ids, row in zip(mine, rows, strict=False)]
        assert len(owned) == len(mine)
        for ids in mine:
            # What the owner has read is in the cache, where nobody else may find it.
            for asked in (
                table.rpc("GetTask", Probe(task=ids.task)),
                table.rpc("tasks/get", Probe(task=ids.task)),
            ):
                await _result(application, keys["owner"], asked)
        own_tasks = {who: (await _own(application, keys[who], "echo")).task for who in ("owner", *OTHERS)}
        yield World(application, keys, owned, own_tasks)


async def _own(application: Any, key: tuple[bytes, bytes], word: str) -> Ids:
    """A task with everything that can be named of it."""
    message_id, context = str(uuid.uuid4()), f"context-{uuid.uuid4()}"
    message = {
        "messageId": message_id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": f"{word} {CANARY}"}],
    }  # fmt: skip
    repeat = f"key-{uuid.uuid4()}"
    sent = table.rpc(
        "SendMessage", Probe(message=message, query={"configuration": {"returnImmediately": word == "hold"}})
    )
    result = await _result(application, key, sent._replace(headers=(*sent.headers, (b"idempotency-key", repeat.encode()))))  # fmt: skip
    task, config = result["task"]["id"], f"config-{uuid.uuid4()}"
    await _result(
        application, key, table.rpc("CreateTaskPushNotificationConfig", Probe(task=task, config=config))
    )
    return Ids(task, context, config, message_id, repeat, "", "1", TENANT, "", "")


async def _result(application: Any, key: tuple[bytes, bytes], asked: Ask) -> Any:
    answer = await ask(application, asked, key)
    said = json.loads(answer.body)
    assert "result" in said, said
    return said["result"]


def _unknown(ids: Ids, *, tenant: str) -> Ids:
    """Ids of the same shape that nobody has."""
    middle = len(ids.token) // 2
    other = "A" if ids.token[middle] != "A" else "B"
    return Ids(
        task=ids.task[:-12] + uuid.uuid4().hex[:12],
        context=f"context-{uuid.uuid4()}",
        config=f"config-{uuid.uuid4()}",
        message=str(uuid.uuid4()),
        key=f"key-{uuid.uuid4()}",
        token=ids.token[:middle] + other + ids.token[middle + 1 :],
        event=ids.event,
        tenant=tenant,
        own_task=ids.own_task,
        row=uuid.uuid4().hex[: len(ids.row)].ljust(len(ids.row), "0"),
    )


async def _kept(world: World) -> list[tuple[list[Any], list[tuple[str, str]]]]:
    """Everything that the owner has."""
    store = world.application.host.store
    return [
        (
            await store.log.read(TENANT, ids.task),
            [(one.id, one.lane) for one in await store.outbox.list(tenant=TENANT, task_id=ids.task)],
        )
        for ids in world.owned
    ]


def _paths(router: Router) -> list[str]:
    """Every path beside those of REST; a star stands for what is below one."""
    below = [*router._below, AGENTS, *(f"{prefix}/" for prefix in router._mounts.prefixes), "/delegate/"]
    return [*router._probes, *router.origin.handlers, *router._fixed, *(f"{prefix}*" for prefix in below)]


def test_every_route_has_a_row() -> None:
    assert set(PROBES) == set(Operation)
    assert {*METHODS_V1.values(), *METHODS_V03.values()} <= set(PROBES)
    named = {name for _, path, _ in routes() for _, name, _, _ in string.Formatter().parse(path) if name}
    assert named <= set(Ids._fields), "an id in a path that the matrix does not fill"
    application = _agent().asgi(store="memory:", metrics=True)
    # Signing out takes a form and leads elsewhere, with a key and without one.
    assert set(_paths(application.host.router)) == {*OWN, SIGN_OUT}, "a path of the server without a row"
    acts = re.findall(r'case "(\w+)", "(\w+)", ("?)\w*"?, "(\w*)":', inspect.getsource(Admin.perform))
    known = {(verb, kind if quoted else f"{kind}/{{id}}", act) for verb, kind, quoted, act in acts}
    for verb, path in map(str.split, OF_SERVER):
        kind, _, act = path.partition(":")
        known.add((verb, kind, act))
    assert known == set(ACTS), "an act of operators without a row"
    assert set(mount.SCOPES) == set(API), "a route of the operator's API without a row"


def test_the_first_segment_of_every_path_is_reserved_for_tenants() -> None:
    paths = [*OWN, *(path for _, path, _ in routes())]
    first = {path.split("/")[1].partition(":")[0] for path in paths}
    assert {word for word in first if word and word[0].isalnum()} <= RESERVED


def test_SEC_04_what_another_owns_is_answered_like_what_nobody_owns(shelf: Shelf, tmp_path: Path) -> None:
    async def play() -> tuple[list[str], int]:
        wrong: list[str] = []
        count = 0
        async with _world(shelf.store(f"sqlite:///{tmp_path}/tasks.db")) as world:
            before = await _kept(world)
            for who in OTHERS:
                for owned in world.owned:
                    theirs = owned._replace(own_task=world.own_tasks[who])
                    # Whoever is in the same tenant may name it.
                    tenant = TENANT if who == "neighbour" else "nowhere"[: len(TENANT)]
                    nobodys = _unknown(theirs, tenant=tenant)
                    for (_, foreign), (_, unknown) in zip(every(theirs), every(nobodys), strict=True):
                        wrong += await _differ(world, who, (foreign, theirs), (unknown, nobodys))
                        count += 1
            assert await _kept(world) == before, "something of the owner's has changed"
            wrong += await _controls(world)
        return wrong, count

    wrong, count = asyncio.run(play())
    print(count, "probes")
    assert wrong == [], f"{len(wrong)} of {count}: {wrong[:5]}"


async def _differ(world: World, who: str, foreign: tuple[Ask, Ids], unknown: tuple[Ask, Ids]) -> list[str]:
    answers: list[Answer] = []
    for asked, ids in (foreign, unknown):
        answer = await ask(world.application, asked, world.keys[who])
        if CANARY.encode() in answer.body:
            return [f"{who}, {asked.name}: tells what the owner said: {answer.body!r}"]
        if answer.status >= 500 and answer.status != 501:
            return [f"{who}, {asked.name}: {answer}"]
        answers.append(plain(answer, ids))
    return [] if answers[0] == answers[1] else [f"{who}, {foreign[0].name}: {answers[0]} != {answers[1]}"]


async def _controls(world: World) -> list[str]:
    """The owner itself is answered otherwise: else the matrix would compare nothing."""
    alike: list[str] = []
    theirs = world.owned[0]._replace(own_task=world.own_tasks["owner"])
    nobodys = _unknown(theirs, tenant=TENANT)
    for (operation, own), (_, unknown) in zip(every(theirs), every(nobodys), strict=True):
        if operation in READS and "config" not in own.name.split():
            answers = [await ask(world.application, asked, world.keys["owner"]) for asked in (own, unknown)]
            if plain(answers[0], theirs) == plain(answers[1], nobodys):
                alike.append(f"owner, {own.name}: {answers[0]}")
    return alike


def _everything(ids: Ids) -> list[tuple[str, Ask]]:
    """Every route once, and who may ask it."""
    made: dict[str, tuple[str, Ask]] = {}
    for _, asked in every(ids):
        made.setdefault(asked.name.rpartition(" ")[0], (KEYED, asked))
    for path, (verb, door) in OWN.items():
        body = b"{}" if verb == "POST" else b""
        made[path] = (door, Ask(path, verb, path.replace("*", "nothing"), body))
    return list(made.values())


NOBODYS = Ids(
    *(str(uuid.uuid4()), "context", "config", "message", "key-1", "token", "1"),
    *(TENANT, str(uuid.uuid4()), "row"),
)


def test_SEC_01_every_route_but_the_public_ones_asks_for_a_key() -> None:
    async def play() -> None:
        async with _world("memory:") as world:
            routes_ = _everything(NOBODYS)
            for door, asked in routes_:
                for headers in ((), ((b"x-api-key", b"nobody has this one"),)):
                    answer = await ask(world.application, asked, *headers)
                    if door == KEYED:
                        assert answer.status == 401 and b"UNAUTHENTICATED" in answer.body, (asked, answer)
                        assert b"www-authenticate" in dict(answer.headers), (asked, answer)
                    else:
                        assert answer.status == 200, (asked, answer)
            assert len(routes_) > 80

    asyncio.run(play())


def test_every_route_refuses_a_foreign_host_and_a_foreign_page() -> None:
    """Row 51; probes have nothing to protect, and kubelets send any Host."""

    async def play() -> None:
        async with _world("memory:") as world:
            for door, asked in _everything(NOBODYS):
                for foreign in ((b"host", b"evil.example"), (b"origin", b"https://evil.example")):
                    for more in ((), (world.keys["owner"],)):
                        answer = await ask(world.application, asked, foreign, *more)
                        assert answer.status == (200 if door == OPEN else 403), (foreign, asked, answer)

    asyncio.run(play())


def test_SEC_03_every_route_asks_for_its_scope_before_anything_is_looked_up() -> None:
    async def play() -> list[str]:
        wrong: list[str] = []
        async with _world("memory:") as world:
            before = await _kept(world)
            for ids in (world.owned[0], NOBODYS._replace(tenant=TENANT)):
                for operation, asked in every(ids._replace(own_task=ids.task)):
                    needed = _needed(operation, asked)
                    if not needed:
                        # Let in by a token of its own.
                        continue
                    for who in ("reader", "writer", "meter", "operator"):
                        if needed in CALLERS[who][1] or (
                            who == "operator" and asked.path.startswith("/api/")
                        ):
                            # Of its own tenant an admin may do everything there.
                            continue
                        answer = await ask(world.application, asked, world.keys[who])
                        if answer.status != 403 or needed.encode() not in answer.body:
                            wrong.append(f"{who}, {asked.name}: {answer}")
            for who, status in (("reader", 403), ("writer", 403), ("meter", 200), ("operator", 200)):
                answer = await ask(world.application, Ask("metrics", "GET", "/metrics"), world.keys[who])
                assert answer.status == status, (who, answer)
            assert await _kept(world) == before
        return wrong

    wrong = asyncio.run(play())
    assert wrong == [], f"{len(wrong)}: {wrong[:5]}"


def _needed(operation: Operation | None, asked: Ask) -> str:
    if asked.path.startswith("/api/"):
        pattern = asked.name.rpartition(" ")[0].replace("/api", "")
        scope = mount.SCOPES[pattern]
        return "" if scope is None else scope.value
    if asked.path.startswith("/admin/"):
        return "admin"
    writes = operation in WRITES if operation is not None else asked.verb == "POST"
    return "tasks:write" if writes else "tasks:read"
