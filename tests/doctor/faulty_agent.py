"""Agents that break one thing: wrappers around a sound one, which change what goes in or comes out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from trunkline.wire import sse

App = Callable[[Any, Any, Any], Awaitable[None]]
Json = dict[str, Any]


@dataclass
class Call:
    """One request as the wrapper sees it; `method` is JSON-RPC's, or verb and path."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes
    query: str = ""
    document: Json = field(default_factory=dict)

    @property
    def is_card(self) -> bool:
        return "/.well-known/agent" in self.path

    @property
    def is_rpc(self) -> bool:
        return self.path.rstrip("/") == "/a2a" and self.verb == "POST"

    @property
    def method(self) -> str:
        return str(self.document.get("method", "")) if self.is_rpc else f"{self.verb} {self.path}"

    @property
    def params(self) -> Json:
        found = self.document.get("params") if self.is_rpc else self.document
        return found if isinstance(found, dict) else {}

    def is_a(self, *words: str) -> bool:
        """Whether its method holds one of these words."""
        return any(word in self.method for word in words)


@dataclass
class AgentAnswer:
    """What goes out: a status, headers and a body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @document.setter
    def document(self, value: Any) -> None:
        self.body = json.dumps(value).encode()


def refusal(call: Call, code: int, message: str = "no") -> AgentAnswer:
    document = {"jsonrpc": "2.0", "id": call.document.get("id"), "error": {"code": code, "message": message}}
    return AgentAnswer(200, {"content-type": "application/json"}, json.dumps(document).encode())


class Fault:
    """What is wrong; each hook may change what it is given. The default is sound."""

    def ask(self, call: Call) -> None:
        """Change a request before it goes in."""

    async def instead(self, call: Call) -> AgentAnswer | None:
        """Answer without asking the agent."""
        return None

    def tell(self, call: Call, answer: AgentAnswer) -> None:
        """Change an answer before it goes out."""

    def frame(self, call: Call, frame: Json) -> list[Json]:
        """Change one event of a stream."""
        return [frame]

    async def end(self, call: Call) -> None:
        """Do something before a stream closes."""


class FaultyAgent:
    """An application with a fault."""

    def __init__(self, app: App, fault: Fault) -> None:
        self._app = app
        self._sickness = fault

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        call = Call(scope["method"], scope["path"], headers, body, scope["query_string"].decode())
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        call.document = found if isinstance(found, dict) else {}
        before = deepcopy(call.document)
        self._sickness.ask(call)
        if call.document != before:
            call.body = json.dumps(call.document).encode()
        answer = await self._sickness.instead(call)
        if answer is not None:
            await _send(send, answer)
            return
        await self._forward(scope, receive, send, call)

    async def _forward(self, scope: Any, receive: Any, send: Any, call: Call) -> None:
        outer = _Outer(send, call, self._sickness)
        given = [{"type": "http.request", "body": call.body, "more_body": False}]

        async def replay() -> Any:
            return given.pop() if given else await receive()

        headers = [(name.encode(), value.encode()) for name, value in call.headers.items()]
        length = str(len(call.body)).encode()
        headers = [(name, length if name == b"content-length" else value) for name, value in headers]
        await self._app({**scope, "headers": headers}, replay, outer.send)


class _Outer:
    """Takes the agent's answer, changes it, and sends it on."""

    def __init__(self, send: Any, call: Call, fault: Fault) -> None:
        self._send, self._call, self._sickness = send, call, fault
        self._answer = AgentAnswer(0, {}, b"")
        self._parser: sse.SseParser | None = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self._answer = AgentAnswer(message["status"], headers, b"")
            if headers.get("content-type", "").startswith("text/event-stream"):
                self._parser = sse.SseParser()
                await self._send(message)
            return
        if self._parser is not None:
            await self._stream(self._parser, message)
            return
        self._answer.body += message.get("body", b"")
        if not message.get("more_body", False):
            self._sickness.tell(self._call, self._answer)
            await _send(self._send, self._answer)

    async def _stream(self, parser: sse.SseParser, message: Any) -> None:
        nested_objects: list[bytes] = []
        for event in parser.feed(message.get("body", b"")):
            for frame in self._sickness.frame(self._call, json.loads(event.data)):
                mark = f"id: {event.id}\n" if event.id else ""
                nested_objects.append(f"{mark}data: {json.dumps(frame)}\n\n".encode())
        more = message.get("more_body", False)
        if nested_objects:
            await self._send(
                {"type": "http.response.body", "body": b"".join(nested_objects), "more_body": True}
            )
        if not more:
            await self._sickness.end(self._call)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Any, answer: AgentAnswer) -> None:
    headers = {**answer.headers, "content-length": str(len(answer.body))}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


async def never() -> None:
    """Hang until whoever waits has gone."""
    await asyncio.Event().wait()
