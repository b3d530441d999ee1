"""Tools of the operator's MCP servers in a skill: `await turn.mcp("files").call("read", path="a.txt")`."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, cast

from msgspec import Struct

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.validation import is_number
from trunkline.errors import CallFailed, Misuse
from trunkline.peer.remote import ToolCaller

# The reference of workflows gives tools as long.
TOOL_TIMEOUT_S = 45.0
_LONGEST_S = 24 * 3600.0


class StepTaker(Protocol):
    """The part of a turn that a tool call needs: it records the call as one of the turn's steps."""

    def step(self, name: str, function: AuthorFunction, /, *args: object, **kwargs: object) -> Any:
        """Do something once."""
        ...


class McpTools(Struct, frozen=True):
    """The tools of one MCP server, for one turn."""

    turn: StepTaker
    caller: ToolCaller | None
    server: str
    timeout: float = TOOL_TIMEOUT_S

    def __post_init__(self) -> None:
        if not is_number(self.timeout) or not 0 < self.timeout <= _LONGEST_S:
            raise Misuse(f"timeout is more than 0 and at most {_LONGEST_S:g} seconds, not {self.timeout!r}")

    def call(
        self, tool: str, arguments: Mapping[str, Any] | None = None, /, **named: Any
    ) -> Coroutine[None, None, dict[str, Any]]:
        """Call a tool once: its result is recorded as a step, and given back if the skill is run again.

        Gives the structured content of the tool, else its text as `text`, else its `content`.

        Raises:
            CallFailed: the tool or its server failed; `code` says how.
        """
        given = {**(arguments or {}), **named}
        taken = self.turn.step(f"mcp {self.server}/{tool}", self._called, tool, given)
        return cast("Coroutine[None, None, dict[str, Any]]", taken)

    async def _called(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self.caller is None:
            raise CallFailed("there is no file of MCP servers here", code="MCP_SERVER_NOT_CONFIGURED")
        return await self.caller.call_tool(self.server, tool, arguments, self.timeout)
