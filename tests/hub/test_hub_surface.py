"""What a hub with tenants says at each of its addresses, for every kind of agent, version and binding."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.wire.routes import Answer, Ask, ask
from tests.flow.surfaces import workflow
from tests.gateway.model.hub import Caller, opened, run
from tests.gateway.model.openai_server import ModelServer, Reply
from tests.harness import ServerProcess, params, plain_state
from trunkline.wire.operations import METHODS_V1, Operation, routes

KEY = "operators-key-1"
# One that there is, and one that there is not.
OTHERS = ("south", "nobody")
KINDS = (
    "peer", "skill", "flow",
    *(("model",) if importlib.util.find_spec("pydantic_ai") and importlib.util.find_spec("openai") else ()),
)  # fmt: skip
AGENTS = """
agents:
  - {name: skill, import: "surface_agent:agent", tenants: all}
  - {name: flow, workflow: workflows/small.json, tenants: all}
  - {name: northern, url: "http://127.0.0.1:1", tenants: [north]}
"""
SKILL = """
from dataclasses import dataclass

from trunkline import Agent, Turn

@dataclass
class Order:
    count: int

agent = Agent("Skill")

@agent.skill
async def answer(turn: Turn) -> str:
    return "here"

@agent.skill(public=False)
async def secret(turn: Turn, order: Order) -> str:
    return "there"
"""
V1 = ((b"a2a-version", b"1.0"),)
VERSIONS = {"1.0": V1, "0.3": ()}
# SEND, GET and the extended card by JSON-RPC.
METHODS = {
    "1.0": ("SendMessage", "GetTask", "GetExtendedAgentCard"),
    "0.3": ("message/send", "tasks/get", "agent/getAuthenticatedExtendedCard"),
}
PUSHES = (Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE)
ORIGIN_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json", "/a2a/agent-card.json")


class World(NamedTuple):
    """A hub, and who asks it: `north`, another tenant, and somebody without a key."""

    boss: Caller
    north: tuple[bytes, bytes]
    south: tuple[bytes, bytes]

    async def put(self, asked: Ask, *headers: tuple[bytes, bytes]) -> Answer:
        return await ask(self.boss.hub.host, asked, *headers)

    async def told(self, asked: Ask) -> Any:
        answer = await self.put(asked, self.north)
        # The short path of 0.3 gives a receipt.
        assert answer.status in (200, 202), (asked, answer)
        told = json.loads(answer.body)
        assert "error" not in told, (asked, told)
        told = told.get("result", told)
        return told.get("task", told)

    async def ended(self, look: Callable[[], Ask]) -> Any:
        while plain_state(task := await self.told(look())) in ("submitted", "working"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return task


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("peer"), store="memory:") as server:
        yield server.base


@asynccontextmanager
async def world(folder: Path, peer: str) -> AsyncGenerator[World]:
    (folder / "surface_agent.py").write_text(SKILL)
    (folder / "workflows").mkdir()
    (folder / "workflows" / "small.json").write_text(json.dumps(workflow()))
    peers = f"  - {{name: peer, url: '{peer}', tenants: all}}\n"
    models = "  - {name: model, model: 'openai:x', tenants: all}\n" if "model" in KINDS else ""
    with ModelServer(lambda _: Reply(["Here."])) as server:
        async with opened(folder, AGENTS + peers + models, key=KEY, OPENAI_BASE_URL=server.url) as boss:
            yield await _peopled(boss)


async def _peopled(boss: Caller) -> World:
    keys: list[tuple[bytes, bytes]] = []
    for name in ("north", "south"):
        status, made = await boss("POST /admin/tenants", {"name": name})
        assert status == 201, made
        keys.append((b"x-api-key", made["token"].encode()))
    for kind in KINDS:
        found = await boss.ready(kind)
        assert found["state"] == "ready", found
    return World(boss, *keys)


def _with(folder: Path, peer: str, case: Callable[[World], Any]) -> None:
    async def whole() -> None:
        async with world(folder, peer) as made:
            await case(made)

    run(whole())


def rpc(base: str, version: str, place: int, given: dict[str, Any]) -> Ask:
    body = {"jsonrpc": "2.0", "id": 1, "method": METHODS[version][place], "params": given}
    return Ask(f"{base} {body['method']}", "POST", base or "/", json.dumps(body).encode(), VERSIONS[version])


def asks(base: str, tenant: str = "") -> Iterator[tuple[str, Callable[[], Ask], Callable[[str], Ask]]]:
    """Every way to send and to get: its name, a fresh send, and the look at a task.

    With a `tenant` those of 1.0 that can name one, by a field or by the path.
    """
    field = {"tenant": tenant} if tenant else {}
    for version, headers in VERSIONS.items():
        if tenant and version != "1.0":
            continue

        def send(version: str = version) -> dict[str, Any]:
            return {**params("echo hello", version), **field}

        for path in (base, f"{base}/a2a"):
            yield (
                f"{version} JSON-RPC at {path}",
                lambda path=path, version=version, send=send: rpc(path, version, 0, send()),
                lambda task, path=path, version=version: rpc(path, version, 1, {"id": task, **field}),
            )
        for before in (f"/{tenant}", "") if tenant else ("",) if version == "1.0" else ("", "/v1"):
            at = base + before
            inner = {} if before else field
            query = f"?tenant={tenant}" if inner else ""
            yield (
                f"{version} REST at {at}{query}",
                lambda at=at, headers=headers, version=version, inner=inner: Ask(
                    "send",
                    "POST",
                    f"{at}/message:send",
                    json.dumps({**params("echo hello", version), **inner}).encode(),
                    headers,
                ),
                lambda task, at=at, headers=headers, query=query: Ask(
                    "get", "GET", f"{at}/tasks/{task}{query}", b"", headers
                ),
            )


def named(base: str, tenant: str, task: str) -> Iterator[Ask]:
    """Every operation on a task and the extended card with a tenant in the path, the query or the body."""
    field = {"tenant": tenant} if tenant else {}
    before, query = (f"/{tenant}", f"?tenant={tenant}") if tenant else ("", "")
    config = {"id": "one", "url": "http://127.0.0.1:1/hook"}
    for method, operation in METHODS_V1.items():
        if operation not in (Operation.SEND, Operation.STREAM):
            form = {"taskId": task, **config} if operation in PUSHES else {"id": task}
            form = {**({} if operation is Operation.LIST else form), **field}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": form}
            yield Ask(method, "POST", f"{base}/a2a", json.dumps(body).encode(), V1)
    for verb, path, operation in routes():
        if operation in (Operation.SEND, Operation.STREAM):
            continue
        where = path.format(task=task, config="one")
        form = {"POST": config if operation is Operation.PUSH_SET else {}}.get(verb)
        body = b"" if form is None else json.dumps(form).encode()
        yield Ask(f"{verb} {path} by path", verb, f"{base}{before}{where}", body, V1)
        if operation is not Operation.PUSH_SET:
            yield Ask(f"{verb} {path} by query", verb, f"{base}{where}{query}", body, V1)
        if form is not None:
            body = json.dumps({**form, **field}).encode()
            yield Ask(f"{verb} {path} by body", verb, f"{base}{where}", body, V1)


def plain(answer: Answer, tenant: str) -> tuple[int, bytes]:
    return answer.status, answer.body.replace(tenant.encode(), b"<tenant>")


def test_every_kind_of_agent_takes_and_shows_tasks_in_both_versions_and_bindings(
    tmp_path: Path, peer: str
) -> None:
    async def case(made: World) -> None:
        count = 0
        for kind in KINDS:
            for tenant in ("", "north"):
                for name, send, get in asks(f"/v1/a2a/agents/{kind}", tenant):
                    task = await made.told(send())
                    task = await made.ended(lambda get=get, task=task: get(task["id"]))
                    assert plain_state(task) == "completed", (kind, name, task)
                    count += 1
        assert count == len(KINDS) * 11

    _with(tmp_path, peer, case)


def test_a_tenant_that_is_not_the_callers_is_one_that_there_is_not(tmp_path: Path, peer: str) -> None:
    async def case(made: World) -> None:
        for base in ("", *[f"/v1/a2a/agents/{kind}" for kind in KINDS]):
            sends = [[send() for _, send, _ in asks(base, tenant)] for tenant in OTHERS]
            for pair in zip(*sends, strict=True):
                told = [
                    plain(await made.put(one, made.north), tenant)
                    for one, tenant in zip(pair, OTHERS, strict=True)
                ]
                assert told[0] == told[1] and b"error" in told[0][1], (pair[0], told)
            assert (await made.told(Ask("", "GET", f"{base}/tasks", b"", V1)))["tasks"] == []
            _, send, get = next(asks(base))
            task = (await made.told(send()))["id"]
            await made.ended(lambda get=get, task=task: get(task))
            every = [list(named(base, tenant, task)) for tenant in ("", *OTHERS)]
            for plainly, *others in zip(*every, strict=True):
                told = [
                    plain(await made.put(one, made.north), tenant)
                    for one, tenant in zip(others, OTHERS, strict=True)
                ]
                assert told[0] == told[1] and b"error" in told[0][1], (others[0], told)
                # It is the tenant that is refused, and not what would be refused anyway.
                own = plain(await made.put(plainly, made.north), "south")
                assert own != told[0], (others[0], own)

    _with(tmp_path, peer, case)


def test_a_skill_of_the_extended_card_is_done_when_it_is_named(tmp_path: Path, peer: str) -> None:
    async def case(made: World) -> None:
        base = "/v1/a2a/agents/skill"
        given = params("", metadata={"skillHint": "secret"})
        given["message"]["parts"] = [{"data": {"count": 3}}]
        task = await made.told(rpc(base, "1.0", 0, given))
        assert plain_state(task) == "completed" and "there" in json.dumps(task), task

    _with(tmp_path, peer, case)


def test_cards_tell_each_who_asks_its_own(tmp_path: Path, peer: str) -> None:
    async def case(made: World) -> None:
        for kind in KINDS:
            base = f"/v1/a2a/agents/{kind}"
            for path in ("agent-card.json", ".well-known/agent-card.json", ".well-known/agent.json"):
                asked = Ask(path, "GET", f"{base}/{path}")
                card = await made.put(asked, made.north)
                etag = dict(card.headers)[b"etag"]
                assert card.status == 200 and json.loads(card.body)["name"]
                again = await made.put(asked, made.north, (b"if-none-match", etag))
                assert (again.status, again.body) == (304, b"")
                assert (await made.put(asked)).status == 401
                # A skill that is not public is named nowhere, also not where extensions speak of skills.
                assert b"secret" not in card.body
            extended = [
                Ask("1.0", "GET", f"{base}/extendedAgentCard", b"", V1),
                Ask("1.0", "GET", f"{base}/north/extendedAgentCard", b"", V1),
                Ask("0.3", "GET", f"{base}/v1/card"),
                *[rpc(f"{base}/a2a", version, 2, {}) for version in VERSIONS],
                rpc(f"{base}/a2a", "1.0", 2, {"tenant": "north"}),
            ]
            declared = bool(json.loads(card.body)["capabilities"].get("extendedAgentCard"))
            assert declared is (kind == "skill")
            told = [(await made.put(one, made.north)).body for one in extended]
            if declared:
                # Who is let in is shown every skill, and each of them is done when it is asked for.
                shown = [json.loads(one) for one in told]
                named = [{skill["id"] for skill in one.get("result", one)["skills"]} for one in shown]
                assert named == [{"answer", "secret"}] * len(extended)
            else:
                # Whose card does not declare one has none, which each version says by its own code.
                assert [b"-32004" in told[3], b"-32007" in told[4], b"-32004" in told[5]] == [True] * 3
            assert {(await made.put(one)).status for one in extended} == {401}
        # An agent of somebody else is one that there is not, whatever is said to it, JSON-RPC or not.
        for form in (b"no JSON", rpc("", "1.0", 0, params("x")).body, rpc("", "0.3", 0, params("x")).body):
            for below in ("", "/a2a", "/message:send", "/south/message:send", "/agent-card.json"):
                verb = "GET" if below.endswith("card.json") else "POST"
                answers = [
                    await made.put(
                        Ask("", verb, f"/v1/a2a/agents/{name}{below}", form if verb == "POST" else b""),
                        made.south,
                    )
                    for name in ("northern", "nobody")
                ]
                assert [one.status for one in answers] == [404, 404], below
                assert answers[0].body.replace(b"northern", b"nobody") == answers[1].body
                assert b"jsonrpc" not in answers[0].body
        for path in ORIGIN_CARDS:
            stub = await made.put(Ask(path, "GET", path))
            assert stub.status == 200 and json.loads(stub.body)["name"]
            assert not any(one.encode() in stub.body for one in ("surface", "northern", *KINDS[:1]))
            assert b"etag" in dict(stub.headers)
            own = await made.put(Ask(path, "GET", path), made.north)
            assert len(json.loads(own.body)["skills"]) > 1 and b"etag" in dict(own.headers)
        own = await made.put(Ask("card", "GET", ORIGIN_CARDS[0]), made.north)
        for extended in (
            Ask("1.0", "GET", "/extendedAgentCard", b"", V1),
            Ask("1.0", "GET", "/north/extendedAgentCard", b"", V1),
            Ask("0.3", "GET", "/v1/card"),
            *[rpc("/a2a", version, 2, {}) for version in VERSIONS],
            rpc("/a2a", "1.0", 2, {"tenant": "north"}),
        ):
            assert (await made.told(extended))["skills"] == json.loads(own.body)["skills"]
            assert (await made.put(extended)).status == 401

    _with(tmp_path, peer, case)
