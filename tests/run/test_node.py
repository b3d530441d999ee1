"""The agents of a node change while it runs: tasks go on, wait, are taken over and are forgotten by them."""

from __future__ import annotations

import asyncio

import pytest

from tests.run.desk import AGENT, DONE, QUICK, Acts, Desk, desk, run, said, until
from trunkline.log.events import Submitted
from trunkline.run import retention
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, keep_running
from trunkline.wire.types import SendRequest, TaskState


async def quick(work: Work) -> Verdict:
    return DONE


class Closing(Acts):
    """An executor that knows whether it was closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1


def origin(runner: Desk) -> HostedAgent:
    return runner.agent(runner.origin)


async def opened(runner: Desk, agent: str) -> Feed:
    feed, ack = runner.submit("t", "me", SendRequest(said()), agent=agent)
    await ack
    return feed


def test_an_agent_that_comes_takes_tasks_and_one_that_goes_takes_none() -> None:
    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            with pytest.raises(KeyError):
                await opened(runner, "late")
            await runner.carry([origin(runner), HostedAgent("late", Acts(quick))])
            assert runner.names_of("late") == ("late",)
            assert await runner.ended(await opened(runner, "late")) is TaskState.COMPLETED
            await runner.carry([origin(runner)])
            with pytest.raises(KeyError):
                await opened(runner, "late")

    run(case())


def test_the_agent_at_the_origin_stays() -> None:
    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            with pytest.raises(ValueError, match="'other' comes first"):
                await runner.carry([HostedAgent("other", Acts(quick)), origin(runner)])
            assert runner.names_of(AGENT) == (AGENT, "")

    run(case())


def test_what_runs_goes_on_and_its_executor_is_closed_after_it() -> None:
    async def case() -> None:
        gate = asyncio.Event()

        async def wait(work: Work) -> Verdict:
            await gate.wait()
            return DONE

        async with desk(quick, QUICK) as runner:
            late = Closing(wait)
            await runner.carry([origin(runner), HostedAgent("late", late)])
            feed = await opened(runner, "late")
            await until(lambda: runner.running == 1)
            await runner.carry([origin(runner)])
            assert not late.closed
            gate.set()
            assert await runner.ended(feed) is TaskState.COMPLETED
            await until(lambda: late.closed == 1)
            unused = Closing(quick)
            await runner.carry([origin(runner), HostedAgent("idle", unused)])
            await runner.carry([origin(runner)])
            assert unused.closed == 1
        assert late.closed == unused.closed == 1

    run(case())


def test_tasks_that_waited_for_an_agent_are_taken_over_when_it_comes() -> None:
    async def case() -> None:
        async with desk(quick, QUICK) as runner:
            task_id = runner.ids.new()
            feed = runner.tasks.begin("t", task_id)
            first = Submitted(said(), task_id, "me", "gone", "act", agent="late")
            await runner.tasks.append(feed, (first,))
            assert [one.agent for one in await runner.store.nodes.waiting()] == ["late"]
            await runner.carry([origin(runner), HostedAgent("late", Acts(quick, OnCrash.RESTART))])
            assert not await runner.store.nodes.waiting()
            assert await runner.ended(feed) is TaskState.COMPLETED

    run(case())


def test_ended_tasks_of_an_agent_that_came_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SHORTEST_S", 0.01)

    async def case() -> None:
        async with desk(quick, QUICK, retention_s=0.0) as runner:
            await runner.carry([origin(runner), HostedAgent("late", Acts(quick), retention_s=0.001)])
            feed = await opened(runner, "late")
            await runner.ended(feed)
            while await runner.store.log.read("t", feed.state.task_id):  # noqa: ASYNC110 - nothing to wait on
                await runner._retention._round()
                await asyncio.sleep(0.001)

    run(case())


def test_what_breaks_beside_the_requests_is_logged_and_begins_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries: list[int] = []

    async def work() -> None:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ValueError("broken")

    with caplog.at_level("ERROR", "trunkline"):
        asyncio.run(keep_running(work, first_pause_s=0.0))
    assert len(tries) == 3
    assert [one.getMessage() for one in caplog.records] == ["background.failed again_s=0"] * 2


def test_what_breaks_while_it_is_ended_does_not_begin_again() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("broken")

    async def main() -> None:
        working = asyncio.create_task(keep_running(work, first_pause_s=0.0))
        await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(main())
    assert begun == [0]
