from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import httpx2
import pytest
import uvicorn

from tests.webhook.webhooks import OLD, Clock, bearer, body, jwks, signed
from trunkline.webhook import Notification, Receiver, receiver

TOKEN = "token-5f0c1e"
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(limited())


class Ear:
    """A listener that notes what it hears, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.heard: list[Notification] = []
        self.failures = failures

    async def __call__(self, notification: Notification) -> None:
        self.heard.append(notification)
        if len(self.heard) <= self.failures:
            raise ValueError("planted-in-error")


def make(listener: Callable[[Notification], Awaitable[None]], **given: Any) -> receiver.WebhookEndpoint:
    return Receiver(**{"tokens": [TOKEN], "clock": Clock(), **given}).asgi(listener)


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://hub.example")


def post(app: Any, *requests: tuple[dict[str, str], bytes]) -> list[httpx2.Response]:
    """The answers to these, one after the other."""

    async def main() -> list[httpx2.Response]:
        async with client(app) as one:
            return [
                await one.post("/hook", headers=headers, content=content) for headers, content in requests
            ]

    return run(main())


def test_a_notification_is_heard_and_its_repetition_only_answered() -> None:
    ear = Ear()
    answers = post(make(ear), (bearer(TOKEN), body()), (bearer(TOKEN), body()), (bearer(TOKEN), body("t2")))
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {})] * 3
    assert [(one.task_id, one.text, one.repeated) for one in ear.heard] == [
        ("t1", "result", False),
        ("t2", "result", False),
    ]


def test_refusals() -> None:
    ear = Ear()
    app = make(ear, body_limit=500)
    wrong, missing, broken, unknown, large = post(
        app,
        (bearer("wrong"), body()),
        ({}, body()),
        (bearer(TOKEN), b"{"),
        (bearer(TOKEN), body(status={"state": "lost"})),
        (bearer(TOKEN), b" " * 501),
    )
    assert [one.status_code for one in (wrong, missing, broken, unknown, large)] == [401, 401, 400, 400, 413]
    assert wrong.headers["www-authenticate"] == "Bearer"
    assert "status.state" in unknown.json()["error"]
    assert large.headers["connection"] == "close"
    assert ear.heard == []


def test_a_signature_is_checked() -> None:
    ear = Ear()
    app = make(ear, tokens=(), keys=jwks(OLD))
    good, altered = post(app, (signed(body(), OLD), body()), (signed(body(), OLD), body("t2")))
    assert (good.status_code, altered.status_code) == (200, 401)
    assert [one.id for one in ear.heard] == ["evt-1"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_post(method: str) -> None:
    async def main() -> httpx2.Response:
        async with client(make(Ear())) as one:
            return await one.request(method, "/hook", headers=bearer(TOKEN), content=body())

    answer = run(main())
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_a_listener_that_fails_hears_it_again(caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear(failures=2)
    answers = post(make(ear), *[(bearer(TOKEN), body())] * 4)
    assert [answer.status_code for answer in answers] == [500, 500, 200, 200]
    assert len(ear.heard) == 3
    lines = [record for record in caplog.records if record.getMessage().startswith("push.failed")]
    assert len(lines) == 2
    assert "task='t1'" in lines[0].getMessage()
    assert lines[0].exc_info is not None
    assert "planted" not in "".join(answer.text for answer in answers)


def test_a_token_function_that_fails_is_our_fault(caplog: pytest.LogCaptureFixture) -> None:
    def tokens(task_id: str) -> str:
        raise OSError("the table is away")

    (answer,) = post(make(Ear(), tokens=tokens), (bearer(TOKEN), body()))
    assert answer.status_code == 500
    assert "push.failed cause=tokens" in caplog.text


def twins(app: Any, count: int, begun: asyncio.Event, go: asyncio.Event) -> Coroutine[Any, Any, list[int]]:
    """The same delivery several times at once; the listener is let go when all have arrived."""

    async def main() -> list[int]:
        async with client(app) as one, asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one.post("/hook", headers=bearer(TOKEN), content=body()))
                for _ in range(count)
            ]
            await begun.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            go.set()
            return [(await task).status_code for task in tasks]

    return main()


@pytest.mark.parametrize(("fails", "status"), [(False, 200), (True, 500)])
def test_concurrent_twins_are_heard_once_and_share_the_outcome(fails: bool, status: int) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def listen(notification: Notification) -> None:
        calls.append(notification.task_id)
        begun.set()
        await go.wait()
        if fails and len(calls) == 1:
            raise ValueError

    app = make(listen)
    assert run(twins(app, 5, begun, go)) == [status] * 5
    assert calls == ["t1"]
    assert post(app, (bearer(TOKEN), body()))[0].status_code == 200
    assert len(calls) == (2 if fails else 1)


def test_notifications_without_id_and_time_are_never_twins() -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def listen(notification: Notification) -> None:
        calls.append(notification.task_id)
        begun.set()
        await go.wait()

    async def main() -> list[int]:
        async with client(make(listen)) as one, asyncio.TaskGroup() as group:
            untimed = body(status={"state": "working"})
            tasks = [
                group.create_task(one.post("/", headers=bearer(TOKEN), content=untimed)) for _ in range(2)
            ]
            await begun.wait()
            go.set()
            return [(await task).status_code for task in tasks]

    assert run(main()) == [200, 200]
    assert len(calls) == 2


def test_a_twin_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "TWIN_S", 0.01)
    begun, go = asyncio.Event(), asyncio.Event()

    async def listen(notification: Notification) -> None:
        begun.set()
        await go.wait()

    async def main() -> tuple[int, int]:
        async with client(make(listen)) as one, asyncio.TaskGroup() as group:
            first = group.create_task(one.post("/", headers=bearer(TOKEN), content=body()))
            await begun.wait()
            second = await one.post("/", headers=bearer(TOKEN), content=body())
            go.set()
            return (await first).status_code, second.status_code

    assert run(main()) == (200, 503)


def test_a_cancelled_delivery_counts_as_not_heard() -> None:
    begun = asyncio.Event()
    calls: list[str] = []

    async def listen(notification: Notification) -> None:
        calls.append(notification.task_id)
        begun.set()
        if len(calls) == 1:
            await asyncio.Event().wait()

    async def main() -> tuple[int, int]:
        async with client(make(listen)) as one:
            first = asyncio.create_task(one.post("/", headers=bearer(TOKEN), content=body()))
            await begun.wait()
            twin = asyncio.create_task(one.post("/", headers=bearer(TOKEN), content=body()))
            for _ in range(20):
                await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            again = await one.post("/", headers=bearer(TOKEN), content=body())
            return (await twin).status_code, again.status_code

    assert run(main()) == (500, 200)
    assert len(calls) == 2


Message = dict[str, Any]


def drive(app: Any, messages: list[Message], **scope: Any) -> list[Message]:
    """What the application sends when it gets just these messages, and then nothing."""
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0) if messages else await asyncio.Event().wait() or {}

    async def send(message: Message) -> None:
        sent.append(message)

    run(app({"type": "http", "method": "POST", "path": "/", "headers": [], **scope}, receive, send))
    return sent


AUTH = (b"authorization", f"Bearer {TOKEN}".encode())


def test_a_body_in_pieces() -> None:
    ear = Ear()
    whole = body()
    pieces = [
        {"type": "http.request", "body": whole[at : at + 50], "more_body": True}
        for at in range(0, len(whole), 50)
    ]
    sent = drive(make(ear), [*pieces, {"type": "http.request"}], headers=[AUTH])
    assert sent[0]["status"] == 200
    assert len(ear.heard) == 1


def test_a_body_that_grows_over_the_limit_is_not_read_to_its_end() -> None:
    piece = {"type": "http.request", "body": b" " * 300, "more_body": True}
    for version, closes in [("1.1", True), ("2", False)]:
        messages = [dict(piece) for _ in range(5)]
        headers = [AUTH, (b"transfer-encoding", b"chunked")]
        sent = drive(make(Ear(), body_limit=500), messages, headers=headers, http_version=version)
        assert (sent[0]["status"], len(messages)) == (413, 3)
        assert ((b"connection", b"close") in sent[0]["headers"]) is closes


@pytest.mark.parametrize("length", [b"501", b"9" * 30, b"-1", b"x"])
def test_an_announced_length_is_believed(length: bytes) -> None:
    sent = drive(make(Ear(), body_limit=500), [], headers=[AUTH, (b"content-length", length)])
    assert sent[0]["status"] == 413


def test_a_sender_that_leaves_gets_no_answer() -> None:
    ear = Ear()
    messages = [{"type": "http.request", "body": body(), "more_body": True}, {"type": "http.disconnect"}]
    assert drive(make(ear), messages, headers=[AUTH]) == []
    assert ear.heard == []


def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "BODY_S", 0.01)
    sent = drive(make(Ear()), [{"type": "http.request", "body": b"{", "more_body": True}], headers=[AUTH])
    assert sent[0]["status"] == 400
    assert b"did not arrive" in sent[1]["body"]


def test_websockets_are_turned_away() -> None:
    assert drive(make(Ear()), [], type="websocket") == [{"type": "websocket.close"}]


def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ear = Ear()
    app = make(ear, body_limit=2000)
    planted = body("t1", note="planted-in-body")
    post(
        app,
        (bearer(TOKEN), planted),
        (bearer(TOKEN), planted),
        (bearer("planted-token"), planted),
        (bearer(TOKEN), b'{"planted'),
    )
    events = [
        record.getMessage().partition(" ")[0]
        for record in caplog.records
        if record.name == "trunkline.webhook"
    ]
    assert events == ["push.received", "push.repeated", "push.refused", "push.refused"]
    said = "".join(record.getMessage() for record in caplog.records if record.name == "trunkline.webhook")
    assert "planted" not in said
    assert TOKEN not in said


def test_served_by_uvicorn_with_its_lifespan() -> None:
    ear = Ear()

    async def main() -> list[int]:
        server = uvicorn.Server(uvicorn.Config(make(ear), port=0, lifespan="on", log_config=None, ws="none"))
        serving = asyncio.create_task(server.serve())
        try:
            while not server.started:
                assert not serving.done()
                await asyncio.sleep(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as one:
                answers = [
                    await one.post("/", headers=headers, content=content)
                    for headers, content in [(bearer(TOKEN), body()), (bearer("x"), body()), (bearer(TOKEN), b" " * (2 << 20))]
                ]  # fmt: skip
        finally:
            server.should_exit = True
            await serving
        return [answer.status_code for answer in answers]

    assert run(main()) == [200, 401, 413]
    assert len(ear.heard) == 1
