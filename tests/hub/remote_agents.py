"""Agents elsewhere that do what a test says when it says it, and count what they are asked."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2

from tests.harness import NO_TLS
from trunkline.mock.exchange import ABORT

WAIT_S = 60.0
WORKING, COMPLETED, ASKING = "TASK_STATE_WORKING", "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"
_ENDED = (COMPLETED, "TASK_STATE_FAILED", "TASK_STATE_CANCELED")
_CARD = "/.well-known/agent-card.json"


class RemoteWork:
    """One task there: what it says now, each update of it, and where its end is to be told."""

    def __init__(self, text: str, message: dict[str, Any], push: dict[str, Any] | None) -> None:
        self.id = str(uuid.uuid4())
        self.context = message.get("contextId") or str(uuid.uuid4())
        self.text = text
        self.parts: list[dict[str, Any]] = message.get("parts", [])
        self.push = push
        self.said = [text]
        # The parts of each answer, and what it asks with where that is more than a word.
        self.answered: list[list[dict[str, Any]]] = []
        self.question: dict[str, Any] | None = None
        self.state = WORKING
        self.word = ""
        self.artifacts: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.updates: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        # What whoever looks at it is told, where that lags behind.
        self.shown: str | None = None

    @property
    def status(self) -> dict[str, Any]:
        said = self.question or {
            "messageId": f"{self.id}-word",
            "role": "ROLE_AGENT",
            "parts": [{"text": self.word}],
        }
        return {"state": self.state, **({"message": said} if self.word else {})}

    def task(self, *, seen: bool = False) -> dict[str, Any]:
        status = {"state": self.shown} if seen and self.shown else self.status
        made: dict[str, Any] = {"id": self.id, "contextId": self.context, "status": status}
        if not (seen and self.shown):
            made |= {"artifacts": self.artifacts, "metadata": self.metadata}
        return made

    def tell(self, update: dict[str, Any]) -> None:
        self.updates.append(update)
        self.news.set()
        self.news = asyncio.Event()


class RemoteAgent:
    """One agent of A2A 1.0; a text that begins with `quick` is done at once, one with `at once` asks, any other waits."""

    def __init__(self, name: str, *, streaming: bool = False, push: bool = False) -> None:
        self.name = name
        self.streaming = streaming
        self.push = push
        self.skills = [name]
        self.card_path = _CARD
        self.work: dict[str, RemoteWork] = {}
        self.executed: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.looks: Counter[str] = Counter()
        self.most_looks: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        # Looks at these texts are not answered while they stand here; streams of those break off.
        self.hanging: set[str] = set()
        self.breaking: set[str] = set()

    def card(self, base: str) -> dict[str, Any]:
        self.calls["card"] += 1
        return {
            "name": self.name, "description": "Does what the test says.", "version": "1",
            "supportedInterfaces": [{"url": f"{base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {"streaming": self.streaming, "pushNotifications": self.push},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": one, "name": one, "description": "Works.", "tags": []} for one in self.skills],
        }  # fmt: skip

    def find(self, text: str) -> RemoteWork:
        """The task of a text, once it is there."""
        return until(lambda: next((one for one in list(self.work.values()) if one.text == text), None))

    def take(self, params: dict[str, Any]) -> RemoteWork:
        message = params["message"]
        text = "".join([part.get("text", "") for part in message["parts"]])
        self.executed[text] += 1
        known = self.work.get(message.get("taskId", ""))
        if known is not None:
            known.said.append(text)
            known.answered.append(message["parts"])
            known.state, known.word, known.question = WORKING, "", None
            return known
        configuration: dict[str, Any] = params.get("configuration") or {}
        push = configuration.get("taskPushNotificationConfig")
        work = RemoteWork(text, message, push)
        self.work[work.id] = work
        if text.startswith("at once"):
            work.state, work.word = ASKING, "Which?"
        if text.startswith("quick"):
            work.state = COMPLETED
            work.artifacts = [{"artifactId": "a", "parts": [{"text": f"did {text}"}]}]
        return work


class RemoteAgents:
    """Several of them behind one port, each at its name: the application that a `BackgroundServer` serves."""

    def __init__(self, *agents: RemoteAgent) -> None:
        self.agents = {one.name: one for one in agents}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self._loop = asyncio.get_running_loop()
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        _, name, rest = scope["path"].split("/", 2)
        agent = self.agents[name]
        agent.headers.append(headers)
        if scope["method"] == "GET":
            known = f"/{rest}" == agent.card_path
            await _answer(send, agent.card(f"http://{headers['host']}/{name}") if known else None)
            return
        asked = json.loads(await _whole(receive))
        if "method" not in asked:
            # A report of something else, at whatever path.
            agent.calls[rest] += 1
            await _answer(send, {})
            return
        agent.calls[asked["method"]] += 1
        await self._serve(agent, asked, scope, send)

    async def _serve(self, agent: RemoteAgent, asked: dict[str, Any], scope: Any, send: Any) -> None:
        method, params = asked["method"], asked.get("params", {})
        if method in ("SendMessage", "SendStreamingMessage"):
            work = agent.take(params)
        else:
            found = agent.work.get(params.get("id", ""))
            if found is None:
                error = {"code": -32001, "message": "there is no such task"}
                await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "error": error})
                return
            work = found
        if method in ("SendStreamingMessage", "SubscribeToTask"):
            await _stream(agent, work, asked["id"], scope, send)
            return
        if method == "CancelTask":
            work.state = "TASK_STATE_CANCELED"
        if method == "GetTask":
            await _hang(agent, work.text)
        told = work.task(seen=True)
        result = {"task": told} if method == "SendMessage" else told
        await _answer(send, {"jsonrpc": "2.0", "id": asked["id"], "result": result})

    def say(self, work: RemoteWork, **members: Any) -> float:
        """Have a task say something new, and tell whoever reads its stream; gives the moment."""
        loop = self._loop
        assert loop is not None
        done = threading.Event()

        def change() -> None:
            before = len(work.artifacts)
            for name, value in members.items():
                setattr(work, name, value)
            ids = {"taskId": work.id, "contextId": work.context}
            for artifact in work.artifacts[before:]:
                work.tell({"artifactUpdate": {**ids, "artifact": artifact, "lastChunk": True}})
            if "state" in members or "word" in members:
                work.tell({"statusUpdate": {**ids, "status": work.status, "metadata": work.metadata}})
            done.set()

        loop.call_soon_threadsafe(change)
        assert done.wait(WAIT_S)
        return time.monotonic()


async def _hang(agent: RemoteAgent, text: str) -> None:
    agent.looks[text] += 1
    agent.most_looks[text] = max(agent.most_looks[text], agent.looks[text])
    try:
        while text in agent.hanging:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    finally:
        agent.looks[text] -= 1


async def _whole(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        piece = await receive()
        body += piece.get("body", b"")
        more = piece.get("more_body", False)
    return body


async def _answer(send: Any, body: Any) -> None:
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 404 if body is None else 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _stream(agent: RemoteAgent, work: RemoteWork, request: Any, scope: Any, send: Any) -> None:
    place = len(work.updates)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
    )

    async def frame(result: dict[str, Any], *, more: bool = True) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": request, "result": result})
        await send({"type": "http.response.body", "body": f"data: {data}\n\n".encode(), "more_body": more})

    await frame({"task": work.task()})
    if work.text in agent.breaking:
        scope["extensions"][ABORT]()
        return
    while work.state not in (*_ENDED, ASKING) or place < len(work.updates):
        news = work.news
        if place < len(work.updates):
            await frame(work.updates[place])
            place += 1
        else:
            await news.wait()
    await send({"type": "http.response.body", "body": b""})


def call_back(work: RemoteWork, body: Any, *, token: str = "", raw: bytes = b"") -> int:
    """Tell a webhook of a task; gives the status of the answer."""
    assert work.push is not None
    headers = {"X-A2A-Notification-Token": token or work.push["token"], "Content-Type": "application/json"}
    content = raw or json.dumps(body).encode()
    with httpx2.Client(verify=NO_TLS, timeout=WAIT_S) as client:
        return client.post(work.push["url"], content=content, headers=headers).status_code


def until(reached: Callable[[], Any], limit_s: float = WAIT_S) -> Any:
    """What comes of looking again and again, once there is something."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := reached():
            return found
        time.sleep(0.02)
    raise TimeoutError
