"""Waiting without a coroutine: who is parked and who is not, what wakes it, and every race around it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.run.desk import (
    DONE,
    Desk,
    Flaky,
    Shared,
    answer,
    delta,
    desk,
    question,
    reason,
    run,
    said,
    sleep_until,
    until,
)
from tests.run.pair import die, pair, seen
from trunkline.clock import now_ms
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.log.decide import Say
from trunkline.log.fold import NEVER
from trunkline.run import takeover
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.run.parking import is_bounded
from trunkline.run.tasks import Tasks
from trunkline.store.group_commit import Ack
from trunkline.wire.types import Message, Part, Role, SendRequest, TaskState

ASKING, CANCELED, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.CANCELED, TaskState.COMPLETED
SOON = Limits(cancel_s=0.2, drain_s=0.2, park_after_s=0.02)
RESUME = OnCrash.RESUME
LONG_MS = 3600_000


async def ask(work: Work) -> Verdict:
    await work.emit(delta("a"))
    told = await work.ask(question())
    await work.emit(delta(f" {told.parts[0].text}"))
    return DONE


async def sleep_long(work: Work) -> Verdict:
    await work.emit(delta("a"))
    if "stop" in [part.text for message in work.state.history for part in message.parts]:
        return DONE
    await sleep_until(work, now_ms() + LONG_MS)
    return DONE


async def parked(runner: Desk, feed: Feed) -> None:
    """Until the task is parked and its coroutine gone."""
    while feed.state.wake_at is None:
        await runner.tasks.move(feed, 5)
    await until(lambda: not runner.running)
    assert feed.runner is None and feed.state.node == ""


def test_a_stop_does_not_sit_out_what_only_waits() -> None:
    async def main() -> None:
        async with desk(sleep_long, Limits(drain_s=60, park_after_s=60), crash=RESUME) as runner:
            feed = await runner.open()
            while not (feed.runner and feed.runner.waiting):
                await runner.tasks.move(feed, 5)
            async with asyncio.timeout(10):
                await runner.stop()
            assert feed.state.state is TaskState.WORKING

    run(main())


def test_what_is_parked_leaves_memory_without_the_collector() -> None:
    async def main() -> None:
        async with desk(sleep_long, SOON, crash=RESUME) as runner:
            feed = await runner.open()
            left = weakref.ref(feed)
            await parked(runner, feed)
            del feed
            await until(lambda: left() is None)

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_a_question_that_waits_is_parked_and_its_answer_goes_on() -> None:
    async def main() -> None:
        async with desk(ask, SOON, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
            assert (feed.state.state, feed.state.wake_at) == (ASKING, NEVER)
            await runner.say(feed, said("b"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "a b"
            events = await runner.log(feed)
            assert [type(event).__name__ for event in events if not isinstance(event, ev.Status)] == [
                "Submitted", "Delta", "Parked", "Claimed", "FollowUp", "AnswerRead", "Delta",
            ]  # fmt: skip
            assert runner.takeovers == 0

    run(main())


@pytest.mark.parametrize("crash", [OnCrash.FAIL, OnCrash.RESTART])
def test_what_cannot_be_resumed_keeps_its_coroutine(crash: OnCrash) -> None:
    async def main() -> None:
        async with desk(ask, SOON, crash=crash) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            await asyncio.sleep(0.1)
            assert feed.runner is not None and feed.state.wake_at is None
            await runner.say(feed, said("b"))
            assert await runner.ended(feed) is COMPLETED

    run(main())


async def _gathered(work: Work) -> Verdict:
    await asyncio.gather(work.ask(question()), asyncio.sleep(0))
    return DONE


async def _limited(work: Work) -> Verdict:
    async with asyncio.timeout(30):
        await work.ask(question())
    return DONE


async def _grouped(work: Work) -> Verdict:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        await work.ask(question())
    return DONE


async def _stepping(work: Work) -> Verdict:
    # It is under way, or its function has raised: in either case the log does not hold it.
    assert work.recorded_step(0, "open") is None
    await work.ask(question())
    return DONE


async def _generated(work: Work) -> Verdict:
    async def pieces() -> Any:
        async with asyncio.timeout(30):
            yield await work.ask(question())

    async for _ in pieces():
        pass
    return DONE


@pytest.mark.parametrize("act", [_gathered, _limited, _grouped, _stepping, _generated])
def test_where_the_log_does_not_hold_all_it_waits_for_it_is_not_parked(
    act: Callable[[Work], Awaitable[Verdict]],
) -> None:
    async def main() -> None:
        async with desk(act, SOON, crash=RESUME) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            await asyncio.sleep(0.1)
            assert feed.runner is not None and feed.state.wake_at is None
            await runner.say(feed, said("b"))
            assert await runner.ended(feed) is COMPLETED

    run(main())


def test_a_wait_outside_of_any_block_is_not_bounded() -> None:
    async def inner(future: asyncio.Future[None]) -> None:
        await future

    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        task = loop.create_task(inner(future))
        await asyncio.sleep(0)
        assert not is_bounded(task)
        future.set_result(None)
        await task

    run(main())


@pytest.mark.parametrize("shared", [False, True])
def test_a_moment_wakes_it_in_time(shared: bool) -> None:
    async def act(work: Work) -> Verdict:
        # As a skill does it: the moment is recorded once.
        stepped = work.recorded_step(0, "sleep")
        moment = now_ms() + 300 if stepped is None else stepped.result
        if stepped is None:
            await work.emit(ev.Stepped(0, "sleep", moment))
            await work.drain()
        assert isinstance(moment, int)
        await sleep_until(work, moment)
        await work.emit(delta(now_ms() - moment))
        return DONE

    async def main() -> None:
        store = Shared() if shared else Flaky()
        await store.open()
        async with desk(act, SOON, store, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
            assert await runner.ended(feed) is COMPLETED
            # Alone it looks only each five seconds, so that it was the timer that did it.
            assert 0 <= int(answer(feed)) < 1500
            assert runner.takeovers == 0
        await store.close()

    run(main())


def test_a_further_message_wakes_what_sleeps() -> None:
    async def main() -> None:
        async with desk(sleep_long, SOON, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
            await runner.say(feed, said("hello"))
            await until(lambda: feed.runner is not None)
            await parked(runner, feed)
            await runner.say(feed, said("stop"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "a"

    run(main())


@pytest.mark.parametrize("act", [ask, sleep_long])
def test_a_parked_task_that_is_cancelled_does_not_run_again(
    act: Callable[[Work], Awaitable[Verdict]],
) -> None:
    runs: list[str] = []

    async def counted(work: Work) -> Verdict:
        runs.append("run")
        return await act(work)

    async def main() -> None:
        async with desk(counted, SOON, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED
            await asyncio.sleep(0.05)
            assert runs == ["run"] and not runner.running

    run(main())


def test_a_sleep_is_not_silence() -> None:
    async def main() -> None:
        async with desk(
            sleep_long, Limits(cancel_s=0.2, drain_s=0.2, park_after_s=60), stall_s=0.1
        ) as runner:
            feed = await runner.open()
            await asyncio.sleep(1.5)
            assert not feed.state.over
            await runner.cancel(feed, "me")

    run(main())


def test_the_deadline_of_a_chain_wakes_what_sleeps_beyond_it_and_ends_it() -> None:
    async def main() -> None:
        async with desk(sleep_long, SOON, crash=RESUME) as runner:
            deadline = now_ms() + 500
            chain = {"trunkline.chain": {"root": "r", "hops": 1, "deadline": deadline}}
            message = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),), metadata=chain)
            feed, opened = runner.submit("t", "me", SendRequest(message), agent=runner.origin)
            await opened
            await parked(runner, feed)
            assert feed.state.wake_at == deadline
            assert await runner.ended(feed) is TaskState.FAILED
            assert "deadline" in reason(feed)

    run(main())


class Racing(Flaky):
    """A store that lets somebody in just before a task is parked, or fails then."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[object]] | None = None
        self.fate = ""

    def append(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(args[3][0], ev.Parked) and self.before is not None:
            before, self.before = self.before, None
            asyncio.get_running_loop().create_task(before())  # type: ignore[arg-type]
            # A conflict, as if somebody had been faster.
            return self.real["append"](args[0], args[1], -1, *args[3:], **kwargs)
        if isinstance(args[3][0], ev.Parked) and self.fate:
            fate, self.fate = self.fate, ""
            if fate == "lost":
                self.real["append"](*args, **kwargs).then(lambda _: None)
            lost = Ack()
            lost.settle(StoreError("the disk is away"))
            return lost
        return super().append(*args, **kwargs)


@pytest.mark.parametrize("what", ["answer", "cancel", "stop"])
def test_what_comes_between_the_decision_and_the_append(what: str) -> None:
    async def main() -> None:
        store = Racing()
        await store.open()
        async with desk(ask, SOON, store, crash=RESUME) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            done = asyncio.Event()

            async def before() -> None:
                if what == "answer":
                    await runner.say(feed, said("b"))
                elif what == "cancel":
                    await runner.cancel(feed, "me")
                else:
                    await runner.stop()
                done.set()

            store.before = before
            await done.wait()
            if what != "stop":
                assert await runner.ended(feed) is (COMPLETED if what == "answer" else CANCELED)
                if what == "answer":
                    assert answer(feed) == "a b"
            await runner.log(feed)
        if what == "stop":
            async with desk(ask, SOON, store, crash=RESUME) as runner:
                feed = await runner.find(feed.state.task_id)
                await runner.say(feed, said("b"))
                assert await runner.ended(feed) is COMPLETED
        await store.close()

    run(main())


@pytest.mark.parametrize("fate", ["lost", "failed"])
def test_a_store_that_fails_while_a_task_is_parked(fate: str) -> None:
    async def main() -> None:
        store = Racing()
        await store.open()
        async with desk(ask, SOON, store, crash=RESUME) as runner:
            store.fate = fate
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            await asyncio.sleep(0.1)
            await runner.say(feed, said("b"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "a b"
            await runner.log(feed)
        await store.close()

    run(main())


@pytest.mark.parametrize("act", [ask, sleep_long])
def test_a_parked_task_survives_its_process_and_a_stop(act: Callable[[Work], Awaitable[Verdict]]) -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(act, SOON, store, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
        async with desk(act, SOON, store, crash=RESUME) as runner:
            await runner._takeover.round()
            again = await runner.find(feed.state.task_id)
            assert again.state.wake_at == feed.state.wake_at and not runner.running
            await runner.say(again, said("stop"))
            assert await runner.ended(again) is COMPLETED
            assert runner.takeovers == 0
        await store.close()

    run(main())


def test_task_whose_head_has_the_moment_of_its_answer_is_taken_up() -> None:
    # Earlier versions wrote that moment into the head; a process that died then leaves it to the next version.
    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(ask, SOON, store, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
        tasks = Tasks(store)
        found = await tasks.load("t", feed.state.task_id)
        assert found is not None
        await tasks.change(found, Say(said("yes")))
        await store.database.change(lambda connection: connection.execute("UPDATE tasks SET wake_at = 1000"))
        async with desk(ask, SOON, store, crash=RESUME) as runner:
            assert await runner.ended(await runner.find(feed.state.task_id)) is COMPLETED
        await store.close()

    run(main())


def test_two_nodes_that_wake_one_task_have_one_winner() -> None:
    runs: list[str] = []

    async def act(work: Work) -> Verdict:
        runs.append("run")
        await sleep_until(work, work.state.status_at + 400)
        return DONE

    async def main() -> None:
        async with pair(act, crash=RESUME, limits=SOON) as (here, there):
            feeds = [await here.open() for _ in range(10)]
            for feed in feeds:
                await parked(here, feed)
            far = [await seen(there, feed) for feed in feeds]
            for feed in far:
                assert await there.ended(feed) is COMPLETED
                claims = [event for event in await there.log(feed) if isinstance(event, ev.Claimed)]
                assert len(claims) == 1
            assert len(runs) == 20

    run(main())


def test_a_node_that_dies_leaves_what_is_parked_alone() -> None:
    async def main() -> None:
        async with pair(ask, crash=RESUME, limits=SOON) as (here, there):
            feed = await here.open()
            await parked(here, feed)
            far = await seen(there, feed)
            await die(here)
            await there._takeover.round()
            assert not there.running
            await there.say(far, said("b"))
            assert await there.ended(far) is COMPLETED

    run(main())


def test_a_skill_that_changed_its_mind_is_still_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "ALONE_S", 0.02)

    async def act(work: Work) -> Verdict:
        await sleep_until(work, work.state.status_at + 100)
        return DONE

    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(act, SOON, store, crash=RESUME) as runner:
            feed = await runner.open()
            await parked(runner, feed)
        async with desk(act, SOON, store, crash=OnCrash.FAIL) as runner:
            feed = await runner.find(feed.state.task_id)
            assert await runner.ended(feed) is COMPLETED, reason(feed)
        await store.close()

    run(main())
