"""Two runners on one store, as if they were in two processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.run.desk import DONE, QUICK, Act, Desk, Shared, delta, desk, question
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import Limits


@asynccontextmanager
async def pair(
    act: Act, other: Act | None = None, crash: OnCrash = OnCrash.FAIL, limits: Limits = QUICK
) -> AsyncIterator[tuple[Desk, Desk]]:
    """Two runners on one store."""
    store = Shared()
    await store.open()
    try:
        async with (
            desk(act, limits, store, crash) as here,
            desk(other or act, limits, store, crash) as there,
        ):
            yield here, there
    finally:
        await store.close()


async def seen(runner: Desk, feed: Feed) -> Feed:
    """The same task as another runner sees it."""
    return await runner.find(feed.state.task_id)


async def die(runner: Desk) -> None:
    """What kill -9 does: no word is said any more, and the node is found dead."""
    for owner in list(runner._owners):
        owner.abandon()
    for task in list(runner._node._background):
        task.cancel()
    await runner.store.nodes.leave(runner.node)


async def until_read(runner: Desk, feed: Feed, reached: Callable[[], bool]) -> None:
    while not reached():
        await runner.tasks.move(feed, 5)


async def hang(work: Work) -> Verdict:
    await work.emit(delta("begun"))
    return await asyncio.get_running_loop().create_future()


async def ask(work: Work) -> Verdict:
    await work.emit(delta("a"))
    told = await work.ask(question())
    await work.emit(delta(f" {told.parts[0].text}"))
    return DONE
