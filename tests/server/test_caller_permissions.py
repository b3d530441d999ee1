"""Scopes: every operation has one, and a caller without it is told before anything is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from tests.harness import V1, message
from trunkline import Agent
from trunkline.auth.principal import Scope
from trunkline.host import Application
from trunkline.server.caller import NEEDED
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation

JSON = {"Content-Type": "application/json"}
UNKNOWN = "01890a5d-ac96-774b-bcce-b302099a8057"
READS = {
    Operation.GET,
    Operation.LIST,
    Operation.SUBSCRIBE,
    Operation.PUSH_GET,
    Operation.PUSH_LIST,
    Operation.EXTENDED_CARD,
}
ANSWERING = {Operation.SEND, Operation.STREAM, Operation.GET}
# Every REST route with the operation behind it.
ROUTES = {
    ("POST", "/message:send"): Operation.SEND,
    ("POST", "/message:stream"): Operation.STREAM,
    ("GET", "/tasks"): Operation.LIST,
    ("GET", f"/tasks/{UNKNOWN}"): Operation.GET,
    ("POST", f"/tasks/{UNKNOWN}:cancel"): Operation.CANCEL,
    ("POST", f"/tasks/{UNKNOWN}:subscribe"): Operation.SUBSCRIBE,
    ("GET", f"/tasks/{UNKNOWN}:subscribe"): Operation.SUBSCRIBE,
    ("POST", f"/tasks/{UNKNOWN}/pushNotificationConfigs"): Operation.PUSH_SET,
    ("GET", f"/tasks/{UNKNOWN}/pushNotificationConfigs"): Operation.PUSH_LIST,
    ("GET", f"/tasks/{UNKNOWN}/pushNotificationConfigs/c"): Operation.PUSH_GET,
    ("DELETE", f"/tasks/{UNKNOWN}/pushNotificationConfigs/c"): Operation.PUSH_DELETE,
    ("GET", "/extendedAgentCard"): Operation.EXTENDED_CARD,
    ("GET", "/card"): Operation.EXTENDED_CARD,
}


def lets_in(scope: str, operation: Operation) -> bool:
    """Whether a key with this scope alone may ask for it; a list without a filter is not an inbox."""
    return scope == NEEDED[operation].value or (scope == "answer" and operation in ANSWERING)


def test_every_operation_has_its_scope() -> None:
    assert NEEDED == {each: Scope.READ if each in READS else Scope.WRITE for each in Operation}
    assert set(ROUTES.values()) == set(Operation)


def serve(work: Callable[[Application, httpx2.AsyncClient], Awaitable[Any]], **settings: object) -> Any:
    """An agent with metrics on, spoken to over ASGI."""
    agent = Agent("echo")

    @agent.skill
    async def echo(text: str) -> str:
        """Say it again."""
        return text

    async def main() -> Any:
        application = agent.asgi(store="memory:", metrics=True, drain_limit=0, **settings)
        transport = httpx2.ASGITransport(application)
        async with (
            application.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await work(application, client)

    return asyncio.run(main())


async def keys(application: Application) -> dict[str, dict[str, str]]:
    """A key for each scope alone, as headers."""
    made = {
        one.value: await application.host.key_store.create(one.value, scopes=[one.value]) for one in Scope
    }
    return {scope: {"X-API-Key": each.token} for scope, each in made.items()}


def test_over_json_rpc_and_both_versions() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> None:
        own = await keys(application)
        for methods, version in ((METHODS_V1, V1), (METHODS_V03, {})):
            for method, operation in methods.items():
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": UNKNOWN}}
                for scope, headers in own.items():
                    answer = await client.post("/a2a", json=body, headers={**headers, **version})
                    if lets_in(scope, operation):
                        assert answer.status_code == 200, (method, answer.text)
                    else:
                        assert (answer.status_code, answer.json()["error"]["code"]) == (403, -32011), method
                        assert NEEDED[operation].value in answer.text

    serve(work)


@pytest.mark.parametrize("version", [{}, V1], ids=["0.3", "1.0"])
@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_over_rest(version: dict[str, str], prefix: str) -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> None:
        own = await keys(application)
        for (method, path), operation in ROUTES.items():
            for scope, headers in own.items():
                content = {"content": b"{}", "headers": {**headers, **version, **JSON}}
                answer = await client.request(method, prefix + path, **content)
                refused = answer.status_code == 403
                assert refused is not lets_in(scope, operation), (method, path, scope, answer.text)

    serve(work)


def test_the_other_routes() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> dict[str, list[str]]:
        own = await keys(application)
        routes = {
            "GET /metrics": None,
            "GET /admin/keys": None,
            "GET /delegate/tasks/x": None,
            "POST /delegate/tasks": b"{}",
        }
        let_in: dict[str, list[str]] = {}
        for route, body in routes.items():
            method, path = route.split()
            let_in[route] = [
                scope
                for scope, headers in own.items()
                if (await client.request(method, path, content=body, headers={**headers, **JSON})).status_code
                != 403
            ]
        return let_in

    assert serve(work) == {
        "GET /metrics": ["metrics", "admin"],
        "GET /admin/keys": ["admin"],
        "GET /delegate/tasks/x": ["tasks:read"],
        "POST /delegate/tasks": ["tasks:write"],
    }


def test_nothing_is_done_without_the_scope() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> None:
        own = await keys(application)
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("hi")}}
        headers = {**own["tasks:read"], **V1}
        assert (await client.post("/a2a", json=body, headers=headers)).status_code == 403
        heads = await application.host.store.maintenance.tasks("")
        assert heads[0] == []

    serve(work)


def test_anonymous_callers_see_tasks_and_metrics_and_no_more() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> list[int]:
        return [(await client.get(path)).status_code for path in ("/tasks", "/metrics", "/admin/keys")]

    assert serve(work) == [200, 200, 403]
