"""Conversations with an agent: they go on, are polled, are closed by done, and tell unknown from failed."""

from __future__ import annotations

import asyncio

from tests.fleet.routing.fleet import Hub, hub

NOBODY = "019a0000-0000-7000-8000-000000000000"


def test_hb21_a_conversation_goes_on_by_context_and_by_task_until_it_is_done() -> None:
    async def work(at: Hub) -> None:
        status, first = await at.post("a2a/chat", {"agent": "desk", "message": "hello"})
        assert (status, first["response"], first["taskState"]) == (200, "did hello", "completed")
        context = first["contextId"]
        assert first["correlationId"] == first["taskId"] and first["durationMs"] >= 0
        _, asked = await at.post("a2a/chat", {"agent": "desk", "message": "ask", "contextId": context})
        assert (asked["taskState"], asked["response"]) == ("input-required", "Which one?")
        assert asked["contextId"] == context
        answer = {"agent": "desk", "message": "red", "taskId": asked["taskId"]}
        _, heard = await at.post("a2a/chat", answer)
        assert (heard["taskId"], heard["response"]) == (asked["taskId"], "heard red")
        _, open_one = await at.post("a2a/chat", {"agent": "desk", "message": "ask", "contextId": context})
        status, last = await at.post(
            "a2a/chat", {"agent": "desk", "message": "bye", "contextId": context, "done": True}
        )
        assert (status, last["response"]) == (200, "did bye")
        assert last.keys().isdisjoint({"contextId", "taskId"})
        # What still asked in the conversation is cancelled, and nothing more is taken.
        await at.at.until(open_one["taskId"], "canceled")
        for body in ({"contextId": context}, {"taskId": last["correlationId"]}):
            status, said = await at.post("a2a/chat", {"agent": "desk", "message": "more", **body})
            assert (status, said["code"], said["field"]) == (409, "CONTEXT_CLOSED", "contextId")
        assert (await at.post("a2a/chat", {"agent": "desk", "message": "anew"}))[0] == 200

    hub(work)


def test_a_pending_answer_in_a_closed_conversation_has_only_an_address_to_poll() -> None:
    async def work(at: Hub) -> None:
        body = {"agent": "desk", "message": "hold", "done": True, "returnImmediately": True}
        status, last = await at.post("a2a/chat", body)
        assert (status, last["pending"]) == (200, True)
        assert last.keys().isdisjoint({"contextId", "taskId"})
        _, polled = await at.get(last["pollUrl"].removeprefix("/api/"))
        assert polled["status"] == "pending"
        assert polled["reply"].keys().isdisjoint({"contextId", "taskId"})

    hub(work)


def test_what_is_asked_is_told_after_what_was_written_before() -> None:
    async def work(at: Hub) -> None:
        _, asked = await at.post("a2a/chat", {"agent": "desk", "message": "consider"})
        assert (asked["taskState"], asked["response"]) == ("input-required", "There are two.\nWhich one?")
        _, dispatched = await at.post("dispatch", {"agent": "desk", "message": "consider", "wait": 30})
        assert dispatched["tasks"][0]["text"] == "There are two.\nWhich one?"

    hub(work)


def test_hb21_what_takes_longer_is_pending_and_polled() -> None:
    async def work(at: Hub) -> None:
        status, held = await at.post("a2a/chat", {"agent": "desk", "message": "hold"})
        assert (status, held["pending"], held["response"]) == (200, True, None)
        path = held["pollUrl"].removeprefix("/api/")
        _, polled = await at.get(path)
        assert (polled["status"], polled["reply"]["taskState"]) == ("pending", "working")
        await at.at.ask("alice", "POST", f"/api/tasks/{held['taskId']}/cancel")
        _, polled = await at.get(path)
        assert (polled["status"], polled["reply"]["taskState"]) == ("done", "canceled")
        for who, task in (("bob", held["taskId"]), ("alice", NOBODY)):
            assert await at.get(f"a2a/task/{task}", who) == (200, {"status": "unknown", "taskId": task})

    hub(work, wait_s=0.3)


def test_hb21_an_unknown_agent_is_404_and_a_failure_502() -> None:
    async def work(at: Hub) -> None:
        for path in ("a2a/chat", "a2a/delegate"):
            status, said = await at.post(path, {"agent": "dusk", "message": "x"})
            assert (status, "'dusk'" in said["detail"]) == (404, True)
        assert (await at.get("tasks"))[1]["items"] == []
        for path in ("a2a/chat", "a2a/delegate"):
            status, said = await at.post(path, {"agent": "desk", "message": "x", "skill": "cook"})
            assert (status, said["field"], "'cook'" in said["detail"]) == (400, "skill", True)
        for body, told in (
            ({"agent": "desk", "message": "fail"}, "it broke"),
            ({"agent": "off", "message": "x"}, "it is disabled"),
        ):
            status, said = await at.post("a2a/chat", body)
            assert (status, told in said["detail"]) == (502, True), said
        for body, field in (({"agent": "desk"}, "message"), ({"message": "x"}, "agent")):
            status, said = await at.post("a2a/chat", body)
            assert (status, said["field"]) == (400, field)

    hub(work)


def test_what_is_delegated_is_done_while_nobody_waits() -> None:
    async def work(at: Hub) -> None:
        form = {"agent": "desk", "skill": "other", "message": "x", "projectSlug": "p"}
        status, made = await at.post("a2a/delegate", form)
        assert (status, made["correlationId"]) == (200, made["taskId"])
        async with asyncio.timeout(30):
            while (polled := (await at.get(made["pollUrl"].removeprefix("/api/")))[1])["status"] == "pending":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (polled["status"], polled["reply"]["response"]) == ("done", "otherwise")
        status, said = await at.post("a2a/delegate", {"agent": "off", "message": "x"})
        assert (status, "it is disabled" in said["detail"]) == (502, True)

    hub(work)
