"""Skills as tools, driven by the official client in memory, by the handshake and by the revision after it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp.shared.exceptions import MCPError
from mcp.types import BlobResourceContents, ElicitResult, EmbeddedResource, ResourceLink

from tests.bridge.agents import client_of, planner
from trunkline import Agent, Turn
from trunkline.bridge.tools import tools
from trunkline.client.client import Client
from trunkline.mcp.skill_server import SkillServer
from trunkline.mcp.task_agent import ToolboxSource
from trunkline.wire.types import TaskState

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
LARGE = bytes(range(256)) * 512


def studio() -> Agent:
    """An agent for what the planner has not: progress, files, and questions with a schema."""
    agent = planner("Studio")

    @agent.skill
    async def draw(turn: Turn) -> None:
        """Draw."""
        await turn.artifact(file=b"small", filename="a b.txt", media_type="text/plain")
        await turn.artifact(file=LARGE, filename="large.bin", media_type="application/octet-stream")
        await turn.artifact(file="https://example.com/c.pdf", filename="c.pdf")

    @agent.skill
    async def measure(turn: Turn) -> dict[str, Any]:
        """Measure."""
        size = {"type": "object", "properties": {"metres": {"type": "number"}}, "required": ["metres"]}
        await turn.status("looking for the ruler")
        given = await turn.ask("How long?", schema=size)
        colour = await turn.ask("Which colour?", choices=["red", "blue"])
        return {"metres": given["metres"], "colour": colour}

    return agent


@asynccontextmanager
async def served(hand_off_s: float = 30.0) -> AsyncIterator[tuple[SkillServer, Client]]:
    async with client_of(studio()) as client, tools(client) as box:
        yield SkillServer(ToolboxSource(box), hand_off_s=hand_off_s), client


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def text(result: Any) -> str:
    return result.content[0].text


async def until(client: Client, task_id: str, *states: TaskState) -> None:
    while (await client.get(task_id)).state not in states:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def only_task(client: Client) -> str:
    while not (page := await client.list()).tasks:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return page.tasks[0].id


def answering(*given: dict[str, Any] | str) -> tuple[list[tuple[str, Any]], Callable[..., Any]]:
    """A user who fills in forms with these, or says `decline` or `cancel`; and what it was asked."""
    asked: list[tuple[str, Any]] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        said = given[len(asked)]
        asked.append((params.message, params.requested_schema))
        if isinstance(said, str):
            return ElicitResult(action=said)  # pyright: ignore[reportArgumentType]
        return ElicitResult(action="accept", content=said)

    return asked, elicit


@ERAS
def test_each_skill_is_a_tool_with_its_schema(mode: str) -> None:
    async def main() -> None:
        async with served() as (server, _), McpClient(server.server, mode=mode) as mcp:
            assert mcp.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
            assert mcp.server_info is not None and mcp.server_info.version == version("trunkline")
            listed = {one.name: one for one in (await mcp.list_tools()).tools}
            plan = listed["a2a__studio__plan"]
            assert (plan.title, plan.description) == ("Plan", "Plan a trip.")
            assert plan.input_schema["properties"]["days"] == {"type": "integer", "default": 2}
            assert {"task_status", "task_answer", "task_cancel"} <= listed.keys()
            found = await mcp.call_tool("a2a__studio__plan", {"city": "Rome"})
            assert found.structured_content["data"] == [{"city": "Rome", "days": 2}]
            assert text(found) == '{"city":"Rome","days":2}'
            assert not found.is_error

    run(main())


@ERAS
def test_bad_input_is_told_to_the_model_or_refused(mode: str) -> None:
    async def main() -> None:
        async with served() as (server, _), McpClient(server.server, mode=mode) as mcp:
            for name, arguments, said in (
                ("a2a__studio__plan", {"town": "Rome"}, "unknown parameter 'town'"),
                ("a2a__studio__shout", {}, "'query' is required"),
                ("a2a__studio__shout", {"query": 7}, "query must be text"),
                ("a2a__studio__shout", {"query": "x", "more": 1}, "there is no argument 'more'"),
                ("a2a__studio__fail", {"query": "x"}, "the oven is cold"),
                ("a2a__studio__reject", {"query": "x"}, "I only bake bread"),
                ("task_status", {}, "task_id is the id"),
                ("task_status", {"task_id": "7"}, "task_id is the id"),
                ("task_status", {"task_id": "a2a__studio__plan:nope"}, "does not know this task"),
                ("task_status", {"task_id": "other:7"}, "no tool 'other'"),
                ("task_status", {"task_id": "a2a__studio__plan:nope", "wait": -1}, "wait is a number"),
                ("task_answer", {"task_id": "a2a__studio__plan:nope"}, "'answer' is required"),
                ("task_cancel", {"task_id": "a2a__studio__plan:nope", "x": 1}, "no argument 'x'"),
            ):
                found = await mcp.call_tool(name, arguments)
                assert (found.is_error, said in text(found)) == (True, True), text(found)
            with pytest.raises(MCPError, match="there is no tool 'none'"):
                await mcp.call_tool("none", {})
            for uri in ("file:///etc/passwd", "trunkline://task/a2a__studio__plan/nope/0/x"):
                with pytest.raises(MCPError):
                    await mcp.read_resource(uri)

    run(main())


@ERAS
def test_questions_go_to_the_user_of_a_client_that_can_ask(mode: str) -> None:
    async def main() -> None:
        asked, elicit = answering({"metres": 2.5}, {"answer": "blue"})
        async with served() as (server, _):
            async with McpClient(server.server, mode=mode, elicitation_callback=elicit) as mcp:
                found = await mcp.call_tool("a2a__studio__measure", {"query": "x"})
            assert found.structured_content["data"] == [{"metres": 2.5, "colour": "blue"}]
            assert [words for words, _ in asked] == ["How long?", "Which colour?"]
            assert asked[0][1]["properties"] == {"metres": {"type": "number"}}
            assert asked[1][1]["properties"]["answer"]["enum"] == ["red", "blue"]

    run(main())


@ERAS
def test_a_user_may_decline_or_close_the_form(mode: str) -> None:
    async def main() -> None:
        async with served() as (server, _):
            _, elicit = answering("decline")
            async with McpClient(server.server, mode=mode, elicitation_callback=elicit) as mcp:
                found = await mcp.call_tool("a2a__studio__measure", {"query": "x"})
                assert (found.is_error, "declines" in text(found)) == (True, True)
            _, elicit = answering("cancel")
            async with McpClient(server.server, mode=mode, elicitation_callback=elicit) as mcp:
                found = await mcp.call_tool("a2a__studio__paint", {"query": "x"})
                task_id = found.structured_content["task_id"]
                assert "call task_answer" in text(found)
                found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": "red"})
                assert text(found).endswith("red")

    run(main())


@ERAS
def test_a_task_that_asks_or_takes_long_is_handed_over(mode: str) -> None:
    async def main() -> None:
        async with served(hand_off_s=0.3) as (server, client):
            async with McpClient(server.server, mode=mode) as mcp:
                asks = await mcp.call_tool("a2a__studio__measure", {"query": "x"})
                assert asks.structured_content["state"] == "input-required"
                hangs = await mcp.call_tool("a2a__studio__hang", {"query": "x"})
                assert hangs.structured_content["state"] == "working"
                assert "task_status" in text(hangs)
            # The client has left, and another one goes on, with what the model was told.
            again = SkillServer(ToolboxSource(await tools(client)), hand_off_s=0.3)
            async with McpClient(again.server, mode=mode) as mcp:
                task_id = asks.structured_content["task_id"]
                for wrong in ({"feet": 1}, "long"):
                    found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": wrong})
                    assert (found.is_error, "does not fit" in text(found)) == (True, True)
                found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": {"metres": 2}})
                assert found.structured_content["question"] == "Which colour? (one of: red, blue)"
                found = await mcp.call_tool("task_answer", {"task_id": task_id, "answer": "red"})
                assert found.structured_content["data"] == [{"metres": 2, "colour": "red"}]
                found = await mcp.call_tool("task_status", {"task_id": task_id, "wait": 5})
                assert found.structured_content["state"] == "completed"
                task_id = hangs.structured_content["task_id"]
                found = await mcp.call_tool("task_status", {"task_id": task_id, "wait": 0.1})
                assert found.structured_content["state"] == "working"
                found = await mcp.call_tool("task_cancel", {"task_id": task_id})
                assert (found.is_error, found.structured_content["state"]) == (False, "canceled")
                found = await mcp.call_tool("task_cancel", {"task_id": task_id})
                assert found.is_error

    run(main())


@ERAS
def test_who_cancels_a_call_cancels_its_task(mode: str) -> None:
    async def main() -> None:
        async with served() as (server, client), McpClient(server.server, mode=mode) as mcp:
            call = asyncio.create_task(mcp.call_tool("a2a__studio__hang", {"query": "x"}))
            task_id = await only_task(client)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await until(client, task_id, TaskState.CANCELED)

    run(main())


def test_a_task_outlives_a_client_whose_connection_ends() -> None:
    async def main() -> None:
        async with served() as (server, client):
            async with McpClient(server.server, mode="legacy") as mcp:
                call = asyncio.create_task(mcp.call_tool("a2a__studio__paint", {"query": "x"}))
                hang = asyncio.create_task(mcp.call_tool("a2a__studio__hang", {"query": "x"}))
                await call
                while len((await client.list()).tasks) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.gather(hang, return_exceptions=True)
            states = {(await client.get(one.id)).state for one in (await client.list()).tasks}
            assert states <= {TaskState.WORKING, TaskState.SUBMITTED, TaskState.INPUT_REQUIRED}

    run(main())


@ERAS
def test_files_are_resources(mode: str) -> None:
    async def main() -> None:
        async with served() as (server, _), McpClient(server.server, mode=mode) as mcp:
            found = await mcp.call_tool("a2a__studio__draw", {"query": "x"})
            _, small, large, linked = found.content
            assert isinstance(small, EmbeddedResource)
            assert isinstance(small.resource, BlobResourceContents)
            assert base64.b64decode(small.resource.blob) == b"small"
            assert isinstance(large, ResourceLink)
            assert (large.name, large.mime_type, large.size) == (
                "large.bin", "application/octet-stream", len(LARGE),
            )  # fmt: skip
            assert isinstance(linked, ResourceLink)
            assert linked.uri == "https://example.com/c.pdf"
            for uri, content in ((small.resource.uri, b"small"), (large.uri, LARGE)):
                (read,) = (await mcp.read_resource(uri)).contents
                assert isinstance(read, BlobResourceContents)
                assert base64.b64decode(read.blob) == content
            with pytest.raises(MCPError, match="no such file"):
                await mcp.read_resource(large.uri.replace("/1/", "/7/"))
            assert (await mcp.list_resources()).resources == []
            (template,) = (await mcp.list_resource_templates()).resource_templates
            assert template.uri_template.startswith("trunkline://task/")

    run(main())
