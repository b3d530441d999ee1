"""The inbox: whose questions are in it, how they are answered, and by whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Shelf
from tests.fleet.office import SCHEMA, Office, office
from trunkline.errors import InvalidParams
from trunkline.fleet import inbox
from trunkline.fleet.inbox import AnswerForm, answer_part
from trunkline.wire.question import Question, read_answer
from trunkline.wire.types import Message, Part

NOBODY = "019a0000-0000-7000-8000-000000000000"


@pytest.fixture
def store(shelf: Shelf, tmp_path: Path) -> str:
    return shelf.store(f"sqlite:///{tmp_path}/tasks.db")


async def answer(at: Office, who: str, task: str, **form: Any) -> tuple[int, Any]:
    got = await at.ask(who, "POST", f"/api/inbox/{task}", form)
    return got.status_code, got.json()


def test_a_question_is_found_answered_and_closed(store: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask"))["id"]
        await at.send("bob", "ping")
        (item,) = (await at.get("carol", "/api/inbox"))["items"]
        known = {
            "taskId": task, "contextId": task, "agent": "desk", "skill": "work", "principal": "alice",
            "state": "input-required", "question": item["question"], "text": "Which one?", "askedAt": item["askedAt"],
        }  # fmt: skip
        assert item == known
        assert (await at.get("carol", "/api/inbox?state=closed"))["items"] == []
        status, said = await answer(at, "carol", task, decision="respond", text="the red one")
        assert (status, said["answeredBy"], said["question"]) == (200, "carol", item["question"])
        assert (await at.until(task, "completed"))["text"] == "heard the red one"
        assert (await at.get("carol", "/api/inbox"))["items"] == []
        (closed,) = (await at.get("dave", "/api/inbox?state=closed"))["items"]
        assert closed == {
            **known, "closedAt": closed["closedAt"], "outcome": "answered", "answeredBy": "carol",
        }  # fmt: skip
        rows = (await at.get("alice", f"/api/tasks/{task}/log"))["items"]
        assert [row["by"] for row in rows if row["kind"] == "said"] == ["carol"]

    office(work, store)


def test_a_question_is_answered_once(store: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask"))["id"]
        (item,) = (await at.get("carol", "/api/inbox"))["items"]
        status, said = await answer(at, "carol", task, decision="respond", text="x", question="an older one")
        assert (status, said["code"], said["field"]) == (409, "QUESTION_CLOSED", "question")
        first = await answer(at, "carol", task, decision="respond", text="x", question=item["question"])
        assert first[0] == 200
        status, said = await answer(at, "dave", task, decision="respond", text="y", question=item["question"])
        assert (status, said["code"]) == (409, "QUESTION_CLOSED")
        await at.until(task, "completed")
        status, said = await answer(at, "dave", task, decision="respond", text="y")
        assert (status, said["code"]) == (409, "QUESTION_CLOSED")

    office(work, store)


def test_the_question_of_a_canceled_task_is_closed(store: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask"))["id"]
        (item,) = (await at.get("carol", "/api/inbox"))["items"]
        assert (await at.ask("alice", "POST", f"/api/tasks/{task}/cancel", {})).status_code == 200
        held = (await at.send("alice", "hold", wait=False))["id"]
        assert (await at.ask("alice", "POST", f"/api/tasks/{held}/cancel", {})).status_code == 200
        status, said = await answer(at, "carol", task, decision="respond", text="late")
        assert (status, said["code"]) == (409, "QUESTION_CLOSED")
        assert (await answer(at, "carol", held, decision="respond", text="late"))[0] == 404
        (closed,) = (await at.get("carol", "/api/inbox?state=closed"))["items"]
        assert closed == {**item, "closedAt": closed["closedAt"], "outcome": "withdrawn"}

    office(work, store)


def test_a_login_that_a_task_wants_is_found_answered_rejected_and_closed(store: str) -> None:
    async def work(at: Office) -> None:
        task, other = [(await at.send("alice", word))["id"] for word in ("login", "login")]
        asked = (await at.send("alice", "ask"))["id"]
        items = (await at.get("carol", "/api/inbox"))["items"]
        assert [(one["taskId"], one["state"]) for one in items] == [
            (asked, "input-required"),
            (other, "auth-required"),
            (task, "auth-required"),
        ]
        first = await at.get("carol", "/api/inbox?limit=2")
        assert first["items"] == items[:2]
        rest = await at.get("carol", f"/api/inbox?limit=2&after={first['next']}")
        assert (rest["items"], rest["next"]) == (items[2:], None)
        login = items[2]
        assert (login["text"], login["principal"]) == ("Log in at https://login.example", "alice")
        assert (await answer(at, "carol", task, decision="accept"))[1]["field"] == "decision"
        for who in ("alice", "bob"):
            assert (await answer(at, who, task, decision="respond", text="x"))[0] == 403
        assert (await answer(at, "stranger", task, decision="respond", text="x"))[0] == 404
        status, said = await answer(
            at, "carol", task, decision="respond", text="done", question=login["question"]
        )
        assert (status, said["answeredBy"]) == (200, "carol")
        assert (await at.until(task, "completed"))["text"] == "heard done"
        # A login that was refused is not taken for one.
        assert (await answer(at, "dave", other, decision="reject", text="no account"))[0] == 200
        assert (await at.until(other, "failed"))["error"] == "no account"
        closed = (await at.get("dave", "/api/inbox?state=closed"))["items"]
        assert {one["taskId"]: (one["state"], one["outcome"], one["answeredBy"]) for one in closed} == {
            task: ("auth-required", "answered", "carol"),
            other: ("auth-required", "rejected", "dave"),
        }
        rows = (await at.get("alice", f"/api/tasks/{task}/log"))["items"]
        assert [row["by"] for row in rows if row["kind"] == "said"] == ["carol"]
        status, said = await answer(at, "dave", task, decision="respond", text="late")
        assert (status, said["code"]) == (409, "QUESTION_CLOSED")

    office(work, store)


def test_what_is_decided_reaches_the_skill(store: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "amount"))["id"]
        (item,) = (await at.get("carol", "/api/inbox"))["items"]
        assert item["schema"] == SCHEMA
        status, said = await answer(at, "carol", task, decision="edit", data={"amount": "many"})
        assert (status, said["field"]) == (400, "data.amount")
        status, said = await answer(at, "carol", task, decision="accept")
        assert (status, said["field"]) == (400, "decision")
        assert (await answer(at, "carol", task, decision="edit", data={"amount": 3}))[0] == 200
        assert (await at.until(task, "completed"))["text"] == "heard {'amount': 3}"
        task = (await at.send("alice", "ask"))["id"]
        assert (await answer(at, "root", task, decision="reject", text="not today"))[0] == 200
        assert (await at.until(task, "failed"))["error"] == "not today"
        closed = (await at.get("root", "/api/inbox?state=closed"))["items"]
        assert [(one["taskId"], one["outcome"], one["answeredBy"]) for one in closed][0] == (
            task,
            "rejected",
            "root",
        )

    office(work, store)


def test_of_the_questions_of_a_task_only_the_answer_that_is_shown_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # To hold one against its schema may take 30 ms, and a hostile agent asks thousands of times.
    read: list[object] = []

    def counted(question: Question, message: Message) -> object:
        read.append(found := read_answer(question, message))
        return found

    async def work(at: Office) -> None:
        task = (await at.send("alice", "amounts"))["id"]
        for amount in (1, 2, 3):
            await at.until(task, "input-required")
            assert (await answer(at, "carol", task, decision="edit", data={"amount": amount}))[0] == 200
        await at.until(task, "completed")
        monkeypatch.setattr(inbox, "read_answer", counted)
        (closed,) = (await at.get("carol", "/api/inbox?state=closed"))["items"]
        assert (closed["taskId"], closed["outcome"], read) == (task, "answered", [{"amount": 3}])

    office(work)


def test_who_may_not_answer() -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask"))["id"]
        done = (await at.send("alice", "ping"))["id"]
        for who in ("alice", "bob"):
            assert (await answer(at, who, task, decision="respond", text="x"))[0] == 403
            assert (await at.ask(who, "GET", "/api/inbox")).status_code == 403
        assert (await at.get("stranger", "/api/inbox"))["items"] == []
        for who, named in (("stranger", task), ("carol", done), ("carol", NOBODY)):
            assert (await answer(at, who, named, decision="respond", text="x"))[0] == 404
        assert len((await at.get("all", "/api/inbox?tenant=north"))["items"]) == 1

    office(work)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({}, "decision"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": "respond"}, "text"),
        ({"decision": "edit"}, "data"),
        ({"decision": "respond", "text": "x", "data": 1}, "data"),
        ({"decision": "accept", "text": "x"}, "text"),
        ({"decision": "respond", "text": "x", "why": "y"}, "why"),
    ],
)
def test_a_form_that_does_not_fit(form: dict[str, Any], field: str) -> None:
    async def work(at: Office) -> None:
        task = (await at.send("alice", "ask"))["id"]
        status, said = await answer(at, "carol", task, **form)
        assert (status, said["field"]) == (400, field)

    office(work)


def asked(*parts: Part, **wanted: Any) -> Message:
    part = Question("How much?", **wanted).part()
    return Message("q1", parts=(Part(text="How much?"), *parts, *([part] if part else [])))


@pytest.mark.parametrize(
    ("question", "data"),
    [
        (asked(Part(data={"amount": 1}), schema=SCHEMA), {"amount": 1}),
        (asked(schema={**SCHEMA, "default": {"amount": 2}}), {"amount": 2}),
    ],
)
def test_accept_is_the_proposal(question: Message, data: Any) -> None:
    assert answer_part(AnswerForm(decision="accept"), question) == Part(data=data)


def test_nothing_proposed_is_nothing_to_accept() -> None:
    with pytest.raises(InvalidParams, match="nothing is proposed"):
        answer_part(AnswerForm(decision="accept"), asked(schema=SCHEMA))
