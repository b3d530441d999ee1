"""The webhook of a task: who may tell of it, and what is answered to anybody else."""

from __future__ import annotations

from typing import Any

from tests.fleet.office import NORTH, Office, office
from trunkline.peer.remote import Peer

WORKING = {"statusUpdate": {"taskId": "r", "status": {"state": "TASK_STATE_WORKING"}}}


async def post(at: Office, task: str, body: Any = WORKING, **headers: str) -> tuple[int, Any]:
    answer = await at.ask("root", "POST", f"/api/a2a/callback/{task}", body, **{"X-API-Key": "", **headers})
    return answer.status_code, answer.json()


def token_of(at: Office, task: str) -> str:
    callbacks = at.application.host.callbacks
    callbacks.own = "http://127.0.0.1:9"
    config = callbacks.config(Peer(url="http://localhost"), NORTH, task)
    assert config is not None
    return config.token


def test_hb_12_only_the_token_of_a_task_lets_a_webhook_in() -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask", wait=True))["id"]
        token = token_of(at, task)
        right = {"Authorization": f"Bearer {token}"}
        wrong = await post(at, task, Authorization="Bearer wrong")
        assert wrong[0] == 401
        # Whether there is such a task cannot be told, whatever is shown.
        for answer in (
            await post(at, task),
            await post(at, "no-such-task", **right),
            await post(at, "no-such-task", Authorization=f"Bearer {token_of(at, 'no-such-task')}"),
            await post(at, task, b"{", Authorization="Bearer wrong"),
            await post(at, "a%20b", **right),
        ):
            assert answer == wrong
        assert (await post(at, task, b"{", **right))[0] == 400
        assert (await post(at, task, {}, **right))[0] == 400
        assert (await post(at, task, b"[" + b" " * (2 << 20) + b"]", **right))[0] == 413
        assert await post(at, task, **right) == (200, {"success": True})
        assert await post(at, task, **{"X-A2A-Notification-Token": token}) == (200, {"success": True})
        rows = (await at.get("root", f"/api/tasks/{task}/log"))["items"]
        assert [row["state"] for row in rows if row["kind"] == "notified"] == ["working"] * 2
        assert token not in str(rows)

    office(work)


def test_a_repeated_webhook_of_an_ended_task_is_harmless() -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "hello"))["id"]
        before = await at.get("root", f"/api/tasks/{task}")
        told = {"task": {"id": "r", "status": {"state": "TASK_STATE_FAILED"}}}
        for _ in range(2):
            answer = await post(at, task, told, Authorization=f"Bearer {token_of(at, task)}")
            assert answer == (200, {"success": True})
        assert await at.get("root", f"/api/tasks/{task}") == before

    office(work)
