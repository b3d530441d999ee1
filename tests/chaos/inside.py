"""An agent in this process, asked in bytes by several callers: for what must be tried thousands of times."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.chaos.client import Refusal, parse
from tests.chaos.history import Got, Logged, collect
from trunkline import Agent


class Inside:
    """One running application."""

    def __init__(self, application: Any) -> None:
        self._application = application

    @property
    def store(self) -> Any:
        return self._application.host.store

    @property
    def runner(self) -> Any:
        return self._application.host.runner

    async def answer(self, method: str, params: Any, *headers: tuple[bytes, bytes]) -> Any:
        """The whole JSON-RPC answer."""
        return json.loads(b"".join([piece async for piece in self._post(method, params, headers)]))

    async def ask(self, method: str, params: Any, *headers: tuple[bytes, bytes]) -> Any:
        """The result."""
        answer = await self.answer(method, params, *headers)
        if "error" in answer:
            raise Refusal(answer["error"])
        return answer["result"]

    async def send(self, text: str, *headers: tuple[bytes, bytes], wait: bool = True, **message: Any) -> Any:
        """Send a text; the task."""
        said = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **message}
        params = {"message": said, "configuration": {"returnImmediately": not wait}}
        return (await self.ask("SendMessage", params, *headers))["task"]

    async def frames(self, method: str, params: Any, *headers: tuple[bytes, bytes]) -> AsyncIterator[Got]:
        """The frames of a stream."""
        left = b""
        async for piece in self._post(method, params, headers):
            if piece.startswith(b"{"):
                raise Refusal(json.loads(piece)["error"])
            *whole, left = (left + piece).split(b"\n\n")
            for block in whole:
                if (found := parse(block)) is not None:
                    yield found[0]

    async def logs(self) -> list[Logged]:
        """Everything that is stored."""
        return await collect(self.store)

    async def _post(
        self, method: str, params: Any, headers: tuple[tuple[bytes, bytes], ...]
    ) -> AsyncIterator[bytes]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        scope = {
            "type": "http", "method": "POST", "path": "/a2a", "query_string": b"",
            "headers": [
                (b"host", b"localhost"), (b"content-type", b"application/json"), (b"a2a-version", b"1.0"),
                *headers,
            ],
        }  # fmt: skip
        asks = iter([{"type": "http.request", "body": body, "more_body": False}])
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if (asked := next(asks, None)) is not None:
                return asked
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message.get("body"):
                pieces.put_nowait(message["body"])

        async def serve() -> None:
            try:
                await self._application(scope, receive, send)
            finally:
                pieces.put_nowait(None)

        serving = asyncio.create_task(serve())
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
        finally:
            left.set()
            await serving


@asynccontextmanager
async def inside(agent: Agent, store: str = "memory:", **settings: Any) -> AsyncIterator[Inside]:
    """The agent at work, within a time limit."""
    application = agent.asgi(store=store, log_level="error", drain_limit=0.1, cancel_limit=0.2, **settings)
    async with asyncio.timeout(60), application.lifespan():
        yield Inside(application)
