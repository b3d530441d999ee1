"""Calls hold when children are forgotten, the store is away, a server goes down, or somebody else answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.peer.rig import PARKING, PATIENT, Caller, calling, served
from tests.run.desk import Shared, reason, run, said
from trunkline import Agent, CallFailed, Turn
from trunkline.clock import now_ms
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.wire.types import SendRequest, TaskState

COMPLETED = TaskState.COMPLETED


def text_of(feed: Feed) -> str:
    return feed.state.task().artifacts[0].parts[0].text or ""


def counting(runs: list[str]) -> Agent:
    agent = Agent("counts")

    @agent.skill
    async def count(turn: Turn) -> str:
        """Note that it ran."""
        runs.append(turn.text)
        return f"run {len(runs)}"

    return agent


async def parked(runner: Caller, feed: Feed) -> None:
    while feed.state.wake_at is None or feed.state.node:
        await runner.tasks.move(feed, 5)


@pytest.mark.parametrize("target", ["peer", "counts"])
def test_a_child_that_is_kept_no_longer_is_not_done_again(target: str) -> None:
    runs: list[str] = []

    async def ask_on(turn: Turn) -> str:
        result = await turn.call(target, "hello")
        return f"{result.text}: {await turn.ask('Fine?')}"

    async def main() -> None:
        agent = counting(runs)
        async with served(agent) as app, calling(ask_on, app, agent, limits=PARKING) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            await parked(runner, feed)
            later = now_ms() + 1000
            assert await runner.store.maintenance.prune(later) == 1
            runner.tasks.forget(later)
            await runner.say(feed, said("yes"))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert (text_of(feed), runs) == ("run 1: yes", ["hello"])

    run(main())


def curious() -> Agent:
    agent = Agent("curious")

    @agent.skill
    async def wonder(turn: Turn) -> str:
        """Ask twice."""
        first = await turn.ask("First?")
        return f"{first}, {await turn.ask('Second?')}"

    return agent


async def relay(turn: Turn) -> str:
    return (await turn.call("curious", "hello")).text


def test_a_call_goes_on_where_the_agent_that_it_waits_for_is_not_carried() -> None:
    async def main() -> None:
        store = Shared()
        await store.open()
        async with calling(relay, None, curious(), limits=PARKING, store=store) as first:
            feed = await first.open("hello")
            await first.reach(feed, TaskState.INPUT_REQUIRED)
            await parked(first, feed)
        async with calling(relay, limits=PARKING, store=store) as second:
            feed = await second.find(feed.state.task_id)
            await second.say(feed, said("one"))
            await parked(second, feed)
            assert feed.state.state is TaskState.WORKING, reason(feed)
        async with calling(relay, None, curious(), limits=PARKING, store=store) as third:
            feed = await third.find(feed.state.task_id)
            await third.reach(feed, TaskState.INPUT_REQUIRED)
            await third.say(feed, said("two"))
            assert await third.ended(feed) is COMPLETED, reason(feed)
            assert text_of(feed) == "one, two"
        await store.close()

    run(main())


def asked_in(feed: Feed) -> str:
    return "" if feed.state.question is None else feed.state.question.message_id


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_a_question_that_somebody_else_answers_is_withdrawn(limits: Limits) -> None:
    async def main() -> None:
        async with calling(relay, None, curious(), limits=limits) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            first = asked_in(feed)
            child = await runner.child(feed)
            if limits is PARKING:
                await parked(runner, feed)
            await runner.say(child, said("one"))
            await runner.until_asked(feed, unlike=first)
            await runner.say(child, said("two"))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert text_of(feed) == "one, two"
            closed = [one for one in await runner.log(feed) if isinstance(one, ev.QuestionClosed)]
            assert closed == [ev.QuestionClosed(0, withdrawn=True), ev.QuestionClosed(1, withdrawn=True)]

    run(main())


class Away(Shared):
    """A store that is away whenever something is read for the first time of any other task than one."""

    spared = ""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[Any, ...]] = set()

    async def read(self, *args: Any, **kwargs: Any) -> Any:
        if args[1] != self.spared and args not in self.seen:
            self.seen.add(args)
            raise StoreError("the database is away")
        return await super().read(*args, **kwargs)


def test_a_call_outlasts_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.run.runner.RETRY_S", 0.0)

    async def main() -> None:
        store = Away()
        await store.open()
        async with calling(relay, None, curious(), store=store) as runner:
            feed, opened = runner.submit("t", "me", SendRequest(said("go")), agent=runner.origin)
            store.spared = feed.state.task_id
            await opened
            for text in ("one", "two"):
                await runner.reach(feed, TaskState.INPUT_REQUIRED)
                await runner.say(feed, said(text))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert text_of(feed) == "one, two" and store.seen
        await store.close()

    run(main())


def test_an_answer_reaches_a_child_while_the_server_goes_down() -> None:
    async def main() -> None:
        async with calling(relay, None, curious()) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            first, child = asked_in(feed), await runner.child(feed)
            answered = asyncio.ensure_future(runner.say(feed, said("one")))
            while not feed.state.answers:
                await runner.tasks.move(feed, 5)
            runner.drain()
            await answered
            await runner.until_asked(child, unlike=first)
            assert [one.parts[0].text for one in child.state.history[1:]] == ["First?", "one"]

    run(main())


def test_an_answer_of_the_code_is_never_taken_for_that_to_another_question() -> None:
    seen, go = asyncio.Event(), asyncio.Event()

    async def decide(turn: Turn) -> str:
        try:
            await turn.call("curious", "hello", questions="raise")
        except CallFailed as asked:
            seen.set()
            await go.wait()
            try:
                await turn.call("curious", "to the first", task=asked.result.task_id)
            except CallFailed as late:
                return str(late)
        return "it was taken"

    async def main() -> None:
        async with calling(decide, None, curious()) as runner:
            feed = await runner.open("hello")
            await seen.wait()
            child = await runner.child(feed)
            first = asked_in(child)
            await runner.say(child, said("one"))
            await runner.until_asked(child, unlike=first)
            go.set()
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert "does not ask the question" in text_of(feed)

    run(main())
