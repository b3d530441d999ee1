"""Ids of tasks that were handed over, and addresses of their files, there and back."""

from __future__ import annotations

import pytest
from mcp.types import Tool as McpTool

from trunkline.errors import InvalidParams
from trunkline.mcp.handoff import HandOff, file_uri, read_file_uri, read_hand_off, read_wait, tools_of_tasks
from trunkline.wire.types import Part


@pytest.mark.parametrize("task_id", ["0198", "a:b/c?d#e f", "täsk"])
def test_an_id_and_an_address_say_all(task_id: str) -> None:
    task = HandOff("a2a__planner__plan", task_id)
    assert read_hand_off(task.id) == task
    for name in ("a b/ü.txt", ""):
        uri = file_uri(task, 3, Part(raw="", filename=name))
        assert uri.isascii()
        assert read_file_uri(uri) == (task, 3)


@pytest.mark.parametrize("given", [None, 7, "", "0198", ":0198", "tool:", "t:" + "x" * 2000])
def test_what_is_no_id(given: object) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_hand_off(given)
    assert refused.value.field == "task_id"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///etc/passwd",
        "trunkline://task/a/b/c/d",
        "trunkline://task/a/b/1",
        "trunkline://task/a/b/²/d",
    ],
)
def test_what_is_no_address_of_a_file(uri: str) -> None:
    with pytest.raises(InvalidParams, match="no such resource"):
        read_file_uri(uri)


def test_how_long_a_status_is_waited_for() -> None:
    assert (read_wait(None), read_wait(2), read_wait(0.5)) == (0, 2, 0.5)
    for given in (-1, 301, True, "5", float("nan")):
        with pytest.raises(InvalidParams, match="wait is a number"):
            read_wait(given)


def test_tools_of_tasks_are_tools_of_mcp() -> None:
    found = [McpTool.model_validate(one) for one in tools_of_tasks()]
    assert [one.name for one in found] == ["task_status", "task_answer", "task_cancel"]
    assert all(one.input_schema["additionalProperties"] is False for one in found)
