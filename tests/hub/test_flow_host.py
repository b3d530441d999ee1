"""A host of workflows alone, over HTTP as callers see it: routes, keys, limits."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.flow.surfaces import DELEGATE, TOOL, workflow
from trunkline.flow.operator import read_operator
from trunkline.hub.flow_host import FlowHost
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

TOKENS = (
    '[{"token": "starter-1", "scopes": ["start"]}, {"token": "reader-01", "scopes": ["read_history"]},'
    ' {"token": "both-0001", "scopes": ["start", "read_history"]}]'
)


async def ask(client: InProcessHttpClient, asked: str, body: Any = None, token: str = "") -> tuple[int, Any]:
    method, path = asked.split(" ")
    sent = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
    headers = (("authorization", f"Bearer {token}"),) if token else ()
    response = await client.open(HttpRequest(method, f"http://localhost{path}", headers, sent))
    told = await response.read(1 << 20)
    await response.close()
    return response.status, msgspec.json.decode(told) if told else {}


def test_runs_are_served_behind_the_door_of_the_host() -> None:
    async def scene() -> None:
        config = read_operator({"WORKFLOW_ENGINE_AUTH_TOKENS": TOKENS})
        served = FlowHost(config, {"store": "memory:"})
        async with served.host.lifespan():
            client = InProcessHttpClient(served.host)
            start = {"definition": workflow(), "input": {}, "execution_id": "a:b"}
            status, told = await ask(client, "POST /v1/executions", start, "starter-1")
            assert (status, told["status"]) == (200, "completed")
            status, told = await ask(client, "GET /v1/executions/a:b", token="reader-01")
            assert (status, told["phase"]) == (200, "completed")
            status, told = await ask(client, "GET /v1/executions/a:b/events?limit=2", token="both-0001")
            assert [row["name"] for row in told["events"]] == ["ExecutionStarted", "ScheduleNode"]
            # Who may not.
            status, told = await ask(client, "GET /v1/executions/a:b")
            assert (status, told["error"]["code"]) == (401, "AUTH_ERROR")
            assert told["error"]["details"] == {"reason": "missing_or_invalid"}
            status, told = await ask(client, "POST /v1/executions", start, "unknown-1")
            assert (status, told["error"]["code"]) == (401, "AUTH_ERROR")
            status, told = await ask(client, "POST /v1/executions", start, "reader-01")
            assert (status, told["error"]["code"]) == (403, "AUTH_FORBIDDEN")
            assert told["error"]["details"] == {
                "reason": "insufficient_scope", "required_scope": "start", "granted_scopes": ["read_history"],
            }  # fmt: skip
            # What is wrong before the application sees it.
            status, told = await ask(client, "POST /v1/executions", b"x" * ((2 << 20) + 1), "both-0001")
            assert (status, told["error"]["code"]) == (413, "VALIDATION_ERROR")
            status, told = await ask(client, "POST /v1/executions/a:b:odd", {}, "both-0001")
            assert told["error"]["code"] == "NOT_FOUND"
            status, told = await ask(client, "DELETE /v1/workflows/x", token="both-0001")
            assert (status, told["error"]["code"]) == (405, "NOT_FOUND")
            # An id may hold slashes, as they are.
            await ask(client, "POST /v1/executions", {**start, "execution_id": "x/y"}, "both-0001")
            status, told = await ask(client, "GET /v1/executions/x/y", token="both-0001")
            assert (status, told["execution_id"]) == (200, "x/y")
            await client.close()

    asyncio.run(asyncio.wait_for(scene(), 120))


NEEDED = {
    "POST /v1/workflows": "start",
    "GET /v1/workflows/x": "read_history",
    "POST /v1/workflows/x/executions": "start",
    "GET /v1/executions": "read_history",
    "POST /v1/executions": "start",
    "GET /v1/executions/x": "read_history",
    "GET /v1/executions/x/events": "read_history",
    "GET /v1/executions/x/checkpoint": "read_history",
    "POST /v1/executions/x": "start",
    "POST /v1/executions/x:resume": "resume",
    "POST /v1/executions/x:submit_activity": "submit_activity",
    "POST /v1/executions/x:signal": "submit_activity",
    "POST /v1/executions/x:cancel": "start",
}


def test_every_route_needs_its_own_scope() -> None:
    names = ("start", "resume", "read_history", "submit_activity")
    tokens = [{"token": f"only-{name}", "scopes": [name]} for name in names]

    async def scene() -> None:
        config = read_operator({"WORKFLOW_ENGINE_AUTH_TOKENS": msgspec.json.encode(tokens).decode()})
        served = FlowHost(config, {"store": "memory:"})
        async with served.host.lifespan():
            client = InProcessHttpClient(served.host)
            listed = [each.route for mount in served.flows.api.mounts() for each in mount.compiled]
            assert len(listed) == len(NEEDED)
            for asked, needed in NEEDED.items():
                body: Any = {} if asked.startswith("POST") else None
                for name in names:
                    status, told = await ask(client, asked, body, f"only-{name}")
                    assert (status == 403) is (name != needed), (asked, name, told)
                    if status == 403:
                        assert told["error"]["code"] == "AUTH_FORBIDDEN"
                        assert told["error"]["details"]["required_scope"] == needed
                status, told = await ask(client, asked, body)
                assert (status, told["error"]["code"]) == (401, "AUTH_ERROR"), asked
            await client.close()

    asyncio.run(asyncio.wait_for(scene(), 120))


def test_what_nobody_was_set_up_for_fails_and_says_so() -> None:
    async def scene() -> None:
        served = FlowHost(read_operator({}), {"store": "memory:"})
        async with served.host.lifespan():
            client = InProcessHttpClient(served.host)
            for node, code in (
                (TOOL, "COMPOSITE_EXECUTOR_NOT_CONFIGURED"),
                (DELEGATE, "DELEGATE_PROTOCOL_UNSUPPORTED"),
            ):
                start = {"definition": workflow(node), "input": {"task": "t"}}
                status, told = await ask(client, "POST /v1/executions", start)
                assert (status, told["error"]["code"]) == (422, code)
            await client.close()

    asyncio.run(asyncio.wait_for(scene(), 120))
