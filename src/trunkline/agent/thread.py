"""Sync functions of an author, run beside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread that cannot hold up the end of the process, however long it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[[], None]) -> None:
        # Without its loop there is nobody left to hear how the function ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    def body() -> None:
        try:
            value = context.run(work)
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting coroutine
            stopped = isinstance(error, StopIteration)
            carried = RuntimeError("the function raised StopIteration") if stopped else error
            tell(lambda: future.set_exception(carried))
        else:
            tell(lambda: future.set_result(value))

    threading.Thread(target=body, name="trunkline-skill", daemon=True).start()
    return await future
