"""Drives an agent in process, over the same bytes as any other client: no socket, no mock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import msgspec

from trunkline.agent.declaration import DriftMonitor, EffectDrift
from trunkline.clock import random_bits
from trunkline.http.mounts import App
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire import sse

_HEADERS = (("content-type", "application/json"), ("a2a-version", "1.0"))


class CallFailed(AssertionError):
    """The agent answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.error = error


class TestClient:
    """`async with agent.test_client() as client` starts the agent; results are 1.0 JSON as dicts.

    `headers` go with every request.
    """

    __test__ = False

    def __init__(
        self, app: App, lifespan: Callable[[], AbstractAsyncContextManager[None]], drift: DriftMonitor
    ) -> None:
        """Take an application, the context in which it runs, and what it finds of its skills' effects."""
        self.headers: dict[str, str] = {}
        self._inside = InProcessHttpClient(app)
        self._lifespan = lifespan
        self._drift = drift
        self._life: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> TestClient:
        self._life = self._lifespan()
        await self._life.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._life is not None:
            await self._life.__aexit__(kind, error, trace)

    @property
    def drift(self) -> list[EffectDrift]:
        """The runs so far whose effects were not those that their skill declares."""
        # Not `list`, which is a method here.
        return [*self._drift.found]

    async def send(self, content: str | list[dict[str, Any]], **message: Any) -> dict[str, Any]:
        """Send a message and wait; gives the task, or the message if the agent answered with one."""
        result = await self.call("SendMessage", {"message": self._message(content, message)})
        return result.get("task") or result["message"]

    async def stream(
        self, content: str | list[dict[str, Any]], **message: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Send a message and give each frame as it comes."""
        async for frame in self.frames("SendStreamingMessage", {"message": self._message(content, message)}):
            yield frame

    async def get(self, task_id: str) -> dict[str, Any]:
        """A task as it stands."""
        return await self.call("GetTask", {"id": task_id})

    async def cancel(self, task_id: str) -> dict[str, Any]:
        """Cancel a task."""
        return await self.call("CancelTask", {"id": task_id})

    async def list(self, **query: Any) -> dict[str, Any]:
        """A page of tasks."""
        return await self.call("ListTasks", query)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Any method by its 1.0 name.

        Raises:
            CallFailed: the agent answered with an error.
        """
        body = b"".join([piece async for piece in self._post(method, params)])
        answer = msgspec.json.decode(body)
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]

    async def frames(self, method: str, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The frames of any streaming method."""
        parser = sse.SseParser()
        async for piece in self._post(method, params):
            if piece.startswith(b"{"):
                raise CallFailed(msgspec.json.decode(piece)["error"])
            for event in parser.feed(piece):
                yield msgspec.json.decode(event.data)["result"]

    def _message(self, content: str | list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
        parts = [{"text": content}] if isinstance(content, str) else content
        return {"messageId": f"test-{random_bits(64):016x}", "parts": parts, "role": "ROLE_USER", **more}

    async def _post(self, method: str, params: dict[str, Any]) -> AsyncIterator[bytes]:
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        reply = await self._inside.open(
            HttpRequest("POST", "http://localhost/a2a", (*_HEADERS, *self.headers.items()), body)
        )
        try:
            async for piece in reply.chunks():
                yield piece
        finally:
            await reply.close()
            await reply.ended()
