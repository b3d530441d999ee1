"""Speaks to a mock by hand, over the bytes of any caller, in process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec

from trunkline.mock.app import Mock
from trunkline.mock.faults import MockFault
from trunkline.mock.scenario import Reply, Rule, Scenario
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire import sse

BASE = "http://localhost"
_numbers: Iterator[int] = count(1)


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def result(self) -> Any:
        return self.json["result"]

    @property
    def task(self) -> Any:
        return self.result["task"]

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[sse.SseEvent]:
        return sse.SseParser().feed(self.body)

    @property
    def frames(self) -> list[Any]:
        return [msgspec.json.decode(event.data)["result"] for event in self.events]


class Talk:
    """One caller of one mock."""

    def __init__(self, mock: Mock) -> None:
        self.mock = mock
        self.http_client = InProcessHttpClient(mock, base="")

    async def http(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        raw = None if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        reply = await self.http_client.open(
            HttpRequest(method, BASE + path, (("content-type", "application/json"), *named), raw)
        )
        try:
            return Answer(reply.status, reply.headers, await reply.read(64 << 20, idle_s=60))
        finally:
            await reply.close()

    async def card(self, path: str = "/.well-known/agent-card.json") -> Answer:
        return await self.http("GET", path)

    async def rpc(self, method: str, params: Any, *, path: str = "/a2a", **headers: str) -> Answer:
        version = {} if "/" in method else {"a2a_version": "1.0"}
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.http("POST", path, body, **{**version, **headers})

    async def send(self, text: str = "hello", **members: Any) -> Answer:
        return await self.rpc("SendMessage", said(text, **members))

    async def stream(self, text: str = "hello", **members: Any) -> Answer:
        return await self.rpc("SendStreamingMessage", said(text, **members))

    async def get(self, task_id: str) -> Answer:
        return await self.rpc("GetTask", {"id": task_id})


def said(text: str = "hello", *, configuration: Any = None, metadata: Any = None, **members: Any) -> Any:
    message = {"messageId": f"m-{next(_numbers)}", "role": "ROLE_USER", "parts": [{"text": text}], **members}
    params: dict[str, Any] = {"message": message}
    if configuration is not None:
        params["configuration"] = configuration
    if metadata is not None:
        params["metadata"] = metadata
    return params


@asynccontextmanager
async def talking(scenario: Scenario) -> AsyncIterator[Talk]:
    talk = Talk(Mock(scenario))
    try:
        yield talk
    finally:
        await talk.http_client.close()
        await talk.mock.close()


def replying(reply: Reply | str, *faults: MockFault, **scenario: Any) -> Scenario:
    """One rule for everything."""
    return Scenario(rules=(Rule(reply=reply),), faults=faults, **scenario)
