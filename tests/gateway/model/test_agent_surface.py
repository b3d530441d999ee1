"""A model agent at its address in a hub, by every version and binding that its card names."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import opened, run
from tests.gateway.model.openai_server import ModelServer, Reply, results
from tests.gateway.model.test_run import ASKER, ENDLESS
from trunkline.client.client import Client
from trunkline.errors import TaskNotCancelable
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import ArtifactUpdate, StatusUpdate, TaskState

AGENTS = """
agents:
  - {name: helper, model: "openai:small", role: clerk, goal: keep order, capabilities: [/write, /agent]}
  - {name: asker, import: "surface_asker:agent"}
"""
WORDS = ["It ", "is ", "written."]
WAYS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]


@pytest.mark.parametrize(("binding", "version"), WAYS)
def test_every_operation_on_a_model_by_every_version_and_binding(
    tmp_path: Path, binding: str, version: str
) -> None:
    (tmp_path / "surface_asker.py").write_text(ASKER)
    held = threading.Event()

    def model(body: dict[str, Any]) -> Reply:
        said = str(body["messages"][-1]["content"])
        calls = {
            "write": [("write", {"path": "a.bin", "base64": "AP8K"})],
            "paint": [("agent", {"name": "asker", "message": "paint"})],
        }
        if said == "break":
            piece = ENDLESS % b'{"content":"It "}'
            return Reply(raw=[piece, piece, b"data: {\n\n"])
        if said == "long":
            return Reply(["It "], hold=held)
        return Reply(WORDS if results(body) or said not in calls else (), calls.get(said, ()))

    async def scene() -> None:
        with ModelServer(model) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                inside = InProcessHttpClient(ask.hub.host)
                site = "http://localhost/v1/a2a/agents/helper"
                async with Client(
                    site, http_client=inside, version=version, bindings=[binding], poll_s=0.01
                ) as client:
                    assert (await client.interface()).startswith(f"{binding} {version} at {site}")
                    await operations(client)
        assert len(server.asked) == 7

    async def operations(client: Client) -> None:
        card = await client.card()
        assert (card.name, card.description) == ("helper", "clerk — keep order")
        assert [one.id for one in card.skills] == ["chat", "write-file", "delegate"]
        sent = await client.send("hello")
        assert sent.ok and sent.text == "It is written."
        assert (await client.get(sent.task_id)).text == sent.text
        stream = client.stream("write", context_id=sent.context_id)
        notices = [one.notice.answer async for one in stream]
        done = await stream.finish()
        assert done.text == sent.text and [one.content for one in done.files] == [b"\x00\xff\n"]
        updates = [one for one in notices if isinstance(one, ArtifactUpdate)]
        words = [one for one in updates if one.artifact.name == "response"]
        assert len({one.artifact.artifact_id for one in words}) == 1
        # Pieces that grow, then all of it once more; nothing comes between that and the end.
        assert [one.append for one in words[:-1]] == [False, *[True] * (len(words) - 2)]
        assert words[-1].artifact.parts[0].text == sent.text and not words[-1].append
        assert notices[-2] is words[-1] and words[-1].last_chunk
        assert not any(one.last_chunk for one in words[:-1])
        states = [one.status.state for one in notices if isinstance(one, StatusUpdate)]
        assert states == [TaskState.WORKING, TaskState.COMPLETED]
        # So it is where the model breaks off, and what it said until then stays.
        stream = client.stream("break")
        *_, last, end = [one.notice.answer async for one in stream]
        assert isinstance(last, ArtifactUpdate) and last.last_chunk and isinstance(end, StatusUpdate)
        broken = await stream.finish()
        assert (broken.state, broken.text) == (TaskState.FAILED, "It It ")
        assert end.status.message is not None
        assert str(end.status.message.parts[0].text).startswith("provider_error: ")
        asked = await client.send("paint")
        assert asked.state is TaskState.INPUT_REQUIRED and "which colour?" in asked.text
        answered = await client.send("blue", task_id=asked.task_id, context_id=asked.context_id)
        assert answered.ok and answered.all_data[0]["content"] == "you said blue"
        running = client.stream("long")
        async for one in running:
            if one.text:
                cancelled = await client.cancel(running.task_id)
                assert cancelled.state is TaskState.CANCELED
        long = await running.finish()
        assert (long.state, long.text) == (TaskState.CANCELED, "It ")
        with pytest.raises(TaskNotCancelable):
            await client.cancel(long.task_id)
        held.set()
        page = await client.list()
        assert [one.id for one in page.tasks] == [
            long.task_id,
            asked.task_id,
            broken.task_id,
            done.task_id,
            sent.task_id,
        ]

    run(scene())
