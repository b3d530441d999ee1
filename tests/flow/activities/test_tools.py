from __future__ import annotations

from typing import Any

import pytest

from trunkline.errors import CallFailed
from trunkline.flow.activities.base import Activity
from trunkline.flow.activities.tools import ToolExecutor
from trunkline.flow.definition.document import Node


class Servers:
    def __init__(self, failure: CallFailed | None = None) -> None:
        self.failure = failure
        self.asked: list[tuple[Any, ...]] = []

    async def call_tool(
        self, server: str, tool: str, arguments: dict[str, Any], timeout_s: float, *, tenant: str = ""
    ) -> dict[str, Any]:
        self.asked.append((server, tool, arguments, timeout_s))
        if self.failure is not None:
            raise self.failure
        return {"ticket": 7}


def call(timeout_ms: int | None = None, **config: Any) -> Activity:
    return Activity("e1", Node("open", "tool_call", config), {}, timeout_ms)


async def test_arguments_go_as_they_are_written() -> None:
    servers = Servers()
    outcome = await ToolExecutor(servers).execute(
        call(server="desk", tool="open", arguments={"title": "${ .x }"})
    )
    assert outcome.output == {"ticket": 7}
    assert servers.asked == [("desk", "open", {"title": "${ .x }"}, 45.0)]


async def test_the_time_of_the_node_counts_where_it_is_shorter() -> None:
    servers = Servers()
    await ToolExecutor(servers).execute(call(1500, server="desk", tool="open"))
    await ToolExecutor(servers).execute(call(900_000, server="desk", tool="open"))
    assert [one[-1] for one in servers.asked] == [1.5, 45.0]


@pytest.mark.parametrize(
    ("activity", "failure", "code"),
    [
        (call(server="desk"), None, "INVALID_TOOL_CALL_CONFIG"),
        (call(server="desk", tool="open", arguments=[1]), None, "INVALID_TOOL_CALL_CONFIG"),
        (
            call(server="desk", tool="open"),
            CallFailed("not allowed", code="MCP_COMMAND_NOT_ALLOWED"),
            "MCP_COMMAND_NOT_ALLOWED",
        ),
        (call(server="desk", tool="open"), CallFailed("odd"), "MCP_CLIENT_ERROR"),
        (Activity("e1", Node("a", "step", {}), {}), None, "ACTIVITY_EXECUTOR_UNSUPPORTED_NODE"),
    ],
)
async def test_each_failure_has_its_code(activity: Activity, failure: CallFailed | None, code: str) -> None:
    assert (await ToolExecutor(Servers(failure)).execute(activity)).code == code
