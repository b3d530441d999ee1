"""What an operation answers when tasks move on while it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.run.desk import DONE, Act, Desk, desk, run
from trunkline import Client, errors
from trunkline.auth.principal import CALLER, Principal
from trunkline.clock import now_ms
from trunkline.demo import agent
from trunkline.log import events as ev
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run.contexts import earlier
from trunkline.run.executor import Verdict, Work
from trunkline.server.caller import Caller
from trunkline.server.operations import Operations
from trunkline.server.refusals import refusal_of
from trunkline.store import group_commit
from trunkline.store.records import Where
from trunkline.wire.types import (
    ListQuery,
    Message,
    Part,
    Role,
    SendRequest,
    Task,
    TaskPage,
    TaskQuery,
    TaskState,
)
from trunkline.wire.writer import Dialect


def test_a_list_is_ordered_by_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[list[str], TaskPage]:
        application = agent.asgi(store="memory:", drain_limit=0)
        async with (
            application.lifespan(),
            Client("http://localhost", http_client=InProcessHttpClient(application)) as client,
        ):
            asked = [(await client.send(f"ask {place}")).task_id for place in range(3)]
            read, before = application.host.store.heads.list, now_ms()

            async def heads(*about: Any, **more: Any) -> Any:
                page = await read(*about, **more)
                monkeypatch.undo()
                while now_ms() == before:
                    pass
                await client.cancel(asked[0])
                return page

            monkeypatch.setattr(application.host.store.heads, "list", heads)
            return asked, await client.list()

    asked, page = asyncio.run(main())
    assert [task.id for task in page.tasks] == [asked[0], asked[2], asked[1]]


def test_a_list_is_counted_where_one_page_is_not_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[tuple[int, int, int]]:
        application = agent.asgi(store="memory:", drain_limit=0)
        async with (
            application.lifespan(),
            Client("http://localhost", http_client=InProcessHttpClient(application)) as client,
        ):
            for place in range(3):
                await client.send(f"ask {place}")
            heads, counted = application.host.store.heads, list[int]()
            count = heads.count

            async def counting(*about: Any) -> int:
                counted.append(1)
                return await count(*about)

            monkeypatch.setattr(heads, "count", counting)
            found: list[tuple[int, int, int]] = []
            token = ""
            for size in (3, 2, 2):
                page = await client.list(page_size=size, page_token=token)
                token = page.next_page_token
                found.append((len(page.tasks), page.total_size, len(counted)))
            return found

    assert asyncio.run(main()) == [(3, 3, 0), (2, 3, 1), (1, 3, 2)]


ME = Principal("t", "me", CALLER)
HERE = Caller(ME, Dialect.V1)


def _request(text: str, message_id: str = "m1", task_id: str = "", **more: Any) -> SendRequest:
    return SendRequest(Message(message_id, "", task_id, Role.USER, (Part(text=text),)), **more)


async def _asks(work: Work) -> Verdict:
    if work.state.message.parts[0].text == "ask":
        await work.ask(ev.Status(TaskState.INPUT_REQUIRED))
    return DONE


@asynccontextmanager
async def _operations(act: Act = _asks) -> AsyncIterator[tuple[Desk, Operations]]:
    async with desk(act) as runner:
        yield runner, Operations(runner, runner.origin, wait_limit_s=5.0, streaming=True)


def test_the_same_key_with_other_request_metadata_is_a_conflict() -> None:
    """Metadata can name another skill, whose work the first task has not done."""

    async def case() -> None:
        async with _operations() as (_, operations):
            caller = Caller(ME, Dialect.V1, idempotency_key="k")
            first = await operations.send(caller, _request("x", metadata={"skill": "one"}))
            assert await operations.send(caller, _request("x", metadata={"skill": "one"})) == first
            for other in ({"skill": "two"}, None):
                with pytest.raises(errors.InvalidParams, match="used for another message"):
                    await operations.send(caller, _request("x", metadata=other))

    run(case())


def test_nobody_says_from_outside_by_what_work_was_dispatched() -> None:
    async def case() -> None:
        async with _operations() as (_, operations):
            forged = {ev.DISPATCH_KEY: {"correlationId": "of another", "trigger": "ceremony:x"}}
            for take in (operations.send, operations.submit, operations.stream):
                with pytest.raises(errors.InvalidParams) as refused:
                    await take(HERE, _request("x", metadata=forged))
                assert refused.value.field == "metadata.trunkline.dispatch"
            assert not (await operations.list(HERE, ListQuery())).tasks

    run(case())


def test_a_repeat_of_a_forgotten_task_is_not_found_and_does_not_run() -> None:
    runs: list[str] = []

    async def act(work: Work) -> Verdict:
        runs.append(work.state.task_id)
        return DONE

    async def case() -> None:
        async with _operations(act) as (runner, operations):
            caller = Caller(ME, Dialect.V1, idempotency_key="k")
            first = await operations.send(caller, _request("x"))
            assert isinstance(first, Task)
            before = await runner.store.clock.now() + 1
            assert await runner.store.maintenance.prune(before) == 1
            runner.tasks.forget(before)
            with pytest.raises(errors.TaskNotFound):
                await operations.send(caller, _request("x"))
            with pytest.raises(errors.InvalidParams, match="used for another message"):
                await operations.send(caller, _request("y"))
        assert runs == [first.id]

    run(case())


@pytest.mark.parametrize("place", ["nonsense", "-1", "99", "1" * 20])
def test_a_stream_with_a_bad_place_takes_no_answer(place: str) -> None:
    async def case() -> None:
        async with _operations() as (runner, operations):
            asked = await operations.send(HERE, _request("ask"))
            assert isinstance(asked, Task)
            bad = Caller(ME, Dialect.V1, last_event_id=place)
            with pytest.raises(errors.InvalidParams, match="Last-Event-ID"):
                await operations.stream(bad, _request("this", "m2", asked.id))
            state = (await runner.find(asked.id)).state
            assert state.interrupted and not state.answers

    run(case())


def test_a_new_task_is_opened_only_under_a_place_that_could_be_one() -> None:
    """A number is the place in a stream that was cut before its message was taken; this one has its own."""

    async def case() -> None:
        async with _operations() as (runner, operations):
            with pytest.raises(errors.InvalidParams, match="Last-Event-ID"):
                await operations.stream(Caller(ME, Dialect.V1, last_event_id="x"), _request("go"))
            assert not (await runner.tasks.store.heads.list("t", Where(), size=5)).heads
            caller = Caller(ME, Dialect.V1, idempotency_key="k", last_event_id="99")
            assert (await operations.stream(caller, _request("go"))).after == 0
            # The same again is not a new one, and nothing of it is taken.
            with pytest.raises(errors.InvalidParams, match="Last-Event-ID"):
                await operations.stream(caller, _request("go"))

    run(case())


def test_a_message_that_no_task_can_hold_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log spells some values longer than a body, so the limit of bodies alone does not keep it out."""
    monkeypatch.setattr(group_commit, "BYTES_LIMIT", 2000)

    async def case() -> None:
        async with _operations() as (_, operations):
            with pytest.raises(errors.TooLarge, match="larger than a whole task may be"):
                await operations.send(HERE, _request("x" * 3000))
            asked = await operations.send(HERE, _request("ask"))
            assert isinstance(asked, Task)
            with pytest.raises(errors.TooLarge, match="larger than a whole task may be"):
                await operations.send(HERE, _request("x" * 3000, "m2", asked.id))

    run(case())


def test_a_damaged_task_is_listed_by_its_head_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def case() -> None:
        async with _operations() as (runner, operations):
            caller = HERE
            sound, broken = [await operations.send(caller, _request(text)) for text in ("a", "b")]
            assert isinstance(sound, Task)
            assert isinstance(broken, Task)
            head = await runner.store.heads.get(ME.tenant, broken.id)
            assert head is not None
            feed = await runner.tasks.load(ME.tenant, broken.id)
            assert feed is not None
            await runner.store.log.append(
                ME.tenant, broken.id, feed.state.seq, [ev.Unread(b'{"kind":"cla')], at=1
            )
            runner.tasks.drop(feed, errors.StoreError("it is damaged"))
            page = await operations.list(caller, ListQuery())
            shown = {task.id: task for task in page.tasks}
            assert (page.total_size, shown[sound.id].status) == (2, sound.status)
            assert shown[broken.id].status.state is broken.status.state
            said = shown[broken.id].status.message
            assert said is not None
            assert "damaged" in str(said.parts[0].text)
            for read in (operations.get, operations.cancel):
                with pytest.raises(errors.StoreError, match="cannot be read"):
                    await read(caller, TaskQuery(broken.id))
                with pytest.raises(errors.TaskNotFound):
                    await read(
                        Caller(Principal(ME.tenant, "somebody", CALLER), Dialect.V1), TaskQuery(broken.id)
                    )
            # The next task of the conversation goes on with what can be read of it.
            assert (
                await earlier(runner.tasks, await runner.open(context_id=head.context_id), (head.agent,))
                == ()
            )

    run(case())
    assert "task.damaged task=" in caplog.text


def test_a_damaged_task_is_an_internal_error() -> None:
    assert isinstance(refusal_of(errors.StoreError.damaged("t", "torn")), errors.InternalError)


def test_a_page_ends_at_a_size_and_the_next_one_goes_on() -> None:
    async def write(work: Work) -> Verdict:
        size = 400 << 10 if work.state.message.parts[0].text == "large" else 10
        await work.emit(ev.Delta("answer", "x" * size))
        return DONE

    async def case() -> None:
        async with _operations(write) as (_, operations):
            texts = ["large"] * 4 + ["small"] * 3 + ["large"] * 2
            made = [
                await operations.send(HERE, _request(text, f"m{place}")) for place, text in enumerate(texts)
            ]
            expected = {task.id for task in made if isinstance(task, Task)}
            sizes, token, seen = [], "", list[str]()
            while not sizes or token:
                query = ListQuery(page_size=100, page_token=token, include_artifacts=True)
                page = await operations.list(HERE, query)
                assert (page.total_size, page.page_size) == (9, 100)
                token = page.next_page_token
                sizes.append(len(page.tasks))
                seen += [task.id for task in page.tasks]
            assert sizes == [6, 3]
            assert len(seen) == len(set(seen)) and set(seen) == expected
            # Where nobody asks for what is large, the page is whole.
            assert len((await operations.list(HERE, ListQuery(page_size=100))).tasks) == 9

    run(case())
