"""Our client speaks to fasta2a, unchanged: its card says 1.0, and it takes the methods of 0.3 as well."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from trunkline import errors
from trunkline.client.client import Client
from trunkline.client.rpc import JsonRpcTransport
from trunkline.client.transport import Call
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.peer_card import Interface
from trunkline.wire.types import Message, Part, Role, SendRequest, StatusUpdate, TaskQuery, TaskState

pytestmark = pytest.mark.sdk

UNKNOWN = "01980000-0000-7000-8000-000000000000"
WITHIN_S = 10
Play = Callable[[Callable[[Client], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[asyncio.Runner, InProcessHttpClient]]:
    from tests.interop.fasta2a_server import application

    app = application()
    # Whoever opens its task groups must close them, so one task does both.
    ready, over = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            ready.set()
            await over.wait()

    async def begin() -> asyncio.Task[None]:
        life = asyncio.create_task(live())
        await ready.wait()
        return life

    async def end(life: asyncio.Task[None]) -> None:
        over.set()
        await life

    with asyncio.Runner() as runner:
        life = runner.run(begin())
        inside = InProcessHttpClient(app)
        yield runner, inside
        runner.run(inside.close())
        runner.run(end(life))


@pytest.fixture
def play(served: tuple[asyncio.Runner, InProcessHttpClient]) -> Play:
    runner, inside = served

    def run(scene: Callable[[Client], Awaitable[Any]]) -> Any:
        async def within() -> Any:
            async with Client("http://localhost", http_client=inside, poll_s=0.02) as client:
                return await asyncio.wait_for(scene(client), WITHIN_S)

        return runner.run(within())

    return run


def test_card_send_and_get(play: Play) -> None:
    async def scene(client: Client) -> None:
        assert (await client.card()).name == "Fast"
        assert await client.interface() == "JSONRPC 1.0 at http://localhost"
        # It never waits: its answer is a receipt, and the client waits instead.
        result = await client.send("echo hello")
        assert (result.text, result.state) == ("echo hello", TaskState.COMPLETED)
        assert (await client.get(result.task_id)).text == "echo hello"
        with pytest.raises(errors.TaskNotFound):
            await client.get(UNKNOWN)

    play(scene)


def test_a_stream_and_another_look(play: Play) -> None:
    async def scene(client: Client) -> None:
        async with client.stream("count 4") as stream:
            told = [update async for update in stream]
            result = await stream.finish()
        assert "".join(update.text for update in told if update.kind == "artifact") == "0 1 2 3 "
        assert (result.text, result.state) == ("0 1 2 3 ", TaskState.COMPLETED)
        receipt = await client.send("count 4", wait=False)
        async with client.subscribe(receipt.task_id) as stream:
            result = await stream.finish()
        assert (result.text, result.state) == ("0 1 2 3 ", TaskState.COMPLETED)

    play(scene)


def test_a_question_is_answered(play: Play) -> None:
    async def scene(client: Client) -> None:
        chat = client.chat()
        asked = await chat.say("ask")
        assert asked.state is TaskState.INPUT_REQUIRED
        answered = await chat.say("the blue one")
        assert (answered.state, answered.text) == (TaskState.COMPLETED, "the blue one")
        assert answered.context_id == asked.context_id

    play(scene)


def test_cancel(play: Play) -> None:
    async def scene(client: Client) -> None:
        task = await client.send("wait", wait=False)
        await client.cancel(task.task_id)
        assert (await client.wait(task.task_id)).state is TaskState.CANCELED

    play(scene)


def test_list_is_not_there(play: Play) -> None:
    async def scene(client: Client) -> None:
        with pytest.raises(errors.UnsupportedOperation):
            await client.list()

    play(scene)


def test_the_methods_of_0_3(served: tuple[asyncio.Runner, InProcessHttpClient]) -> None:
    runner, inside = served
    transport = JsonRpcTransport(Interface("http://localhost", "JSONRPC", "0.3"), inside)

    async def scene() -> None:
        with pytest.raises(errors.TaskNotFound):
            await transport.get(TaskQuery(UNKNOWN), Call())
        message = Message("m-1", role=Role.USER, parts=(Part(text="count 3"),))
        frames = [frame async for frame in transport.stream(SendRequest(message), Call())]
        last = frames[-1].notice.answer
        assert isinstance(last, StatusUpdate)
        assert last.status.state is TaskState.COMPLETED

    runner.run(asyncio.wait_for(scene(), WITHIN_S))
