"""Row 64: every reply shape, by both versions and bindings, and what the mock remembers of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.mock.talk import Talk, replying, said, talking
from trunkline.mock.app import Mock
from trunkline.mock.scenario import (
    Expect,
    Failure,
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedAuth,
    ScriptedFile,
    ScriptedPart,
    ScriptedStep,
    When,
)
from trunkline.net import in_process


def talked(scenario: Scenario, what: Callable[[Talk], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with asyncio.timeout(60):
            async with talking(scenario) as talk:
                return await what(talk)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Reply(), "COMPLETED"),
        (Reply(ask="which?"), "INPUT_REQUIRED"),
        (Reply(need_auth="log in"), "AUTH_REQUIRED"),
        (Reply(fail="broken"), "FAILED"),
        (Reply(reject="no"), "REJECTED"),
        (Reply(cancel="gone"), "CANCELED"),
        (Reply(receipt=True), "SUBMITTED"),
        (
            Reply(steps=(ScriptedStep(state="working"), ScriptedStep(state="failed", say="broken"))),
            "FAILED",
        ),
    ],
)
def test_how_a_task_ends(reply: Reply, state: str) -> None:
    async def what(talk: Talk) -> None:
        status = (await talk.send()).task["status"]
        assert status["state"] == f"TASK_STATE_{state}"
        word = reply.ask or reply.need_auth or reply.fail or reply.reject or reply.cancel
        if word:
            assert status["message"]["parts"] == [{"text": word}]

    talked(replying(reply), what)


def test_what_a_task_makes() -> None:
    reply = Reply(
        text="words",
        data={"answer": 42},
        file=ScriptedFile(name="a.txt", media_type="text/plain", text="hi"),
        artifacts=(
            ScriptedArtifact(id="own", name="mine", parts=(ScriptedPart(text="a"), ScriptedPart(data=[1]))),
        ),
    )

    async def what(talk: Talk) -> None:
        made = (await talk.send()).task["artifacts"]
        assert [each["artifactId"] for each in made] == ["artifact-1", "artifact-2", "artifact-3", "own"]
        assert [each["parts"] for each in made] == [
            [{"text": "words"}],
            [{"data": {"answer": 42}}],
            [{"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}],
            [{"text": "a"}, {"data": [1]}],
        ]

    talked(replying(reply), what)


def test_a_message_and_an_error_make_no_task() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.send("message")).result["message"]["parts"] == [{"text": "direct"}]
        assert (await talk.stream("message")).frames[0]["message"]["parts"] == [{"text": "direct"}]
        error = (await talk.send("error")).error
        assert (error["code"], error["message"], error["data"]) == (-32042, "no", {"why": 1})
        rest = await talk.http("POST", "/message:send", said("error"), a2a_version="1.0")
        assert rest.status == 502
        assert (await talk.rpc("ListTasks", {})).result["totalSize"] == 0

    rules = (
        Rule(when=When(text="message"), reply=Reply(message="direct")),
        Rule(
            when=When(text="error"),
            reply=Reply(error=Failure(code=-32042, message="no", data={"why": 1})),
        ),
    )
    talked(Scenario(rules=rules), what)


def test_a_stream_in_both_versions() -> None:
    async def what(talk: Talk) -> None:
        new = await talk.stream()
        assert [event.id for event in new.events] == ["1", "2", "3", "4", "5"]
        chunks = [frame["artifactUpdate"] for frame in new.frames if "artifactUpdate" in frame]
        assert [chunk["artifact"]["parts"][0]["text"] for chunk in chunks] == ["a", "b"]
        assert [chunk.get("append", False) for chunk in chunks] == [False, True]
        assert [chunk.get("lastChunk", False) for chunk in chunks] == [False, True]
        old = await talk.rpc("message/stream", said())
        assert [frame["kind"] for frame in old.frames] == [
            "task",
            "status-update",
            "artifact-update",
            "artifact-update",
            "status-update",
        ]
        assert old.frames[-1]["final"] is True
        task = (await talk.get(new.frames[0]["task"]["id"])).result
        assert task["artifacts"][0]["parts"] == [{"text": "ab"}]

    talked(replying(Reply(stream=("a", "b"))), what)


def test_rest_in_both_versions() -> None:
    async def what(talk: Talk) -> None:
        new = await talk.http("POST", "/message:send", said(), a2a_version="1.0")
        assert new.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        old = await talk.http(
            "POST",
            "/v1/message:send",
            {"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hello"}]}},
        )
        assert old.json["task"]["artifacts"][0]["parts"] == [{"text": "Hi"}]
        task_id = old.json["task"]["id"]
        got = await talk.http("GET", f"/tasks/{task_id}", a2a_version="1.0")
        assert got.json["id"] == task_id
        assert (await talk.http("GET", "/tasks/none", a2a_version="1.0")).status == 404
        frames = await talk.http("POST", "/message:stream", said(), a2a_version="1.0")
        assert b'"statusUpdate"' in frames.body
        assert b"jsonrpc" not in frames.body

    talked(replying("Hi"), what)


def test_a_question_and_its_answer_are_one_task() -> None:
    asks = Rule(when=When(text="book"), reply=Reply(ask="When?", then=Reply(ask="Where?")))
    answers = Rule(when=When(turn=3), reply=Reply(echo=True))

    async def what(talk: Talk) -> None:
        first = (await talk.send("book")).task
        ids = {"taskId": first["id"], "contextId": first["contextId"]}
        second = (await talk.send("today", **ids)).task
        assert second["status"]["message"]["parts"] == [{"text": "Where?"}]
        third = await talk.stream("here", **ids)
        assert third.frames[0]["task"]["id"] == first["id"]
        assert third.frames[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        task = (await talk.get(first["id"])).result
        assert task["artifacts"][0]["parts"] == [{"text": "here"}]
        assert [each["parts"][0]["text"] for each in task["history"]] == [
            "book",
            "When?",
            "today",
            "Where?",
            "here",
        ]
        assert (await talk.send("more", **ids)).error["code"] == -32004

    talked(Scenario(rules=(asks, answers)), what)


def test_a_receipt_completes_later_and_can_be_followed() -> None:
    async def what(talk: Talk) -> None:
        task = (await talk.send(configuration={"returnImmediately": True})).task
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        followed = await talk.rpc("SubscribeToTask", {"id": task["id"]})
        assert followed.frames[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        last = int(followed.events[-1].id)
        resumed = await talk.rpc("SubscribeToTask", {"id": task["id"]}, last_event_id=str(last - 1))
        assert [event.id for event in resumed.events] == [str(last)]
        assert (await talk.rpc("SubscribeToTask", {"id": task["id"]})).error["code"] == -32004
        old = await talk.rpc("tasks/resubscribe", {"id": task["id"]})
        assert [frame["kind"] for frame in old.frames] == ["task", "status-update"]
        wrong = await talk.rpc("SubscribeToTask", {"id": task["id"]}, last_event_id="99")
        assert wrong.error["code"] == -32602

    talked(replying(Reply(stream=("a", "b"), delay=0.02, pause=0.01)), what)


def test_a_task_that_is_held_can_be_canceled_once() -> None:
    async def what(talk: Talk) -> None:
        task = (await talk.send(configuration={"returnImmediately": True})).task
        assert (await talk.get(task["id"])).result["status"]["state"] == "TASK_STATE_WORKING"
        canceled = (await talk.rpc("CancelTask", {"id": task["id"]})).result
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await talk.rpc("CancelTask", {"id": task["id"]})).error["code"] == -32002
        assert (await talk.rpc("CancelTask", {"id": "none"})).error["code"] == -32001

    talked(replying(Reply(hold=True)), what)


@pytest.mark.parametrize("deduplicates", [True, False])
def test_the_same_message_twice(deduplicates: bool) -> None:
    async def what(talk: Talk) -> None:
        first, second = [(await talk.send(messageId="same")).task["id"] for _ in range(2)]
        assert (first == second) is deduplicates
        assert talk.mock.runs["same"] == (1 if deduplicates else 2)
        card = (await talk.card()).json
        declared = [each["uri"] for each in card["capabilities"].get("extensions", ())]
        assert any("idempotent" in uri for uri in declared) is deduplicates

    talked(replying("Hi", deduplicates=deduplicates), what)


def test_the_same_message_at_the_same_time_runs_once() -> None:
    async def what(talk: Talk) -> None:
        answers = await asyncio.gather(*[talk.send(messageId="same") for _ in range(5)])
        assert {each.result["message"]["messageId"] for each in answers} == {
            answers[0].result["message"]["messageId"]
        }
        assert talk.mock.runs["same"] == 1

    talked(replying(Reply(message="Hi", delay=0.02), deduplicates=True), what)


def test_lists_are_filtered_and_paged() -> None:
    async def what(talk: Talk) -> None:
        for text in ("a", "b", "fail"):
            await talk.send(text, contextId="one" if text == "a" else "two")
        page = (await talk.rpc("ListTasks", {"pageSize": 2})).result
        assert (len(page["tasks"]), page["totalSize"]) == (2, 3)
        rest = (await talk.rpc("ListTasks", {"pageSize": 2, "pageToken": page["nextPageToken"]})).result
        assert (len(rest["tasks"]), rest["nextPageToken"]) == (1, "")
        assert (await talk.rpc("ListTasks", {"contextId": "one"})).result["totalSize"] == 1
        assert (await talk.rpc("ListTasks", {"pageToken": "x"})).error["code"] == -32602
        failed = (await talk.rpc("ListTasks", {"status": "TASK_STATE_FAILED"})).result
        assert failed["totalSize"] == 1

    rules = (Rule(when=When(text="fail"), reply=Reply(fail="x")), Rule(reply="ok"))
    talked(Scenario(rules=rules), what)


def test_nothing_fits() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.send("other")).error["code"] == -32000
        assert talk.mock.hits[""] == 1

    talked(Scenario(rules=(Rule(when=When(text="x"), reply="y"),)), what)


@pytest.mark.parametrize(
    ("auth", "header", "challenge"),
    [
        (ScriptedAuth(bearer="t0k"), {"authorization": "Bearer t0k"}, "Bearer"),
        (ScriptedAuth(api_key="k3y"), {"x_api_key": "k3y"}, "ApiKey"),
    ],
)
def test_callers_must_show_what_the_card_says(
    auth: ScriptedAuth, header: dict[str, str], challenge: str
) -> None:
    assert "t0k" not in repr(auth) and "k3y" not in repr(auth)

    async def what(talk: Talk) -> None:
        refused = await talk.send()
        assert (refused.status, refused.headers["www-authenticate"]) == (401, challenge)
        assert talk.mock.runs.total() == 0
        assert (await talk.card()).json["securitySchemes"]
        assert (await talk.rpc("SendMessage", said(), **header)).task

    talked(replying("Hi", agent=Persona(auth=auth)), what)


def test_what_the_persona_lacks_is_refused() -> None:
    persona = Persona(streaming=False, versions=("1.0",), bindings=("JSONRPC",))

    async def what(talk: Talk) -> None:
        card = (await talk.card()).json
        assert [each["protocolVersion"] for each in card["supportedInterfaces"]] == ["1.0"]
        assert "url" not in card
        assert (await talk.stream()).error["code"] == -32004
        assert (await talk.rpc("message/send", said())).error["code"] == -32009
        assert (await talk.http("POST", "/message:send", said(), a2a_version="1.0")).status == 404
        config = {"taskId": "x", "url": "http://127.0.0.1:9/"}
        assert (await talk.rpc("CreateTaskPushNotificationConfig", config)).error["code"] == -32003
        assert (await talk.rpc("GetExtendedAgentCard", {})).error["code"] == -32007
        assert (await talk.rpc("Nonsense", {})).error["code"] == -32601
        assert (await talk.http("POST", "/a2a", b"{")).error["code"] == -32700

    talked(replying("Hi", agent=persona), what)


def test_the_extended_card() -> None:
    async def what(talk: Talk) -> None:
        assert (await talk.rpc("GetExtendedAgentCard", {})).result["name"] == "mock"

    talked(replying("Hi", agent=Persona(extended_card=True)), what)


def test_what_was_received_is_kept() -> None:
    async def what(talk: Talk) -> None:
        await talk.card()
        await talk.rpc("SendMessage", said("one", metadata={"skillId": "s"}), x_correlation_id="c1")
        assert [each.operation for each in talk.mock.received] == ["card", "send"]
        kept = talk.mock.received[1]
        assert (kept.text, kept.rule, kept.headers["x-correlation-id"]) == ("one", "rule 1", "c1")
        assert "c1" not in repr(kept)
        assert [message.parts[0].text for message in talk.mock.messages] == ["one"]

    talked(replying("Hi"), what)


def test_expectations_are_judged() -> None:
    scenario = Scenario(
        rules=(Rule(name="greet", when=When(contains="hello"), reply="Hi there"), Rule(reply="What?")),
        expect=(
            Expect(rule="greet", count=1),
            Expect(when=When(contains="hello"), replied="Hi"),
            Expect(when=When(skill="never"), count=0),
            Expect(when=When(contains="bye")),
        ),
    )

    async def what(talk: Talk) -> Mock:
        await talk.send("hello you")
        return talk.mock

    wrong = talked(scenario, what).check()
    assert wrong == ["expected at least 1 of messages with contains 'bye', and 0 came"]


def test_the_caller_may_leave_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # Closing waits for so long for requests that have not noticed.
    monkeypatch.setattr(in_process, "LEAVE_S", 600)

    async def what(talk: Talk) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await talk.send()
        async with asyncio.timeout(60):
            await talk.http_client.close()

    talked(replying(Reply(hold=True)), what)
