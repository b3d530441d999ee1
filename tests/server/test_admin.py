"""What operators do over HTTP: who may, what each act answers, and what the log says of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx2
import pytest

from tests.conformance.store.given import Author, delta, status, submitted
from trunkline import Agent
from trunkline.auth.principal import Scope
from trunkline.clock import Ids
from trunkline.host import Application
from trunkline.log.events import CancelRequested
from trunkline.server import admission, operations
from trunkline.store.records import DeliveryOutcome, DeliveryResult, OutboxEntry

JSON = {"Content-Type": "application/json"}


class Office:
    """An agent over ASGI, and its operator."""

    def __init__(self, application: Application, client: httpx2.AsyncClient, allowed: asyncio.Event) -> None:
        self.application = application
        self.client = client
        self.allowed = allowed
        self.headers = {"X-API-Key": application.host.admin.token.reveal()}

    async def act(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        content = None if body is None else json.dumps(body).encode()
        return await self.client.request(
            method, path, content=content, headers={**JSON, **(headers or self.headers)}
        )

    async def get(self, token: str) -> int:
        return (await self.client.get("/tasks", headers={"X-API-Key": token})).status_code


def office(work: Callable[[Office], Awaitable[Any]], **settings: object) -> Any:
    agent, allowed = Agent("echo"), asyncio.Event()

    @agent.skill
    async def echo(text: str) -> str:
        """Say it again; `later` only when it is allowed."""
        if text == "later":
            await allowed.wait()
        return f"{text}, as you said"

    async def main() -> Any:
        application = agent.asgi(store="memory:", drain_limit=0, **settings)
        transport = httpx2.ASGITransport(application)
        async with (
            application.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await work(Office(application, client, allowed))

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/admin/keys", {"owner": "ghost", "scopes": ["admin"]}),
        ("/api/tasks:cancel", {"ids": ["x"]}),
        ("/message:send", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}),
        ("/a2a", {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}),
        ("/delegate/tasks", {"agent_id": "echo", "input": {}}),
    ],
)
def test_a_body_that_comes_after_its_key_has_ended_has_nothing_done(
    monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    # However quick the machine is.
    monkeypatch.setattr(admission, "_AT_ONCE_S", -1.0)

    async def work(at: Office) -> None:
        scopes = ["admin", "tasks:read", "tasks:write"]
        made = [
            (await at.act("POST", "/admin/keys", {"owner": who, "scopes": scopes})).json()
            for who in ("ann", "bob")
        ]
        asked, revoked = asyncio.Semaphore(0), asyncio.Event()

        async def content() -> AsyncGenerator[bytes]:
            asked.release()
            await revoked.wait()
            yield json.dumps(body).encode()

        posts = [
            asyncio.ensure_future(
                at.client.post(
                    path,
                    content=content(),
                    headers={**JSON, "A2A-Version": "1.0", "X-API-Key": one["token"]},
                )
            )
            for one in made
        ]
        async with asyncio.timeout(60):
            await asked.acquire()
            await asked.acquire()
            await at.act("POST", f"/admin/keys/{made[0]['key']['id']}:revoke")
            revoked.set()
            refused, answered = [await post for post in posts]
        assert (refused.status_code, answered.status_code == 401) == (401, False), answered.text
        owners = [one["owner"] for one in (await at.act("GET", "/admin/keys")).json()["keys"]]
        assert owners.count("ghost") == (path == "/admin/keys")

    office(work)


ACTS = [
    ("GET", "/admin/keys"),
    ("POST", "/admin/keys"),
    ("POST", "/admin/keys/x:revoke"),
    ("POST", "/admin/keys/x:rotate"),
    ("POST", "/admin/signing:rotate"),
    ("GET", "/admin/deliveries"),
    ("POST", "/admin/deliveries/x:replay"),
    ("POST", "/admin/store:prune"),
    ("GET", "/admin/tasks?waiting=1"),
    ("POST", "/admin/tasks/x:cancel"),
    ("GET", "/admin/"),
    ("GET", "/admin/nothing"),
]


@pytest.mark.parametrize("keep_alive", [15, 0.05], ids=["with the news", "in silence"])
def test_a_stream_ends_with_its_key(keep_alive: float) -> None:
    async def key(at: Office) -> tuple[str, str]:
        made = (await at.act("POST", "/admin/keys", {"owner": "alice"})).json()
        return made["key"]["id"], made["token"]

    async def stream(at: Office, token: str = "") -> str:
        said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "later"}]}
        headers = {"A2A-Version": "1.0", "X-API-Key": token}
        answer = await at.act("POST", "/message:stream", {"message": said}, **headers)
        return answer.text

    async def until(streams: int, at: Office) -> None:
        while len(at.application.host.streams) != streams:  # noqa: ASYNC110 - nothing there to wait on
            await asyncio.sleep(0.01)

    async def work(at: Office) -> list[bool]:
        async with asyncio.timeout(60):
            reading = [asyncio.ensure_future(stream(at))]
            await until(1, at)
            stolen, other = await key(at), await key(at)
            if keep_alive < 1:
                await until(0, at)
            reading += [asyncio.ensure_future(stream(at, token)) for _, token in (stolen, other)]
            await until(2 if keep_alive < 1 else 3, at)
            assert (await at.act("POST", f"/admin/keys/{stolen[0]}:revoke")).status_code == 200
            if keep_alive < 1:
                await until(1, at)
            at.allowed.set()
            return ["as you said" in text for text in await asyncio.gather(*reading)]

    assert office(work, keep_alive=keep_alive) == [False, False, True], "nobody, the revoked key, the other"


def test_revocation_reaches_a_send_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.12: it is refused like any request of a key that is out; the task goes on."""
    monkeypatch.setattr(operations, "LOOK_S", 0.01)

    async def work(at: Office) -> tuple[int, int, list[str]]:
        made = [(await at.act("POST", "/admin/keys", {"owner": "alice"})).json() for _ in range(2)]
        said = {"role": "ROLE_USER", "parts": [{"text": "later"}]}
        sending = [
            asyncio.ensure_future(
                at.act(
                    "POST",
                    "/message:send",
                    {"message": {**said, "messageId": f"m{place}"}},
                    **{"A2A-Version": "1.0", "X-API-Key": one["token"]},
                )
            )
            for place, one in enumerate(made)
        ]
        async with asyncio.timeout(60):
            while at.application.host.runner.running < 2:  # noqa: ASYNC110 - nothing there to wait on
                await asyncio.sleep(0.01)
            await at.act("POST", f"/admin/keys/{made[0]['key']['id']}:revoke")
            refused = await sending[0]
            at.allowed.set()
            answered = await sending[1]
            other = {"A2A-Version": "1.0", "X-API-Key": made[1]["token"]}
            tasks = (await at.client.get("/tasks", headers=other)).json()["tasks"]
            while any(task["status"]["state"] != "TASK_STATE_COMPLETED" for task in tasks):
                tasks = (await at.client.get("/tasks", headers=other)).json()["tasks"]
        return refused.status_code, answered.status_code, [task["status"]["state"] for task in tasks]

    refused, answered, states = office(work)
    assert (refused, answered) == (401, 200)
    assert states == ["TASK_STATE_COMPLETED"] * 2


@pytest.mark.parametrize("keys", [[], ["a-key-of-this-agent"]], ids=["open", "keyed"])
def test_nobody_else_may(keys: list[str]) -> None:
    async def work(at: Office) -> set[int]:
        found: set[int] = set()
        for method, path in ACTS:
            for headers in (
                {"X-Nothing": "1"},
                {"X-API-Key": "wrong-wrong"},
                {"Authorization": "Bearer wrong-wrong"},
                {"X-API-Key": "", "Authorization": "Bearer "},
                *({"X-API-Key": key} for key in keys),
            ):
                found.add((await at.act(method, path, {"owner": "mallory"}, **headers)).status_code)
        assert len((await at.act("GET", "/admin/keys")).json()["keys"]) == 0
        return found

    assert office(work, keys=keys) == ({401, 403} if keys else {403})


def test_the_operators_token_opens_this_door_only() -> None:
    async def work(at: Office) -> list[int]:
        token = at.application.host.admin.token.reveal()
        bearer = {"Authorization": f"Bearer {token}"}
        return [
            (await at.act("GET", "/admin/keys")).status_code,
            (await at.act("GET", "/admin/keys", **bearer)).status_code,
            await at.get(token),
        ]

    assert office(work, keys=["a-key-of-this-agent"]) == [200, 200, 401]


def test_the_host_counts_here_too() -> None:
    async def work(at: Office) -> int:
        return (await at.act("GET", "/admin/keys", **at.headers, Host="evil.example")).status_code

    assert office(work) == 403


def test_a_life_of_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def work(at: Office) -> list[str]:
        created = await at.act(
            "POST", "/admin/keys", {"owner": "alice", "scopes": ["tasks:read"], "lasts_ms": 10**9}
        )
        assert (created.status_code, created.headers["cache-control"]) == (201, "no-store")
        made = created.json()
        assert (made["first"], made["key"]["owner"], made["key"]["state"]) == (True, "alice", "active")
        key_id, first = made["key"]["id"], made["token"]
        assert [await at.get(first), await at.get("wrong-wrong")] == [200, 401]

        rotated = (await at.act("POST", f"/admin/keys/{key_id}:rotate", {"grace_ms": 0})).json()
        second = rotated["token"]
        assert [await at.get(first), await at.get(second)] == [401, 200]
        third = (await at.act("POST", f"/admin/keys/{key_id}:rotate")).json()["token"]
        assert [await at.get(second), await at.get(third)] == [200, 200]

        assert (await at.act("POST", f"/admin/keys/{key_id}:revoke")).json()["state"] == "revoked"
        assert [await at.get(second), await at.get(third)] == [401, 401]
        listed = (await at.act("GET", "/admin/keys")).json()["keys"]
        assert [(key["id"], key["state"]) for key in listed] == [(key_id, "revoked")]
        return [first, second, third, at.application.host.admin.token.reveal()]

    secrets = office(work)
    acts = [record.getMessage() for record in caplog.records if record.name == "trunkline.admin"]
    assert [act.split()[0] for act in acts] == [
        "admin.key.created",
        "admin.key.rotated",
        "admin.key.rotated",
        "admin.key.revoked",
    ]
    assert all("owner='alice'" in act and act.endswith("by='operator'") for act in acts)
    assert not [secret for secret in secrets if secret in caplog.text]


def test_a_key_with_the_scope_is_an_operator_by_its_own_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def work(at: Office) -> int:
        made = await at.application.host.key_store.create("root", scopes=[Scope.ADMIN.value])
        return (
            await at.act("POST", "/admin/keys", {"owner": "bob"}, **{"X-API-Key": made.token})
        ).status_code

    assert office(work) == 201
    assert "owner='bob' tenant='default' by='root'" in caplog.text


def test_an_admin_acts_on_its_own_tenant_and_an_operator_on_all() -> None:
    async def work(at: Office) -> None:
        keys = at.application.host.key_store
        admin = await keys.create("ann", tenant="north", scopes=["admin"])
        other = await keys.create("bob", tenant="south", scopes=["tasks:read"])
        above = await keys.create("root", tenant="north", scopes=["admin", "operator"])
        counts = await keys.create("probe", tenant="north", scopes=["metrics"])
        as_admin, as_operator = {"X-API-Key": admin.token}, {"X-API-Key": above.token}
        seen = (await at.act("GET", "/admin/keys", None, **as_admin)).json()["keys"]
        assert [one["owner"] for one in seen] == ["ann"]
        seen = (await at.act("GET", "/admin/keys", None, **as_operator)).json()["keys"]
        assert {one["owner"] for one in seen} == {"ann", "bob", "root", "probe"}
        refused = {}
        ids = {
            "foreign": other.key.id,
            "operator": above.key.id,
            "metrics": counts.key.id,
            "unknown": "nokey",
        }
        for name, key_id in ids.items():
            for act in ("revoke", "rotate"):
                answer = await at.act("POST", f"/admin/keys/{key_id}:{act}", {}, **as_admin)
                refused[name, act] = answer.status_code, answer.text.replace(key_id, "KEY")
        assert len(set(refused.values())) == 1, refused
        for path, body in (
            ("/admin/keys", {"owner": "x", "tenant": "south"}),
            ("/admin/keys", {"owner": "x", "tenant": "north", "scopes": ["operator"]}),
            ("/admin/keys", {"owner": "x", "tenant": "north", "scopes": ["metrics"]}),
            ("/admin/signing:rotate", {}),
            ("/admin/store:prune", {"older_than_ms": 1}),
            ("/admin/deliveries:replay?tenant=south", {}),
        ):
            assert (await at.act("POST", path, body, **as_admin)).status_code == 403, path
        for own in ({"tenant": "north"}, {}):
            made = await at.act("POST", "/admin/keys", {"owner": "x", **own}, **as_admin)
            assert (made.status_code, made.json()["key"]["tenant"]) == (201, "north")
        assert (
            await at.act("POST", f"/admin/keys/{other.key.id}:revoke", {}, **as_operator)
        ).status_code == 200
        assert (
            await at.act("POST", "/admin/store:prune", {"older_than_ms": 1}, **as_operator)
        ).status_code == 200

    office(work)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/admin/keys", {}, "required field `owner`"),
        ("/admin/keys", {"owner": ""}, "an owner is a printable name"),
        ("/admin/keys", {"owner": "a", "scopes": ["root"]}, "there is no scope 'root'"),
        ("/admin/keys", {"owner": "a", "tenant": "a/b"}, "cannot be a tenant"),
        ("/admin/keys", {"owner": "a", "lasts_ms": -1}, "lasts_ms must be 0 to"),
        ("/admin/keys", {"owner": "a", "more": 1}, "unknown field `more`"),
        ("/admin/keys", [], "the body does not fit"),
        ("/admin/keys/nobody:revoke", None, "there is no key 'nobody'"),
        ("/admin/keys/nobody:rotate", None, "there is no key 'nobody'"),
        ("/admin/keys/nobody:rotate", {"grace_ms": -1}, "grace_ms must be 0 to"),
        ("/admin/deliveries/nobody:replay", None, "no delivery 'nobody' has ended"),
        ("/admin/keys/a%00b:revoke", None, "printable characters only"),
        ("/admin/deliveries/a%00b:replay", None, "printable characters only"),
        ("/admin/deliveries:replay?task=a%00b", None, "printable characters only"),
        ("/admin/tasks/nobody:cancel", None, "no task 'nobody' waits for its agent"),
        ("/admin/store:prune", None, "required field `older_than_ms`"),
        ("/admin/store:prune", {"older_than_ms": 10**12}, "older_than_ms must be 0 to"),
    ],
)  # fmt: skip
def test_an_act_that_does_not_fit(path: str, body: Any, words: str) -> None:
    async def work(at: Office) -> httpx2.Response:
        return await at.act("POST", path, body)

    answer = office(work)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/"),
        ("GET", "/admin/nothing"),
        ("DELETE", "/admin/keys"),
        ("POST", "/admin/keys/x"),
        ("POST", "/admin/keys/x:forget"),
        ("GET", "/admin/keys/x:revoke"),
        ("POST", "/admin/signing/x:rotate"),
        ("POST", "/admin/keys%2fx:revoke"),
    ],
)
def test_there_is_no_such_act(method: str, path: str) -> None:
    async def work(at: Office) -> int:
        return (await at.act(method, path)).status_code

    assert office(work) == 404


def test_the_signing_key_is_replaced() -> None:
    async def work(at: Office) -> tuple[str, list[str]]:
        made = (await at.act("POST", "/admin/signing:rotate")).json()["kid"]
        keys = (await at.client.get("/.well-known/jwks.json")).json()["keys"]
        return made, [key["kid"] for key in keys]

    kid, served = office(work)
    assert (served[0], len(served)) == (kid, 2)


def test_without_push_there_is_no_signing_key() -> None:
    async def work(at: Office) -> httpx2.Response:
        return await at.act("POST", "/admin/signing:rotate")

    answer = office(work, push=False)
    assert (answer.status_code, "nothing is signed here" in answer.text) == (400, True)


def test_deliveries_are_listed_and_posted_again() -> None:
    async def work(at: Office) -> None:
        store = at.application.host.store
        for number in (1, 2):
            row = OutboxEntry(f"d{number}", 1, "hook", "host", 10**15)
            await store.log.append("default", f"t{number}", 0, [delta()], at=1, deliveries=[row])
        await store.outbox.settle([DeliveryResult("d1", DeliveryOutcome.DEAD, status=500, note="failed")])

        async def ids(query: str = "") -> list[str]:
            found = (await at.act("GET", f"/admin/deliveries{query}")).json()["deliveries"]
            return [one["id"] for one in found]

        assert await ids() == ["d2", "d1"]
        assert await ids("?state=dead") == ["d1"]
        assert await ids("?task=t2&tenant=default") == ["d2"]
        assert await ids("?tenant=blue") == []
        assert await ids("?limit=1") == ["d2"]
        assert await ids("?limit=1&after=d2") == ["d1"]
        for wrong in ("?state=lost", "?limit=0", "?limit=1001", "?limit=x", "?limit=-1", "?limit=%C2%B2"):
            assert (await at.act("GET", f"/admin/deliveries{wrong}")).status_code == 400
        assert (await at.act("POST", "/admin/deliveries/d2:replay")).status_code == 400, "it has not ended"
        again = await at.act("POST", "/admin/deliveries/d1:replay")
        assert (again.status_code, again.json()) == (200, {"id": "d1", "state": "pending"})
        assert await ids("?state=pending") == ["d2", "d1"]

    office(work, push=False)


def test_the_store_is_pruned() -> None:
    async def prune(at: Office, age: int) -> int:
        return (await at.act("POST", "/admin/store:prune", {"older_than_ms": age})).json()["forgotten"]

    async def get(at: Office, task_id: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": task_id}}
        return (await at.client.post("/a2a", json=body)).json()

    async def work(at: Office) -> None:
        send = {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": send}
        task_id = (await at.client.post("/a2a", json=body)).json()["result"]["id"]
        # Read twice, so that its bytes are kept, and held, as by a stream that has not yet ended.
        assert await get(at, task_id) == await get(at, task_id)
        held = await at.application.host.runner.tasks.load("default", task_id)
        assert await prune(at, 10**6) == 0
        assert (await get(at, task_id))["result"]["id"] == task_id
        async with asyncio.timeout(60):
            # Not before its millisecond is over.
            while await prune(at, 0) == 0:
                pass
        assert held is not None and (await get(at, task_id))["error"]["code"] == -32001

    office(work)


async def stranded(at: Office, tenant: str, agent: str = "gone") -> str:
    """A working task of an agent that nobody carries."""
    author = Author(at.application.host.store, Ids().new(), tenant)
    await author.append(submitted(agent=agent, node="dead"), status())
    return author.state.task_id


def test_tasks_that_wait_for_their_agent_are_listed_by_tenant_and_page() -> None:
    async def work(at: Office) -> None:
        keys = at.application.host.key_store
        admin = {"X-API-Key": (await keys.create("ann", tenant="north", scopes=["admin"])).token}
        north = sorted([await stranded(at, "north") for _ in range(3)])
        south = await stranded(at, "south")
        await stranded(at, "north", agent="echo")
        listed = (await at.act("GET", "/admin/tasks?waiting=1", None, **admin)).json()["tasks"]
        assert listed == [
            {"id": task_id, "tenant": "north", "agent": "gone", "state": "working"} for task_id in north
        ]
        page = await at.act("GET", f"/admin/tasks?waiting=1&limit=1&after={north[0]}", None, **admin)
        assert [one["id"] for one in page.json()["tasks"]] == [north[1]]
        every = (await at.act("GET", "/admin/tasks?waiting=1")).json()["tasks"]
        assert [one["id"] for one in every] == sorted([*north, south])
        narrowed = (await at.act("GET", "/admin/tasks?waiting=1&tenant=south")).json()["tasks"]
        assert [one["id"] for one in narrowed] == [south]
        assert (await at.act("GET", "/admin/tasks?waiting=1&tenant=south", None, **admin)).status_code == 403
        assert "say waiting=1" in (await at.act("GET", "/admin/tasks")).text

    office(work)


def test_a_task_that_waits_for_its_agent_is_canceled_by_an_admin_of_its_tenant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(at: Office) -> None:
        keys, store = at.application.host.key_store, at.application.host.store
        admin = {"X-API-Key": (await keys.create("ann", tenant="north", scopes=["admin"])).token}
        ours, theirs = await stranded(at, "north"), await stranded(at, "south")
        carried = await stranded(at, "north", agent="echo")
        refused = {
            (answer.status_code, answer.text.replace(task_id, "TASK"))
            for task_id in (theirs, carried, Ids().new())
            for answer in [await at.act("POST", f"/admin/tasks/{task_id}:cancel", None, **admin)]
        }
        assert len(refused) == 1
        answer = await at.act("POST", f"/admin/tasks/{ours}:cancel", None, **admin)
        assert (answer.status_code, answer.json()) == (200, {"id": ours, "state": "canceled"})
        assert [record.event for record in await store.log.read("north", ours)][2] == CancelRequested("ann")
        assert (await at.act("POST", f"/admin/tasks/{ours}:cancel", None, **admin)).status_code == 400
        # An operator says whose it is.
        assert (await at.act("POST", f"/admin/tasks/{theirs}:cancel")).status_code == 400
        assert (await at.act("POST", f"/admin/tasks/{theirs}:cancel?tenant=south")).status_code == 200

    caplog.set_level("INFO")
    office(work)
    assert "admin.task.canceled" in caplog.text
