"""Parked tasks on two nodes against a model: time, answers, cancels and deaths, and always one winner."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.run.desk import (
    DONE,
    Acts,
    Desk,
    Shared,
    answer,
    appended,
    child_rest,
    delta,
    is_end,
    question,
    said,
    sleep_until,
    until,
)
from tests.run.pair import die
from trunkline.clock import Ids, now_ms
from trunkline.errors import Refused, TaskNotCancelable, UnsupportedOperation
from trunkline.log import events as ev
from trunkline.log.delegation import RestChild
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.wire.types import TaskState

STEPS = 400
# Its nodes die more often in a row than a task outlives by default.
LIMITS = Limits(cancel_s=5, drain_s=0, park_after_s=0.002, takeovers=1000)
CHILD = "a-child"
SLEEP_MS = 30


class Script:
    """What one task does, over all of its runs: orders are added while it waits at the end of the list."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    async def act(self, work: Work) -> Verdict:
        place = 0
        while True:
            if place == len(self.orders):
                # Said to it by the model whenever there is a new order.
                await appended(work)
                continue
            order, place = self.orders[place], place + 1
            match order:
                case "delta":
                    await work.emit(delta(f"{place} "))
                case "ask":
                    await work.emit(delta((await work.ask(question())).parts[0].text))
                case "sleep":
                    await self._sleep(work, place)
                case "child":
                    await child_rest(work, CHILD)
                case _:
                    return DONE

    async def _sleep(self, work: Work, place: int) -> None:
        stepped = work.recorded_step(place, "sleep")
        if stepped is None:
            await work.emit(ev.Stepped(place, "sleep", now_ms() + SLEEP_MS))
            await work.drain()
            moment = now_ms() + SLEEP_MS
        else:
            assert isinstance(stepped.result, int)
            moment = stepped.result
        await sleep_until(work, moment)


class Known:
    """What the model knows of one task."""

    def __init__(self, task_id: str, script: Script) -> None:
        self.task_id, self.script, self.text, self.state = task_id, script, "", "working"


class Machine(RuleBasedStateMachine):
    """A few tasks on two nodes of one store, either of which dies now and then."""

    steps = 0
    loop: asyncio.AbstractEventLoop
    store: Shared
    ids = Ids()
    scripts: dict[str, Script] = {}

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Known] = []
        self.nodes = [self._wait(self._start()) for _ in range(2)]

    def _wait(self, work: Any) -> Any:
        Machine.steps += 1
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    async def _start(self) -> Desk:
        async def act(work: Work) -> Verdict:
            return await self.scripts.setdefault(work.state.task_id, Script()).act(work)

        agent = HostedAgent("acts", Acts(act, OnCrash.RESUME))
        runner = Desk(self.store, [agent], self.ids, LIMITS)
        runner.store = self.store
        await runner.start()
        return runner

    async def _feed(self, one: Known, node: int = 0) -> tuple[Desk, Feed]:
        runner = self.nodes[node]
        return runner, await runner.find(one.task_id)

    async def _settle(self, one: Known) -> None:
        """Until every node sees the task where the model has it."""
        for node in range(2):
            runner, feed = await self._feed(one, node)
            while not self._is_there(one, feed):
                await runner.tasks.move(feed, 5)
        await self._check(one)

    def _is_there(self, one: Known, feed: Feed) -> bool:
        state = feed.state
        written = answer(feed) if state.task().artifacts else ""
        asking = state.interrupted and one.state == "asking"
        return written == one.text and (
            asking or (one.state == "working" and not state.resting) or (one.state == "over" and state.over)
        )

    async def _check(self, one: Known) -> None:
        runner, feed = await self._feed(one)
        events = await runner.log(feed)
        owned = True
        for event in events[1:]:
            match event:
                case ev.Claimed(node=node):
                    # Two that see the same task due: one claim, and nothing by anybody in between.
                    owned = bool(node)
                case ev.Parked():
                    assert owned, events
                    owned = False
                case ev.Stepped() | ev.Delta() | ev.AnswerRead():
                    assert owned, events
                case _:
                    pass
        assert sum(map(is_end, events)) == (one.state == "over")

    @rule()
    def submit(self) -> None:
        async def work() -> None:
            runner = self.nodes[len(self.known) % 2]
            feed = await runner.open()
            one = Known(feed.state.task_id, self.scripts.setdefault(feed.state.task_id, Script()))
            self.known.append(one)
            await self._settle(one)

        self._wait(work())

    async def _was_answered(self, runner: Desk, feed: Feed) -> bool:
        """Whether what was said last came when the task asked something."""
        events = await runner.log(feed)
        last = max(place for place, event in enumerate(events) if isinstance(event, ev.FollowUp))
        before = [event.state for event in events[:last] if isinstance(event, ev.Status)]
        return before[-1] is TaskState.INPUT_REQUIRED

    def _pick(self, place: int, state: str) -> Known | None:
        """Return a task in this state, if there is one."""
        # Races decide which tasks are in a state, so no precondition may ask: Hypothesis would draw other values
        # when it repeats a case.
        found = [one for one in self.known if one.state == state]
        return found[place % len(found)] if found else None

    @rule(
        order=st.sampled_from(["delta", "ask", "ask", "sleep", "sleep", "child", "end"]),
        place=st.integers(0, 9),
        node=st.integers(0, 1),
    )
    def order(self, order: str, place: int, node: int) -> None:
        if (one := self._pick(place, "working")) is None:
            return
        one.script.orders.append(order)
        if order == "delta":
            one.text += f"{len(one.script.orders)} "
        one.state = {"ask": "asking", "end": "over"}.get(order, "working")

        async def work() -> None:
            runner, feed = await self._feed(one, node)
            try:
                await runner.say(feed, said("look"))
            except UnsupportedOperation:
                # A run that was just taken over has read its order before it was told to look.
                assert order == "end"
            if order == "ask" and await self._was_answered(runner, feed):
                # So has this one: then its question was there, and that was the answer.
                one.text, one.state = one.text + "look", "working"
            if order == "child":
                await runner.tasks.change(feed, RestChild(CHILD, TaskState.COMPLETED))
                runner._takeover.call()
            await self._settle(one)

        self._wait(work())

    @rule(text=st.sampled_from("xyz"), place=st.integers(0, 9), node=st.integers(0, 1))
    def answer(self, text: str, place: int, node: int) -> None:
        if (one := self._pick(place, "asking")) is None:
            return
        one.text, one.state = one.text + text, "working"

        async def work() -> None:
            runner, feed = await self._feed(one, node)
            await runner.say(feed, said(text))
            await self._settle(one)

        self._wait(work())

    @precondition(lambda self: self.known)
    @rule(place=st.integers(0, 9), both=st.booleans())
    def cancel(self, place: int, both: bool) -> None:
        one = self.known[place % len(self.known)]

        async def work() -> None:
            async def at(node: int) -> str:
                runner, feed = await self._feed(one, node)
                try:
                    await runner.cancel(feed, "me")
                    return "canceled"
                except TaskNotCancelable:
                    return "over"

            said_by = await asyncio.gather(*(at(node) for node in range(1 + both)))
            assert ("canceled" in said_by) == (one.state != "over")
            one.state = "over"
            _, feed = await self._feed(one)
            one.text = answer(feed) if feed.state.task().artifacts else ""
            await self._settle(one)

        self._wait(work())

    @rule(place=st.integers(0, 9), node=st.integers(0, 1))
    def answer_and_cancel(self, place: int, node: int) -> None:
        if (one := self._pick(place, "asking")) is None:
            return

        async def work() -> None:
            runner, feed = await self._feed(one, node)
            other, far = await self._feed(one, 1 - node)
            outcomes = await asyncio.gather(
                runner.say(feed, said("w")), other.cancel(far, "me"), return_exceptions=True
            )
            for outcome in outcomes:
                assert outcome is None or isinstance(outcome, Refused), outcome
            one.state = "over"
            await other.ended(far)
            one.text = answer(far) if far.state.task().artifacts else ""
            await self._settle(one)

        self._wait(work())

    @rule(node=st.integers(0, 1), hard=st.booleans())
    def replace(self, node: int, hard: bool) -> None:
        async def work() -> None:
            gone = self.nodes[node]
            await (die(gone) if hard else gone.stop())
            await until(lambda: not gone.running)
            self.nodes[node] = await self._start()
            for one in self.known:
                await self._settle(one)

        self._wait(work())

    def teardown(self) -> None:
        for runner in self.nodes:
            self._wait(runner.stop())


def test_parked_tasks_agree_with_the_model() -> None:
    loop = asyncio.new_event_loop()
    Machine.loop, Machine.store, Machine.steps = loop, Shared(), 0
    loop.run_until_complete(Machine.store.open())
    try:
        while Machine.steps < STEPS:
            run_state_machine_as_test(
                Machine, settings=settings(max_examples=12, stateful_step_count=25, deadline=None)
            )
    finally:
        loop.run_until_complete(Machine.store.close())
        loop.close()
    print(f"{Machine.steps} steps")
