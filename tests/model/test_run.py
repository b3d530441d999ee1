"""The runner against a model of three lines a rule: callers, a puppet executor, late words, repeats, restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.run.desk import DONE, WORKING, Acts, Desk, Flaky, answer, delta, question, said, until
from tests.sample import at_most
from trunkline.clock import Ids
from trunkline.errors import Duplicate, Refused, TaskNotCancelable, TurnOver
from trunkline.log import events as ev
from trunkline.run.executor import Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.store.records import Dedup
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import TaskState

STEPS = at_most(2_000, 500)
LIMITS = Limits(cancel_s=10, drain_s=0, takeovers=1000)
ENDS = {"complete": "completed", "fail": "failed", "raise": "failed", "garbage": "failed"}


class Puppet:
    """Does what it is told, and does the same again when it is started again."""

    def __init__(self) -> None:
        self.script: list[str] = []
        self.news = asyncio.Event()
        self.work: Work | None = None

    def tell(self, order: str) -> None:
        self.script.append(order)
        self.news.set()

    async def act(self, work: Work) -> Verdict:
        self.work = work
        place = 0
        while True:
            while place == len(self.script):
                self.news.clear()
                await self.news.wait()
            order, place = self.script[place], place + 1
            match order:
                case "delta":
                    await work.emit(delta(f"{place} "))
                case "status":
                    await work.emit(WORKING)
                case "ask":
                    await work.emit(delta((await work.ask(question())).parts[0].text))
                case "raise":
                    raise RuntimeError(order)
                case "garbage":
                    return None  # type: ignore[return-value]
                case _:
                    return DONE if order == "complete" else ev.Status(TaskState.FAILED)


class Known:
    """What the model knows of one task."""

    def __init__(self, feed: Feed, puppet: Puppet) -> None:
        self.feed, self.puppet, self.state, self.text, self.said = feed, puppet, "working", "", 1


class Machine(RuleBasedStateMachine):
    """A few tasks on one runner, which is now and then replaced by another."""

    steps = 0
    loop: asyncio.AbstractEventLoop
    store: Flaky
    ids = Ids()
    puppets: dict[str, Puppet] = {}

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Known] = []
        self.keys: dict[str, str] = {}
        self.prefix = self.ids.new()
        self.runner = self._wait(self._start())

    def _wait(self, work: Any) -> Any:
        Machine.steps += 1
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    async def _start(self) -> Desk:
        async def act(work: Work) -> Verdict:
            return await self.puppets.setdefault(work.state.task_id, Puppet()).act(work)

        runner = Desk(self.store, [HostedAgent("acts", Acts(act))], self.ids, LIMITS)
        runner.store = self.store
        await runner.start()
        return runner

    async def _settle(self, one: Known, state: str) -> None:
        """Until the task is where the model says, and its log and output are what it says."""
        one.state = state
        while plain_state(one.feed.state.state) != state:
            await self.runner.tasks.move(one.feed, 5)
        await until(lambda: not one.feed.state.over or one.feed.runner is None)
        while one.text and (not one.feed.state.task().artifacts or answer(one.feed) != one.text):
            await self.runner.tasks.move(one.feed, 5)
        assert len(one.feed.state.history) >= one.said
        await self.runner.log(one.feed)

    @rule(key=st.sampled_from("klmn"))
    def submit(self, key: str) -> None:
        async def work() -> None:
            dedup = Dedup(f"{self.prefix} {key}", b"", 60_000)
            try:
                feed = await self.runner.open(dedup=dedup)
            except Duplicate as duplicate:
                assert duplicate.task_id == self.keys[key]
                return
            assert key not in self.keys
            self.keys[key] = feed.state.task_id
            one = Known(feed, self.puppets.setdefault(feed.state.task_id, Puppet()))
            self.known.append(one)
            await self._settle(one, "working")

        self._wait(work())

    @precondition(lambda self: any(one.state == "working" for one in self.known))
    @rule(order=st.sampled_from(["delta", "delta", "status", "ask", "ask", *ENDS]), place=st.integers(0, 9))
    def order(self, order: str, place: int) -> None:
        working = [one for one in self.known if one.state == "working"]
        one = working[place % len(working)]
        one.puppet.tell(order)
        if order == "delta":
            one.text += f"{len(one.puppet.script)} "
        self._wait(self._settle(one, {"ask": "input-required", **ENDS}.get(order, "working")))

    @precondition(lambda self: self.known)
    @rule(place=st.integers(0, 9), text=st.sampled_from("xyz"))
    def say(self, place: int, text: str) -> None:
        one = self.known[place % len(self.known)]

        async def work() -> None:
            try:
                await self.runner.say(one.feed, said(text))
            except Refused as told:
                assert one.state in str(told)
                assert one.state not in ("working", "input-required")
                return
            one.said += 1
            if one.state == "input-required":
                one.text += text
            await self._settle(one, "working")

        self._wait(work())

    @precondition(lambda self: self.known)
    @rule(place=st.integers(0, 9))
    def cancel(self, place: int) -> None:
        one = self.known[place % len(self.known)]

        async def work() -> None:
            try:
                await self.runner.cancel(one.feed, "me")
            except TaskNotCancelable as told:
                assert one.feed.state.over
                assert one.state in str(told)
            else:
                await self._settle(one, "canceled")

        self._wait(work())

    @precondition(lambda self: any(one.feed.state.over and one.puppet.work for one in self.known))
    @rule(event=st.sampled_from([delta("late"), DONE, WORKING, question()]))
    def late(self, event: ev.AnyEvent) -> None:
        for one in self.known:
            if one.feed.state.over and one.puppet.work is not None:
                with pytest.raises(TurnOver):
                    one.puppet.work.put(event)
                self._wait(self._settle(one, one.state))

    @rule()
    def restart(self) -> None:
        async def work() -> None:
            await self.runner.stop()
            self.runner = await self._start()
            for one in self.known:
                one.feed = await self.runner.find(one.feed.state.task_id)
                await self._settle(one, "failed" if one.state == "working" else one.state)

        self._wait(work())

    def teardown(self) -> None:
        self._wait(self.runner.stop())


@pytest.mark.sampled
def test_the_runner_agrees_with_the_model() -> None:
    loop = asyncio.new_event_loop()
    Machine.loop, Machine.store, Machine.steps = loop, Flaky(), 0
    loop.run_until_complete(Machine.store.open())
    try:
        while Machine.steps < STEPS:
            run_state_machine_as_test(
                Machine, settings=settings(max_examples=at_most(60, 15), stateful_step_count=40)
            )
    finally:
        loop.run_until_complete(Machine.store.close())
        loop.close()
    print(f"{Machine.steps} steps")
