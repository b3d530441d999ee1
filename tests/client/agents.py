"""Agents that behave as a test says, in process: what they are asked is kept, what they answer is given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.client.client import Client
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

HOME = "http://localhost"
WORKING, COMPLETED = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"


class Asked(Struct):
    """A request as it came."""

    method: str
    params: dict[str, Any]
    headers: dict[str, str]

    @property
    def message_id(self) -> str:
        return self.params["message"]["messageId"]


class Http(Struct):
    """An answer in plain HTTP."""

    status: int
    headers: dict[str, str] = {}
    body: bytes = b""


class Error(Struct):
    """A JSON-RPC error."""

    code: int
    message: str = "no"


class Frames(Struct):
    """A stream: each frame is an object, an (id, object), or bytes as they are; it may break off at its end."""

    frames: Sequence[Any] = ()
    cut: bool = False
    stall: bool = False


class Raw(Struct):
    """Bytes instead of JSON, which may break off."""

    body: bytes
    cut: bool = False
    stall: bool = False


class Broken(Exception):
    """The application dies; to the caller the connection breaks."""


class Lost:
    """The request is taken and never answered: the connection breaks."""


Answer = Any
Script = Callable[[Asked], Answer | Awaitable[Answer]]


def card(**more: Any) -> dict[str, Any]:
    """A card of 1.0."""
    capabilities = {"streaming": True, "pushNotifications": True, **more.pop("capabilities", {})}
    return {
        "name": "stand",
        "description": "stands in",
        "version": "1",
        "supportedInterfaces": [
            {"url": f"{HOME}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ],
        "capabilities": capabilities,
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


def deduplicating(**more: Any) -> dict[str, Any]:
    """The card of an agent that knows a message that comes twice."""
    extension = {"uri": IDEMPOTENT_SEND, "description": "", "required": False}
    return card(capabilities={"extensions": [extension]}, **more)


class Stand:
    """An agent at `/a2a` with a card."""

    def __init__(self, script: Script | Sequence[Answer], own_card: Any = None) -> None:
        self._script = script if callable(script) else iter(script)
        self.card = card() if own_card is None else own_card
        self.asked: list[Asked] = []
        self.cards = 0
        self.open_streams = 0

    @property
    def methods(self) -> list[str]:
        return [asked.method for asked in self.asked]

    def client(self, **options: Any) -> Client:
        return Client(HOME, http_client=InProcessHttpClient(self), **options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/.well-known/"):
            self.cards += 1
            found = self.card if scope["path"].endswith("agent-card.json") else None
            await self._plain(send, Http(200 if found else 404, {}, msgspec.json.encode(found)))
            return
        body = (await receive())["body"]
        if scope["path"] != "/a2a":
            await self._plain(send, Http(404))
            return
        asked = msgspec.json.decode(body)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        one = Asked(asked["method"], asked.get("params") or {}, headers)
        self.asked.append(one)
        answer = self._script(one) if callable(self._script) else next(self._script)
        if asyncio.iscoroutine(answer):
            answer = await answer
        await self._answer(answer, asked["id"], receive, send)

    async def _answer(self, answer: Answer, request_id: Any, receive: Any, send: Any) -> None:
        if isinstance(answer, Lost):
            raise Broken
        if isinstance(answer, Http):
            await self._plain(send, answer)
        elif isinstance(answer, Frames):
            self.open_streams += 1
            try:
                await self._frames(answer, request_id, receive, send)
            finally:
                self.open_streams -= 1
        elif isinstance(answer, Raw):
            await self._raw(answer, receive, send)
        else:
            told = (
                {"error": {"code": answer.code, "message": answer.message}}
                if isinstance(answer, Error)
                else {"result": answer}
            )
            body = msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **told})
            await self._plain(send, Http(200, {"content-type": "application/json"}, body))

    async def _plain(self, send: Any, answer: Http) -> None:
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _raw(self, answer: Raw, receive: Any, send: Any) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/json")],
            }
        )
        await send(
            {"type": "http.response.body", "body": answer.body, "more_body": answer.cut or answer.stall}
        )
        if answer.stall:
            await receive()
        if answer.cut:
            raise Broken

    async def _frames(self, answer: Frames, request_id: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in answer.frames:
            await send({"type": "http.response.body", "body": event(frame, request_id), "more_body": True})
        if answer.stall:
            await receive()
            return
        if answer.cut:
            raise Broken
        await send({"type": "http.response.body", "body": b""})


def event(frame: Any, request_id: Any) -> bytes:
    """A frame as it goes out."""
    if isinstance(frame, bytes):
        return frame
    place, told = frame if isinstance(frame, tuple) else (None, frame)
    before = b"" if place is None else b"id: %b\n" % str(place).encode()
    result = (
        {"error": {"code": told.code, "message": told.message}}
        if isinstance(told, Error)
        else {"result": told}
    )
    return before + b"data: %b\n\n" % msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, **result})


def task(state: str = COMPLETED, *texts: str, task_id: str = "t1", said: str = "") -> dict[str, Any]:
    """A task, each text an artifact of its own."""
    status: dict[str, Any] = {"state": state}
    if said:
        status["message"] = message(said)["message"]
    artifacts = [{"artifactId": f"a{place}", "parts": [{"text": text}]} for place, text in enumerate(texts)]
    return {"task": bare(status, artifacts, task_id)}


def bare(status: dict[str, Any], artifacts: list[Any], task_id: str = "t1") -> dict[str, Any]:
    return {"id": task_id, "contextId": "c1", "status": status, "artifacts": artifacts}


def stored(*given: Any, **more: Any) -> dict[str, Any]:
    """A task as `GetTask` gives it."""
    return task(*given, **more)["task"]


def message(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": "m9", "role": "ROLE_AGENT", "parts": [{"text": text}], **more}}


def status(state: str = WORKING, said: str = "") -> dict[str, Any]:
    told: dict[str, Any] = {"state": state}
    if said:
        told["message"] = message(said)["message"]
    return {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": told}}


def chunk(text: str, *, append: bool = True, last: bool = False, artifact_id: str = "a0") -> dict[str, Any]:
    artifact = {"artifactId": artifact_id, "parts": [{"text": text}]}
    return {
        "artifactUpdate": {
            "taskId": "t1", "contextId": "c1", "artifact": artifact, "append": append, "lastChunk": last,
        }
    }  # fmt: skip


def hello(*, ids: bool = True) -> list[Any]:
    """The frames of a whole answer: hello world."""
    frames = [
        task("TASK_STATE_SUBMITTED"), status(), chunk("hello", append=False), chunk(" "), chunk("world"),
        status(COMPLETED),
    ]  # fmt: skip
    return [(place, frame) if ids else frame for place, frame in enumerate(frames, 1)]
