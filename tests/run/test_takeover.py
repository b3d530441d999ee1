"""Two runners on one store: what one leaves the other takes, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.run.desk import (
    AGENT,
    DONE,
    QUICK,
    Act,
    Acts,
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
    until,
)
from tests.run.pair import ask, die, hang, pair, seen
from tests.run.stores import damage, set_back
from tests.stepped_clock import DAY_MS, SteppedClock
from trunkline.clock import Ids, now_ms
from trunkline.errors import Duplicate, StoreError, TaskNotCancelable, TaskNotFound
from trunkline.log import events as ev
from trunkline.log.decide import Claim
from trunkline.log.delegation import Notify, RestChild
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.run import takeover
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.run.runner import Runner
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup
from trunkline.wire.types import SendRequest, TaskState

ASKING, CANCELED, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.CANCELED, TaskState.COMPLETED
FAILED = TaskState.FAILED
SLOW_DRAIN = Limits(cancel_s=0.2, drain_s=15)


def test_an_answer_given_elsewhere_is_heard_where_the_question_was_asked() -> None:
    async def case() -> None:
        async with pair(ask) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await there.say(await seen(there, feed), said("yes"))
            assert await here.ended(feed) is COMPLETED
            assert answer(feed) == "a yes"
            # The executor that asked went on: nobody else had to begin anew.
            assert not any(isinstance(event, ev.Claimed) for event in await here.log(feed))

    run(case())


def test_a_question_outlives_its_node_whatever_the_skill_wants() -> None:
    async def case() -> None:
        async with pair(ask, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await die(here)
            far = await seen(there, feed)
            await there.say(far, said("yes"))
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "a yes"

    run(case())


def test_an_answer_that_nobody_has_taken_up_is_not_lost() -> None:
    # It comes while the node lives; the node dies before its executor has heard it.
    async def case() -> None:
        async with pair(ask, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            for owner in list(here._owners):
                owner.abandon()
            await there.say(far, said("yes"))
            await die(here)
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "a yes"

    run(case())


@pytest.mark.parametrize("crash", list(OnCrash), ids=lambda crash: crash.value)
def test_a_dead_node_is_taken_over(crash: OnCrash) -> None:
    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await work.emit(delta(" and done"))
        return DONE

    async def case() -> None:
        async with pair(hang, finish, crash) as (here, there):
            feed = await here.open()
            await here.reach(feed, TaskState.WORKING)
            await until(lambda: feed.state.seq >= 3)
            far = await seen(there, feed)
            await die(here)
            state = await there.ended(far)
            claims = [event for event in await there.log(far) if isinstance(event, ev.Claimed)]
            assert claims == [ev.Claimed(there.node)]
            assert there.takeovers == 1
            if crash is OnCrash.FAIL:
                assert state is TaskState.FAILED
                assert "process that ran this task ended" in reason(far)
            else:
                assert state is COMPLETED
                assert answer(far) == "begun and done"

    run(case())


@pytest.mark.parametrize("crash", [OnCrash.RESTART, OnCrash.RESUME], ids=lambda crash: crash.value)
def test_a_task_whose_nodes_die_one_after_the_other_fails(crash: OnCrash) -> None:
    begun: list[Work] = []

    async def deadly(work: Work) -> Verdict:
        begun.append(work)
        return await hang(work)

    async def case() -> None:
        store = Shared()
        await store.open()
        limits = Limits(cancel_s=0.2, drain_s=0.2, takeovers=2)
        async with desk(deadly, limits, store, crash) as first:
            feed = await first.open()
            await until(lambda: feed.state.seq >= 3)
            await die(first)
        for number in (2, 3, 4):
            async with desk(deadly, limits, store, crash) as next_one:
                far = await seen(next_one, feed)
                await until(lambda number=number, far=far: len(begun) == number or far.state.over)
                if far.state.over:
                    break
                await asyncio.sleep(0.01)
                await die(next_one)
        assert (len(begun), far.state.state) == (3, TaskState.FAILED)
        assert "2 times" in reason(far)
        await store.close()

    run(case())


@pytest.mark.parametrize("crash", [OnCrash.RESTART, OnCrash.RESUME], ids=lambda crash: crash.value)
@pytest.mark.parametrize("wake_at", [0, 1 << 50], ids=["log", "moment"])
def test_a_task_that_only_waits_survives_any_number_of_crashes(crash: OnCrash, wake_at: int) -> None:
    async def wait(work: Work) -> Verdict:
        moment = work.moment(wake_at, wake_at) if wake_at else None
        await work.until(lambda: len(work.state.history) > 1, moment)
        return DONE

    async def case() -> None:
        store = Shared()
        await store.open()
        limits = Limits(cancel_s=0.2, drain_s=0.2, takeovers=2)
        async with desk(wait, limits, store, crash) as first:
            feed = await first.open()
            await first.reach(feed, TaskState.WORKING)
            await die(first)
        for _ in range(6):
            async with desk(wait, limits, store, crash) as next_one:
                far = await seen(next_one, feed)
                # The claim is recorded, and behind it that the executor waits.
                while not far.state.over and not far.state.crashes.is_waiting(far.state.seq, now_ms()):
                    await next_one.tasks.move(far, 5)
                assert far.state.state is TaskState.WORKING, reason(far)
                await die(next_one)
        async with desk(wait, limits, store, crash) as last:
            far = await seen(last, feed)
            await until(lambda: far.state.node == last.node)
            await last.say(far, said("go on"))
            assert await last.ended(far) is COMPLETED
        await store.close()

    run(case())


def test_two_that_see_the_same_death_do_not_take_from_each_other() -> None:
    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(hang, store=store) as dead:
            feeds = [await dead.open() for _ in range(50)]
            for feed in feeds:
                await until(lambda feed=feed: feed.state.seq >= 3)
            await die(dead)
            async with desk(hang, store=store) as one, desk(hang, store=store) as two:
                await asyncio.gather(one._takeover.round(), two._takeover.round())
                for feed in feeds:
                    claims = [event for event in await one.log(feed) if isinstance(event, ev.Claimed)]
                    assert len(claims) == 1
                assert one.takeovers + two.takeovers == 50
        await store.close()

    run(case())


def test_a_frozen_owner_finds_its_task_taken() -> None:
    thaw = asyncio.Event()
    late: list[str] = []

    async def freeze(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        try:
            await thaw.wait()
            await work.emit(delta(" too late"))
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            late.append(type(error).__name__)
            raise
        return DONE

    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun again"))
        return DONE

    async def case() -> None:
        async with pair(freeze, finish, OnCrash.RESTART) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            # It lives but is not heard: no hints reach it, and the others think it dead.
            for task in list(here._node._background):
                task.cancel()
            await here.store.nodes.leave(here.node)
            far = await seen(there, feed)
            assert await there.ended(far) is COMPLETED
            thaw.set()
            await here.left_all()
            assert late == ["CancelledError"] or late == ["TurnOver"]
            assert answer(far) == "begun again"
            events = await there.log(far)
            assert len(events) == far.state.seq

    run(case())


def test_a_cancel_of_a_dead_node_s_task_does_not_wait() -> None:
    async def case() -> None:
        async with pair(hang) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            for task in list(there._node._background):
                task.cancel()
            await die(here)
            far = await seen(there, feed)
            try:
                async with asyncio.timeout(60):
                    await there.cancel(far, "me")
            except TaskNotCancelable:
                pytest.fail("nobody else could have ended it")
            assert far.state.state is CANCELED

    run(case())


def test_a_node_that_goes_down_hands_its_tasks_on() -> None:
    async def slow(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await asyncio.get_running_loop().create_future()
        return DONE

    async def finish(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        await work.emit(delta(", done there"))
        return DONE

    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(finish, SLOW_DRAIN, store, OnCrash.RESUME) as there:
            async with desk(slow, SLOW_DRAIN, store, OnCrash.RESUME) as here:
                feed = await here.open()
                await until(lambda: feed.state.seq >= 3)
                far = await seen(there, feed)
            assert await there.ended(far) is COMPLETED
            assert answer(far) == "begun, done there"
            claims = [event for event in await there.log(far) if isinstance(event, ev.Claimed)]
            assert claims == [ev.Claimed(""), ev.Claimed(there.node)]
        await store.close()

    run(case())


class Lossy(Shared):
    """Answers one append with an error; it is written all the same, or not."""

    def __init__(self, event: type[ev.AnyEvent], *, written: bool) -> None:
        super().__init__()
        self.armed = False
        self._event = event
        self._written = written

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        if not self.armed or not any(isinstance(event, self._event) for event in args[3]):
            return super().append(*args, **kwargs)
        self.armed = False
        ack = Ack()
        if self._written:
            super().append(*args, **kwargs).then(lambda _: ack.settle(StoreError("it is not known")))
        else:
            ack.settle(StoreError("the store is away"))
        return ack


async def finish(work: Work) -> Verdict:
    await work.emit(delta("begun"))
    await work.emit(delta(" and done"))
    return DONE


@pytest.mark.parametrize("crash", [OnCrash.FAIL, OnCrash.RESUME], ids=lambda crash: crash.value)
@pytest.mark.parametrize(("event", "written"), [(ev.Claimed, True), (ev.Claimed, False), (ev.Status, False)])
def test_a_takeover_that_is_cut_short_is_finished(
    event: type[ev.AnyEvent], written: bool, crash: OnCrash
) -> None:
    # Claimed by a living node it is nobody's orphan: only that node can go on with it.
    async def case() -> None:
        store = Lossy(event, written=written)
        await store.open()
        async with (
            desk(hang, store=store, crash=crash) as here,
            desk(finish, store=store, crash=crash) as there,
        ):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            far = await seen(there, feed)
            store.armed = True
            await die(here)
            assert await there.ended(far) is (TaskState.FAILED if crash is OnCrash.FAIL else COMPLETED)
            assert not store.armed
            claims = [one for one in await there.log(far) if isinstance(one, ev.Claimed)]
            assert claims == [ev.Claimed(there.node)]
        await store.close()

    run(case())


async def let_go(store: Shared, count: int = 1) -> list[str]:
    """Tasks that a node began and let go when it went down."""
    async with desk(hang, SLOW_DRAIN, store, OnCrash.RESUME) as here:
        feeds = [await here.open() for _ in range(count)]
        for feed in feeds:
            await until(lambda feed=feed: feed.state.seq >= 3)
    return [feed.state.task_id for feed in feeds]


def claims_in(log: Sequence[ev.AnyEvent]) -> list[str]:
    return [event.node for event in log if isinstance(event, ev.Claimed)]


def test_what_was_let_go_is_claimed_before_any_log_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "TOGETHER", 4)
    monkeypatch.setattr(takeover, "SHARED_S", 3600.0)
    order: list[str] = []

    async def finish(work: Work) -> Verdict:
        order.append("begun")
        return DONE

    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(finish, SLOW_DRAIN, store, OnCrash.RESUME) as there:
            ids = await let_go(store, 10)
            append, news = store.log.append, store.log.news

            def appending(tenant: str, task_id: str, expected: int, events: Any, **rest: Any) -> Ack:
                order.extend("claimed" for event in events if event == ev.Claimed(there.node))
                return append(tenant, task_id, expected, events, **rest)

            async def reading(places: Any, limit: int = 2000) -> Any:
                order.append("read")
                return await news(places, limit)

            monkeypatch.setattr(store.log, "append", appending)
            monkeypatch.setattr(store.log, "news", reading)
            await there._takeover.round()
            for task_id in ids:
                far = await there.find(task_id)
                assert await there.ended(far) is COMPLETED
                assert claims_in(await there.log(far)) == ["", there.node]
        await store.close()

    run(case())
    assert order[:11] == ["claimed"] * 10 + ["read"]
    # Those that were read go on while the others are read.
    assert order.index("begun") < len(order) - 1 - order[::-1].index("read")


@pytest.mark.parametrize("how", ["answer lost", "not written", "spoken to", "unread"])
def test_a_task_that_was_let_go_goes_on_whatever_comes_between(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "SHARED_S", 3600.0)

    async def case() -> None:
        store = Lossy(ev.Claimed, written=how == "answer lost")
        await store.open()
        async with desk(finish, SLOW_DRAIN, store, OnCrash.RESUME) as there:
            (task_id,) = await let_go(store)
            if how == "spoken to":
                # Nothing that a list shows changes by it, so the head stays behind the log.
                (released,) = await store.nodes.orphans((AGENT,))
                assert released.released is not None
                await store.append("t", task_id, released.released.seq, (ev.FollowUp(said("so")),), at=0)
            elif how == "unread":
                monkeypatch.setattr(store.log, "news", unread)
            else:
                store.armed = True
            with suppress(StoreError):
                await there._takeover.round()
            monkeypatch.undo()
            await there._takeover.round()
            far = await there.find(task_id)
            assert await there.ended(far) is COMPLETED
            assert claims_in(await there.log(far)) == ["", there.node]
        await store.close()

    async def unread(*_: Any) -> Any:
        raise StoreError("the store is away")

    run(case())


def test_what_was_claimed_and_not_begun_is_let_go_again_by_a_node_that_goes_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "SHARED_S", 3600.0)

    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(finish, SLOW_DRAIN, store, OnCrash.RESUME) as there:
            (task_id,) = await let_go(store)
            news = store.log.news

            async def reading(places: Any, limit: int = 2000) -> Any:
                there.drain()
                return await news(places, limit)

            monkeypatch.setattr(store.log, "news", reading)
            await there._takeover.round()
            far = await there.find(task_id)
            assert claims_in(await there.log(far)) == ["", there.node, ""]
        await store.close()

    run(case())


class Unlucky(Shared):
    """Does something between a claim and whatever follows it."""

    between: Callable[[str, str, int], Ack] | None = None

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        ack = super().append(*args, **kwargs)
        tenant, task_id, expected, events = args
        if self.between is not None and any(isinstance(event, ev.Claimed) for event in events):
            self.between(tenant, task_id, expected + len(events))
        return ack


@pytest.mark.parametrize("how", ["canceled meanwhile", "damaged"])
def test_one_task_that_cannot_be_taken_over_does_not_end_the_takeover(
    how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Nor does it take the place of others on the page that is read.
    monkeypatch.setattr(takeover, "PAGE", 1)

    async def case() -> None:
        store = Unlucky()
        await store.open()
        async with desk(hang, store=store) as here, desk(hang, store=store) as there:
            first, second = await here.open(), await here.open()
            await until(lambda: first.state.seq >= 3 and second.state.seq >= 3)
            if how == "damaged":
                await damage(store, first.state.task_id)
            else:
                end = ev.Status(CANCELED)
                store.between = lambda tenant, task_id, seq: Shared.append(
                    store, tenant, task_id, seq, (end,), at=0, head=None
                )
            await die(here)
            await there._takeover.round()
            store.between = None
            # Another dies later, and the patrol is still there.
            async with desk(hang, store=store) as third:
                feed = await third.open()
                await until(lambda: feed.state.seq >= 3)
                far = await seen(there, feed)
                await die(third)
                assert await there.ended(far) is TaskState.FAILED
        await store.close()

    run(case())
    assert ("task.damaged" in caplog.text) is (how == "damaged")


def test_a_node_that_goes_down_takes_nothing_over() -> None:
    # Its patrol would find what it has just released.
    async def case() -> None:
        store = Shared()
        await store.open()
        async with desk(hang, Limits(cancel_s=0.2, drain_s=0.6), store) as here:
            here.executor.on_crash = lambda skill: OnCrash(skill)  # type: ignore[method-assign]
            here.executor.admit = lambda request: request.message.parts[0].text or ""  # type: ignore[method-assign]
            moving, staying = await here.open("resume"), await here.open("fail")
            await until(lambda: moving.state.seq >= 3 and staying.state.seq >= 3)
        assert staying.state.state is TaskState.FAILED
        claims = [event for event in await here.log(moving) if isinstance(event, ev.Claimed)]
        assert claims == [ev.Claimed("")]
        await store.close()

    run(case())


def test_a_task_that_comes_back_is_not_ended_by_the_run_that_lost_it() -> None:
    runs: list[Work] = []

    async def tidy(work: Work) -> Verdict:
        runs.append(work)
        first = len(runs) == 1
        await work.emit(delta("a"))
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if first:
                # It takes its time, and the task is back before it is done.
                await until(lambda: len(runs) == 2)
        return DONE

    async def case() -> None:
        async with pair(tidy, hang, OnCrash.RESUME) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            far = await seen(there, feed)
            await here.store.nodes.leave(here.node)
            while far.state.node != there.node:
                await there.tasks.move(far, 5)
            await here.store.nodes.join(here.node, ("", AGENT))
            await die(there)
            await until(lambda: len(runs) == 2 and here.running == 1)
            await here.tasks.refresh(feed)
            assert feed.state.node == here.node
            assert not feed.state.over

    run(case())


def test_an_answer_does_not_take_a_task_from_whoever_asks_just_now() -> None:
    asks = asyncio.Event()
    runs: list[Work] = []

    async def act(work: Work) -> Verdict:
        runs.append(work)
        await work.emit(delta("a"))
        await asks.wait()
        await work.emit(delta(f" {(await work.ask(question())).parts[0].text}"))
        return DONE

    async def case() -> None:
        async with pair(act) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            far = await seen(there, feed)
            for task in list(there._node._background):
                task.cancel()
            asks.set()
            await here.reach(feed, ASKING)
            assert not far.state.interrupted
            await there.say(far, said("yes"))
            assert await here.ended(feed) is COMPLETED
            assert answer(feed) == "a yes"
            assert len(runs) == 1

    run(case())


def test_a_task_that_was_forgotten_meanwhile_is_let_go() -> None:
    wakes = asyncio.Event()

    async def freeze(work: Work) -> Verdict:
        await work.emit(delta("a"))
        await wakes.wait()
        await work.emit(delta("b"))
        return DONE

    async def case() -> None:
        async with pair(freeze, finish, OnCrash.RESTART) as (here, there):
            feed = await here.open()
            await until(lambda: feed.state.seq >= 3)
            for task in list(here._node._background):
                task.cancel()
            await here.store.nodes.leave(here.node)
            far = await seen(there, feed)
            assert await there.ended(far) is COMPLETED
            await there.store.maintenance.prune(await there.store.clock.now() + 1000)
            with pytest.raises(TaskNotFound):
                await here.cancel(feed, "me")
            wakes.set()
            await here.left_all()

    run(case())


@asynccontextmanager
async def hosting(store: Flaky, *names: str, hangs: bool = False) -> AsyncIterator[Desk]:
    """A runner that carries these agents, the first at the origin; each writes its own name, or hangs then."""

    def act_as(name: str) -> Act:
        async def act(work: Work) -> Verdict:
            await work.emit(delta(name))
            return await asyncio.get_running_loop().create_future() if hangs else DONE

        return act

    agents = [HostedAgent(name, Acts(act_as(name), OnCrash.RESUME)) for name in names]
    runner = Desk(store, agents, Ids(), QUICK)
    runner.store = store
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()


def test_a_task_whose_agent_is_not_here_is_left_alone_until_it_is_back() -> None:
    async def case() -> None:
        store = Flaky()
        await store.open()
        async with hosting(store, "alpha", hangs=True) as alpha:
            feed = await alpha.open()
            await until(lambda: feed.state.seq >= 3)
            await die(alpha)
        task_id = feed.state.task_id
        async with hosting(store, "beta") as beta:
            await beta._takeover.round()
            assert beta.takeovers == 0 and not beta.running
            with pytest.raises(TaskNotFound):
                await beta.find(task_id)
            own = await beta.open()
            assert await beta.ended(own) is TaskState.COMPLETED
            assert [(one.task_id, one.agent) for one in await store.nodes.waiting()] == [(task_id, "alpha")]
        async with hosting(store, "beta", "alpha") as both:
            found = await both.tasks.find("t", "me", task_id, both.names_of("alpha"))
            assert await both.ended(found) is TaskState.COMPLETED
            assert both.takeovers == 1 and answer(found) == "alpha"
            assert await store.nodes.waiting() == []
        await store.close()

    run(case())


def test_logs_without_an_agent_belong_to_the_origin() -> None:
    async def case() -> None:
        store = Flaky()
        await store.open()
        first = ev.Submitted(said(), "c", "me", "dead")
        task_id = Ids().new()
        state = State(task_id)
        await store.log.append("t", task_id, 0, [first], at=1, head=head_after(state, [first], 1))
        async with hosting(store, "alpha", "beta") as runner:
            feed = await runner.find(task_id)
            assert await runner.ended(feed) is TaskState.COMPLETED
            assert answer(feed) == "alpha"
            with pytest.raises(TaskNotFound):
                await runner.tasks.find("t", "me", task_id, runner.names_of("beta"))
        await store.close()

    run(case())


def test_one_message_to_two_agents_is_two_tasks() -> None:
    async def case() -> None:
        store = Flaky()
        await store.open()
        dedup = Dedup("k", b"d", 60_000)
        async with hosting(store, "alpha", "beta") as runner:
            feeds: list[Feed] = []
            for agent in ("alpha", "beta"):
                feed, ack = runner.submit("t", "me", SendRequest(said()), dedup, agent=agent)
                await ack
                feeds.append(feed)
                with pytest.raises(Duplicate) as told:
                    await runner.submit("t", "me", SendRequest(said()), dedup, agent=agent)[1]
                assert told.value.task_id == feed.state.task_id
            for feed, agent in zip(feeds, ("alpha", "beta"), strict=True):
                assert await runner.ended(feed) is TaskState.COMPLETED
                assert (feed.state.agent, answer(feed)) == (agent, agent)
            with pytest.raises(KeyError, match="gamma"):
                runner.submit("t", "me", SendRequest(said()), agent="gamma")
        await store.close()

    run(case())


def test_orphans_are_read_together_and_begun_when_all_are_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "TOGETHER", 4)
    monkeypatch.setattr(takeover, "SHARED_S", 3600.0)
    order: list[str] = []
    read_whole: list[int] = []

    async def finish(work: Work) -> Verdict:
        order.append("begun")
        return DONE

    async def case() -> None:
        async with pair(hang, finish, OnCrash.RESUME) as (here, there):
            feeds = [await here.open() for _ in range(10)]
            for feed in feeds:
                await until(lambda feed=feed: feed.state.seq >= 3)
            await die(here)
            log, change = there.store.log, there.tasks.change
            read, news = log.read, log.news

            async def reading(tenant: str, task_id: str, after: int = 0, limit: int = 1000) -> Any:
                read_whole.extend([1] * (not after))
                return await read(tenant, task_id, after, limit)

            async def reading_news(places: Any, limit: int = 2000) -> Any:
                if fresh := sum(not place.seq for place in places):
                    read_whole.append(fresh)
                return await news(places, limit)

            async def changing(feed: Feed, command: Any) -> Any:
                order.extend(["claimed"] * isinstance(command, Claim))
                return await change(feed, command)

            monkeypatch.setattr(log, "read", reading)
            monkeypatch.setattr(log, "news", reading_news)
            monkeypatch.setattr(there.tasks, "change", changing)
            there._takeover.call()
            await until(lambda: order.count("begun") == 10)

    run(case())
    assert order == ["claimed"] * 10 + ["begun"] * 10
    # Once each, also those that are played again.
    assert read_whole == [4, 4, 2]


def test_a_damaged_orphan_is_named_once_and_the_others_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def case() -> None:
        async with pair(hang) as (here, there):
            broken, sound = await here.open(), await here.open()
            for feed in (broken, sound):
                await here.reach(feed, TaskState.WORKING)
            await die(here)
            state = broken.state
            rot = [ev.Unread(b'{"kind":"claimed"}')]
            await until(lambda: state.seq == 3)
            await there.store.log.append(broken.tenant, state.task_id, state.seq, rot, at=1)
            for _ in range(3):
                await there._takeover.round()
            assert (await seen(there, sound)).state.state is TaskState.FAILED
            assert not there._takeover._unsure

    run(case())
    assert caplog.text.count("task.damaged") == 1


async def quick(work: Work) -> Verdict:
    return DONE


async def by_hand(runner: Desk, *, times: int = 2) -> None:
    """The looks at our own, as often as it takes."""
    for _ in range(times):
        await runner._takeover.own_round()


def test_a_commit_that_came_after_everybody_gave_it_up_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "OWN_S", 3600.0)

    async def give_up(*_: object) -> None:
        """It looked for the commit for a while, and in vain."""

    monkeypatch.setattr(Runner, "_resolve", give_up)

    class Stalled(Shared):
        """The first commit stalls until it is let go."""

        kept: tuple[tuple[Any, ...], dict[str, Any]] | None = None

        def append(self, *args: Any, **kwargs: Any) -> Ack:
            if self.kept is not None:
                return super().append(*args, **kwargs)
            self.kept = (args, kwargs)
            ack = Ack()
            ack.settle(StoreError("the connection was lost while writing"))
            return ack

    async def main() -> None:
        store = Stalled()
        await store.open()
        async with desk(quick, store=store) as runner:
            with pytest.raises(StoreError):
                await runner.open()
            assert store.kept is not None
            await store.real["append"](*store.kept[0], **store.kept[1])
            feed = await runner.find(store.kept[0][1])
            await by_hand(runner, times=1)
            # It might be on its way to its executor.
            assert feed.state.state is TaskState.SUBMITTED and not runner.running
            await by_hand(runner, times=1)
            assert await runner.ended(feed) is COMPLETED
            assert runner.takeovers == 0
        await store.close()

    run(main())


def test_what_runs_or_rests_is_not_taken_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "OWN_S", 3600.0)
    runs: list[str] = []

    async def act(work: Work) -> Verdict:
        runs.append(work.state.task_id)
        return await (ask if work.state.message.parts[0].text == "ask" else hang)(work)

    async def main() -> None:
        async with desk(act) as runner:
            asking, working = await runner.open("ask"), await runner.open("hang")
            await runner.reach(asking, TaskState.INPUT_REQUIRED)
            await runner.reach(working, TaskState.WORKING)
            await by_hand(runner, times=3)
            assert len(runs) == runner.running == 2

    run(main())


@pytest.mark.parametrize(("crash", "state"), [(OnCrash.FAIL, FAILED), (OnCrash.RESUME, COMPLETED)])
def test_the_owner_of_a_log_that_was_set_back_leaves_and_it_goes_on_from_there(
    crash: OnCrash, state: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "OWN_S", 3600.0)
    go = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await work.emit(delta("one"))
        await work.drain()
        await work.emit(delta(" two"))
        await work.drain()
        await go.wait()
        await work.emit(delta(" three"))
        return DONE

    async def main() -> None:
        async with desk(act, crash=crash) as runner:
            feed = await runner.open()
            await until(lambda: feed.state.seq == 4)
            await set_back(runner.store, feed.state.task_id, 3)
            go.set()
            await runner.left_all()
            fresh = await runner.find(feed.state.task_id)
            assert (fresh is feed, fresh.state.seq) == (False, 3)
            await by_hand(runner)
            assert await runner.ended(fresh) is state
            if state is COMPLETED:
                assert answer(fresh) == "one two three"
            else:
                assert "lost it" in reason(fresh)
            await runner.log(fresh)

    run(main())


@pytest.mark.parametrize("command", [RestChild("child", COMPLETED), Notify(COMPLETED)])
def test_a_task_that_asks_hears_of_work_of_others_though_its_node_died(command: RestChild | Notify) -> None:
    async def parent(work: Work) -> Verdict:
        with suppress(TimeoutError):
            await work.ask(question(), lambda: bool(work.state.ended_children or work.state.notice))
        return DONE

    async def case() -> None:
        async with pair(parent, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            await die(here)
            # Somebody else has answered what is asked.
            await there.tasks.change(far, command)
            assert await there.ended(far) is COMPLETED

    run(case())


def test_a_question_that_others_may_settle_is_looked_at_though_its_node_died() -> None:
    is_settled = False

    async def look() -> int:
        return 10

    async def login(work: Work) -> Verdict:
        with suppress(TimeoutError):
            await work.ask(question(), lambda: is_settled, look)
        return DONE

    async def case() -> None:
        nonlocal is_settled
        async with pair(login, crash=OnCrash.FAIL) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            far = await seen(there, feed)
            await die(here)
            is_settled = True
            assert await there.ended(far) is COMPLETED

    run(case())


def test_clock_of_a_shared_store_counts_whatever_the_clock_of_the_machine_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = SteppedClock(monkeypatch)
    server_ms = now_ms() + 5 * DAY_MS

    async def read() -> int:
        return server_ms

    async def main() -> None:
        async with desk(hang) as runner:
            shared = SimpleNamespace(shared=True, clock=SimpleNamespace(now=read))
            with monkeypatch.context() as patched:
                patched.setattr(runner._takeover, "_store", shared)
                await runner._takeover.read_clock()
                machine.step(-DAY_MS)
                assert 0 <= now_ms() - server_ms < DAY_MS // 24
                machine.move(7_000)
                assert 7_000 <= now_ms() - server_ms < DAY_MS // 24
                runner._takeover.close()
            assert now_ms() < server_ms - 5 * DAY_MS

    run(main())
