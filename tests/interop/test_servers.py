"""Our client speaks to servers on the official SDKs, unchanged: Python and JavaScript, both versions and bindings."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from tests.node import JS, NODE
from trunkline import errors
from trunkline.client.client import Client
from trunkline.net.http import HttpClient
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import PushConfig, TaskState

UNKNOWN = "01980000-0000-7000-8000-000000000000"
HOOK = "https://hooks.example.com/a2a"
WITHIN_S = 15
BINDINGS = ("JSONRPC", "HTTP+JSON")
SERVERS = {
    "python": (pytest.mark.sdk, ("1.0", "0.3")),
    "server_1": (pytest.mark.js, ("1.0", "0.3")),
    "server_03": (pytest.mark.js, ("0.3",)),
}
WIRES = [
    pytest.param((server, version, binding), marks=mark, id=f"{server}-{version}-{binding}")
    for server, (mark, versions) in SERVERS.items()
    for version in versions
    for binding in BINDINGS
]
Scene = Callable[[Client], Awaitable[Any]]


class Served:
    """The servers that were asked for so far, and the loop in which they are spoken to."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._carriers: dict[str, HttpClient] = {}
        self._bases: dict[str, str] = {}
        self._processes: list[subprocess.Popen[str]] = []

    def at(self, name: str) -> tuple[str, HttpClient | None]:
        """Where a server is, and how to get there."""
        if name not in self._bases:
            self._bases[name] = self._start(name)
        return self._bases[name], self._carriers.get(name)

    def _start(self, name: str) -> str:
        if name == "python":
            from tests.interop.sdk_server import BASE, application

            self._carriers[name] = InProcessHttpClient(application("1.0", "0.3"))
            return BASE
        command = [NODE, f"{name}.mjs"]
        process = subprocess.Popen(
            command, cwd=JS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._processes.append(process)
        assert process.stdout is not None
        base = process.stdout.readline().strip()
        assert base.startswith("http"), f"{name} did not start"
        return base

    def close(self) -> None:
        """End them all."""
        for http_client in self._carriers.values():
            self.runner.run(http_client.close())
        self.runner.close()
        for process in self._processes:
            # The end of its input is its end.
            process.communicate(timeout=WITHIN_S)


class Wire:
    """One version and binding of a server."""

    def __init__(self, served: Served, server: str, version: str, binding: str) -> None:
        self._served = served
        self.server = server
        self.version = version
        self.binding = binding

    def run(self, scene: Scene) -> Any:
        """Play a scene, in time."""
        base, http_client = self._served.at(self.server)

        async def play() -> Any:
            client = Client(
                base, version=self.version, bindings=[self.binding], http_client=http_client, poll_s=0.02
            )
            async with client:
                return await asyncio.wait_for(scene(client), WITHIN_S)

        return self._served.runner.run(play())


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest, served: Served) -> Wire:
    return Wire(served, *request.param)


def test_the_card(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        card = await client.card()
        assert (card.streaming, card.push, card.extended_card) == (True, True, True)
        assert card.name.startswith("Official")
        assert [skill.id for skill in card.skills] == ["obey"]
        assert (await client.interface()).startswith(f"{wire.binding} {wire.version}")

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
        ended = await client.send("echo done")
        with pytest.raises(errors.TaskNotCancelable):
            await client.cancel(ended.task_id)

    wire.run(scene)


def test_push_configs(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        task = await client.send("ask")
        made = await client.set_push(task.task_id, PushConfig(HOOK, id="mine", token="t"))
        assert (made.id, made.url) == ("mine", HOOK)
        assert (await client.get_push(task.task_id, "mine")).url == HOOK
        if (wire.server, wire.version, wire.binding) == ("python", "0.3", "HTTP+JSON"):
            # It serves neither of these there.
            with pytest.raises(errors.PushNotSupported):
                await client.delete_push(task.task_id, "mine")
            return
        assert [one.id for one in await client.list_push(task.task_id)] == ["mine"]
        await client.delete_push(task.task_id, "mine")
        assert list(await client.list_push(task.task_id)) == []

    wire.run(scene)


def test_tasks_are_listed_where_they_can_be(wire: Wire) -> None:
    # It takes the `/v1` of 0.3 for a tenant of 1.0, who has no tasks.
    mistaken = (wire.server, wire.version, wire.binding) == ("server_1", "0.3", "HTTP+JSON")

    async def scene(client: Client) -> None:
        made = await client.send("echo listed")
        if mistaken:
            assert (await client.list()).tasks == ()
        elif wire.version == "1.0":
            page = await client.list(context_id=made.context_id)
            assert [task.id for task in page.tasks] == [made.task_id]
        else:
            with pytest.raises(errors.UnsupportedOperation):
                await client.list()

    wire.run(scene)


def test_the_extended_card(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        assert (await client.extended_card()).name.startswith("Official")

    wire.run(scene)
