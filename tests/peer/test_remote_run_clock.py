"""A remote agent is given up for its silence while a process follows it; a clock that is set does not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.client.agents import COMPLETED, WORKING, Frames, Http, Stand, card, stored, task
from tests.peer.rig import PARKING, PATIENT, Caller, calling, told_by
from tests.run.desk import Flaky, reason, run, until
from tests.run.pair import die
from tests.stepped_clock import DAY_MS, SteppedClock
from trunkline import Turn
from trunkline.peer.callbacks import read_callback
from trunkline.peer.remote_run import AWAY_KEY, RemoteRun
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.wire.types import TaskState

QUIET = card(capabilities={"streaming": False})
AWAY = Http(503, {"retry-after": "0"})
SILENCE_S, LOOKS = 20.0, 3


async def forward(turn: Turn) -> str:
    return (await turn.call("peer", "hello")).text


class Looks:
    """An agent whose task is looked at, and what it answers then."""

    def __init__(self) -> None:
        self.answer: Any = stored(WORKING)
        self.stand = Stand(self._script, QUIET)

    def _script(self, asked: Any) -> Any:
        return task(WORKING) if asked.method == "SendMessage" else self.answer

    async def more(self) -> None:
        """Wait until it was looked at a few times more."""
        wanted = len(self.stand.asked) + LOOKS
        while len(self.stand.asked) < wanted:  # noqa: ASYNC110 - an agent says nothing of it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def opened() -> AsyncIterator[Flaky]:
    """A store of one process, which follows the clock of this machine."""
    store = Flaky()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def restart(stack: AsyncExitStack, looks: Looks, limits: Limits, store: Flaky) -> Caller:
    following = told_by(poll_s=0.01, silence_s=SILENCE_S)
    caller = calling(forward, looks.stand, limits=limits, store=store, following=following)
    return await stack.enter_async_context(caller)


def is_away(feed: Feed) -> bool:
    known = feed.state.status_message
    return known is not None and AWAY_KEY in (known.metadata or {})


@pytest.mark.parametrize("answer", [stored(WORKING), AWAY], ids=["silent", "away"])
@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_time_without_a_process_does_not_count_as_silence(
    limits: Limits, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("trunkline.client.retry.FIRST_S", 0.0)
    clock, looks = SteppedClock(monkeypatch), Looks()

    async def main() -> None:
        async with opened() as store, AsyncExitStack() as stack:
            first = await restart(stack, looks, limits, store)
            feed = await first.open("hello")
            child = await first.child(feed)
            await looks.more()
            looks.answer = answer
            while answer is AWAY and not is_away(child):
                await first.tasks.move(child, 5)
            await looks.more()
            await die(first)
            # The clock was set, or the process was down for a day: a new process cannot tell.
            clock.step(DAY_MS)
            second = await restart(stack, looks, limits, store)
            await looks.more()
            looks.answer = stored(COMPLETED, "done")
            feed = await second.find(feed.state.task_id)
            assert await second.ended(feed) is TaskState.COMPLETED, reason(feed)

    run(main())


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_silence_after_a_restart_ends_the_task_after_its_full_length(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = SteppedClock(monkeypatch), Looks()

    async def main() -> None:
        async with opened() as store, AsyncExitStack() as stack:
            first = await restart(stack, looks, limits, store)
            feed = await first.open("hello")
            await looks.more()
            await die(first)
            clock.step(DAY_MS)
            second = await restart(stack, looks, limits, store)
            await looks.more()
            feed = await second.find(feed.state.task_id)
            clock.move(round(SILENCE_S * 900))
            await looks.more()
            assert not feed.state.over
            clock.step(-DAY_MS)
            clock.move(round(SILENCE_S * 200))
            assert await second.ended(feed) is TaskState.FAILED
            assert f"it said nothing for {SILENCE_S:g} seconds" in reason(feed)

    run(main())


def test_clock_that_is_set_while_an_agent_streams_does_not_end_its_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, checks = SteppedClock(monkeypatch), 0
    check = RemoteRun._check_silence

    def counted(*given: Any) -> None:
        nonlocal checks
        checks += 1
        check(*given)

    monkeypatch.setattr(RemoteRun, "_check_silence", counted)
    stand = Stand(lambda _: Frames([task(WORKING)], stall=True))
    following = told_by(silence_s=10.0)
    working = {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": WORKING}}}

    async def main() -> None:
        async with opened() as store, calling(forward, stand, store=store, following=following) as runner:
            feed = await runner.open("hello")
            child = await runner.child(feed)
            await runner.reach(child, TaskState.WORKING)
            # Its end is listened for next to the stream, which has no end.
            await until(lambda: checks == 1)
            clock.move(7_000)
            await runner.notify(child, read_callback(msgspec.json.encode(working)))
            clock.step(DAY_MS)
            clock.move(5_000)
            await until(lambda: checks == 2)
            artifacts = [{"artifactId": "a", "parts": [{"text": "done"}]}]
            ended = {"id": "t1", "contextId": "c1", "status": {"state": COMPLETED}, "artifacts": artifacts}
            await runner.notify(child, read_callback(msgspec.json.encode({"task": ended})))
            assert await runner.ended(feed) is TaskState.COMPLETED, reason(feed)

    run(main())
