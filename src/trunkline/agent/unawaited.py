"""Finds calls of a turn that a skill forgot to await: Python drops them without a trace."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Coroutine
from types import CodeType, MethodType
from typing import Any, ParamSpec, TypeVar, cast

from trunkline.agent.step import McpTools
from trunkline.errors import Misuse

# `inspect.currentframe` is this, and slower.
_get_frame = sys._getframe  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
P = ParamSpec("P")
T = TypeVar("T")
# More calls than these are not noted while none of them has been started.
_MAX_CALLS = 64
# This one calls a turn for the author; the author's line is that of its own caller.
_MCP_CALL = McpTools.call.__code__
# A coroutine, the name of its method, and the code and the instruction that made the call. A tuple, because
# one is made for each call of a turn.
_Call = tuple[Any, str, CodeType, int]


def _is_unstarted(call: _Call) -> bool:
    coroutine = call[0]
    return not (coroutine.cr_frame is None or coroutine.cr_running or coroutine.cr_suspended)


def _line_of(code: CodeType, instruction: int) -> int:
    return [*code.co_positions()][instruction // 2][0] or code.co_firstlineno


class UnawaitedCalls:
    """The calls of one turn, as far as they may not have been started."""

    __slots__ = ("_earlier", "last")

    def __init__(self) -> None:
        self.last: _Call | None = None
        self._earlier: list[_Call] = []

    def keep(self, call: _Call) -> None:
        """Keep a call that had not ended when the next one was made."""
        if len(self._earlier) >= _MAX_CALLS:
            self._earlier = [one for one in self._earlier if _is_unstarted(one)]
        if len(self._earlier) < _MAX_CALLS:
            self._earlier.append(call)

    def note_step(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Note a call of `step`, which is the caller of this function."""
        caller = _get_frame(2)
        if caller.f_code is _MCP_CALL:
            caller = _get_frame(3)
        if self.last is not None:
            self.keep(self.last)
        self.last = coroutine, "step", caller.f_code, caller.f_lasti

    def _unstarted(self) -> list[_Call]:
        calls = self._earlier if self.last is None else [*self._earlier, self.last]
        return [one for one in calls if _is_unstarted(one)]

    async def find(self) -> Misuse | None:
        """Return the error for the calls that nothing has started, if there are any."""
        for _ in range(2):
            if not self._unstarted():
                return None
            # A task that was created for a call starts it in one of the next two iterations of the loop.
            await asyncio.sleep(0)
        found = self._unstarted()
        for one in found:
            one[0].close()
        if not found:
            return None
        _, name, code, instruction = found[0]
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Misuse(
            f"turn.{name}(…) at {code.co_filename}:{_line_of(code, instruction)} was never awaited{more}, "
            f"so it did nothing; write await turn.{name}(…)"
        )


class _NotedMethod:
    """An async method of a turn that notes each of its calls."""

    def __init__(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        functools.update_wrapper(self, method)
        self._method, self._name = method, method.__name__
        # With these, `inspect` still takes the method for a coroutine function. Frameworks ask that of a
        # callback before they await it.
        function = cast("Any", method)
        self.__code__ = function.__code__
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__

    def __get__(self, turn: Any, owner: type | None = None) -> Any:
        return self if turn is None else MethodType(self, turn)

    def __call__(self, turn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine = self._method(turn, *args, **kwargs)
        # Without further functions, because every piece of a streamed answer passes here.
        caller = _get_frame(1)
        calls: UnawaitedCalls = turn.unawaited
        last = calls.last
        # Nearly every skill awaits one call before it makes the next.
        if last is not None and last[0].cr_frame is not None:
            calls.keep(last)
        calls.last = coroutine, self._name, caller.f_code, caller.f_lasti
        return coroutine


def noted(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Note each call of an async method of a turn, so that one that is never awaited fails the task."""
    return cast("Callable[P, Coroutine[Any, Any, T]]", _NotedMethod(method))
