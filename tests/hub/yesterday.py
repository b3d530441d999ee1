"""The demo agent as agents of others are: of one version alone, without ids on streams, push or a list of tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness import SECRET, Agent
from tests.hub.remote_agents import until
from tests.hub.test_hub import HubProcess
from trunkline.demo import agent
from trunkline.mock.serve import BackgroundServer

_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_OLD = ("url", "protocolVersion", "preferredTransport", "additionalInterfaces")
_ID = re.compile(rb"^id:[^\n]*\n", re.MULTILINE)
_LACKING = re.compile(r"(?i)push|list")


class OneVersion:
    """The application: what is not of its version is refused, and its card says no more than it can."""

    def __init__(self, version: str, *, streaming: bool = True) -> None:
        self._version = version
        self._streaming = streaming
        # Some of its tasks run to the end of a test, and nobody waits for them.
        self._agent = agent.asgi(store="memory:", drain_limit=0.2, cancel_limit=0.2)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._agent(scope, receive, send)
            return
        said = dict(scope["headers"]).get(b"a2a-version", b"0.3").decode()
        if scope["path"] in _CARDS:
            await self._agent({**scope, "headers": _plain(scope)}, receive, _Card(self, send))
        elif said != self._version:
            await _refuse(send, f"this agent speaks {self._version}, not {said}")
        elif _LACKING.search(scope["path"]):
            await _refuse(send, "there is no such thing here")
        else:
            await self._agent({**scope, "headers": _plain(scope)}, receive, _Ids(send))

    def card(self, whole: dict[str, Any]) -> dict[str, Any]:
        """What is left of the card of an agent that can do more."""
        whole["capabilities"] = {"streaming": self._streaming, "pushNotifications": False}
        if self._version == "0.3":
            del whole["supportedInterfaces"]
            return whole
        whole["supportedInterfaces"] = [
            one for one in whole["supportedInterfaces"] if one["protocolVersion"] == self._version
        ]
        return {name: value for name, value in whole.items() if name not in _OLD}


class _Card:
    """Sends the card as this agent has it."""

    def __init__(self, made: OneVersion, send: Any) -> None:
        self._made, self._send = made, send
        self._start: Any = None

    async def __call__(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            self._start = event
            return
        body = json.dumps(self._made.card(json.loads(event["body"]))).encode()
        self._start["headers"] = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})


class _Ids:
    """Sends streams without the ids of their events."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self._streams = False

    async def __call__(self, event: Any) -> None:
        if event["type"] == "http.response.start":
            self._streams = any(value.startswith(b"text/event-stream") for _, value in event["headers"])
        elif self._streams and "body" in event:
            event = {**event, "body": _ID.sub(b"", event["body"])}
        await self._send(event)


def _plain(scope: Any) -> list[tuple[bytes, bytes]]:
    """The headers of a request without what would name an event, a message or an answer that is known."""
    ours = (b"last-event-id", b"idempotency-key", b"if-none-match", b"accept-encoding")
    return [(name, value) for name, value in scope["headers"] if name not in ours]


async def _refuse(send: Any, why: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": why}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Front:
    """A hub in a process of its own, whose agents are elsewhere."""

    def __init__(self, hub: HubProcess) -> None:
        self.hub = hub
        self.agent = Agent(hub.base)

    def site(self, name: str) -> str:
        """Where an agent of the hub is."""
        return f"{self.hub.base}/v1/a2a/agents/{name}"

    def until_found(self) -> None:
        """Wait until each agent has told what it can do."""
        listed = f"{self.hub.base}/api/agents"
        until(lambda: all(one["state"] == "ready" for one in self.agent.http.get(listed).json()["items"]))


@contextmanager
def fronting(
    workspace: Path, urls: dict[str, str], *flags: str, settings: str = "poll_interval: 0.5"
) -> Iterator[Front]:
    """A hub with an agent at each of these addresses."""
    lines = [f'  - {{name: {name}, url: "{url}"}}' for name, url in urls.items()]
    (workspace / "agents.yaml").write_text("agents:\n" + "\n".join(lines))
    (workspace / "hub.yaml").write_text(f"settings: {{{settings}}}")
    with HubProcess(workspace, *flags, env=SECRET) as hub:
        front = Front(hub)
        try:
            front.until_found()
            yield front
        finally:
            front.agent.close()


@contextmanager
def front_of_two(workspace: Path, *flags: str) -> Iterator[Front]:
    """A hub with the demo agent as one of 0.3 and as one of 1.0."""
    with BackgroundServer(OneVersion("0.3")) as old, BackgroundServer(OneVersion("1.0")) as new:
        with fronting(workspace, {"old": old, "new": new}, *flags) as front:
            yield front
