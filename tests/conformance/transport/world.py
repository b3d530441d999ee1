"""One agent in this process, and every way in which it can be spoken to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from trunkline import Agent
from trunkline.client.delegate import DelegateTransport
from trunkline.client.rest import RestTransport
from trunkline.client.rpc import JsonRpcTransport
from trunkline.client.transport import Call, Frame, Transport, TransportFactory
from trunkline.clock import new_id
from trunkline.demo.agent import agent
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.answers import Answer
from trunkline.wire.peer_card import Interface
from trunkline.wire.types import (
    ArtifactUpdate,
    Message,
    Part,
    Role,
    SendRequest,
    StatusUpdate,
    Task,
    TaskQuery,
    TaskState,
)

KEY = "the-key-of-the-transports"
WAYS: dict[str, tuple[TransportFactory, Interface]] = {
    "rpc-1.0": (JsonRpcTransport, Interface("http://localhost/a2a", "JSONRPC", "1.0")),
    "rpc-0.3": (JsonRpcTransport, Interface("http://localhost/a2a", "JSONRPC", "0.3.0")),
    "rest-1.0": (RestTransport, Interface("http://localhost", "HTTP+JSON", "1.0")),
    "rest-0.3": (RestTransport, Interface("http://localhost/v1", "HTTP+JSON", "0.3.0")),
    "delegate": (DelegateTransport, Interface("http://localhost/delegate", "DELEGATE", tenant="demo")),
}
WITHIN_S = 60


class World:
    """The agent, its loop, and a transport to it."""

    def __init__(self, served: Agent = agent) -> None:
        self._runner = asyncio.Runner()
        app = served.asgi(
            store="memory:",
            keys=[KEY],
            secret_key="a-secret-key-for-the-transports",
            egress_networks=["127.0.0.0/8"],
            coalesce_characters=0,
        )
        self._life = app.lifespan()
        self.http_client = InProcessHttpClient(app)
        self.run(self._life.__aenter__)

    def run(self, scene: Callable[[], Awaitable[Any]]) -> Any:
        """Play a scene, in time."""

        async def play() -> Any:
            return await asyncio.wait_for(scene(), WITHIN_S)

        return self._runner.run(play())

    def close(self) -> None:
        """End it all."""

        async def leave() -> None:
            await self.http_client.close()
            await self._life.__aexit__(None, None, None)

        self.run(leave)
        self._runner.close()


class Way:
    """A transport, and short words for what tests do with it."""

    def __init__(self, world: World, name: str) -> None:
        make, interface = WAYS[name]
        self.name = name
        self.world = world
        self.transport: Transport = make(interface, world.http_client)
        self.call = Call(headers=(("x-api-key", KEY),), idle_s=5)

    def run(self, scene: Callable[[], Awaitable[Any]]) -> Any:
        """Play a scene, in time."""
        return self.world.run(scene)

    def request(self, text: str = "", **more: Any) -> SendRequest:
        """What asks for this text; `parts` and message ids may be given."""
        wait = more.pop("wait", True)
        push = more.pop("push", None)
        length = more.pop("history_length", None)
        parts = more.pop("parts", (Part(text=text),))
        message = Message(more.pop("message_id", new_id()), role=Role.USER, parts=parts, **more)
        return SendRequest(message, wait=wait, push=push, history_length=length)

    async def send(self, text: str = "", **more: Any) -> Task:
        """Send; the answer is a task."""
        notice = await self.transport.send(self.request(text, **more), self.call)
        assert isinstance(notice.answer, Task)
        return notice.answer

    async def get(self, task_id: str) -> Task:
        """The task as it stands."""
        return await self.transport.get(TaskQuery(task_id), self.call)

    async def until(self, task_id: str, *states: TaskState) -> Task:
        """The task once it has reached one of these states."""
        while True:
            task = await self.get(task_id)
            if task.status.state in states:
                return task
            await asyncio.sleep(0.01)

    async def frames(self, text: str) -> list[Frame]:
        """All frames of a stream."""
        return [frame async for frame in self.transport.stream(self.request(text), self.call)]


def words(answers: list[Answer] | list[Frame]) -> str:
    """The text of all artifact updates, by the rules: what is not appended replaces."""
    found: dict[str, str] = {}
    for one in answers:
        answer = one.notice.answer if isinstance(one, Frame) else one
        if isinstance(answer, ArtifactUpdate):
            text = "".join(part.text or "" for part in answer.artifact.parts)
            known = found.get(answer.artifact.artifact_id, "") if answer.append else ""
            found[answer.artifact.artifact_id] = known + text
    return "".join(found.values())


def states(frames: list[Frame]) -> list[TaskState]:
    """The states that a stream told, in order."""
    told = [frame.notice.answer for frame in frames]
    return [one.status.state for one in told if isinstance(one, Task | StatusUpdate)]


def text_of(task: Task) -> str:
    """The text of a task's artifacts."""
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)
