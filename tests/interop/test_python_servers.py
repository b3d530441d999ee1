"""Our client speaks to the official Python SDK's servers, unchanged: both versions, both bindings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from trunkline import errors
from trunkline.client.client import Client
from trunkline.net.inside import Inside
from trunkline.wire.types import PushConfig, TaskState

pytestmark = pytest.mark.sdk

UNKNOWN = "01980000-0000-7000-8000-000000000000"
HOOK = "https://hooks.example.com/a2a"
WITHIN_S = 10
WIRES = [(version, binding) for version in ("1.0", "0.3") for binding in ("JSONRPC", "HTTP+JSON")]
Scene = Callable[[Client], Awaitable[Any]]


class Wire:
    """One version and binding of a server in this process."""

    def __init__(self, runner: asyncio.Runner, inside: Inside, version: str, binding: str) -> None:
        self._runner = runner
        self._inside = inside
        self.version = version
        self.binding = binding

    def run(self, scene: Scene) -> Any:
        """Play a scene, in time."""

        async def play() -> Any:
            client = Client(
                "http://localhost",
                version=self.version,
                bindings=[self.binding],
                carrier=self._inside,
                poll_s=0.02,
            )
            async with client:
                return await asyncio.wait_for(scene(client), WITHIN_S)

        return self._runner.run(play())


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[asyncio.Runner, Inside]]:
    from tests.interop.sdk_server import application

    with asyncio.Runner() as runner:
        inside = Inside(application("1.0", "0.3"))
        yield runner, inside
        runner.run(inside.close())


@pytest.fixture(params=WIRES, ids=lambda wire: "-".join(wire))
def wire(request: pytest.FixtureRequest, served: tuple[asyncio.Runner, Inside]) -> Wire:
    return Wire(*served, *request.param)


def test_the_card(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        card = await client.card()
        assert (card.name, card.streaming, card.push, card.extended_card) == ("Official", True, True, True)
        assert await client.interface() == f"{wire.binding} {wire.version} at http://localhost" + (
            "/rpc" if wire.binding == "JSONRPC" else ""
        )
        assert [skill.id for skill in card.skills] == ["obey"]

    wire.run(scene)


def test_send_and_get(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        result = await client.send("echo hello")
        assert (result.text, result.state) == ("echo hello", TaskState.COMPLETED)
        again = await client.get(result.task_id)
        assert (again.text, again.state) == (result.text, result.state)
        with pytest.raises(errors.TaskNotFound):
            await client.get(UNKNOWN)

    wire.run(scene)


def test_a_message_may_be_the_answer(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        result = await client.send("message good day")
        assert (result.text, result.task) == ("good day", None)

    wire.run(scene)


def test_a_receipt_and_the_wait_for_it(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        receipt = await client.send("count 3", wait=False)
        assert receipt.state in (TaskState.SUBMITTED, TaskState.WORKING)
        result = await client.wait(receipt.task_id)
        assert (result.text, result.state) == ("0 1 2 ", TaskState.COMPLETED)

    wire.run(scene)


def test_a_failure_is_told(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        result = await client.send("fail no luck")
        assert (result.state, result.text) == (TaskState.FAILED, "no luck")

    wire.run(scene)


def test_a_stream(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        async with client.stream("count 4") as stream:
            told = [update async for update in stream]
            result = await stream.finish()
        assert "".join(update.text for update in told if update.kind == "artifact") == "0 1 2 3 "
        assert (result.text, result.state) == ("0 1 2 3 ", TaskState.COMPLETED)

    wire.run(scene)


def test_a_running_task_is_followed_again(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        receipt = await client.send("count 4", wait=False)
        async with client.subscribe(receipt.task_id) as stream:
            result = await stream.finish()
        assert (result.text, result.state) == ("0 1 2 3 ", TaskState.COMPLETED)

    wire.run(scene)


def test_a_question_is_answered_on_the_same_task(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        chat = client.chat()
        asked = await chat.say("ask")
        assert (asked.state, asked.question) == (TaskState.INPUT_REQUIRED, "Which one?")
        answered = await chat.say("the blue one")
        assert (answered.task_id, answered.state) == (asked.task_id, TaskState.COMPLETED)
        assert answered.text == "the blue one"

    wire.run(scene)


def test_a_running_task_is_canceled_and_an_ended_one_is_not(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        task = await client.send("wait", wait=False)
        assert (await client.cancel(task.task_id)).state is TaskState.CANCELED
        with pytest.raises(errors.TaskNotCancelable):
            await client.cancel(task.task_id)

    wire.run(scene)


def test_push_configs(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        task = await client.send("ask")
        made = await client.set_push(task.task_id, PushConfig(HOOK, id="mine", token="t"))
        assert (made.id, made.url) == ("mine", HOOK)
        assert (await client.get_push(task.task_id, "mine")).url == HOOK
        if (wire.version, wire.binding) == ("0.3", "HTTP+JSON"):
            # The SDK serves neither of these there.
            with pytest.raises(errors.PushNotSupported):
                await client.delete_push(task.task_id, "mine")
            return
        assert [one.id for one in await client.list_push(task.task_id)] == ["mine"]
        await client.delete_push(task.task_id, "mine")
        assert list(await client.list_push(task.task_id)) == []

    wire.run(scene)


def test_tasks_are_listed_in_1_0(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        made = await client.send("echo listed")
        if wire.version == "1.0":
            page = await client.list(context_id=made.context_id)
            assert [task.id for task in page.tasks] == [made.task_id]
        else:
            with pytest.raises(errors.UnsupportedOperation):
                await client.list()

    wire.run(scene)


def test_the_extended_card(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        assert (await client.extended_card()).name == "Official"

    wire.run(scene)
