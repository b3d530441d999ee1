"""Outcomes as results of MCP: their words, structured content and the sizes of files."""

from __future__ import annotations

import base64

import pytest

from trunkline.bridge.tool import make_tool
from trunkline.client.result import Result
from trunkline.errors import InvalidParams
from trunkline.mcp.contents import EMBEDDED_LIMIT, canceled, file_of, result_of
from trunkline.mcp.handoff import HandOff
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

TOOL = make_tool("t", "a", Skill("s", "S", "", ()), PeerCard(name="a"))


def result(*parts: Part, state: TaskState = TaskState.COMPLETED) -> Result:
    return Result(
        Task(id="1", context_id="c", status=TaskStatus(state), artifacts=(Artifact("a", parts=parts),))
    )


@pytest.mark.parametrize("length", [0, 1, 2, 3, EMBEDDED_LIMIT // 4 * 3, EMBEDDED_LIMIT // 4 * 3 + 1])
def test_the_size_of_a_file_decides_whether_it_is_within(length: int) -> None:
    content = b"x" * length
    part = Part(raw=base64.b64encode(content).decode(), filename="f", media_type="application/x")
    block = result_of(TOOL, result(Part(text="see"), part))["content"][1]
    if length > EMBEDDED_LIMIT // 4 * 3:
        assert (block["type"], block["size"], block["uri"]) == (
            "resource_link",
            length,
            "trunkline://task/t/1/1/f",
        )
    else:
        assert (block["type"], block["resource"]["uri"]) == ("resource", "trunkline://task/t/1/1/f")
    read = file_of(TOOL, result(Part(text="see"), part), 1, "u")
    assert (base64.b64decode(read["blob"]), read["mimeType"]) == (content, "application/x")
    for place in (0, 2):
        with pytest.raises(InvalidParams):
            file_of(TOOL, result(Part(text="see"), part), place, "u")


def test_pictures_are_pictures() -> None:
    block = result_of(TOOL, result(Part(raw="AAAA", media_type="image/png")))["content"][1]
    assert block == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


def test_the_id_of_a_task_is_the_one_that_can_be_asked_with() -> None:
    found = result_of(TOOL, result(Part(text="half"), state=TaskState.WORKING))
    assert found["structuredContent"]["task_id"] == "t:1"
    assert 'task_status with task_id="t:1"' in found["content"][0]["text"]
    assert "task_status" not in result_of(TOOL, result(Part(text="all")))["content"][0]["text"]
    assert (
        canceled(HandOff("t", "1"), result(state=TaskState.CANCELED))["structuredContent"]["state"]
        == "canceled"
    )


def test_an_answer_without_a_task_has_no_id() -> None:
    said = Result(message=Message("m", role=Role.AGENT, parts=(Part(text="hi"),)))
    assert "task_id" not in result_of(TOOL, said)["structuredContent"]
