"""What a client must do: CLI-01 to CLI-09 and TEN-01, our client against a peer that writes down what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.web import Asked, Page, Web
from trunkline.client.client import Client
from trunkline.errors import PushNotSupported, Unauthenticated, VersionNotSupported
from trunkline.webhook import Receiver
from trunkline.wire.types import PushConfig, TaskState

HOME = "https://peer.example"
CARD = f"{HOME}/.well-known/agent-card.json"
RPC, REST, DEAD = f"{HOME}/rpc", f"{HOME}/rest", f"{HOME}/dead"
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
WORKING = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


def interface(url: str, binding: str = "JSONRPC", version: str = "1.0", **more: str) -> dict[str, str]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version, **more}


def page(body: Any, status: int = 200) -> Page:
    return Page(status, json.dumps(body).encode(), JSON)


def frames(*given: Any, more: bytes = b"") -> Page:
    body = b"".join(
        b"data: " + json.dumps({"jsonrpc": "2.0", "result": one}).encode() + b"\n\n" for one in given
    )
    return Page(200, more + body, EVENTS)


class Peer(Web):
    """Answers each method of JSON-RPC with what it is told to, and every path of REST with a task."""

    def __init__(
        self, *interfaces: dict[str, str], answers: dict[str, Any] | None = None, **card: Any
    ) -> None:
        self.card = {
            "name": "Peer",
            "description": "d",
            "version": "1",
            "supportedInterfaces": list(interfaces or (interface(RPC),)),
            "capabilities": {"streaming": True, "pushNotifications": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
            **card,
        }
        self.answers = {"SendMessage": {"task": TASK}, "GetTask": TASK, **(answers or {})}
        super().__init__({CARD: page(self.card), RPC: self.rpc, f"{REST}/message:send": page({"task": TASK})})

    def rpc(self, asked: Asked) -> Page:
        request = json.loads(asked.body)
        found = self.answers.get(request["method"], {"code": -32601, "message": "no such method"})
        if isinstance(found, Page):
            return found
        name = "error" if "code" in found else "result"
        return page({"jsonrpc": "2.0", "id": request["id"], name: found})

    @property
    def methods(self) -> list[str]:
        return [json.loads(asked.body)["method"] for asked in self.asked if asked.url == RPC]

    def play(self, scene: Callable[[Client], Awaitable[Any]], **options: Any) -> Any:
        async def main() -> Any:
            async with Client(HOME, http_client=self, poll_s=0.01, **options) as client:
                return await asyncio.wait_for(scene(client), 10)

        return asyncio.run(main())


@pytest.mark.parametrize("where", [interface(RPC), interface(REST, "HTTP+JSON")])
def test_CLI_01_the_version_goes_with_every_request(where: dict[str, str]) -> None:
    peer = Peer(where, answers={"SendStreamingMessage": frames({"task": TASK})})

    async def scene(client: Client) -> None:
        await client.send("hi")
        if where["url"] == RPC:
            await client.get("t")
            await client.stream("hi").finish()

    peer.play(scene)
    calls = [asked for asked in peer.asked if asked.url != CARD]
    assert calls
    assert {asked.headers["a2a-version"] for asked in calls} == {"1.0"}


def test_CLI_02_the_first_interface_that_is_spoken_is_used() -> None:
    peer = Peer(interface(f"{HOME}:443", "GRPC"), interface(REST, "HTTP+JSON"), interface(RPC))
    peer.play(lambda client: client.send("hi"))
    assert peer.asked[-1].url == f"{REST}/message:send"
    assert peer.methods == []


def test_CLI_03_the_next_one_is_used_when_the_first_is_dead() -> None:
    peer = Peer(interface(DEAD), interface(RPC))
    peer.answers["GetTask"] = {"code": -32001, "message": "no such task"}
    assert peer.play(lambda client: client.send("hi")).state is TaskState.COMPLETED
    assert peer.methods.count("SendMessage") == 1


def test_CLI_04_a_pinned_version_has_no_fallback() -> None:
    refusal = {"code": -32009, "message": "1.0 is not spoken here"}
    peer = Peer(interface(RPC), interface(RPC, version="0.3"), answers={"SendMessage": refusal})

    async def scene(client: Client) -> None:
        with pytest.raises(VersionNotSupported):
            await client.send("hi")

    peer.play(scene, version="1.0")
    assert set(peer.methods) == {"SendMessage"}


def test_CLI_05_what_the_card_does_not_declare_is_not_called() -> None:
    peer = Peer(capabilities={"streaming": False, "pushNotifications": False})

    async def scene(client: Client) -> None:
        with pytest.raises(PushNotSupported):
            await client.set_push("t", PushConfig("https://hooks.example.com/"))
        await client.stream("hi").finish()

    peer.play(scene)
    assert peer.methods == ["SendMessage"]


def test_CLI_06_a_card_is_kept_as_long_as_it_says_and_asked_for_by_its_tag() -> None:
    def tagged(asked: Asked) -> Page:
        fresh = Page(200, json.dumps(peer.card).encode(), {"etag": '"1"', "cache-control": "max-age=60"})
        return Page(304) if asked.headers.get("if-none-match") == '"1"' else fresh

    peer = Peer()
    peer.pages[CARD] = tagged

    async def scene(client: Client) -> None:
        for _ in range(3):
            await client.send("hi")
        assert peer.urls.count(CARD) == 1
        assert (await client.card(refresh=True)).name == "Peer"

    peer.play(scene)
    assert [asked.headers.get("if-none-match") for asked in peer.asked if asked.url == CARD] == [None, '"1"']


def test_CLI_07_unknown_members_and_events_are_ignored() -> None:
    odd = {**TASK, "mood": "good", "status": {**TASK["status"], "weather": "fine"}}
    more = b": hello\n\nevent: usage\ndata: {}\n\nretry: 10\n\n"
    peer = Peer(
        answers={"SendMessage": {"task": odd}, "SendStreamingMessage": frames({"task": odd}, more=more)}
    )

    async def scene(client: Client) -> None:
        assert (await client.send("hi")).state is TaskState.COMPLETED
        assert (await client.stream("hi").finish()).state is TaskState.COMPLETED

    peer.play(scene)


def test_CLI_08_a_receiver_checks_credentials_and_knows_what_came_before() -> None:
    receiver = Receiver(tokens=["secret"])
    body = json.dumps({"statusUpdate": {"taskId": "t", "contextId": "c", "status": TASK["status"]}}).encode()
    with pytest.raises(Unauthenticated):
        receiver.receive({"x-a2a-notification-token": "wrong"}, body)
    headers = {"x-a2a-notification-token": "secret", "webhook-id": "w"}
    told = [receiver.receive(headers, body) for _ in range(2)]
    assert [(one.task_id, one.repeated) for one in told] == [("t", False), ("t", True)]


@pytest.mark.parametrize("again", [frames({"task": TASK}), {"code": -32004, "message": "no subscriptions"}])
def test_CLI_09_the_final_state_is_reached_after_a_dropped_stream(again: Any) -> None:
    peer = Peer(answers={"SendStreamingMessage": frames({"task": WORKING}), "SubscribeToTask": again})
    result = peer.play(lambda client: client.stream("hi").finish())
    assert result.state is TaskState.COMPLETED
    assert peer.methods.count("SendStreamingMessage") == 1
    assert "SubscribeToTask" in peer.methods


def test_TEN_01_a_client_repeats_the_tenant_of_the_interface() -> None:
    for tenant in ("acme", ""):
        peer = Peer(interface(RPC, tenant=tenant))
        peer.play(lambda client: client.send("hi"))
        params = json.loads(peer.asked[-1].body)["params"]
        assert params.get("tenant", "absent") == (tenant or "absent")
