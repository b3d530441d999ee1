"""The turn of a function that runs in a thread of its own: the same names, but every call blocks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar, cast, overload

from msgspec.structs import replace

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.step import TOOL_TIMEOUT_S, McpTools, awaited, fitted
from trunkline.agent.turn import Turn
from trunkline.errors import Misuse, TurnOver
from trunkline.log.events import Stepped

P = ParamSpec("P")
T = TypeVar("T")


class SyncTurn:
    """A turn for a function in a thread: the same names, but calls block until they are done."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._waits: set[concurrent.futures.Future[object]] = set()
        self._released = False
        # The thread of the function itself; others that it starts have no say in how the task waits.
        self._thread = 0

    def enter(self) -> None:
        """Note the thread in which the function begins."""
        self._thread = threading.get_ident()

    def release(self) -> None:
        """The task has no more use for the thread: let it out of whatever it still waits for."""
        self._released = True
        for wait in list(self._waits):
            wait.cancel()

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def step(self, name: str, function: AuthorFunction, /, *args: object, **kwargs: object) -> Any:
        """Do something once, in this thread; see `Turn.step`."""
        place = self._turn.next_step(name)
        stepped = cast("Stepped | None", self.block_on(self._turn.recall(place, name)))
        if stepped is not None:
            return fitted(name, stepped.result, function)
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            # Itself where it can be: one that is wrapped and given up would never have been begun.
            result = self.block_on(result if inspect.iscoroutine(result) else awaited(result))
        return self.block_on(self._turn.keep(place, name, function, result))

    def mcp(self, server: str, *, timeout: float = TOOL_TIMEOUT_S) -> McpTools:
        """The tools of an MCP server, whose calls block; see `Turn.mcp`."""
        return replace(self._turn.mcp(server, timeout=timeout), turn=self)

    def block_on(self, work: Coroutine[None, None, object]) -> object:
        """Have the loop do something, and block this thread until it is done."""
        if _is_running(self._loop):
            # Waiting here would stop the very loop that has to do the work.
            work.close()
            raise Misuse("this turn blocks; make the skill an async function to use it on the event loop")
        if self._released:
            work.close()
            raise TurnOver(f"task {self._turn.task_id} has ended or moved")
        if threading.get_ident() == self._thread:
            work = self._turn.wait_as_main(work)
        wait = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waits.add(wait)
        if self._released:
            # Released between the look and the note; whoever comes second of the two sees the other.
            wait.cancel()
        try:
            return wait.result()
        except concurrent.futures.CancelledError:
            raise TurnOver(f"task {self._turn.task_id} has ended or moved") from None
        finally:
            self._waits.discard(wait)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._turn, name)
        if not inspect.iscoroutinefunction(found):
            return found
        start = cast("Callable[..., Coroutine[None, None, object]]", found)

        def blocking(*args: object, **kwargs: object) -> object:
            return self.block_on(start(*args, **kwargs))

        return blocking


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
