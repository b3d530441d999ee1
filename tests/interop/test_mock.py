"""The official Python SDK takes a mock for an agent: both versions, JSON-RPC and HTTP+JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from a2a.client import Client
from a2a.helpers.proto_helpers import get_artifact_text, new_text_part
from a2a.types import a2a_pb2 as pb

from tests.interop.test_python_sdk import Wire
from trunkline.mock.app import Mock
from trunkline.mock.scenario import Reply, Rule, Scenario, When
from trunkline.mock.serve import BackgroundServer

pytestmark = pytest.mark.sdk

SCENARIO = Scenario(
    rules=(
        Rule(when=When(text="stream"), reply=Reply(stream=("one ", "two"), progress=("thinking",))),
        Rule(when=When(text="ask"), reply=Reply(ask="Which?", then="Thanks")),
        Rule(reply=Reply(text="Hi", data={"n": 1})),
    )
)


@pytest.fixture(scope="module")
def mock_url() -> Iterator[str]:
    with BackgroundServer(Mock(SCENARIO)) as url:
        yield url


def said(text: str, **more: Any) -> pb.SendMessageRequest:
    message = pb.Message(message_id="m1", role=pb.Role.ROLE_USER, parts=[new_text_part(text)], **more)
    return pb.SendMessageRequest(message=message)


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_the_sdk_speaks_to_a_mock(mock_url: str, version: str, binding: str) -> None:
    wire = Wire(mock_url, version, binding)

    async def whole(client: Client) -> None:
        (answer,) = [event async for event in client.send_message(said("hello"))]
        assert [get_artifact_text(each) for each in answer.task.artifacts][0] == "Hi"
        (asked,) = [event async for event in client.send_message(said("ask"))]
        assert asked.task.status.state == pb.TaskState.TASK_STATE_INPUT_REQUIRED
        follow = said("that", task_id=asked.task.id, context_id=asked.task.context_id)
        (ended,) = [event async for event in client.send_message(follow)]
        assert ended.task.id == asked.task.id
        assert get_artifact_text(ended.task.artifacts[0]) == "Thanks"
        got = await client.get_task(pb.GetTaskRequest(id=ended.task.id))
        assert got.status.state == pb.TaskState.TASK_STATE_COMPLETED

    async def streamed(client: Client) -> None:
        events = [event async for event in client.send_message(said("stream"))]
        kinds = [event.WhichOneof("payload") for event in events]
        assert kinds[0] == "task" and kinds[-1] == "status_update"
        chunks = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert "".join(get_artifact_text(chunk.artifact) for chunk in chunks) == "one two"

    wire.run(whole)
    wire.stream(streamed)
