"""A hostile agent and the client that calls it: nothing hangs, nothing grows, nothing secret is said."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.client.web import Page, Web
from tests.net.targets import listening
from trunkline.client import stream_engine
from trunkline.client.client import Client
from trunkline.client.credentials import ApiKey, Bearer, Guarded
from trunkline.client.discovery import Discovery
from trunkline.client.oauth import ClientCredentials
from trunkline.errors import InvalidParams, RouteNotFound, TimedOut, Unreachable
from trunkline.net.egress import Egress, shown
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire import sse
from trunkline.wire.peer_card import INTERFACES, read_card
from trunkline.wire.types import PushConfig

SECRET = "s3cret-text"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"
Answer = Callable[[asyncio.StreamWriter, dict[str, Any]], Awaitable[None]]


def whole(value: Any) -> bytes:
    body = msgspec.json.encode(value)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )


def called(
    use: Callable[[Client], Awaitable[Any]], answer: Answer, card: Any = None, **options: Any
) -> list[str]:
    """Call an agent that answers so; the paths that were asked for."""
    paths: list[str] = []

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                paths.append(head.split()[1])
                sizes = [
                    line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")
                ]
                body = await reader.readexactly(int(sizes[0]) if sizes else 0)
                if head.startswith("GET"):
                    writer.write(NOT_FOUND if card is None else whole(card))
                else:
                    await answer(writer, msgspec.json.decode(body))
                await writer.drain()

        async with listening(serve) as port, asyncio.timeout(60):
            given = {"timeout_s": 5, "idle_s": 1, "retries": 0, **options}
            async with Client(f"http://127.0.0.1:{port}", **given) as client:
                await use(client)

    asyncio.run(main())
    return paths


def offering(*urls: str) -> dict[str, Any]:
    interfaces = [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"} for url in urls]
    return {"name": "x", "capabilities": {"streaming": True}, "skills": [], "supportedInterfaces": interfaces}


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.interface(),
        lambda client: client.list_push("t"),
        lambda client: client.extended_card(),
    ],
    ids=["interface", "push", "extended"],
)
def test_an_agent_without_a_card_that_never_answers_is_given_up(use: Any) -> None:
    async def silent(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        await asyncio.sleep(60)

    with pytest.raises(TimedOut):
        called(use, silent, timeout_s=0.3)


def test_comments_without_end_are_ended_by_the_total_deadline() -> None:
    async def comment(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(EVENTS)
        while True:
            writer.write(b": still here\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    with pytest.raises(TimedOut, match="within 0.3 seconds"):
        called(
            lambda client: client.stream("x").finish(), comment, offering("/rpc"), timeout_s=0.3, idle_s=0.2
        )


@pytest.mark.parametrize("line", [b"::\n", b"ab\n"])
def test_lines_of_no_event_take_no_room(line: bytes) -> None:
    parser = sse.SseParser(limit=1 << 19)
    chunk = line * 2000
    tracemalloc.start()
    try:
        for _ in range(100):
            assert parser.pieces(chunk) == []
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert [piece.data for piece in parser.pieces(b"\ndata: 1\n\n")] == [b"1"]


@pytest.mark.parametrize("same", [True, False])
def test_an_answer_without_end_is_cut(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_engine, "LIMIT", 1 << 20)
    sent = 0

    async def grow(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        nonlocal sent
        writer.write(EVENTS)
        while True:
            sent += 1
            artifact = {"artifactId": "a" if same else f"a{sent}", "parts": [{"text": "x" * 10_000}]}
            update = {"taskId": "t", "contextId": "c", "append": same and sent > 1, "artifact": artifact}
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": {"artifactUpdate": update}}
            writer.write(b"id: %d\ndata: %b\n\n" % (sent, msgspec.json.encode(result)))
            await writer.drain()

    with pytest.raises(Unreachable, match="the task is t") as error:
        called(lambda client: client.stream("x").finish(), grow, offering("/rpc"))
    assert error.value.reason == "size"


def test_what_is_replaced_weighs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_engine, "LIMIT", 1 << 20)

    async def rewrite(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(EVENTS)
        for number in range(300):
            artifact = {"artifactId": "a", "parts": [{"text": f"{number}" + "x" * 10_000}]}
            update: dict[str, Any] = {
                "artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}
            }
            if number == 299:
                status = {"state": "TASK_STATE_COMPLETED"}
                update = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}}
            result = {"jsonrpc": "2.0", "id": asked["id"], "result": update}
            writer.write(b"id: %d\ndata: %b\n\n" % (number + 1, msgspec.json.encode(result)))
            await writer.drain()
        writer.close()

    async def use(client: Client) -> None:
        async with client.stream("x") as stream:
            assert (await stream.finish()).text.startswith("298")

    called(use, rewrite, offering("/rpc"))


def test_a_card_with_thousands_of_interfaces_makes_no_thousands_of_requests() -> None:
    async def nothing(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(NOT_FOUND)

    card = offering(*[f"/p{number}" for number in range(5000)])
    told = read_card(msgspec.json.encode(card))
    assert len(told.interfaces) == INTERFACES and "5000 interfaces" in " ".join(told.oddities)
    with pytest.raises(RouteNotFound):
        called(lambda client: client.send("x"), nothing, card)


def test_an_error_of_megabytes_is_short() -> None:
    async def shout(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        info = {"reason": "R", "metadata": {"k" * 5000: "\x1b[2J" * 1_000_000, "n": "1"}}
        violations = {"fieldViolations": [{"field": "f\x1b" * 100_000}]}
        error = {"code": -32602, "message": "\x1b[31m" + "m" * 5_000_000, "data": [info, violations]}
        writer.write(whole({"jsonrpc": "2.0", "id": asked["id"], "error": error}))

    with pytest.raises(InvalidParams) as caught:
        called(lambda client: client.send("x"), shout, offering("/rpc"))
    error = caught.value
    said = [error.message, error.field, *error.details, *error.details.values()]
    assert all(len(text) <= 2000 and text.isprintable() for text in said)


def test_an_id_of_megabytes_does_not_come_back_as_a_header() -> None:
    methods: list[str] = []

    async def name(writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        methods.append(asked["method"])
        task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
        if asked["method"] == "GetTask":
            writer.write(whole({"jsonrpc": "2.0", "id": asked["id"], "result": task}))
            return
        update = {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
        result = {"statusUpdate": update} if len(methods) == 1 else {"task": task}
        answer = msgspec.json.encode({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        writer.write(EVENTS + b"id: %b\ndata: %b\n\n" % (b"z" * 2_000_000, answer))
        writer.close()

    # The agent reads heads of 64 KiB at most, and would break off.
    called(lambda client: client.stream("x").finish(), name, offering("/rpc"), retries=1)
    assert methods[1] == "SubscribeToTask"


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "hTTps"])
def test_a_redirect_from_https_to_http_is_refused_however_it_is_spelled(scheme: str) -> None:
    async def main() -> None:
        page = Page(302, b"", {"location": "HTTP://agent.example/c.json"})
        web = Web({"https://agent.example/x.json": page})
        url = f"{scheme}://agent.example/x.json"
        with pytest.raises(Unreachable, match="which is another origin"):
            await Discovery(url, Guarded(web, Bearer(SECRET), url)).card()
        assert web.urls == ["https://agent.example/x.json"]

    asyncio.run(main())


def test_no_secret_of_a_url_and_no_control_sign_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    url = f"https://agent.example/card.json?key={SECRET}"
    assert shown(f"https://me:{SECRET}@agent.example/a?k={SECRET}#x") == "https://agent.example/a?…"
    assert shown("https://agent.example/\x9b31m\n").isprintable()
    assert len(shown("https://agent.example/" + "x" * 100_000)) < 400

    async def main() -> None:
        there = [
            {"https://agent.example/card.json": Page(302, b"", {"location": f"{host}/\x9b31m?k={SECRET}"})}
            for host in ("https://agent.example", "https://other.example")
        ]
        for pages in ({}, *there):
            discovery = Discovery(url, Web(pages))
            with pytest.raises((RouteNotFound, Unreachable)) as error:
                await discovery.card()
            said = " ".join([str(error.value), *discovery.explanation])
            assert SECRET not in said and said.isprintable(), said

    asyncio.run(main())
    assert SECRET not in caplog.text


def test_nothing_that_holds_a_secret_prints_it() -> None:
    headers = (("authorization", f"Bearer {SECRET}"),)
    request = HttpRequest("GET", f"https://agent.example/?key={SECRET}", headers, SECRET.encode())
    config = PushConfig(f"https://hook.example/?k={SECRET}", token=SECRET, credentials=SECRET)
    client = Client("https://agent.example", api_key=SECRET, headers={"x-own": SECRET})
    auth = ClientCredentials("https://issuer.example/token", "me", SECRET)
    shown_all = [request, config, client, auth, ApiKey(SECRET), vars(client), vars(auth)]
    assert SECRET not in repr(shown_all)
    assert SECRET not in repr(request.__rich_repr__())


def test_a_header_that_is_no_text_is_refused_unquoted() -> None:
    async def main() -> None:
        caller = SocketHttpClient(Egress(loopback=True))
        request = HttpRequest("GET", "http://127.0.0.1:9/", (("authorization", f"{SECRET}\udc80"),))
        with pytest.raises(Unreachable, match="no text") as error:
            await caller.open(request)
        assert SECRET not in str(error.value) and error.value.__cause__ is None
        await caller.close()

    asyncio.run(main())
