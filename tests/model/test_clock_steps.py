"""Waits and a clock that is set: within a process they follow the monotonic clock, whatever the time of day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.run.desk import DONE, Act, Desk, Flaky, desk, question, run
from tests.run.pair import die
from tests.stepped_clock import DAY_MS, SteppedClock
from trunkline.clock import now_ms
from trunkline.errors import Unanswered
from trunkline.log import events as ev
from trunkline.run.executor import OnCrash, Verdict, Work, never
from trunkline.run.feed import Feed
from trunkline.run.node import Limits

LENGTH_MS = 10_000
PARKED, KEPT = Limits(cancel_s=0.5, drain_s=0.2, park_after_s=0.0), Limits(cancel_s=0.5, drain_s=0.2)
BACK, FORTH, RESTART = -DAY_MS, DAY_MS, "restart"
# Steps of the time of day, restarts, and time that passes.
Course = Sequence[int | str]
COURSES = st.lists(st.sampled_from([BACK, FORTH, RESTART, 3_000, 7_000]), max_size=6).filter(
    lambda course: course.count(RESTART) < 3
)


class Waiter:
    """A skill that waits once, for a moment that it records first; and when its waits have begun and ended."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.began = self.ended = 0.0
        self.runs = 0

    async def act(self, work: Work) -> Verdict:
        self.began = self.began or work.loop.time()
        self.runs += 1
        if self._kind == "question":
            deadline = now_ms() + LENGTH_MS
            with pytest.raises(Unanswered):
                await work.ask(ev.Status(question().state, question().message, deadline=deadline))
        else:
            step = work.recorded_step(0, "sleep")
            if step is None:
                step = ev.Stepped(0, "sleep", now_ms() + LENGTH_MS)
                await work.emit(step)
                await work.drain()
            assert isinstance(step.result, int)
            await work.until(never, work.moment(step.result, LENGTH_MS))
        self.ended = work.loop.time()
        return DONE


async def _is_waiting(runner: Desk, feed: Feed, limits: Limits) -> None:
    """Wait until the task is parked, or its executor is in its wait."""
    while not feed.state.over:
        if limits is PARKED and feed.state.parked_until and feed.runner is None:
            return
        if limits is KEPT and feed.runner is not None and feed.runner.waiting:
            return
        await asyncio.sleep(0)


async def _follow(course: Course, kind: str, limits: Limits, clock: SteppedClock) -> tuple[Waiter, Feed]:
    waiter, store, passed_ms = Waiter(kind), Flaky(), 0
    await store.open()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        runner = await stack.enter_async_context(_desk(waiter.act, limits, store))
        feed = await runner.open()
        await _is_waiting(runner, feed, limits)
        for what in (*course, LENGTH_MS):
            if isinstance(what, str):
                await die(runner)
                runner, passed_ms = await stack.enter_async_context(_desk(waiter.act, limits, store)), 0
                found = await runner.tasks.load("t", feed.state.task_id)
                assert found is not None
                feed = found
                # Its timer is set, or its executor waits again.
                await runner._takeover.round()
            elif abs(what) == DAY_MS:
                clock.step(what)
                runner._takeover.call()
            else:
                await _is_waiting(runner, feed, limits)
                clock.move(what)
                passed_ms += what
            if passed_ms >= LENGTH_MS:
                await runner.ended(feed)
            if feed.state.over:
                break
        assert feed.state.over
        return waiter, feed


def _desk(act: Act, limits: Limits, store: Flaky):  # noqa: ANN202 - a context manager
    return desk(act, limits, store, OnCrash.RESUME)


@pytest.mark.parametrize("limits", [PARKED, KEPT], ids=["parked", "kept"])
@pytest.mark.parametrize("kind", ["sleep", "question"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(course=COURSES)
@example(course=[BACK])
@example(course=[3_000, FORTH])
@example(course=[3_000, BACK, RESTART])
@example(course=[BACK, 3_000, FORTH, RESTART, BACK, RESTART])
def test_a_wait_lasts_its_length_whatever_the_clock_is_set_to(
    kind: str, limits: Limits, course: Course
) -> None:
    async def case(clock: SteppedClock) -> None:
        waiter, _ = await _follow(course, kind, limits, clock)
        if RESTART not in course:
            # Not before its time; that it is not later is what the course waits for.
            assert waiter.ended - waiter.began >= LENGTH_MS / 1000

    with pytest.MonkeyPatch.context() as patched:
        run(case(SteppedClock(patched)))
