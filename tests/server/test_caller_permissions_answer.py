"""The scope `answer`: others' questions are seen and answered, and nothing else of their tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.run.desk import DONE, Act, Desk, appended, delta, desk, run
from trunkline import errors
from trunkline.auth.principal import CALLER, Principal, Scope
from trunkline.log import events as ev
from trunkline.run.executor import Verdict, Work
from trunkline.server.caller import Caller
from trunkline.server.encoding import EncodedOperations
from trunkline.server.operations import Operations
from trunkline.server.push_operations import INLINE
from trunkline.server.streams import opening_frames
from trunkline.wire.question import question_metadata
from trunkline.wire.types import (
    ListQuery,
    Message,
    Part,
    PushConfig,
    Role,
    SendRequest,
    Task,
    TaskQuery,
    TaskState,
)
from trunkline.wire.writer import Dialect

ASKING, WORKING, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.WORKING, TaskState.COMPLETED
ANSWER = frozenset({Scope.ANSWER})


def by(name: str, scopes: frozenset[Scope] = CALLER, tenant: str = "t") -> Caller:
    return Caller(Principal(tenant, name, scopes), Dialect.V1)


ME, APPROVER = by("me"), by("approver", ANSWER)
BOTH = by("both", CALLER | ANSWER)


def saying(text: str, task_id: str = "", question: str = "", push: PushConfig | None = None) -> SendRequest:
    metadata = question_metadata(question) if question else None
    return SendRequest(Message(f"m-{text}", "", task_id, Role.USER, (Part(text=text),), metadata), push=push)


async def approves(work: Work) -> Verdict:
    await work.emit(delta("a secret"))
    if work.state.message.text == "go":
        asked = Message("q1", role=Role.AGENT, parts=(Part(text="Shall I?"),))
        await work.ask(ev.Status(ASKING, asked))
    if work.state.message.text == "login":
        asked = Message("q2", role=Role.AGENT, parts=(Part(text="Log in."),))
        await work.ask(ev.Status(TaskState.AUTH_REQUIRED, asked))
    return DONE


@asynccontextmanager
async def served(act: Act = approves) -> AsyncGenerator[tuple[Desk, Operations]]:
    async with desk(act) as runner:
        yield runner, Operations(runner, runner.origin, wait_limit_s=20.0, streaming=True)


async def asked(operations: Operations) -> str:
    task = await operations.send(ME, saying("go"))
    assert isinstance(task, Task) and task.status.state is ASKING
    return task.id


@pytest.mark.parametrize("caller", [APPROVER, BOTH])
def test_an_approver_sees_the_question_answers_it_and_is_named_in_the_log(caller: Caller) -> None:
    async def case() -> None:
        async with served() as (runner, operations):
            task_id = await asked(operations)
            seen = await operations.get(caller, TaskQuery(task_id))
            assert seen.status.message is not None and seen.status.message.text == "Shall I?"
            assert (seen.artifacts, seen.history, seen.metadata) == ((), (), None)
            done = await operations.send(caller, saying("yes", task_id, "q1"))
            # What became of it, and nothing that was made of it.
            assert isinstance(done, Task) and done.status.state is COMPLETED
            assert (done.artifacts, done.history, done.status.message) == ((), (), None)
            assert await operations.get(caller, TaskQuery(task_id)) == done
            said = [
                event
                for event in await runner.log(await runner.find(task_id))
                if isinstance(event, ev.FollowUp)
            ]
            assert [(one.message.text, one.by) for one in said] == [("yes", caller.principal.name)]
            # The same answer again is the same answer.
            assert len((await operations.get(ME, TaskQuery(task_id))).artifacts) == 1

    run(case())


def test_of_a_login_an_approver_sees_what_is_asked_and_where_it_stands() -> None:
    async def case() -> None:
        async with served() as (runner, operations):
            task = await operations.send(ME, saying("login"))
            assert isinstance(task, Task) and task.status.state is TaskState.AUTH_REQUIRED
            for other in (by("other"), by("approver", ANSWER, "elsewhere")):
                with pytest.raises(errors.TaskNotFound):
                    await operations.get(other, TaskQuery(task.id))
            query = ListQuery(status=TaskState.AUTH_REQUIRED, include_artifacts=True)
            assert (await operations.list(by("other"), query)).total_size == 0
            (listed,) = (await operations.list(APPROVER, query)).tasks
            seen = await operations.get(APPROVER, TaskQuery(task.id))
            assert seen.status.message is not None and seen.status.message.text == "Log in."
            assert listed == seen and (seen.artifacts, seen.history, seen.metadata) == ((), (), None)
            done = await operations.send(APPROVER, saying("done", task.id, "q2"))
            assert isinstance(done, Task) and done.status.state is COMPLETED
            assert (done.artifacts, done.history, done.status.message) == ((), (), None)
            log = await runner.log(await runner.find(task.id))
            assert [one.by for one in log if isinstance(one, ev.FollowUp)] == ["approver"]

    run(case())


def test_the_owner_s_own_answer_names_nobody() -> None:
    async def case() -> None:
        async with served() as (runner, operations):
            task_id = await asked(operations)
            await operations.send(ME, saying("yes", task_id))
            said = [
                event
                for event in await runner.log(await runner.find(task_id))
                if isinstance(event, ev.FollowUp)
            ]
            assert [one.by for one in said] == [""]

    run(case())


@pytest.mark.parametrize(
    "caller", [by("other"), by("approver", ANSWER, "elsewhere"), by("reader", frozenset({Scope.READ}))]
)
def test_without_the_scope_or_the_tenant_there_is_no_such_task(caller: Caller) -> None:
    async def case() -> None:
        async with served() as (_, operations):
            task_id = await asked(operations)
            with pytest.raises(errors.TaskNotFound):
                await operations.get(caller, TaskQuery(task_id))
            with pytest.raises(errors.TaskNotFound):
                await operations.send(caller, saying("yes", task_id))
            assert (await operations.list(BOTH, ListQuery(status=ASKING))).total_size == 1
            assert (await operations.list(by("other"), ListQuery(status=ASKING))).total_size == 0

    run(case())


def test_an_approver_does_nothing_else() -> None:
    async def case() -> None:
        async with served() as (_, operations):
            task_id = await asked(operations)
            other = await operations.send(ME, saying("ended"))
            assert isinstance(other, Task) and other.status.state is COMPLETED
            for caller in (APPROVER, BOTH):
                for refused in (operations.cancel, operations.subscribe):
                    with pytest.raises(errors.TaskNotFound):
                        await refused(caller, TaskQuery(task_id))
                # Not what asks nothing.
                with pytest.raises(errors.TaskNotFound):
                    await operations.get(caller, TaskQuery(other.id))
            with pytest.raises(errors.Forbidden, match="tasks:write"):
                await operations.send(APPROVER, saying("go"))
            with pytest.raises(errors.Forbidden, match="tasks:read"):
                await operations.list(APPROVER, ListQuery())

    run(case())


@pytest.mark.parametrize(("dialect", "field"), INLINE.items())
def test_a_webhook_with_an_approver_s_answer_is_refused_before_it_is_taken(
    dialect: Dialect, field: str
) -> None:
    async def case() -> None:
        async with served() as (runner, operations):
            task_id = await asked(operations)
            hook = PushConfig("https://hooks.example/a")
            for scopes in (ANSWER, CALLER | ANSWER):
                caller = Caller(Principal("t", "approver", scopes), dialect)
                with pytest.raises(errors.InvalidParams, match="without one") as refusal:
                    await operations.send(caller, saying("yes", task_id, push=hook))
                assert f"{refusal.value.field}.url" == field
            feed = await runner.find(task_id)
            assert feed.state.status().state is ASKING and not feed.state.push
            assert not [event for event in await runner.log(feed) if isinstance(event, ev.FollowUp)]
            done = await operations.send(APPROVER, saying("yes", task_id))
            assert isinstance(done, Task) and done.status.state is COMPLETED

    run(case())


def test_who_comes_second_is_told_that_nothing_is_asked() -> None:
    async def asks_and_works(work: Work) -> Verdict:
        await work.ask(ev.Status(ASKING, Message("q1", role=Role.AGENT, parts=(Part(text="Shall I?"),))))
        while work.state.history[-1].text != "more":
            await appended(work)
        return DONE

    async def case() -> None:
        async with served(asks_and_works) as (runner, operations):
            task_id = await asked(operations)
            feed = await runner.find(task_id)
            await runner.say(feed, saying("yes").message)
            for question in ("", "q1"):
                with pytest.raises(errors.InvalidParams, match="does not ask") as refusal:
                    await runner.say(feed, saying("no", question=question).message, by="approver")
                assert refusal.value.details == {"conflict": "QUESTION_CLOSED"}
            # The owner may say more while it works.
            await runner.say(feed, saying("more").message)
            assert await runner.ended(feed) is COMPLETED

    run(case())


def test_the_inbox_lists_what_waits_for_an_answer() -> None:
    async def case() -> None:
        async with served() as (_, operations):
            task_id = await asked(operations)
            own = await operations.send(BOTH, saying("go"))
            assert isinstance(own, Task)
            await operations.send(ME, saying("ended"))
            page = await operations.list(APPROVER, ListQuery(status=ASKING, include_artifacts=True))
            assert {task.id for task in page.tasks} == {task_id, own.id}
            assert all(task.status.message and not task.artifacts and not task.history for task in page.tasks)
            page = await operations.list(BOTH, ListQuery(status=ASKING, include_artifacts=True))
            # One's own tasks are shown whole.
            assert {task.id: bool(task.artifacts) for task in page.tasks} == {task_id: False, own.id: True}
            assert [task.id for task in (await operations.list(BOTH, ListQuery())).tasks] == [own.id]

    run(case())


def test_a_streamed_answer_tells_what_became_of_it_and_ends() -> None:
    async def case() -> None:
        async with served() as (_, operations):
            given = await operations.stream(APPROVER, saying("yes", await asked(operations)))
            frames = b"".join(frame for _, frame in opening_frames(given, Dialect.V1))
            assert given.after is None
            assert b"TASK_STATE_COMPLETED" in frames and b"secret" not in frames and b"Shall I?" not in frames

    run(case())


def test_what_an_approver_was_shown_is_not_what_the_owner_is_shown() -> None:
    async def case() -> None:
        async with served() as (_, operations):
            encoded = EncodedOperations(operations)
            task_id = await asked(operations)
            await operations.send(APPROVER, saying("yes", task_id))
            namesake = by("me", ANSWER)
            for caller, whole in (
                (APPROVER, False),
                (ME, True),
                (APPROVER, False),
                (namesake, False),
                (ME, True),
            ):
                assert (b"secret" in await encoded.get(caller, TaskQuery(task_id))) is whole, caller

    run(case())
