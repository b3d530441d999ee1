"""A hub in this process whose agents are models, for tests that speak to it as callers do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from trunkline.hub.hub import Hub
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

WAIT_S = 30.0
V1 = (("content-type", "application/json"), ("a2a-version", "1.0"))
V03 = (("content-type", "application/json"),)


class Caller:
    """Asks a hub over HTTP, without a network."""

    def __init__(self, hub: Hub, key: str = "") -> None:
        self.hub = hub
        self.key = key
        self._key = (("x-api-key", key),) if key else ()
        self._client = InProcessHttpClient(hub.host)

    async def tenant(self, name: str) -> Caller:
        """A caller of a new tenant, by an operator."""
        status, made = await self("POST /admin/tenants", {"name": name})
        assert status == 201, made
        return Caller(self.hub, made["token"])

    async def __call__(self, asked: str, body: Any = None, headers: Any = V1) -> tuple[int, Any]:
        method, path = asked.split(" ")
        headers = (*headers, *self._key)
        sent = None if body is None else msgspec.json.encode(body)
        response = await self._client.open(HttpRequest(method, f"http://localhost{path}", headers, sent))
        told = await response.read(1 << 22)
        await response.close()
        return response.status, msgspec.json.decode(told) if told else {}

    async def until(self, asked: str, is_so: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                _, told = await self(asked)
                if is_so(told):
                    return told
                await asyncio.sleep(0.01)

    async def ready(self, name: str) -> Any:
        return await self.until(
            f"GET /api/agents/{name}", lambda one: one.get("state") in ("ready", "invalid")
        )

    async def say(self, name: str, text: str, **more: Any) -> Any:
        """The task that a message to an agent became, at its end."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}
        status, sent = await self(f"POST /v1/a2a/agents/{name}/message:send", {"message": message})
        assert status == 200, sent
        task = sent["task"]
        return await self.until(
            f"GET /v1/a2a/agents/{name}/tasks/{task['id']}",
            lambda one: (
                one["status"]["state"] in ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_REJECTED")
            ),
        )

    async def stream(self, path: str, body: Any, headers: Any) -> list[Any]:
        sent = HttpRequest("POST", f"http://localhost{path}", headers, msgspec.json.encode(body))
        response = await self._client.open(sent)
        whole = await response.read(1 << 22)
        await response.close()
        frames = [line[5:].strip() for line in whole.decode().splitlines() if line.startswith("data:")]
        return [msgspec.json.decode(one) for one in frames]


@asynccontextmanager
async def opened(
    folder: Path, agents: str, dev: bool = True, key: str = "", **variables: str
) -> AsyncGenerator[Caller]:
    (folder / "agents.yaml").write_text(agents)
    keys = {"keys": (key,)} if key else {}
    hub = Hub(
        folder, {"store": "memory:", "dev": dev, "drain_limit": 0.2, "cancel_limit": 0.5, **keys}, variables
    )
    async with hub.host.lifespan():
        yield Caller(hub, key)


def run(scene: Any) -> None:
    asyncio.run(asyncio.wait_for(scene, 2 * WAIT_S))


def named(task: Any, name: str) -> list[Any]:
    """The artifacts of a name."""
    return [one for one in task.get("artifacts", []) if one.get("name") == name]


def answer(task: Any) -> str:
    """What an agent answered."""
    return "".join(part["text"] for one in named(task, "response") for part in one["parts"])


def reason(task: Any) -> str:
    """Why a task ended as it did."""
    return "".join(part["text"] for part in task["status"]["message"]["parts"])
