"""What a transport promises, whichever it is: one body, run on all of them against one agent."""

from __future__ import annotations

import base64
from contextlib import aclosing
from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from tests.conformance.transport.world import KEY, Way, World, new_id, states, text_of, words
from trunkline import Agent, Turn, errors
from trunkline.client.client import Client
from trunkline.client.transport import Call
from trunkline.wire.types import (
    ListQuery,
    Message,
    Part,
    PushConfig,
    PushQuery,
    PushRequest,
    Role,
    StatusUpdate,
    Task,
    TaskQuery,
    TaskState,
)

UNKNOWN = "01980000-0000-7000-8000-000000000000"
HOOK = "http://127.0.0.1:9/hook"


def test_send_waits_for_the_result(any_way: Way) -> None:
    async def scene() -> None:
        task = await any_way.send("echo hello")
        if any_way.name == "delegate":
            task = await any_way.until(task.id, TaskState.COMPLETED)
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "echo hello")
        assert text_of(await any_way.get(task.id)) == "echo hello"

    any_way.run(scene)


def test_a_receipt_comes_at_once(any_way: Way) -> None:
    async def scene() -> None:
        task = await any_way.send("sleep 0.05", wait=False)
        assert task.status.state in (TaskState.SUBMITTED, TaskState.WORKING)
        task = await any_way.until(task.id, TaskState.COMPLETED)
        assert text_of(task) == "slept 0.05 s"

    any_way.run(scene)


def test_the_same_message_is_the_same_task(any_way: Way) -> None:
    async def scene() -> None:
        message_id = new_id()
        tasks = [await any_way.send("echo once", message_id=message_id) for _ in range(2)]
        assert tasks[0].id == tasks[1].id

    any_way.run(scene)


def test_a_failure_is_told(any_way: Way) -> None:
    async def scene() -> None:
        task = await any_way.send("fail no luck", wait=False)
        task = await any_way.until(task.id, TaskState.FAILED)
        assert task.status.message is not None
        assert [part.text for part in task.status.message.parts] == ["no luck"]

    any_way.run(scene)


def test_unknown_tasks_are_not_found(any_way: Way) -> None:
    async def scene() -> None:
        for task_id in (UNKNOWN, "a b%2é"):
            with pytest.raises(errors.TaskNotFound):
                await any_way.get(task_id)

    any_way.run(scene)


def test_who_shows_no_key_is_not_let_in(any_way: Way) -> None:
    async def scene() -> None:
        request = any_way.request("echo hello")
        with pytest.raises(errors.Unauthenticated):
            await any_way.transport.send(request, Call())
        with pytest.raises(errors.Unauthenticated):
            [frame async for frame in any_way.transport.stream(request, Call())]

    any_way.run(scene)


def test_data_goes_and_comes(any_way: Way) -> None:
    async def scene() -> None:
        part = Part(data={"a": 2, "b": 3})
        task = await any_way.send(parts=(part,), metadata={"skill": "add"}, wait=False)
        task = await any_way.until(task.id, TaskState.COMPLETED)
        data = [part.data for artifact in task.artifacts for part in artifact.parts if part.data is not UNSET]
        assert data == [{"sum": 5}]

    any_way.run(scene)


def test_files_go_and_come(way: Way) -> None:
    async def scene() -> None:
        raw = base64.b64encode(b"\x00\xff").decode()
        parts = (
            Part(text="file"),
            Part(raw=raw, filename="a.bin", media_type="text/plain"),
            Part(url="https://example.com/b", filename="b", media_type="text/plain"),
        )
        task = await way.send(parts=parts)
        assert task.history[0].parts == parts
        [artifact] = task.artifacts
        [part] = artifact.parts
        assert base64.b64decode(part.raw or "") == b"Hello, file.\n"
        assert (part.filename, part.media_type) == ("hello.txt", "text/plain")

    way.run(scene)


def test_a_message_may_be_the_answer(way: Way) -> None:
    async def scene() -> None:
        notice = await way.transport.send(way.request("message good day"), way.call)
        assert isinstance(notice.answer, Message)
        assert (notice.answer.role, notice.answer.parts) == (Role.AGENT, (Part(text="good day"),))
        [frame] = await way.frames("message good day")
        assert isinstance(frame.notice.answer, Message)

    way.run(scene)


def test_a_stream_tells_everything_in_order(way: Way) -> None:
    async def scene() -> None:
        frames = await way.frames("count 5 0")
        assert words(frames) == "1 2 3 4 5 "
        assert isinstance(frames[0].notice.answer, Task)
        assert states(frames)[-1] is TaskState.COMPLETED
        ids = [int(frame.id) for frame in frames if frame.id]
        assert ids == sorted(ids)
        assert len(ids) > 3

    way.run(scene)


def test_a_stream_that_is_left_can_be_taken_up(way: Way) -> None:
    async def scene() -> None:
        seen = []
        async with aclosing(way.transport.stream(way.request("count 6 10"), way.call)) as frames:
            async for frame in frames:
                seen.append(frame)
                if words(seen):
                    break
        task_id = seen[0].notice.answer.id
        query = TaskQuery(task_id)
        rest = [frame async for frame in way.transport.subscribe(query, way.call, after=seen[-1].id)]
        assert words([*seen, *rest]) == "1 2 3 4 5 6 "
        assert states(rest)[-1] is TaskState.COMPLETED

    way.run(scene)


def test_subscribing_begins_with_the_task(way: Way) -> None:
    async def scene() -> None:
        task = await way.send("count 3 20", wait=False)
        frames = [frame async for frame in way.transport.subscribe(TaskQuery(task.id), way.call)]
        first = frames[0].notice.answer
        assert isinstance(first, Task)
        assert (first.id, states(frames)[-1]) == (task.id, TaskState.COMPLETED)
        with pytest.raises(errors.TaskNotFound):
            [frame async for frame in way.transport.subscribe(TaskQuery(UNKNOWN), way.call)]

    way.run(scene)


def test_a_question_is_answered_on_the_same_task(way: Way) -> None:
    async def scene() -> None:
        asked = await way.send("ask Which one?")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert asked.status.message is not None
        assert asked.status.message.parts == (Part(text="Which one?"),)
        done = await way.send("the blue one", task_id=asked.id, context_id=asked.context_id)
        assert (done.id, done.status.state) == (asked.id, TaskState.COMPLETED)
        assert text_of(done) == "the blue one"
        with pytest.raises(errors.Refused) as refused:
            await way.send("more", task_id=asked.id)
        assert type(refused.value) in (errors.UnsupportedOperation, errors.InvalidParams)

    way.run(scene)


def test_a_running_task_is_canceled_and_an_ended_one_is_not(way: Way) -> None:
    async def scene() -> None:
        task = await way.send("sleep 30", wait=False)
        canceled = await way.transport.cancel(TaskQuery(task.id), way.call)
        assert (canceled.id, canceled.status.state) == (task.id, TaskState.CANCELED)
        with pytest.raises(errors.TaskNotCancelable):
            await way.transport.cancel(TaskQuery(task.id), way.call)
        with pytest.raises(errors.TaskNotFound):
            await way.transport.cancel(TaskQuery(UNKNOWN), way.call)

    way.run(scene)


def test_tasks_are_listed_page_by_page(way: Way) -> None:
    async def scene() -> None:
        context = new_id()
        made = [(await way.send("echo x", context_id=context)).id for _ in range(3)]
        query = ListQuery(context_id=context, page_size=2, status=TaskState.COMPLETED, include_artifacts=True)
        first = await way.transport.list(query, way.call)
        assert (len(first.tasks), first.page_size, first.total_size) == (2, 2, 3)
        assert text_of(first.tasks[0]) == "echo x"
        rest = await way.transport.list(replace(query, page_token=first.next_page_token), way.call)
        assert {task.id for task in (*first.tasks, *rest.tasks)} == set(made)
        assert rest.next_page_token == ""
        with pytest.raises(errors.InvalidParams):
            await way.transport.list(replace(query, page_token="nonsense"), way.call)

    way.run(scene)


def test_history_is_as_long_as_asked(way: Way) -> None:
    async def scene() -> None:
        task = await way.send("echo x", history_length=1)
        assert len(task.history) == 1
        shown = await way.transport.get(TaskQuery(task.id, history_length=0), way.call)
        assert shown.history == () or way.name == "rest-0.3"

    way.run(scene)


def test_push_configs_are_kept_until_they_are_deleted(way: Way) -> None:
    async def scene() -> None:
        task = await way.send("sleep 30", wait=False, push=PushConfig(HOOK, id="inline"))
        config = PushConfig(HOOK, id="mine", token="t", scheme="Bearer", credentials="c")
        made = await way.transport.set_push(PushRequest(task.id, config), way.call)
        assert (made.id, made.url) == ("mine", HOOK)
        found = await way.transport.get_push(PushQuery(task.id, "mine"), way.call)
        assert (found.id, found.url, found.scheme) == ("mine", HOOK, "Bearer")
        listed = await way.transport.list_push(PushQuery(task.id), way.call)
        assert {one.id for one in listed} == {"inline", "mine"}
        for config_id in ("inline", "mine"):
            await way.transport.delete_push(PushQuery(task.id, config_id), way.call)
        assert await way.transport.list_push(PushQuery(task.id), way.call) == ()
        with pytest.raises(errors.TaskNotFound):
            await way.transport.get_push(PushQuery(task.id, "mine"), way.call)
        with pytest.raises(errors.TaskNotFound):
            await way.transport.get_push(PushQuery(task.id), way.call)
        await way.transport.cancel(TaskQuery(task.id), way.call)

    way.run(scene)


def test_the_extended_card_is_read(way: Way) -> None:
    """Of an agent with a skill that is not public: no other has such a card."""
    clerk = Agent("clerk")

    @clerk.skill(public=False)
    async def pay(turn: Turn) -> str:
        return turn.text

    there = Way(World(clerk), way.name)

    async def scene() -> None:
        card = await there.transport.extended_card(there.call)
        assert (card.name, card.extended_card) == ("clerk", True)
        assert [skill.id for skill in card.skills] == ["pay"]

    try:
        there.run(scene)
    finally:
        there.world.close()


def test_what_is_wrong_names_the_field(way: Way) -> None:
    async def scene() -> None:
        with pytest.raises(errors.InvalidParams) as refused:
            await way.transport.send(way.request(parts=()), way.call)
        assert "parts" in refused.value.field or "content" in refused.value.field
        with pytest.raises(errors.InvalidParams):
            await way.send("x", task_id=(await way.send("ask")).id, context_id=new_id())

    way.run(scene)


def test_a_stream_to_an_unknown_task_is_refused(way: Way) -> None:
    async def scene() -> None:
        with pytest.raises(errors.TaskNotFound):
            [frame async for frame in way.transport.stream(way.request("x", task_id=UNKNOWN), way.call)]

    way.run(scene)


def test_final_updates_say_so_where_the_version_has_it(way: Way) -> None:
    async def scene() -> None:
        frames = await way.frames("echo x")
        last = frames[-1].notice
        assert isinstance(last.answer, StatusUpdate)
        assert last.final is way.name.endswith("0.3")

    way.run(scene)


def test_the_name_says_what_is_spoken(way: Way) -> None:
    binding, version = way.name.split("-")
    assert way.transport.name.startswith({"rpc": "JSONRPC", "rest": "HTTP+JSON"}[binding])
    assert version in way.transport.name
    assert KEY not in way.transport.name


def test_a_client_waits_for_the_task_api_by_asking_again(delegate: Way) -> None:
    async def scene() -> None:
        options: dict[str, Any] = {"http_client": delegate.world.http_client, "api_key": KEY, "poll_s": 0.01}
        async with Client("http://localhost/delegate", bindings=["DELEGATE"], **options) as client:
            # The name of the agent, which its card tells, means its default skill.
            assert (await client.send("sleep 0.05")).text == "slept 0.05 s"
            assert (await client.stream("hello", skill="echo").finish()).text == "hello"
            assert await client.interface() == "DELEGATE at http://localhost/delegate"

    delegate.run(scene)


def test_what_the_task_api_lacks_it_says(delegate: Way) -> None:
    transport, call = delegate.transport, delegate.call
    query = PushQuery(UNKNOWN)
    lacking = [
        lambda: transport.list(ListQuery(), call),
        lambda: transport.cancel(TaskQuery(UNKNOWN), call),
        lambda: anext(transport.subscribe(TaskQuery(UNKNOWN), call)),
        lambda: transport.extended_card(call),
        lambda: delegate.send("x", task_id=UNKNOWN),
        lambda: delegate.send("x", context_id=UNKNOWN),
        lambda: delegate.send(parts=(Part(url="https://example.com/a"),)),
    ]
    pushes = [
        lambda: transport.set_push(PushRequest(UNKNOWN, PushConfig(HOOK)), call),
        lambda: transport.get_push(query, call),
        lambda: transport.list_push(query, call),
        lambda: transport.delete_push(query, call),
        lambda: delegate.send("x", push=PushConfig(HOOK)),
    ]

    async def scene() -> None:
        for ask in lacking:
            with pytest.raises(errors.UnsupportedOperation, match="task API"):
                await ask()
        for ask in pushes:
            with pytest.raises(errors.PushNotSupported, match="task API"):
                await ask()
        [frame] = [frame async for frame in transport.stream(delegate.request("echo x"), call)]
        assert isinstance(frame.notice.answer, Task)

    delegate.run(scene)
