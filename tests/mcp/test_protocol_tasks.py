"""Calls that are tasks of MCP, asked for by the official client in the words of both revisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError

from tests.bridge.agents import client_of
from tests.mcp.test_skill_server import answering, run, studio
from trunkline.bridge.tools import tools
from trunkline.mcp import protocol_tasks
from trunkline.mcp.protocol_tasks import EXTENSION, serve_skills
from trunkline.mcp.task_agent import ToolboxSource


@asynccontextmanager
async def connected(mode: str, **options: Any) -> AsyncIterator[tuple[McpClient, Any]]:
    """A client, and how it sends a request that the library has no method for."""
    async with client_of(studio()) as client, tools(client) as box:
        server = serve_skills(ToolboxSource(box)).server
        async with McpClient(server, mode=mode, **options) as mcp:

            async def ask(method: str, **params: Any) -> Any:
                session: Any = mcp.session
                body = dict(params)
                extra: dict[str, Any] = {}
                session._stamp({"method": method, "params": body}, extra)
                return await session._dispatcher.send_raw_request(method, body, extra or None)

            yield mcp, ask


async def until(ask: Any, task_id: str, *states: str) -> Any:
    while (found := await ask("tasks/get", taskId=task_id))["status"] not in states:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


def test_a_call_of_2025_11_25_that_wants_to_be_a_task() -> None:
    async def main() -> None:
        asked, elicit = answering({"metres": 2.5}, {"answer": "blue"})
        async with connected("legacy", elicitation_callback=elicit) as (mcp, ask):
            assert mcp.server_capabilities.tasks is not None
            listed = {one.name: one for one in (await mcp.list_tools()).tools}
            execution = listed["a2a__studio__measure"].execution
            assert execution is not None
            assert execution.task_support == "optional"
            made = await ask(
                "tools/call", name="a2a__studio__measure", arguments={"query": "x"}, task={"ttl": 60000}
            )
            task = made["task"]
            assert task["status"] in ("working", "input_required")
            assert (task["ttl"], "createdAt" in task, "lastUpdatedAt" in task) == (None, True, True)
            await until(ask, task["taskId"], "input_required")
            assert asked == []
            found = await ask("tasks/result", taskId=task["taskId"])
            assert found["structuredContent"]["data"] == [{"metres": 2.5, "colour": "blue"}]
            assert found["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
            assert (await ask("tasks/get", taskId=task["taskId"]))["status"] == "completed"
            hangs = (await ask("tools/call", name="a2a__studio__hang", arguments={"query": "x"}, task={}))[
                "task"
            ]
            assert (await ask("tasks/cancel", taskId=hangs["taskId"]))["status"] == "cancelled"
            failed = (await ask("tools/call", name="a2a__studio__fail", arguments={"query": "x"}, task={}))[
                "task"
            ]
            await until(ask, failed["taskId"], "failed")
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                for task_id in ("x", "a2a__studio__plan:nope"):
                    with pytest.raises(MCPError) as refused:
                        await ask(method, taskId=task_id)
                    assert refused.value.code == -32602

    run(main())


def test_a_call_of_a_client_with_the_extension_becomes_a_task_if_it_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol_tasks, "QUICK_S", 0.3)

    async def main() -> None:
        async with connected("auto", extensions=[advertise(EXTENSION, {})]) as (mcp, ask):
            found = await mcp.call_tool("a2a__studio__plan", {"city": "Rome"})
            assert found.structured_content["data"] == [{"city": "Rome", "days": 2}]
            made = await ask("tools/call", name="a2a__studio__measure", arguments={"query": "x"})
            assert (made["resultType"], made["ttlMs"], made["status"]) == ("task", None, "input_required")
            task_id = made["taskId"]
            for content in ({"metres": 2}, {"answer": "red"}):
                waiting = await until(ask, task_id, "input_required")
                (form,) = waiting["inputRequests"].values()
                assert form["method"] == "elicitation/create"
                answers = {"answer": {"action": "accept", "content": content}}
                assert (await ask("tasks/update", taskId=task_id, inputResponses=answers))[
                    "resultType"
                ] == "complete"
            done = await until(ask, task_id, "completed")
            assert done["result"]["structuredContent"]["data"] == [{"metres": 2, "colour": "red"}]
            hangs = await ask("tools/call", name="a2a__studio__hang", arguments={"query": "x"})
            assert (hangs["resultType"], hangs["status"]) == ("task", "working")
            await ask("tasks/cancel", taskId=hangs["taskId"])
            await until(ask, hangs["taskId"], "cancelled")
            with pytest.raises(MCPError) as refused:
                await ask("tasks/result", taskId=task_id)
            assert refused.value.code == -32601

    run(main())
