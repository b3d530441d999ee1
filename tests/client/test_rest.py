from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.client.lacking import REQUEST, all_of, lacks_everything
from tests.client.web import Asked, Page, Web
from trunkline import errors as e
from trunkline.client.rest import RestTransport
from trunkline.client.transport import Call
from trunkline.wire.peer_card import Interface
from trunkline.wire.types import (
    ListQuery,
    Message,
    Part,
    PushConfig,
    PushQuery,
    PushRequest,
    Role,
    SendRequest,
    TaskQuery,
)

BASE = "https://peer.example/a"
JSON = {"content-type": "application/a2a+json"}
EVENTS = {"content-type": "text/event-stream"}
TASK = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}


def peer(pages: dict[str, Any], version: str = "1.0", **more: str) -> tuple[Web, RestTransport]:
    web = Web({BASE + path: page for path, page in pages.items()})
    return web, RestTransport(Interface(f"{BASE}/", "HTTP+JSON", version, **more), web)


def run(scene: Callable[[], Awaitable[Any]]) -> Any:
    return asyncio.run(asyncio.wait_for(scene(), 10))


def page(body: Any, status: int = 200) -> Page:
    return Page(status, json.dumps(body).encode(), JSON)


def test_CLI_01_what_goes_with_every_request() -> None:
    web, rest = peer({"/acme/message:send": page({"task": TASK}), "/acme/tasks/t": page(TASK)}, tenant="acme")

    async def scene() -> None:
        await rest.send(REQUEST, Call(headers=(("X-Own", "1"),)))
        await rest.get(TaskQuery("t"), Call(headers=(("X-Own", "1"),)))

    run(scene)
    for asked in web.asked:
        assert asked.headers["a2a-version"] == "1.0"
        assert asked.headers["accept"] == "application/a2a+json, application/json"
        assert asked.headers["x-own"] == "1"
    assert json.loads(web.asked[0].body)["tenant"] == "acme"
    assert web.asked[0].headers["content-type"] == "application/json"
    assert "content-type" not in web.asked[1].headers


def test_0_3_is_under_v1_however_its_address_ends() -> None:
    web = Web({f"{BASE}/v1/tasks/t": page(TASK)})
    for url in (BASE, f"{BASE}/", f"{BASE}/v1", f"{BASE}/v1/"):
        rest = RestTransport(Interface(url, "HTTP+JSON", "0.3.0"), web)
        assert run(lambda rest=rest: rest.get(TaskQuery("t"), Call())).id == "t"
    assert all("a2a-version" not in asked.headers for asked in web.asked)


def test_subscribing_by_get_is_remembered() -> None:
    def answer(asked: Asked) -> Page:
        if asked.method == "POST":
            return Page(405, b"", {"allow": "GET"})
        return Page(200, b"data: " + json.dumps({"task": TASK}).encode() + b"\n\n", EVENTS)

    web, rest = peer({"/tasks/t:subscribe": answer})

    async def scene() -> None:
        for _ in range(2):
            [frame] = await all_of(rest.subscribe(TaskQuery("t"), Call(), after="7"))
            assert frame.notice.answer.id == "t"

    run(scene)
    assert [asked.method for asked in web.asked] == ["POST", "GET", "GET"]
    assert {asked.headers["last-event-id"] for asked in web.asked} == {"7"}


def test_what_an_agent_need_not_have_is_unsupported() -> None:
    _, rest = peer({})
    run(lambda: lacks_everything(rest, e.RouteNotFound))


def test_a_version_that_is_not_spoken_is_no_missing_route() -> None:
    refusal = page(
        {"error": {"code": 400, "message": "x", "details": [{"reason": "VERSION_NOT_SUPPORTED"}]}}, 400
    )
    _, rest = peer({"/tasks": refusal})
    with pytest.raises(e.VersionNotSupported):
        run(lambda: rest.list(ListQuery(), Call()))
    _, rest = peer({"/v1/tasks": refusal}, "0.3")
    with pytest.raises(e.UnsupportedOperation):
        run(lambda: rest.list(ListQuery(), Call()))


def test_the_two_bodies_of_0_3_and_the_one_of_1_0() -> None:
    config = {
        "name": "tasks/t/pushNotificationConfigs/c",
        "pushNotificationConfig": {"url": "https://x.example"},
    }

    def answer(asked: Asked) -> Page:
        bare = "pushNotificationConfig" in json.loads(asked.body)
        return page(config, 201) if bare else page({"message": "missing pushNotificationConfig"}, 422)

    path = "/tasks/t/pushNotificationConfigs"
    request = PushRequest("t", PushConfig("https://x.example", id="c"))
    web, rest = peer({f"/v1{path}": answer}, "0.3")
    assert run(lambda: rest.set_push(request, Call())).id == "c"
    assert len(web.asked) == 2
    web, rest = peer({path: answer})
    with pytest.raises(e.InvalidParams):
        run(lambda: rest.set_push(request, Call()))
    assert len(web.asked) == 1


def test_push_configs_without_an_id() -> None:
    configs = {"configs": [{"id": "c", "url": "https://x.example"}]}
    _, rest = peer({"/tasks/t/pushNotificationConfigs": page(configs)})
    assert run(lambda: rest.get_push(PushQuery("t"), Call())).id == "c"


def test_a_stream_may_be_answered_with_plain_json_or_an_error() -> None:
    _, rest = peer({"/message:stream": page({"task": TASK})})
    [frame] = run(lambda: all_of(rest.stream(REQUEST, Call())))
    assert frame.notice.answer.id == "t"
    _, rest = peer({"/message:stream": page({"message": "Task x not found"}, 404)})
    with pytest.raises(e.RouteNotFound):
        run(lambda: all_of(rest.stream(REQUEST, Call())))
    follow_up = SendRequest(Message("m", task_id="x", role=Role.USER, parts=(Part(text="hi"),)))
    with pytest.raises(e.TaskNotFound):
        run(lambda: all_of(rest.stream(follow_up, Call())))


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b""])
def test_what_is_no_answer(body: bytes) -> None:
    _, rest = peer({"/message:send": Page(200, body, JSON)})
    with pytest.raises(e.Unreadable):
        run(lambda: rest.send(REQUEST, Call()))
