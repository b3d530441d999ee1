"""The official Python SDK, unchanged, drives the demo agent: both versions, JSON-RPC and HTTP+JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client_factory import minimal_agent_card
from a2a.helpers.proto_helpers import (
    get_artifact_text,
    get_data_parts,
    get_message_text,
    new_data_part,
    new_raw_part,
    new_text_part,
)
from a2a.types import a2a_pb2 as pb
from a2a.utils import errors

from tests.harness import NO_TLS, ServerProcess

pytestmark = pytest.mark.sdk

UNKNOWN = "01980000-0000-7000-8000-000000000000"
FINISHED = pb.TaskState.TASK_STATE_COMPLETED
Scene = Callable[[Client], Awaitable[Any]]


@dataclass(frozen=True)
class Wire:
    """How a client speaks to the agent."""

    base: str
    version: str
    binding: str

    def run(self, scene: Scene, *, streaming: bool = False, headers: dict[str, str] | None = None) -> Any:
        async def play() -> Any:
            async with self.client(streaming=streaming, headers=headers) as client:
                return await scene(client)

        return asyncio.run(asyncio.wait_for(play(), 20))

    def stream(self, scene: Scene) -> Any:
        return self.run(scene, streaming=True)

    @asynccontextmanager
    async def client(self, *, streaming: bool, headers: dict[str, str] | None) -> AsyncIterator[Client]:
        card = await card_of(self.base)
        spoken = [one for one in card.supported_interfaces if one.protocol_version == self.version]
        # The SDK takes 1.0 where it is offered; an agent of yesterday would offer 0.3 alone.
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(spoken)
        async with self.opened(card, streaming=streaming, headers=headers) as client:
            yield client

    @asynccontextmanager
    async def opened(
        self, card: pb.AgentCard, *, streaming: bool = False, headers: dict[str, str] | None = None
    ) -> AsyncIterator[Client]:
        async with httpx.AsyncClient(timeout=60, headers=headers, verify=NO_TLS) as http:
            config = ClientConfig(
                streaming=streaming, httpx_client=http, supported_protocol_bindings=[self.binding]
            )
            yield ClientFactory(config).create(card)

    def refuses(self, error: type[errors.A2AError], scene: Scene, **how: Any) -> errors.A2AError:
        with pytest.raises(error) as caught:
            self.run(scene, **how)
        # Not a subclass: the very class that belongs to the code.
        assert caught.type is error
        return caught.value


@pytest.fixture(params=["1.0-JSONRPC", "1.0-HTTP+JSON", "0.3-JSONRPC", "0.3-HTTP+JSON"])
def wire(request: pytest.FixtureRequest, demo_server: ServerProcess) -> Wire:
    version, _, binding = request.param.partition("-")
    return Wire(demo_server.base, version, binding)


def sending(
    text: str, *, receipt: bool = False, parts: list[pb.Part] | None = None, **message: Any
) -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        message=pb.Message(
            message_id=f"sdk-{text}", role=pb.Role.ROLE_USER, parts=parts or [new_text_part(text)], **message
        ),
        configuration=pb.SendMessageConfiguration(return_immediately=receipt),
    )


async def card_of(base: str) -> pb.AgentCard:
    async with httpx.AsyncClient(verify=NO_TLS) as http:
        return await A2ACardResolver(http, base).get_agent_card()


async def events_of(stream: AsyncIterator[pb.StreamResponse]) -> list[pb.StreamResponse]:
    return [event async for event in stream]


async def send(client: Client, text: str, **how: Any) -> pb.Task:
    [event] = await events_of(client.send_message(sending(text, **how)))
    assert event.HasField("task"), event
    return event.task


def getting(task_id: str) -> Scene:
    return lambda client: client.get_task(pb.GetTaskRequest(id=task_id))


def canceling(task_id: str) -> Scene:
    return lambda client: client.cancel_task(pb.CancelTaskRequest(id=task_id))


def subscribing(task_id: str) -> Scene:
    return lambda client: events_of(client.subscribe(pb.SubscribeToTaskRequest(id=task_id)))


def speaking(text: str, **how: Any) -> Scene:
    return lambda client: events_of(client.send_message(sending(text, **how)))


def text_of(task: pb.Task) -> str:
    return "".join(get_artifact_text(artifact, "") for artifact in task.artifacts)


def streamed_text(events: list[pb.StreamResponse]) -> str:
    """What a reader has at the end: appended chunks, or the last whole artifact."""
    text = ""
    for event in events:
        if event.HasField("task"):
            text = text_of(event.task)
        if event.HasField("artifact_update"):
            update = event.artifact_update
            text = (text if update.append else "") + get_artifact_text(update.artifact, "")
    return text


def states_of(events: list[pb.StreamResponse]) -> list[str]:
    states = [
        (event.task if event.HasField("task") else event.status_update).status.state
        for event in events
        if not event.HasField("artifact_update")
    ]
    return [pb.TaskState.Name(state).removeprefix("TASK_STATE_").lower() for state in states]


def test_card(demo_server: ServerProcess) -> None:
    card = asyncio.run(card_of(demo_server.base))
    assert card.name == "Trunkline demo"
    assert card.capabilities.streaming
    assert card.capabilities.push_notifications
    assert {skill.id for skill in card.skills} >= {"demo", "echo", "add"}
    assert [(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces] == [
        ("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "0.3"),
    ]  # fmt: skip


def test_a_client_left_to_itself_takes_1_0(demo_server: ServerProcess) -> None:
    async def scene() -> pb.Task:
        async with await ClientFactory(ClientConfig(streaming=False)).create_from_url(
            demo_server.base
        ) as client:
            return await send(client, "echo by itself")

    assert text_of(asyncio.run(scene())) == "echo by itself"


def test_send_and_wait(wire: Wire) -> None:
    task = wire.run(lambda client: send(client, "echo hello"))
    assert task.status.state == FINISHED
    assert text_of(task) == "echo hello"
    assert [get_message_text(message) for message in task.history] == ["echo hello"]


def test_receipt_and_poll(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        task = await send(client, "sleep 0.1", receipt=True)
        assert task.status.state in (pb.TaskState.TASK_STATE_SUBMITTED, pb.TaskState.TASK_STATE_WORKING)
        while task.status.state != FINISHED:
            task = await client.get_task(pb.GetTaskRequest(id=task.id))
        assert text_of(task) == "slept 0.1 s"

    wire.run(scene)


def test_history_length(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        task = await send(client, "echo history")
        assert not (await client.get_task(pb.GetTaskRequest(id=task.id, history_length=0))).history
        assert len((await client.get_task(pb.GetTaskRequest(id=task.id, history_length=1))).history) == 1

    wire.run(scene)


def test_stream(wire: Wire) -> None:
    events = wire.stream(speaking("count 5 10"))
    assert events[0].HasField("task")
    assert streamed_text(events) == "1 2 3 4 5 "
    assert states_of(events) == ["submitted", "working", "completed"]
    assert sum(event.HasField("artifact_update") for event in events) >= 2


def test_drop_the_stream_and_resubscribe(wire: Wire) -> None:
    async def scene(client: Client) -> list[pb.StreamResponse]:
        seen: list[pb.StreamResponse] = []
        async with aclosing(client.send_message(sending("count 20 20"))) as stream:
            async for event in stream:
                seen.append(event)
                if event.HasField("artifact_update"):
                    break
        return await subscribing(seen[0].task.id)(client)

    events = wire.stream(scene)
    assert events[0].HasField("task")
    assert events[0].task.status.state == pb.TaskState.TASK_STATE_WORKING
    assert streamed_text(events) == "".join(f"{number} " for number in range(1, 21))
    assert states_of(events)[-1] == "completed"


def test_list(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        first = await send(client, "echo one")
        others = [
            await send(client, f"echo {word}", context_id=first.context_id) for word in ("two", "three")
        ]
        asked = pb.ListTasksRequest(context_id=first.context_id, page_size=2, include_artifacts=True)
        if wire.version == "0.3":
            with pytest.raises(NotImplementedError):
                await client.list_tasks(asked)
            return
        page = await client.list_tasks(asked)
        assert (page.total_size, page.page_size) == (3, 2)
        asked.page_token = page.next_page_token
        rest = await client.list_tasks(asked)
        assert not rest.next_page_token
        assert [task.id for task in (*page.tasks, *rest.tasks)] == [others[1].id, others[0].id, first.id]
        assert text_of(rest.tasks[0]) == "echo one"
        failed = pb.ListTasksRequest(context_id=first.context_id, status=pb.TaskState.TASK_STATE_FAILED)
        assert not (await client.list_tasks(failed)).tasks

    wire.run(scene)


def test_cancel(wire: Wire) -> None:
    async def scene(client: Client) -> pb.Task:
        task = await send(client, "sleep 60", receipt=True)
        return await client.cancel_task(pb.CancelTaskRequest(id=task.id))

    assert wire.run(scene).status.state == pb.TaskState.TASK_STATE_CANCELED


def test_question_and_answer(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        asked = await send(client, "ask Which colour?")
        assert asked.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
        assert get_message_text(asked.status.message) == "Which colour?"
        done = await send(client, "blue", task_id=asked.id, context_id=asked.context_id)
        assert (done.id, done.status.state, text_of(done)) == (asked.id, FINISHED, "blue")

    wire.run(scene)


def test_question_and_answer_streamed(wire: Wire) -> None:
    async def scene(client: Client) -> None:
        asked = await events_of(client.send_message(sending("ask")))
        assert states_of(asked)[-1] == "input_required"
        answered = await events_of(client.send_message(sending("green", task_id=asked[0].task.id)))
        assert states_of(answered)[-1] == "completed"
        assert streamed_text(answered) == "green"

    wire.stream(scene)


@pytest.mark.parametrize("streaming", [False, True])
def test_direct_message(wire: Wire, streaming: bool) -> None:
    events = wire.run(speaking("message hi"), streaming=streaming)
    assert [get_message_text(event.message) for event in events] == ["hi"]


def test_file_artifact(wire: Wire) -> None:
    if (wire.version, wire.binding) == ("0.3", "HTTP+JSON"):
        pytest.skip(
            "this client takes `fileWithBytes` for base64 within base64, unlike ProtoJSON and the JavaScript SDK"
        )
    [part] = wire.run(lambda client: send(client, "file")).artifacts[0].parts
    assert (part.raw, part.filename, part.media_type) == (b"Hello, file.\n", "hello.txt", "text/plain")


def test_data_artifact(wire: Wire) -> None:
    task = wire.run(lambda client: send(client, "data"))
    assert get_data_parts(task.artifacts[0].parts) == [{"answer": 42, "list": [1, 2, 3], "nothing": None}]


def test_data_in(wire: Wire) -> None:
    task = wire.run(lambda client: send(client, "add", parts=[new_data_part({"a": 2, "b": 3})]))
    assert get_data_parts(task.artifacts[0].parts) == [{"sum": 5}]


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        ("fail no luck", pb.TaskState.TASK_STATE_FAILED, "no luck"),
        ("reject not mine", pb.TaskState.TASK_STATE_REJECTED, "not mine"),
        ("auth Who are you?", pb.TaskState.TASK_STATE_AUTH_REQUIRED, "Who are you?"),
    ],
)
def test_other_ends(wire: Wire, text: str, state: pb.TaskState, reason: str) -> None:
    task = wire.run(lambda client: send(client, text))
    assert (task.status.state, get_message_text(task.status.message)) == (state, reason)


def test_unknown_task(wire: Wire) -> None:
    missing = errors.TaskNotFoundError
    wire.refuses(missing, getting(UNKNOWN))
    wire.refuses(missing, canceling(UNKNOWN))
    wire.refuses(missing, speaking("hello", task_id=UNKNOWN))
    wire.refuses(missing, speaking("hello", task_id=UNKNOWN), streaming=True)
    wire.refuses(missing, subscribing(UNKNOWN), streaming=True)


def test_finished_task(wire: Wire) -> None:
    task = wire.run(lambda client: send(client, "echo done"))
    wire.refuses(errors.TaskNotCancelableError, canceling(task.id))
    wire.refuses(errors.UnsupportedOperationError, speaking("more", task_id=task.id))
    wire.refuses(errors.UnsupportedOperationError, speaking("more", task_id=task.id), streaming=True)


def test_subscribe_to_a_finished_task(wire: Wire) -> None:
    task = wire.run(lambda client: send(client, "echo done"))
    if wire.version == "1.0":
        wire.refuses(errors.UnsupportedOperationError, subscribing(task.id), streaming=True)
    else:
        events = wire.stream(subscribing(task.id))
        assert (streamed_text(events), states_of(events)[-1]) == ("echo done", "completed")


def test_extended_card(wire: Wire, demo_server: ServerProcess) -> None:
    # A client that has read the card does not even ask; one that knows the address alone does.
    card = minimal_agent_card(
        demo_server.url if wire.binding == "JSONRPC" else demo_server.base, [wire.binding]
    )
    card.supported_interfaces[0].protocol_version = wire.version

    async def ask() -> None:
        async with wire.opened(card) as client:
            await client.get_extended_agent_card(pb.GetExtendedAgentCardRequest())

    refusal = (
        errors.UnsupportedOperationError
        if wire.version == "1.0"
        else errors.ExtendedAgentCardNotConfiguredError
    )
    with pytest.raises(refusal):
        asyncio.run(ask())


def test_unknown_version(wire: Wire) -> None:
    if wire.version == "0.3":
        pytest.skip("this client always says 0.3")
    wire.refuses(errors.VersionNotSupportedError, getting(UNKNOWN), headers={"A2A-Version": "9.9"})


def test_bad_params(wire: Wire) -> None:
    wire.refuses(errors.InvalidParamsError, lambda client: send(client, "x" * 300))
    odd = [new_raw_part(b"\x89PNG", media_type="image/png")]
    wire.refuses(errors.ContentTypeNotSupportedError, lambda client: send(client, "image", parts=odd))
