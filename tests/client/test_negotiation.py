"""Which interface is spoken to, and what happens when the card is wrong or missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.client.agents import COMPLETED, HOME, WORKING, Error, Stand, card, hello, stored, task
from tests.loops import leap
from trunkline.client.client import Client
from trunkline.client.negotiation import RENEW_S
from trunkline.client.transport import Call, Frame
from trunkline.demo.agent import agent
from trunkline.errors import (
    MethodNotFound,
    RouteNotFound,
    Unauthenticated,
    Unreachable,
    UnsupportedOperation,
    VersionNotSupported,
)
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.answers import read_notice
from trunkline.wire.peer_card import Interface

DONE = {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"}}


def interface(url: str = f"{HOME}/a2a", binding: str = "JSONRPC", version: str = "1.0") -> dict[str, str]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version}


def offering(*interfaces: dict[str, str]) -> dict[str, Any]:
    return card(supportedInterfaces=list(interfaces))


def talk(stand: Any, conversation: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with Client(
            options.pop("url", HOME),
            http_client=InProcessHttpClient(stand, base=options.pop("base", HOME)),
            **options,
        ) as client:
            await conversation(client)

    leap(main())


def old(asked: Any) -> Any:
    """An agent that speaks 0.3, whatever its card says."""
    if asked.method == "message/send":
        return DONE
    return Error(-32001) if asked.method == "tasks/get" else Error(-32601, "method not found")


async def _send(client: Client) -> None:
    assert (await client.send("hi")).ok


def test_cli_02_the_first_interface_that_is_spoken_here_is_taken() -> None:
    stand = Stand(
        [task(COMPLETED)], offering(interface(binding="GRPC"), interface(), interface(f"{HOME}/other"))
    )

    async def conversation(client: Client) -> None:
        await _send(client)
        assert await client.interface() == f"JSONRPC 1.0 at {HOME}/a2a"
        assert any("GRPC" in line and "not spoken here" in line for line in client.explanation)

    talk(stand, conversation)


def test_cli_03_a_dead_interface_is_left_for_the_next() -> None:
    stand = Stand(
        lambda asked: Error(-32001) if asked.method == "GetTask" else task(COMPLETED),
        offering(interface(f"{HOME}/gone"), interface()),
    )

    async def conversation(client: Client) -> None:
        await _send(client)
        assert await client.interface() == f"JSONRPC 1.0 at {HOME}/a2a"

    talk(stand, conversation)
    assert stand.methods.count("SendMessage") == 1


def test_cli_04_a_pinned_version_has_no_fallback() -> None:
    stand = Stand(old)

    async def conversation(client: Client) -> None:
        with pytest.raises(RouteNotFound, match="JSONRPC 1.0"):
            await client.send("hi")

    talk(stand, conversation, version="1.0")
    assert "message/send" not in stand.methods

    async def refused(client: Client) -> None:
        with pytest.raises(VersionNotSupported):
            await client.send("hi")

    unsupported = Stand(lambda _: Error(-32009, "1.0 is not spoken here"))
    talk(unsupported, refused, version="1.0")
    assert unsupported.methods == ["SendMessage"]


def test_a_card_that_lies_about_the_version_is_found_out_without_work() -> None:
    stand = Stand(old)

    async def conversation(client: Client) -> None:
        await _send(client)
        assert await client.interface() == f"JSONRPC 0.3 at {HOME}/a2a"

    talk(stand, conversation)
    assert stand.methods.count("message/send") == 1
    assert stand.methods[0] == "SendMessage"


def test_a_card_that_lies_about_the_place_is_found_out() -> None:
    stand = Stand(
        lambda asked: Error(-32001) if asked.method == "GetTask" else task(COMPLETED),
        offering(interface(f"{HOME}/v9/nowhere")),
    )
    talk(stand, _send)
    assert stand.methods.count("SendMessage") == 1


def test_an_agent_without_a_card_is_asked_where_it_seems_to_be() -> None:
    stand = Stand(old)
    stand.card = None

    async def conversation(client: Client) -> None:
        await _send(client)
        assert any(line.startswith("no card: ") for line in client.explanation)

    talk(stand, conversation, url=f"{HOME}/a2a")
    assert stand.methods.count("message/send") == 1


def test_when_nothing_fits_the_error_lists_what_was_tried() -> None:
    async def nowhere(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"nothing here"})

    async def conversation(client: Client) -> None:
        with pytest.raises(RouteNotFound) as caught:
            await client.send("hi")
        assert f"JSONRPC 1.0 at {HOME}/a2a: HTTP 404 from localhost: nothing here" in str(caught.value)

    talk(nowhere, conversation)


def test_an_agent_that_does_not_stream_though_its_card_says_so_is_no_liar_about_the_rest() -> None:
    stand = Stand(
        lambda asked: {"SendMessage": task(COMPLETED, "ok"), "GetTask": Error(-32001)}.get(
            asked.method, Error(-32601)
        )
    )

    async def conversation(client: Client) -> None:
        assert (await client.stream("hi").finish()).text == "ok"

    talk(stand, conversation)
    assert stand.methods == ["SendStreamingMessage", "GetTask", "SendMessage"]


def test_a_method_that_an_agent_lacks_is_the_answer() -> None:
    stand = Stand(lambda asked: Error(-32001) if asked.method == "GetTask" else Error(-32601))

    async def conversation(client: Client) -> None:
        with pytest.raises(UnsupportedOperation):
            await client.list()

    talk(stand, conversation)


@pytest.mark.parametrize(
    "wrong",
    ["http://127.0.0.1:9999/a2a", "http://0.0.0.0:8000/a2a", "http://worker-7/a2a", "http://10.0.0.7/a2a"],
)
def test_the_operators_address_is_believed_over_the_cards(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    stand = Stand([task(COMPLETED)], offering(interface(wrong)))

    async def conversation(client: Client) -> None:
        await _send(client)
        assert await client.interface() == "JSONRPC 1.0 at https://agent.example/a2a"
        assert any(wrong in line for line in client.explanation)

    talk(stand, conversation, url="https://agent.example", base="https://agent.example")
    assert "client.card_url_pinned" in caplog.text


def test_a_card_behind_a_login_says_so() -> None:
    async def closed(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def conversation(client: Client) -> None:
        with pytest.raises(Unauthenticated, match="api_key"):
            await client.send("hi")

    talk(closed, conversation)


def test_preferred_bindings_come_first() -> None:
    async def main() -> None:
        app: Any = agent.asgi(store="memory:", drain_limit=0)
        async with asyncio.timeout(60), app.lifespan():
            async with Client(
                HOME, http_client=InProcessHttpClient(app), bindings=["HTTP+JSON", "JSONRPC"]
            ) as client:
                assert (await client.send("echo x")).text == "echo x"
                assert (await client.interface()).startswith("HTTP+JSON 1.0 at ")

    asyncio.run(main())


class Pigeon:
    """A vendor's way to speak: it has a send and a stream, and no HTTP at all."""

    def __init__(self, at: Interface, http_client: object) -> None:
        self.name = f"PIGEON to {at.url}"

    async def send(self, request: Any, call: Call) -> Any:
        said = request.message.parts[0].text
        return read_notice(msgspec.json.encode(task(COMPLETED, f"coo, {said}")))

    async def stream(self, request: Any, call: Call) -> Any:
        for place, told in hello():
            yield Frame(read_notice(msgspec.json.encode(told)), str(place))


def test_a_vendors_transport_is_used_like_ours() -> None:
    stand = Stand([], offering(interface("pigeon:loft", "PIGEON", "7"), interface(f"{HOME}/a2a")))

    async def conversation(client: Client) -> None:
        assert (await client.send("hi")).text == "coo, hi"
        assert (await client.stream("hi").finish()).text == "hello world"

    talk(stand, conversation, transports={"pigeon": Pigeon}, bindings=["PIGEON"])
    assert stand.asked == []


def test_a_first_call_that_is_cancelled_does_not_spoil_the_next() -> None:
    stand = Stand(lambda _: stored(COMPLETED, "found"))
    gate = asyncio.Event()

    class Slow(Stand):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if scope["path"].startswith("/.well-known/") and not gate.is_set():
                gate.set()
                await asyncio.sleep(1000)
            await stand(scope, receive, send)

    async def conversation(client: Client) -> None:
        async def first() -> None:
            await client.get("t1")

        waiting = asyncio.create_task(first())
        second = asyncio.create_task(client.get("t1"))
        await asyncio.sleep(1)
        waiting.cancel()
        assert (await second).text == "found"
        with pytest.raises(asyncio.CancelledError):
            await waiting

    talk(Slow([]), conversation)


def test_a_peer_that_is_not_there_is_unreachable_and_not_misunderstood() -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(Unreachable) as caught:
            await client.send("hi")
        assert caught.value.reason == "connect"

    talk(Stand([], offering(interface())), conversation, base="http://elsewhere")


@pytest.mark.parametrize("listed", [{}, {"card": None}], ids=["a card without a URL", "no card"])
def test_an_agent_with_a_send_alone_is_spoken_to(listed: dict[str, Any]) -> None:
    def only_send(asked: Any) -> Any:
        return DONE if asked.method == "message/send" else Error(-32601, "method not found")

    stand = Stand(only_send, listed.get("card", card(supportedInterfaces=[])))
    talk(stand, _send)


def test_an_agent_that_becomes_one_of_another_version_is_spoken_to_in_its_words() -> None:
    def script(asked: Any) -> Any:
        if asked.method == "SendMessage" and stand.card is new:
            return task(WORKING)
        if asked.method == "tasks/get" and stand.card is not new:
            return DONE
        return Error(-32601, "method not found")

    new = offering(interface())
    stand = Stand(script, new)

    async def conversation(client: Client) -> None:
        sent = await client.send("hi", wait=False)
        stand.card = offering(interface(version="0.3"))
        assert (await client.get(sent.task_id)).ok
        assert stand.methods == ["SendMessage", "GetTask", "tasks/get"]

    talk(stand, conversation)


def test_the_card_of_an_agent_that_lacks_a_method_is_looked_at_now_and_then() -> None:
    stand = Stand(lambda asked: task() if asked.method == "SendMessage" else Error(-32601, "no"))

    async def conversation(client: Client) -> None:
        await client.send("hi")
        for _ in range(3):
            with pytest.raises(MethodNotFound):
                await client.get("t1")
        assert stand.cards == 2
        await asyncio.sleep(RENEW_S)
        stand.card = None
        with pytest.raises(MethodNotFound):
            await client.get("t1")
        assert stand.cards > 2

    talk(stand, conversation)
