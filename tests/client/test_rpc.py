from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.lacking import REQUEST, all_of, lacks_everything
from tests.client.web import Asked, Page, Web
from trunkline import errors as e
from trunkline.client.rpc import JsonRpcTransport
from trunkline.client.transport import Call, Frame
from trunkline.wire.peer_card import Interface
from trunkline.wire.types import (
    PushQuery,
    TaskQuery,
    TaskState,
)

URL = "https://peer.example/rpc"
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}


class Peer:
    """A peer that answers each method with what it is told, and the transport to it."""

    def __init__(self, answers: dict[str, Any], version: str = "1.0", **more: str) -> None:
        self.answers = answers
        self.web = Web({URL: self.answer})
        self.transport = JsonRpcTransport(Interface(URL, "JSONRPC", version, **more), self.web)

    def answer(self, asked: Asked) -> Page:
        request = json.loads(asked.body)
        found = self.answers.get(request["method"], {"error": {"code": -32601, "message": "no such method"}})
        if isinstance(found, Page):
            return found
        return Page(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], **found}).encode(), JSON)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(asked.body) for asked in self.web.asked]


def run(scene: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(scene(), 10))


def stream(*frames: Any, end: bytes = b"\n\n") -> Page:
    body = b"".join(b"data: " + (f if isinstance(f, bytes) else json.dumps(f).encode()) + end for f in frames)
    return Page(200, b": hello\n\n" + body, EVENTS)


def test_CLI_01_what_goes_with_every_request() -> None:
    peer = Peer({"SendMessage": {"result": {"task": TASK}}, "GetTask": {"result": TASK}}, tenant="acme")

    async def scene() -> None:
        call = Call(headers=(("X-Own", "1"),))
        await peer.transport.send(REQUEST, call)
        await peer.transport.get(TaskQuery("t"), call)

    run(scene)
    for asked, body in zip(peer.web.asked, peer.bodies, strict=True):
        assert asked.method == "POST"
        assert asked.headers["a2a-version"] == "1.0"
        assert asked.headers["content-type"] == asked.headers["accept"] == "application/json"
        assert asked.headers["x-own"] == "1"
        # TEN-01: the tenant of the interface is repeated.
        assert (body["jsonrpc"], body["params"]["tenant"]) == ("2.0", "acme")
    ids = [body["id"] for body in peer.bodies]
    assert len(set(ids)) == 2


def test_0_3_has_no_version_header_and_other_words() -> None:
    peer = Peer({"message/send": {"result": {**TASK, "kind": "task"}}}, version="0.3.0")
    run(lambda: peer.transport.send(REQUEST, Call()))
    assert "a2a-version" not in peer.web.asked[0].headers
    assert peer.bodies[0]["params"]["message"]["kind"] == "message"


def test_who_says_1_0_and_speaks_0_3() -> None:
    peer = Peer({"message/send": {"result": {**TASK, "kind": "task"}}}, words="0.3")
    run(lambda: peer.transport.send(REQUEST, Call()))
    assert peer.web.asked[0].headers["a2a-version"] == "1.0"


def test_subscribing_by_its_other_name_is_remembered() -> None:
    update = {"jsonrpc": "2.0", "result": {"taskId": "t", "contextId": "c", "status": {"state": "working"}}}
    peer = Peer({"tasks/subscribe": stream(update)}, version="0.3")

    async def scene() -> None:
        for _ in range(2):
            [frame] = await all_of(peer.transport.subscribe(TaskQuery("t"), Call(), after="7"))
            assert frame.notice.answer.status.state is TaskState.WORKING

    run(scene)
    assert [body["method"] for body in peer.bodies] == [
        "tasks/resubscribe",
        "tasks/subscribe",
        "tasks/subscribe",
    ]
    assert {asked.headers["last-event-id"] for asked in peer.web.asked} == {"7"}


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_what_an_agent_need_not_have_is_unsupported(version: str) -> None:
    transport = Peer({}, version).transport
    run(lambda: lacks_everything(transport, e.MethodNotFound))


def frames_of(page: Any) -> list[Frame]:
    peer = Peer({"SendStreamingMessage": page})
    return run(lambda: all_of(peer.transport.stream(REQUEST, Call())))


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_CLI_07_what_is_not_for_us_is_passed_over(end: bytes) -> None:
    page = stream({"jsonrpc": "2.0", "result": {"task": TASK}}, b"[DONE]", end=end)
    more = b"event: usage\ndata: {}\n\n: bye\n\nretry: 5\n\nid: 9\n\n"
    frames = frames_of(Page(200, page.body + more, EVENTS))
    assert [frame.notice.answer.id for frame in frames] == ["t"]


def test_named_events_that_are_a2a_are_read() -> None:
    body = b"event: task\nid: 3\ndata: " + json.dumps({"result": {"task": TASK}}).encode() + b"\n\n"
    [frame] = frames_of(Page(200, body, EVENTS))
    assert (frame.id, frame.notice.answer.id) == ("3", "t")


def test_frames_without_an_envelope_are_read() -> None:
    [frame] = frames_of(stream({"task": TASK}))
    assert frame.notice.answer.id == "t"


def test_a_stream_may_be_answered_with_plain_json() -> None:
    [frame] = frames_of({"result": {"task": TASK}})
    assert frame.notice.answer.id == "t"
    with pytest.raises(e.UnsupportedOperation):
        frames_of({"error": {"code": -32004, "message": "no streams here"}})


def test_an_error_in_a_frame_is_raised_after_what_came_before_it() -> None:
    page = stream({"result": {"task": TASK}}, {"error": {"code": -32603, "message": "broke"}})
    peer = Peer({"SendStreamingMessage": page})

    async def scene() -> None:
        seen = []
        with pytest.raises(e.InternalError, match="broke"):
            async for frame in peer.transport.stream(REQUEST, Call()):
                seen.append(frame)
        assert len(seen) == 1

    run(scene)


@pytest.mark.parametrize(
    "page",
    [
        stream(b"{"),
        stream({"result": {}}),
        Page(200, b"event: error\ndata: what?\n\n", EVENTS),
        Page(200, b"<html>", {"content-type": "text/html"}),
        Page(200, b"\n" + b"data: " + b"x" * 17_000_000, EVENTS),
    ],
    ids=["garbage", "nothing", "error", "html", "endless"],
)
def test_a_frame_that_cannot_be_read_is_an_error(page: Page) -> None:
    with pytest.raises(e.Unreadable):
        frames_of(page)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (Page(401), e.Unauthenticated),
        (Page(403), e.Forbidden),
        (Page(404, b"task not here"), e.RouteNotFound),
        (Page(429, b"", {"retry-after": "7"}), e.TooManyRequests),
        (Page(500, b"<h1>oops</h1>"), e.PeerError),
        (Page(503), e.Unavailable),
        (Page(400, b'{"error":{"code":-32009,"message":"x"}}', JSON), e.VersionNotSupported),
        (Page(200, b"<h1>oops</h1>"), e.Unreadable),
        (Page(200, b"[]", JSON), e.Unreadable),
        (Page(200, b'{"jsonrpc":"2.0","result":null}', JSON), e.Unreadable),
    ],
)
def test_what_comes_instead_of_an_answer(page: Page, kind: type[Exception]) -> None:
    peer = Peer({"SendMessage": page, "SendStreamingMessage": page})

    async def scene() -> None:
        with pytest.raises(kind):
            await peer.transport.send(REQUEST, Call())
        with pytest.raises(kind):
            await all_of(peer.transport.stream(REQUEST, Call()))

    run(scene)


def test_push_configs_without_an_id() -> None:
    config = {"id": "c", "taskId": "t", "url": "https://x.example"}
    peer = Peer({"ListTaskPushNotificationConfigs": {"result": {"configs": [config]}}})
    found = run(lambda: peer.transport.get_push(PushQuery("t"), Call()))
    assert found.id == "c"
    old = Peer(
        {"tasks/pushNotificationConfig/get": {"result": {"taskId": "t", "pushNotificationConfig": config}}},
        "0.3",
    )
    assert run(lambda: old.transport.get_push(PushQuery("t"), Call())).id == "c"
    assert old.bodies[0]["params"] == {"id": "t"}
