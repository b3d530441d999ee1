"""Steps of a turn: their results as JSON that a log keeps, and tools of MCP servers, called as steps.

A first run gets the same as a resumed one: what was read back, never what was given.
"""

from __future__ import annotations

import inspect
import typing
from asyncio import Future
from collections.abc import Awaitable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import Struct

from trunkline.agent.binding import AuthorFunction, in_thread, inner, is_async, routine_of
from trunkline.agent.validation import encode_json, is_number
from trunkline.errors import CallFailed, Misuse
from trunkline.peer.remote import ToolCaller

if TYPE_CHECKING:
    from trunkline.agent.sync_turn import SyncTurn
    from trunkline.agent.turn import Turn

_AWAITABLES = (Awaitable, Coroutine, Future)
# The reference of workflows gives tools as long.
TOOL_TIMEOUT_S = 45.0
_LONGEST_S = 24 * 3600.0


async def perform(function: AuthorFunction, *args: object, **kwargs: object) -> object:
    """Call a function from the event loop: on it if it is async, in a thread if it is not."""
    if is_async(function):
        result = function(*args, **kwargs)
    else:
        result = await in_thread(partial(function, *args, **kwargs))
    return await awaited(result) if inspect.isawaitable(result) else result


async def awaited(result: Awaitable[object]) -> object:
    """The result of any awaitable, as a coroutine."""
    return await result


def encoded(name: str, result: object) -> bytes:
    """A result as JSON.

    Raises:
        Misuse: it cannot be; the step is named.
    """
    return encode_json(f"step {name!r} gave back what", result)


def fitted(name: str, result: object, function: AuthorFunction) -> object:
    """A result read from JSON as the return annotation of its function; as it is if that says nothing.

    Raises:
        Misuse: it does not fit; the step is named.
    """
    wanted = _return_type(function)
    try:
        return msgspec.convert(result, typing.cast("type[object]", wanted), dec_hook=_load, str_keys=True)
    except msgspec.ValidationError as error:
        raise Misuse(f"step {name!r} gave back what its annotation does not allow: {error}") from error
    except (TypeError, NotImplementedError):
        # An annotation that JSON knows nothing of, a protocol for instance.
        return result


def _load(kind: type[object], value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise NotImplementedError


def _return_type(function: AuthorFunction) -> object:
    plain = inspect.unwrap(inner(function))
    if isinstance(plain, type):
        return plain
    try:
        hints = typing.get_type_hints(routine_of(function))
    except (NameError, TypeError):
        # A name that only type checkers see, or a function that is not written in Python.
        return typing.Any
    found = hints.get("return", typing.Any)
    return typing.get_args(found)[-1] if typing.get_origin(found) in _AWAITABLES else found


class McpTools(Struct, frozen=True):
    """The tools of one MCP server, for one turn."""

    turn: Turn | SyncTurn
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
        return await self.caller.call_tool(
            self.server, tool, arguments, self.timeout, tenant=self.turn.tenant
        )
