"""`/mcp` of a served agent, driven by the official client over HTTP: both revisions, keys, sessions, refusals."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.bridge.agents import planner
from tests.harness import NO_TLS
from tests.mcp.test_skill_server import answering, text
from trunkline import Agent, Turn
from trunkline.mcp import http_server

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
ONE, TWO = "key-of-the-first-caller", "key-of-the-second-one"
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip
ACCEPT = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def served(agent: Agent | None = None, **settings: Any) -> AsyncIterator[str]:
    app = (agent or planner()).asgi(**settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def connected(
    base: str, key: str = "", correlation: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[McpClient]:
    headers = ({"X-API-Key": key} if key else {}) | (correlation or {})
    async with create_mcp_http_client(headers=headers) as http_client:
        async with McpClient(
            streamable_http_client(f"{base}/mcp", http_client=http_client), **options
        ) as mcp:
            yield mcp


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 90))


@ERAS
def test_the_skills_of_a_served_agent(mode: str) -> None:
    async def main() -> None:
        asked, elicit = answering({"answer": "blue"})
        async with served() as base, connected(base, mode=mode, elicitation_callback=elicit) as mcp:
            assert mcp.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            listed = {one.name: one for one in (await mcp.list_tools()).tools}
            assert listed["a2a__planner__plan"].input_schema["required"] == ["city"]
            found = await mcp.call_tool("a2a__planner__plan", {"city": "Rome"})
            assert found.structured_content["data"] == [{"city": "Rome", "days": 2}]
            found = await mcp.call_tool("a2a__planner__plan", {"town": "Rome"})
            assert (found.is_error, "unknown parameter 'town'" in text(found)) == (True, True)
            found = await mcp.call_tool("a2a__planner__paint", {"query": "x"})
            assert text(found).endswith(": blue")
            assert [words for words, _ in asked] == ["Which colour?"]

    run(main())


@ERAS
def test_headers_of_a_call_name_the_work_that_its_task_belongs_to(mode: str) -> None:
    agent = Agent("tracer")

    @agent.skill
    async def trace(turn: Turn) -> str:
        """Return the work that the call belongs to."""
        return f"{turn.correlation_id} {turn.parent_id}"

    async def main() -> None:
        given = {"X-Correlation-Id": "c-17", "X-Parent-Id": "p-4"}
        async with served(agent) as base, connected(base, correlation=given, mode=mode) as mcp:
            (name, *_) = [one.name for one in (await mcp.list_tools()).tools]
            assert text(await mcp.call_tool(name, {"query": "go"})) == "c-17 p-4"

    run(main())


@ERAS
def test_a_task_is_its_callers_alone(mode: str) -> None:
    async def main() -> None:
        async with served(keys=[ONE, TWO]) as base:
            async with connected(base, ONE, mode=mode) as mcp:
                found = await mcp.call_tool("a2a__planner__paint", {"query": "x"})
                task_id = found.structured_content["task_id"]
            async with connected(base, TWO, mode=mode) as mcp:
                for name, more in (
                    ("task_status", {}),
                    ("task_answer", {"answer": "red"}),
                    ("task_cancel", {}),
                ):
                    found = await mcp.call_tool(name, {"task_id": task_id, **more})
                    assert (found.is_error, "does not know this task" in text(found)) == (True, True)
            async with connected(base, ONE, mode=mode) as mcp:
                found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": "red"})
                assert text(found).endswith(": red")

    run(main())


def test_who_cancels_a_call_cancels_its_task() -> None:
    async def main() -> None:
        async with served() as base:
            for mode in ("legacy", "auto"):
                async with connected(base, mode=mode) as mcp, httpx2.AsyncClient(verify=NO_TLS) as plain:
                    call = asyncio.create_task(mcp.call_tool("a2a__planner__hang", {"query": "x"}))
                    states: list[str] = []
                    while "working" not in states and "submitted" not in states:
                        items = (await plain.get(f"{base}/api/tasks")).json()["items"]
                        states = [one["state"] for one in items]
                    call.cancel()
                    await asyncio.gather(call, return_exceptions=True)
                    while set(states) != {"canceled"}:
                        items = (await plain.get(f"{base}/api/tasks")).json()["items"]
                        states = [one["state"] for one in items]

    run(main())


def test_the_door_is_the_same_as_everywhere() -> None:
    async def main() -> None:
        async with served(keys=[ONE]) as base, httpx2.AsyncClient(verify=NO_TLS) as plain:
            url, key = f"{base}/mcp", {"X-API-Key": ONE, **ACCEPT}
            assert (await plain.post(url, json=INITIALIZE, headers=ACCEPT)).status_code == 401
            assert (
                await plain.post(url, json=INITIALIZE, headers={**key, "Host": "evil.example"})
            ).status_code == 403
            evil = {**key, "Origin": "http://evil.example"}
            assert (await plain.post(url, json=INITIALIZE, headers=evil)).status_code == 403
            assert (await plain.put(url, json=INITIALIZE, headers=key)).status_code == 405
            assert (await plain.get(f"{url}/more", headers=key)).status_code == 404
            for body in (b"", b"{", b"[]", b'"x"', b'{"jsonrpc": "2.0", "id": 1, "method": 7}'):
                answer = await plain.post(
                    url, content=body, headers={**key, "content-type": "application/json"}
                )
                assert 400 <= answer.status_code < 500, (body, answer.status_code)
            unknown = {**key, "mcp-session-id": "none"}
            assert (await plain.post(url, json=INITIALIZE, headers=unknown)).status_code == 404

    run(main())


def test_sessions_are_bounded_and_their_callers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SESSIONS_OF_ONE_CALLER", 2)

    async def main() -> None:
        async with served(keys=[ONE, TWO]) as base, httpx2.AsyncClient(verify=NO_TLS) as plain:
            url = f"{base}/mcp"

            async def begin(key: str) -> tuple[int, str]:
                answer = await plain.post(url, json=INITIALIZE, headers={"X-API-Key": key, **ACCEPT})
                return answer.status_code, answer.headers.get("mcp-session-id", "")

            (first, session), (second, _), (third, _) = [await begin(ONE) for _ in range(3)]
            assert (first, second, third) == (200, 200, 503)
            assert (await begin(TWO))[0] == 200
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            for key, status in ((TWO, 404), (ONE, 200)):
                headers = {"X-API-Key": key, "mcp-session-id": session, **ACCEPT}
                assert (await plain.post(url, json=ping, headers=headers)).status_code == status
            ended = await plain.delete(url, headers={"X-API-Key": ONE, "mcp-session-id": session})
            assert ended.status_code == 200
            assert (await begin(ONE))[0] == 200

    run(main())


def test_whose_tokens_open_it_is_said() -> None:
    async def main() -> None:
        issuer = {
            "issuer": "https://login.example",
            "audience": "trunkline",
            "jwks_url": "https://login.example/jwks",
        }
        async with served(issuers=[issuer]) as base, httpx2.AsyncClient(verify=NO_TLS) as plain:
            answer = await plain.post(f"{base}/mcp", json=INITIALIZE, headers=ACCEPT)
            assert answer.status_code == 401
            where = f"{base}/.well-known/oauth-protected-resource/mcp"
            assert f'resource_metadata="{where}"' in answer.headers["www-authenticate"]
            told = (await plain.get(where)).json()
            assert told["resource"] == f"{base}/mcp"
            assert told["authorization_servers"] == ["https://login.example"]
            assert told["scopes_supported"] == ["tasks:read", "tasks:write"]

    run(main())
