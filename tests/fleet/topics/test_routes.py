"""Topics over HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.fleet.office import Office, office
from trunkline.fleet.topics import routes as module
from trunkline.log.events import Recorded, Submitted
from trunkline.wire.sse import SseEvent, SseParser
from trunkline.wire.types import Correlation, Message, Part, Role, SendRequest

SECRET = "callback-token-canary"


class Heard:
    """What a subscriber was sent, and its way to leave."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.news = asyncio.Event()
        self.left = asyncio.Event()

    @property
    def events(self) -> list[SseEvent]:
        return SseParser().feed(self.body)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(30):
            while text not in self.body.decode():
                self.news.clear()
                await self.news.wait()

    async def send(self, message: Any) -> None:
        await asyncio.sleep(0)
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        self.news.set()


def subscribe(at: Office, who: str, query: str, **headers: str) -> tuple[Heard, asyncio.Task[None]]:
    heard = Heard()
    bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        if (body := next(bodies, None)) is not None:
            return body
        await heard.left.wait()
        return {"type": "http.disconnect"}

    named = {"host": "localhost", "x-api-key": at.keys[who], **headers}
    path = "/api/bus/subscribe"
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in named.items()], "client": ("127.0.0.1", 1),
    }  # fmt: skip
    return heard, asyncio.create_task(at.application(scope, receive, heard.send))


def test_HB_34_a_subscriber_hears_its_tenant_and_no_secret_and_resumes() -> None:
    async def work(at: Office) -> None:
        await at.send("alice", "before")
        heard, running = subscribe(at, "root", "topic=agent.skill.%23")
        foreign, running_too = subscribe(at, "stranger", "")
        await heard.until("id: ")
        await foreign.until("id: ")
        config = {"url": "http://127.0.0.1:9/hook", "token": SECRET}
        body = {
            "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "one"}]},
            "configuration": {"taskPushNotificationConfig": config},
        }
        sent = await at.ask("alice", "POST", "/message:send", body, **{"A2A-Version": "1.0"})
        task_id = sent.json()["task"]["id"]
        await heard.until("agent.skill.response.")
        heard.left.set()
        await running
        frames = [json.loads(one.data) for one in heard.events]
        assert [one["topic"] for one in frames] == [
            "agent.skill.request",
            f"agent.skill.progress.{task_id}",
            f"agent.skill.response.{task_id}",
        ]
        assert [one["payload"]["textPreview"] for one in frames] == ["one", "did one", "did one"]
        # What came meanwhile is told to whoever comes back.
        other = await at.send("alice", "report")
        again, running = subscribe(at, "root", "", **{"last-event-id": heard.events[0].id})
        await again.until(f'"agent.skill.response.{other["id"]}"')
        again.left.set()
        await running
        found = [json.loads(one.data)["topic"] for one in again.events]
        assert found[:3] == [
            f"agent.skill.progress.{task_id}",
            f"agent.skill.response.{task_id}",
            "autonomous.outcome.desk.work",
        ]
        assert {"autonomous.cost.desk.work", "autonomous.confidence.desk.work"} <= set(found)
        assert SECRET not in (heard.body + again.body).decode()
        foreign.left.set()
        await running_too
        assert foreign.status == 200 and foreign.events == []

    office(work, dev=True, secret_key="sixteen or more of them")


def test_the_correlation_headers_of_a_request_reach_log_topics_and_history() -> None:
    async def work(at: Office) -> None:
        heard, running = subscribe(at, "root", "topic=agent.skill.%23")
        await heard.until("id: ")
        body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
        named = {"X-Correlation-Id": "trace-1", "X-Parent-Id": "span-1", "A2A-Version": "1.0"}
        sent = await at.ask("alice", "POST", "/message:send", body, **named)
        task_id = sent.json()["task"]["id"]
        await heard.until("agent.skill.response.")
        heard.left.set()
        await running
        frames = [json.loads(one.data) for one in heard.events]
        assert {one["correlationId"] for one in frames} == {"trace-1"}
        assert (frames[0]["topic"], frames[-1]["topic"]) == (
            "agent.skill.request",
            "agent.skill.response.trace-1",
        )
        assert frames[0]["payload"]["parentId"] == "span-1"
        found = await at.get("root", "/api/bus/history?correlationId=trace-1")
        assert {one["payload"]["taskId"] for one in found["items"]} == {task_id}
        log = at.application.host.runner.tasks.store.log
        (first, *_) = await log.read("north", task_id, 0, 1)
        assert isinstance(first.event, Submitted)
        assert first.event.correlation == Correlation("trace-1", "span-1")

    office(work, dev=True, secret_key="sixteen or more of them")


def test_a_history_is_found_behind_any_number_of_newer_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 2)

    async def work(at: Office) -> None:
        runner = at.application.host.runner
        request = SendRequest(
            message=Message(message_id="m", role=Role.USER, parts=(Part(text="go"),)),
            metadata={"trunkline.dispatch": {"correlationId": "c-old", "trigger": "api"}},
        )
        feed, opened = runner.submit("north", "alice", request, agent=runner.origin)
        await opened
        await at.until(feed.state.task_id, "completed")
        for _ in range(5):
            await at.send("alice", "go")
        found = await at.get("root", "/api/bus/history?correlationId=c-old")
        assert found["complete"] and found["items"]
        # Where the time is up first, the answer says that it is not all.
        monkeypatch.setattr(module, "LOOK_S", 0.0)
        assert await at.get("root", "/api/bus/history?correlationId=c-old") == {
            "items": [],
            "complete": False,
        }

    office(work)


def test_a_search_reads_the_beginnings_of_no_tasks_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK", 2)

    async def work(at: Office) -> None:
        for _ in range(5):
            # It holds what is looked for, but not where a dispatch writes it.
            await at.send("alice", "nobodys")
        log, asked = at.application.host.runner.tasks.store.log, list[str]()
        read = log.read

        async def counted(tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
            asked.append(task_id)
            return await read(tenant, task_id, after, limit)

        monkeypatch.setattr(log, "read", counted)
        found = await at.get("root", "/api/bus/history?correlationId=nobodys")
        assert found == {"items": [], "complete": True}
        # It could be the id of a task.
        assert asked == ["nobodys"]

    office(work)


@pytest.mark.parametrize("given", ['"quoted" \\ é', "x" * 127, "x" * 128, "x" * 129])
def test_a_correlation_id_is_found_however_it_is_written(given: str) -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        request = SendRequest(
            message=Message(message_id="m", role=Role.USER, parts=(Part(text="go"),)),
            metadata={"trunkline.dispatch": {"correlationId": given}},
        )
        feed, opened = runner.submit("north", "alice", request, agent=runner.origin)
        await opened
        await at.until(feed.state.task_id, "completed")
        found = await at.get("root", f"/api/bus/history?correlationId={quote(given[:128])}")
        assert {one["correlationId"] for one in found["items"]} == {given[:128]}

    office(work)


def test_the_history_of_a_correlation_id() -> None:
    async def work(at: Office) -> None:
        named = {"trunkline.dispatch": {"correlationId": "c-1"}}
        runner = at.application.host.runner
        for message_id in ("m1", "m2"):
            said = Message(message_id, "", "", Role.USER, (Part(text="one"),))
            feed, _ = runner.submit("north", "alice", SendRequest(said, metadata=named), agent=runner.origin)
            await runner.tasks.rest(feed, 30.0)
        task = await at.send("alice", "two")
        found = await at.get("root", "/api/bus/history?correlationId=c-1")
        names = [
            "agent.skill.request",
            "agent.skill.progress.c-1",
            "agent.skill.response.c-1",
            "autonomous.outcome.desk.work",
        ]
        assert [one["topic"] for one in found["items"]] == names * 2
        assert {one["correlationId"] for one in found["items"]} == {"c-1"}
        assert found["complete"] is True
        own = await at.get("root", f"/api/bus/history?correlationId={task['id']}")
        assert [one["payload"]["taskId"] for one in own["items"]] == [task["id"]] * 4
        some = await at.get("root", "/api/bus/history?correlationId=c-1&limit=4")
        assert some == {"items": found["items"][:4], "complete": False}
        for who, query in (("stranger", "c-1"), ("stranger", task["id"]), ("root", "nobodys")):
            none = await at.get(who, f"/api/bus/history?correlationId={query}")
            assert none == {"items": [], "complete": True}
        assert await at.get("all", "/api/bus/history?correlationId=c-1&tenant=north") == found

    office(work)


def test_what_is_refused() -> None:
    async def work(at: Office) -> None:
        for path in ("subscribe", "history?correlationId=x"):
            assert (await at.ask("alice", "GET", f"/api/bus/{path}")).status_code == 403
        for query, field in (
            ("subscribe?topic=%23.a", "topic"),
            ("subscribe?after=x", "after"),
            ("history", "correlationId"),
            ("history?correlationId=x&limit=1001", "limit"),
        ):
            answer = await at.ask("root", "GET", f"/api/bus/{query}")
            assert (answer.status_code, field in answer.text) == (400, True), answer.text
        assert (await at.ask("root", "HEAD", "/api/bus/subscribe")).status_code == 200

    office(work)


def test_who_comes_back_to_what_is_forgotten_is_told_so() -> None:
    async def work(at: Office) -> None:
        heard, running = subscribe(at, "root", "")
        await at.send("alice", "one")
        await heard.until("autonomous.outcome.")
        heard.left.set()
        await running
        store = at.application.host.runner.tasks.store
        early, late = heard.events[0].id, str(await store.log.end())
        assert await store.maintenance.prune(await store.clock.now() + 1) == 1
        for place, is_told in ((early, True), (late, False), ("999999", True)):
            again, running = subscribe(at, "root", "topic=hitl.%23", **{"last-event-id": place})
            await again.until("id: ")
            again.left.set()
            await running
            frames = [json.loads(one.data) for one in again.events]
            assert [(one["topic"], one["payload"]) for one in frames] == [
                ("bus.gap", {"after": place})
            ] * is_told
        foreign, running = subscribe(at, "stranger", "", **{"last-event-id": early})
        await foreign.until("id: ")
        foreign.left.set()
        await running
        assert foreign.events == []

    office(work)


def test_there_are_only_so_many_subscribers_of_a_tenant_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OF_TENANT", 1)

    async def work(at: Office) -> None:
        heard, running = subscribe(at, "root", "")
        await heard.until("id: ")
        assert (await at.ask("root", "GET", "/api/bus/subscribe")).status_code == 429
        foreign, running_too = subscribe(at, "stranger", "")
        await foreign.until("id: ")
        foreign.left.set()
        await running_too
        monkeypatch.setattr(module, "SUBSCRIBERS", 1)
        assert (await at.ask("stranger", "GET", "/api/bus/subscribe")).status_code == 429
        heard.left.set()
        await running
        again, running = subscribe(at, "root", "")
        await again.until("id: ")
        again.left.set()
        await running

    office(work)


def test_a_websocket_is_told_the_same_and_resumes() -> None:
    async def work(at: Office) -> None:
        at.application.host.api.take_websockets()

        async def listen(who: str, query: str, until: str) -> list[Any]:
            said: list[Any] = []
            enough = asyncio.Event()
            first = iter([{"type": "websocket.connect"}])

            async def receive() -> Any:
                if (message := next(first, None)) is not None:
                    return message
                await enough.wait()
                return {"type": "websocket.disconnect", "code": 1000}

            async def send(message: Any) -> None:
                await asyncio.sleep(0)
                said.append(message)
                if until in message.get("text", ""):
                    enough.set()

            path = "/api/bus/subscribe"
            headers = [(b"host", b"localhost"), (b"x-api-key", at.keys[who].encode())]
            scope: dict[str, Any] = {
                "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
                "headers": headers, "client": ("127.0.0.1", 1), "scheme": "ws",
            }  # fmt: skip
            async with asyncio.timeout(30):
                await at.application(scope, receive, send)
            return said

        assert (await listen("alice", "", "none"))[0]["type"] == "websocket.close"
        assert (await listen("root", "topic=%23.a", "none"))[0]["type"] == "websocket.close"
        await at.send("alice", "one")
        accepted, *messages = await listen("root", "after=0&topic=agent.%23", "agent.skill.response")
        assert accepted == {"type": "websocket.accept"}
        place, *frames = [json.loads(one["text"]) for one in messages]
        assert place == {"id": "0"}
        assert frames[0]["topic"] == "agent.skill.request"
        _, *again = await listen("root", f"after={frames[0]['id']}&topic=agent.%23", "agent.skill.response")
        assert json.loads(again[1]["text"])["topic"] == frames[1]["topic"]
        _, gap = await listen("root", "after=999999&topic=agent.%23", "bus.gap")
        told = json.loads(gap["text"])
        assert (told["topic"], told["payload"]) == ("bus.gap", {"after": "999999"})
        assert told["id"] == str(await at.application.host.runner.tasks.store.log.end())

    office(work)
