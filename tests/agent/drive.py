"""Drives an agent in process: one event loop per test, everything under a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from trunkline import Agent
from trunkline.agent.testing import CallFailed, TestClient

T = TypeVar("T")
LIMIT_S = 60


def drive(agent: Agent, talk: Callable[[TestClient], Awaitable[T]], **settings: Any) -> T:
    """Run a conversation with an agent that is started for it."""

    async def whole() -> T:
        async with asyncio.timeout(LIMIT_S), agent.test_client(**{"drain_limit": 0, **settings}) as client:
            return await talk(client)

    return asyncio.run(whole())


def send(
    agent: Agent, content: str | list[dict[str, Any]], settings: dict[str, Any] | None = None, **message: Any
) -> Any:
    """What an agent answers to one message."""

    async def talk(client: TestClient) -> Any:
        return await client.send(content, **message)

    return drive(agent, talk, **(settings or {}))


def stream(
    agent: Agent, content: str | list[dict[str, Any]], settings: dict[str, Any] | None = None, **message: Any
) -> list[Any]:
    """The frames an agent sends for one message."""

    async def talk(client: TestClient) -> list[Any]:
        return [frame async for frame in client.stream(content, **message)]

    return drive(agent, talk, **(settings or {}))


def refusal(agent: Agent, content: str | list[dict[str, Any]], **message: Any) -> dict[str, Any]:
    """The error an agent answers with."""
    with pytest.raises(CallFailed) as caught:
        send(agent, content, **message)
    return caught.value.error


def field_of(error: dict[str, Any]) -> str:
    """The member that an error names."""
    return next(one["fieldViolations"][0]["field"] for one in error["data"] if "fieldViolations" in one)


async def until(client: TestClient, task_id: str, *states: str) -> Any:
    """Poll until a task is in one of these states."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            task = await client.get(task_id)
            if state(task) in states:
                return task
            await asyncio.sleep(0.005)


def begin(client: TestClient, content: str, **message: Any) -> Awaitable[Any]:
    """Send without waiting; gives the task as it was taken."""

    async def sent() -> Any:
        given = {
            "messageId": message.pop("messageId", "m"),
            "role": "ROLE_USER",
            "parts": [{"text": content}],
            **message,
        }
        result = await client.call(
            "SendMessage", {"message": given, "configuration": {"returnImmediately": True}}
        )
        return result["task"]

    return sent()


def state(task: Any) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def said(task: Any) -> str:
    return "".join(part["text"] for part in task["status"].get("message", {"parts": []})["parts"])


def text(task: Any) -> str:
    return "".join(
        part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"]
    )


def parts(task: Any) -> list[Any]:
    return [part for artifact in task.get("artifacts", []) for part in artifact["parts"]]


def pieces(frames: list[Any]) -> list[str]:
    """The text of each artifact frame; of one that tells an artifact whole, what is new in it."""
    found: list[str] = []
    told: dict[str, str] = {}
    for update in [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]:
        artifact = update["artifact"]
        known = told.get(artifact["artifactId"], "")
        piece = "".join(part.get("text", "") for part in artifact["parts"])
        if known and not update.get("append"):
            assert piece.startswith(known)
            piece = piece.removeprefix(known)
        told[artifact["artifactId"]] = known + piece
        found.append(piece)
    return found
