"""The operator's API over HTTP, on both stores: what is shown of tasks, to whom, and how it refuses."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Shelf
from tests.fleet.office import SCHEMA, Office, office
from trunkline.wire.types import Message, Part, Role, SendRequest

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NOBODY = "019a0000-0000-7000-8000-000000000000"


@pytest.fixture
def store(shelf: Shelf, tmp_path: Path) -> str:
    return shelf.store(f"sqlite:///{tmp_path}/tasks.db")


def test_tasks_are_listed_with_what_became_of_them(store: str) -> None:
    async def work(at: Office) -> None:
        done = await at.send("alice", "report")
        failed = await at.send("alice", "fail", contextId="one")
        asks = await at.send("alice", "ask")
        items = (await at.get("alice", "/api/tasks"))["items"]
        assert [one["taskId"] for one in items] == [asks["id"], failed["id"], done["id"]]
        assert all(TIME.fullmatch(one[name]) for one in items for name in ("createdAt", "updatedAt"))
        known = {"agent": "desk", "skill": "work"}
        for one in items:
            del one["createdAt"], one["updatedAt"]
        assert items == [
            {"taskId": asks["id"], "contextId": asks["id"], "state": "input-required", "text": "Which one?", **known},
            {"taskId": failed["id"], "contextId": "one", "state": "failed", "error": "it broke", **known},
            {
                "taskId": done["id"], "contextId": done["id"], "state": "completed", "text": "did report",
                "costUsd": 0.25, "confidence": 0.5, **known,
            },
        ]  # fmt: skip

    office(work, store)


def test_filters_and_pages(store: str) -> None:
    async def work(at: Office) -> None:
        async def ids(query: str, who: str = "alice") -> list[str]:
            return [one["taskId"] for one in (await at.get(who, f"/api/tasks?{query}"))["items"]]

        made = [(await at.send("alice", "ping", contextId=f"c{n % 2}"))["id"] for n in range(4)]
        other = (await at.send("alice", "ping", metadata={"skillHint": "other"}))["id"]
        assert await ids("contextId=c1") == [made[3], made[1]]
        assert await ids("state=completed&agent=desk") == [other, *made[::-1]]
        assert (
            await ids("agent=nobody")
            == await ids("state=failed")
            == await ids("since=2999-01-01T00:00:00Z")
            == []
        )
        assert await ids("since=2000-01-01T00:00:00Z&limit=1") == [other]
        assert await ids("skill=other") == [other]
        seen: list[str] = []
        after = ""
        for size in (2, 2, 1):
            page = await at.get("alice", f"/api/tasks?limit=2{after}")
            assert len(page["items"]) == size
            seen += [one["taskId"] for one in page["items"]]
            after = f"&after={page['next']}"
        assert page["next"] is None and seen == [other, *made[::-1]]
        page = await at.get("alice", "/api/tasks?limit=3&skill=work")
        rest = await at.get("alice", f"/api/tasks?limit=3&skill=work&after={page['next']}")
        assert [one["taskId"] for one in [*page["items"], *rest["items"]]] == made[::-1]

    office(work, store)


def test_a_task_its_log_and_its_events(store: str) -> None:
    async def work(at: Office) -> None:
        task = await at.send("alice", "ping")
        path = f"/api/tasks/{task['id']}"
        detail = await at.get("alice", path)
        (listed,) = (await at.get("alice", "/api/tasks"))["items"]
        assert listed.items() <= detail.items()
        assert (detail["deliveries"], detail["children"], "parent" in detail) == ([], [], False)
        first = detail["events"][0]
        assert (first["seq"], first["kind"], first["principal"]) == (1, "submitted", "alice")
        assert first["message"]["parts"] == [{"kind": "text", "text": "ping"}], "as in 0.3"
        assert detail["events"][-1]["state"] == "completed"
        whole = await at.get("alice", f"{path}/log")
        assert whole == {"items": detail["events"], "next": None}
        part = await at.get("alice", f"{path}/log?limit=1&after=1")
        assert part == {"items": detail["events"][1:2], "next": "2"}
        answer = await at.ask("alice", "GET", f"{path}/events")
        assert answer.headers["content-type"] == "text/event-stream"
        assert re.findall(r"^id: (\d+)$", answer.text, re.M) == [str(one["seq"]) for one in detail["events"]]
        resumed = await at.ask("alice", "GET", f"{path}/events", **{"Last-Event-ID": "1"})
        assert re.findall(r"^id: (\d+)$", resumed.text, re.M) == [
            str(one["seq"]) for one in detail["events"][1:]
        ]
        beyond = await at.ask("alice", "GET", f"{path}/events", **{"Last-Event-ID": "99"})
        assert (beyond.status_code, beyond.json()["field"]) == (400, "Last-Event-ID")
        head = await at.ask("alice", "HEAD", path)
        assert (head.status_code, head.content) == (200, b"")

    office(work, store)


def test_a_task_has_its_whole_result_and_its_question() -> None:
    async def work(at: Office) -> None:
        task = await at.send("alice", "chart")
        detail = await at.get("alice", f"/api/tasks/{task['id']}")
        assert detail["data"] == [{"bars": [1]}] and "text" not in detail
        assert detail["files"] == [{"name": "chart.png", "mediaType": "image/png", "size": 4}]
        for word, asked in (
            ("amount", {"text": "How much?", "schema": SCHEMA}),
            ("colour", {"text": "Which colour?", "choices": ["red", "blue"]}),
        ):
            task = await at.send("alice", word)
            detail = await at.get("alice", f"/api/tasks/{task['id']}")
            assert {name: one for name, one in detail["question"].items() if name != "deadline"} == asked
            assert "data" not in detail

    office(work)


def test_children_name_their_parent(store: str) -> None:
    async def work(at: Office) -> None:
        runner = at.application.host.runner
        parent = (await at.send("alice", "ping"))["id"]
        said = SendRequest(Message("m1", role=Role.USER, parts=(Part(text="ping"),)))
        feed, opened = runner.submit("north", "alice", said, agent="desk", parent=parent)
        await opened
        child = feed.state.task_id
        await at.until(child, "completed")
        assert (await at.get("alice", f"/api/tasks/{child}"))["parent"] == parent
        children = (await at.get("alice", f"/api/tasks/{parent}"))["children"]
        assert children == [{"taskId": child, "agent": "desk", "state": "completed"}]

    office(work, store)


def test_whose_tasks_are_seen(store: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "hold", wait=False))["id"]
        await at.until(task, "working")
        paths = [f"/api/tasks/{task}", f"/api/tasks/{task}/log", f"/api/tasks/{task}/events"]
        for who in ("bob", "stranger"):
            assert (await at.get(who, "/api/tasks"))["items"] == []
            for path in paths:
                answer = await at.ask(who, "GET", path)
                unknown = await at.ask(who, "GET", path.replace(task, NOBODY))
                assert answer.status_code == unknown.status_code == 404
                assert answer.text.replace(task, NOBODY) == unknown.text
            answer = await at.ask(who, "POST", f"/api/tasks/{task}/cancel")
            assert (answer.status_code, answer.json()["code"]) == (404, "TASK_NOT_FOUND")
        for who, query in (("root", ""), ("all", "?tenant=north")):
            assert [one["taskId"] for one in (await at.get(who, f"/api/tasks{query}"))["items"]] == [task]
        assert (await at.get("all", "/api/tasks"))["items"] == []
        crossing = await at.ask("root", "GET", "/api/tasks?tenant=south")
        assert (crossing.status_code, crossing.json()["code"]) == (403, "PERMISSION_DENIED")
        canceled = await at.ask("root", "POST", f"/api/tasks/{task}/cancel")
        assert (canceled.status_code, canceled.json()["state"]) == (200, "canceled")
        again = await at.ask("root", "POST", f"/api/tasks/{task}/cancel")
        assert (again.status_code, again.json()["code"]) == (409, "TASK_NOT_CANCELABLE")
        asked = [
            row for row in (await at.get("alice", paths[1]))["items"] if row["kind"] == "cancelrequested"
        ]
        assert [row["by"] for row in asked] == ["root"]

    office(work, store)


def test_several_are_cancelled_each_with_its_outcome(store: str) -> None:
    async def work(at: Office) -> Any:
        held = [(await at.send("alice", "hold", wait=False))["id"] for _ in range(2)]
        done = (await at.send("alice", "ping"))["id"]
        answer = await at.ask("alice", "POST", "/api/tasks:cancel", {"ids": [*held, done, NOBODY]})
        assert answer.status_code == 200
        found = answer.json()["tasks"]
        assert found[:2] == [{"taskId": one, "state": "canceled"} for one in held]
        assert [("error" in one, "state" in one) for one in found[2:]] == [(True, False)] * 2

    office(work, store)


@pytest.mark.parametrize(
    ("who", "method", "path", "body", "status", "field"),
    [
        ("alice", "GET", "/api/tasks?limit=0", None, 400, "limit"),
        ("alice", "GET", "/api/tasks?limit=201", None, 400, "limit"),
        ("alice", "GET", "/api/tasks?limit=x", None, 400, "limit"),
        ("alice", "GET", "/api/tasks?state=done", None, 400, "state"),
        ("alice", "GET", "/api/tasks?since=yesterday", None, 400, "since"),
        ("alice", "GET", "/api/tasks?after=x", None, 400, "after"),
        ("alice", "GET", "/api/tasks?agent=%00", None, 400, "agent"),
        ("alice", "GET", "/api/tasks?stat=failed", None, 400, "stat"),
        ("alice", "GET", f"/api/tasks/{NOBODY}/log?after=-1", None, 404, None),
        ("alice", "POST", "/api/tasks:cancel", {"ids": [NOBODY], "x": 1}, 400, "x"),
        ("alice", "POST", "/api/tasks:cancel", {"ids": []}, 400, "ids"),
        ("alice", "POST", "/api/tasks:cancel", {}, 400, "ids"),
        ("alice", "POST", "/api/tasks:cancel", b"{", 400, None),
        ("alice", "POST", "/api/tasks:cancel", b"x" * (2 << 20), 413, None),
        ("alice", "GET", "/api/nothing", None, 404, None),
        ("alice", "DELETE", "/api/tasks", None, 405, None),
        ("carol", "GET", "/api/tasks", None, 403, None),
    ],
)
def test_every_refusal_is_a_problem(
    who: str, method: str, path: str, body: Any, status: int, field: str | None
) -> None:
    async def work(at: Office) -> None:
        answer = await at.ask(who, method, path, body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        said = answer.json()
        assert said["status"] == status and said["title"] and said["detail"] and said["code"]
        assert said.get("field") == field

    office(work)


def test_who_is_not_let_in_reads_a_problem_too() -> None:
    async def work(at: Office) -> None:
        at.keys["nobody"] = "no key of this server"
        answer = await at.ask("nobody", "GET", "/api/tasks")
        assert answer.status_code == 401 and answer.headers["www-authenticate"]
        assert answer.json()["code"] == "UNAUTHENTICATED"
        assert answer.headers["content-type"] == "application/problem+json"
        foreign = await at.ask("alice", "GET", "/api/tasks", Origin="https://evil.example")
        assert (foreign.status_code, foreign.json()["code"]) == (403, "PERMISSION_DENIED")

    office(work)


def test_the_operator_of_the_machine_is_let_in() -> None:
    async def work(at: Office) -> None:
        await at.send("alice", "ping")
        at.keys["local"] = at.application.host.admin.token.reveal()
        assert (await at.get("local", "/api/tasks"))["items"] == []
        assert len((await at.get("local", "/api/tasks?tenant=north"))["items"]) == 1
        assert (await at.ask("local", "GET", "/api/nothing")).status_code == 404

    office(work)


class Reader:
    """Reads a stream until its end, or until it is told to leave."""

    def __init__(self, at: Office, path: str) -> None:
        self.begun, self.left = asyncio.Event(), asyncio.Event()
        self.heard = b""
        self._whole = False
        self._scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"x-api-key", at.keys["alice"].encode())],
            "client": ("127.0.0.1", 1),
        }  # fmt: skip
        self.task = asyncio.ensure_future(at.application(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._whole:
            self._whole = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.heard += message.get("body", b"")
        self.begun.set()


def test_who_follows_a_task_hears_what_comes_and_may_leave() -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "hold", wait=False))["id"]
        await at.until(task, "working")
        stays, leaves = (Reader(at, f"/api/tasks/{task}/events") for _ in range(2))
        async with asyncio.timeout(30):
            await asyncio.gather(stays.begun.wait(), leaves.begun.wait())
            while stays.heard.count(b": keep-alive") < 2:  # noqa: ASYNC110 - nothing there to wait on
                await asyncio.sleep(0.01)
            leaves.left.set()
            await leaves.task
            await at.ask("alice", "POST", f"/api/tasks/{task}/cancel")
            await stays.task
        assert b'"state":"canceled"' in stays.heard and b"canceled" not in leaves.heard
        assert re.findall(rb"^id: (\d+)$", stays.heard, re.M) == [b"1", b"2", b"3", b"4"]

    office(work, keep_alive=0.05)


def test_a_stream_ends_with_its_key() -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "hold", wait=False))["id"]
        reader = Reader(at, f"/api/tasks/{task}/events")
        async with asyncio.timeout(30):
            await reader.begun.wait()
            keys = at.application.host.key_store
            (mine,) = [one for one in await keys.list() if one.owner == "alice"]
            await keys.revoke(mine.id)
            await reader.task

    office(work)
