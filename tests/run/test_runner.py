"""Claims, races, restarts and the end of the process: one winner each time, and nothing in between."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.run.desk import (
    AGENT,
    DONE,
    LIMIT_S,
    QUICK,
    WORKING,
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
from trunkline.errors import (
    Duplicate,
    Refused,
    StoreError,
    TaskNotCancelable,
    TurnOver,
    Unavailable,
    UnsupportedOperation,
)
from trunkline.log import events as ev
from trunkline.run import runner as runner_module
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup
from trunkline.wire.types import SendRequest, TaskState

FAILED, CANCELED, COMPLETED = TaskState.FAILED, TaskState.CANCELED, TaskState.COMPLETED
ASKING = TaskState.INPUT_REQUIRED


async def forever() -> Any:
    await asyncio.get_running_loop().create_future()


async def quick(work: Work) -> Verdict:
    return DONE


async def hang(work: Work) -> Verdict:
    return await forever()


async def ask(work: Work) -> Verdict:
    """Asks twice, and writes before, between and after."""
    await work.emit(delta("a"))
    first = await work.ask(question("first"))
    await work.emit(delta(f" {first.parts[0].text}"))
    await work.emit(ev.Status(TaskState.WORKING, said("between")))
    second = await work.ask(question("second"))
    await work.emit(delta(f" {second.parts[0].text}"))
    return DONE


def test_a_new_task_is_claimed_by_the_node_that_took_it() -> None:
    async def main() -> None:
        async with desk(quick) as runner:
            feed = await runner.open()
            first = (await runner.log(feed))[0]
            assert isinstance(first, ev.Submitted)
            assert (first.node, first.principal, first.skill) == (runner.node, "me", "act")
            assert first.message.task_id == feed.state.task_id
            assert first.message.context_id == feed.state.context_id
            assert await runner.ended(feed) is COMPLETED

    run(main())


def test_task_that_is_opened_again_after_a_failed_write_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "RETRY_S", 0.001)
    runs = 0

    async def act(work: Work) -> Verdict:
        nonlocal runs
        runs += 1
        # Long enough for the runner to look for the write that failed.
        await asyncio.sleep(0.05)
        return DONE

    async def main() -> None:
        store = Shared()
        await store.open()
        async with desk(act, store=store) as runner:
            store.bad_appends = 1
            with pytest.raises(StoreError):
                await runner.submit("t", "me", SendRequest(said()), agent=AGENT, task_id="run")[1]
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=AGENT, task_id="run")
            await opened
            assert await runner.ended(feed) is COMPLETED
            assert runs == 1
        await store.close()

    run(main())


def test_a_task_that_nobody_admits_is_not_opened() -> None:
    class Picky:
        def admit(self, request: SendRequest) -> str:
            raise UnsupportedOperation("no")

        async def run(self, work: Work) -> Verdict:
            raise AssertionError

    async def main() -> None:
        async with desk(quick) as runner:
            runner.executor = Picky()
            with pytest.raises(UnsupportedOperation):
                runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            assert (await runner.store.log.tail(""))[0] == []

    run(main())


def test_cancel_races_complete_200_rounds() -> None:
    gates: dict[str, asyncio.Event] = {}
    chance = random.Random(7)
    print("seed 7")

    async def act(work: Work) -> Verdict:
        await gates[work.state.message.parts[0].text or ""].wait()
        await work.emit(delta("x"))
        return DONE

    async def main() -> None:
        wins = {COMPLETED: 0, CANCELED: 0}
        async with desk(act, Limits(cancel_s=15)) as runner:
            for number in range(200):
                gate = gates[str(number)] = asyncio.Event()
                feed = await runner.open(str(number))
                await runner.reach(feed, TaskState.WORKING)
                hops = chance.randrange(8)
                canceling = asyncio.create_task(runner.cancel(feed, "me"))
                for _ in range(hops):
                    await asyncio.sleep(0)
                gate.set()
                [told] = await asyncio.gather(canceling, return_exceptions=True)
                end = await runner.ended(feed)
                wins[end] += 1
                if end is CANCELED:
                    assert told is None
                else:
                    assert isinstance(told, TaskNotCancelable)
                    assert "completed" in str(told)
                await runner.log(feed)
            await runner.left_all()
        assert min(wins.values()) > 0, wins

    run(main())


def test_double_cancel_is_one_cancel() -> None:
    async def main() -> None:
        async with desk(hang) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await asyncio.gather(*(runner.cancel(feed, f"caller {n}") for n in range(10)))
            events = await runner.log(feed)
            assert len([event for event in events if isinstance(event, ev.CancelRequested)]) == 1
            with pytest.raises(TaskNotCancelable, match="canceled"):
                await runner.cancel(feed, "late")

    run(main())


def test_cancel_of_a_task_that_nobody_runs() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(ask, store=store) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
        first = ev.Submitted(said(), "c", "me", "somewhere else")
        async with desk(quick, store=store) as runner:
            waiting = await runner.find(feed.state.task_id)
            await runner.cancel(waiting, "me")
            assert (await runner.log(waiting))[-2:] == [ev.CancelRequested("me"), ev.Status(CANCELED)]
            await store.log.append("t", "elsewhere", 0, [first], at=1)
            working = await runner.find("elsewhere")
            await runner.cancel(working, "me")
            assert await runner.log(working) == [first, ev.CancelRequested("me"), ev.Status(CANCELED)]
        await store.close()

    run(main())


@pytest.mark.parametrize("hops", range(8))
def test_answer_races_cancel(hops: int) -> None:
    async def main() -> None:
        async with desk(ask, Limits(cancel_s=15)) as runner:
            for cancel_first in (False, True):
                feed = await runner.open()
                await runner.reach(feed, ASKING)
                pair = [lambda f=feed: runner.say(f, said("yes")), lambda f=feed: runner.cancel(f, "me")]
                started = [asyncio.create_task(pair[cancel_first]())]
                for _ in range(hops):
                    await asyncio.sleep(0)
                started.append(asyncio.create_task(pair[not cancel_first]()))
                told = await asyncio.gather(*started, return_exceptions=True)
                assert await runner.ended(feed) is CANCELED
                answered, canceled = told[::-1] if cancel_first else told
                assert canceled is None
                assert answered is None or isinstance(answered, UnsupportedOperation)
                assert (ev.FollowUp in map(type, await runner.log(feed))) is (answered is None)

    run(main())


@pytest.mark.parametrize("restarted", [False, True])
def test_two_answers_race(restarted: bool) -> None:
    runs: list[str] = []

    async def act(work: Work) -> Verdict:
        runs.append(work.state.task_id)
        first = await work.ask(question())
        await work.emit(delta(first.parts[0].text))
        return DONE

    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            task_id = feed.state.task_id
            if not restarted:
                await _two_answers(runner, feed)
        if restarted:
            async with desk(act, store=store) as runner:
                await _two_answers(runner, await runner.find(task_id))
        await store.close()
        assert len(runs) == 1 + restarted

    async def _two_answers(runner: Any, feed: Feed) -> None:
        told = await asyncio.gather(*(runner.say(feed, said(t)) for t in "xy"), return_exceptions=True)
        assert all(one is None or isinstance(one, Refused) for one in told)
        assert await runner.ended(feed) is COMPLETED
        assert len(feed.state.answers) == 1
        assert answer(feed) == feed.state.answers[0].parts[0].text
        await runner.log(feed)

    run(main())


def test_several_questions_survive_restarts_without_doubled_output() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(ask, store=store) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            task_id, node = feed.state.task_id, runner.node
        async with desk(ask, store=store) as runner:
            feed = await runner.find(task_id)
            assert (feed.state.state, feed.state.node, reason(feed)) == (ASKING, node, "first")
            await runner.say(feed, said("one"))
            while reason(feed) != "second":
                await runner.tasks.move(feed, LIMIT_S)
            assert feed.state.node == runner.node
        async with desk(ask, store=store) as runner:
            feed = await runner.find(task_id)
            await runner.say(feed, said("two"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "a one two"
            events = await runner.log(feed)
            assert [event.text for event in events if isinstance(event, ev.Delta)] == ["a", " one", " two"]
            assert [type(event).__name__ for event in events] == [
                "Submitted", "Status", "Delta", "Status",
                "Claimed", "FollowUp", "Status", "AnswerRead", "Delta", "Status", "Status",
                "Claimed", "FollowUp", "Status", "AnswerRead", "Delta", "Status",
            ]  # fmt: skip
        await store.close()

    run(main())


def test_what_a_dead_node_left_is_ended_with_a_reason() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        dead = ev.Submitted(said(), "c", "me", "dead")
        for number in range(250):
            more = (WORKING, delta("x")) if number % 2 else ()
            await store.log.append(
                "t", f"run{number:03}", 0, [dead, *more], at=1, head=_head(f"run{number:03}", (dead, *more))
            )
        stopping = (dead, WORKING, ev.CancelRequested("me"))
        await store.log.append("t", "stopping", 0, stopping, at=1, head=_head("stopping", stopping))
        waiting = (dead, WORKING, question())
        await store.log.append("t", "waiting", 0, waiting, at=1, head=_head("waiting", waiting))
        async with desk(quick, store=store) as runner:
            for number in range(250):
                feed = await runner.find(f"run{number:03}")
                assert await runner.ended(feed) is FAILED
                assert reason(feed) == "The process that ran this task ended before the task did."
                assert feed.state.node == runner.node
                await runner.log(feed)
            assert await runner.ended(await runner.find("stopping")) is CANCELED
            assert await runner.log(await runner.find("waiting")) == list(waiting)
        await store.close()

    run(main())


def test_an_orphan_without_a_log_does_not_hold_up_the_start() -> None:
    class Haunted(Flaky):
        async def orphans(self, limit: int = 100) -> Any:
            from trunkline.store.records import Orphan

            return [Orphan("t", "ghost", "dead")]

    async def main() -> None:
        store = Haunted()
        await store.open()
        async with desk(quick, store=store) as runner:
            assert await runner.ended(await runner.open()) is COMPLETED
        await store.close()

    run(main())


def test_a_send_that_cannot_be_stored_opens_no_task() -> None:
    async def main() -> None:
        async with desk(quick) as runner:
            runner.store.bad_appends = 2
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            with pytest.raises(StoreError, match="full"):
                await runner.tasks.rest(feed, LIMIT_S)
            with pytest.raises(StoreError, match="full"):
                await opened
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            with pytest.raises(StoreError, match="full"):
                await opened
            assert (await runner.store.log.tail(""))[0] == []
            assert runner.running == 0
            assert await runner.ended(await runner.open()) is COMPLETED

    run(main())


def test_an_answer_that_cannot_be_stored_leaves_the_question_open() -> None:
    async def main() -> None:
        async with desk(ask) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            runner.store.bad_appends = 1
            with pytest.raises(StoreError):
                await runner.say(feed, said("lost"))
            assert feed.state.state is ASKING
            await runner.say(feed, said("one"))
            await runner.reach(feed, ASKING)
            await runner.say(feed, said("two"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "a one two"

    run(main())


def test_a_conversation_that_cannot_be_read_fails_the_task() -> None:
    async def act(work: Work) -> Verdict:
        await work.emit(delta(len(work.earlier)))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            assert await runner.ended(await runner.open(context_id="c")) is COMPLETED
            runner.store.bad_reads = 1
            feed = await runner.open(context_id="c")
            assert await runner.ended(feed) is FAILED
            assert "Reason id" in reason(feed)
            third = await runner.open(context_id="c")
            assert await runner.ended(third) is COMPLETED
            assert answer(third) == "4"

    run(main())


def test_stop_leaves_questions_open_and_fails_what_runs() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        async with desk(ask, store=store) as runner:
            waiting = await runner.open()
            await runner.reach(waiting, ASKING)
            runner.executor = type(runner.executor)(hang)
            hanging = await runner.open()
            await runner.reach(hanging, TaskState.WORKING)
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < QUICK.drain_s + QUICK.cancel_s + 2
        assert waiting.state.state is ASKING
        assert hanging.state.state is FAILED
        assert reason(hanging) == "The server was stopped before the task ended."
        assert runner.running == 0
        with pytest.raises(Unavailable, match="going down"):
            runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
        with pytest.raises(Unavailable, match="going down"):
            await runner.say(waiting, said("too late"))
        assert await store.nodes.orphans(("", AGENT)) == []
        await store.close()

    run(main())


def test_stop_waits_for_what_will_end_by_itself() -> None:
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await gate.wait()
        return DONE

    async def main() -> None:
        async with desk(act, Limits(drain_s=15)) as runner:
            feed = await runner.open()
            asyncio.get_running_loop().call_later(0.05, gate.set)
        assert feed.state.state is COMPLETED

    run(main())


def test_stop_while_a_task_is_being_opened() -> None:
    async def main() -> None:
        async with desk(hang) as runner:
            feed, _ = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
        assert feed.state.state is FAILED
        assert runner.running == 0

    run(main())


def test_stop_while_an_answer_is_on_its_way() -> None:
    async def main() -> None:
        async with desk(ask) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            answering = asyncio.create_task(runner.say(feed, said("one")))
            await asyncio.sleep(0)
        await answering
        assert feed.state.state is ASKING
        assert reason(feed) == "second"

    run(main())


def test_an_abandoned_executor_cannot_close_its_question() -> None:
    told: list[str] = []

    async def act(work: Work) -> Verdict:
        try:
            await work.ask(question())
        except asyncio.CancelledError:
            for event in (WORKING, delta("bye")):
                try:
                    await work.emit(event)
                except TurnOver as over:
                    told.append(str(over))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
        assert feed.state.state is ASKING
        assert len(told) == 2

    run(main())


def test_stop_does_not_wait_for_an_executor_that_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.run.runner.UNWIND_S", 0.05)
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        return DONE

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            started = loop.time()
        assert loop.time() - started < 30
        assert feed.state.state is FAILED
        gate.set()
        await runner.left_all()

    run(main())


def test_stop_survives_a_store_that_does_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with desk(quick) as runner:
            await runner.store.close()
        assert "node.unsaid" in caplog.text

    run(main())


def test_the_watch_goes_on_when_the_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trunkline.run.runner.BEAT_S", 0.001)
    beats: list[str] = []

    class Deaf(Flaky):
        async def beat(self, node: str) -> None:
            beats.append(node)
            raise StoreError("deaf")

    async def main() -> None:
        store = Deaf()
        await store.open()
        async with desk(quick, store=store):
            await until(lambda: len(beats) >= 3)
        await store.close()

    run(main())
    assert "node.silent" in caplog.text


def test_a_background_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise RuntimeError("in the background")

    async def main() -> None:
        async with desk(quick) as runner:
            runner._node.spawn(broken())
            await until(lambda: "background.failed" in caplog.text)

    run(main())


def _ids() -> Any:
    from trunkline.clock import Ids

    return Ids()


def _head(task_id: str, events: tuple[ev.AnyEvent, ...]) -> Any:
    from trunkline.log.fold import State
    from trunkline.log.head import head_after

    return head_after(State(task_id), events, 1)


def test_a_task_that_is_stored_after_its_caller_was_refused_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "RETRY_S", 0.01)

    class Slow(Shared):
        """Says that a write failed, and does it later: what a database may do when its connection is lost."""

        kept: tuple[tuple[Any, ...], dict[str, Any]] | None = None

        def append(self, *args: Any, **kwargs: Any) -> Ack:
            if self.kept is not None:
                return super().append(*args, **kwargs)
            self.kept = (args, kwargs)
            asyncio.get_running_loop().call_later(0.1, self._do)
            ack = Ack()
            ack.settle(StoreError("the connection was lost while writing"))
            return ack

        def _do(self) -> None:
            assert self.kept is not None
            self.real["append"](*self.kept[0], **self.kept[1])

    async def main() -> None:
        store = Slow()
        await store.open()
        async with desk(quick, store=store) as runner:
            with pytest.raises(StoreError):
                await runner.open()
            assert store.kept is not None
            task_id = store.kept[0][1]
            while (head := await store.heads.get("t", task_id)) is None or head.state is not COMPLETED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert head.node == runner.node
        await store.close()

    run(main())


def test_a_decision_is_recorded_with_the_task_that_it_opens() -> None:
    async def main() -> None:
        async with desk(quick) as runner:
            why = ev.Routed("drawn", AGENT, skill="act", candidates=(ev.Candidate(AGENT, 1.0),))
            feed, opened = runner.submit("t", "me", SendRequest(said("go")), agent=AGENT, routed=why)
            assert await opened == 2
            assert await runner.ended(feed) is COMPLETED
            assert (await runner.log(feed))[1] == why

    run(main())


def test_what_was_refused_is_born_rejected_and_run_by_nobody() -> None:
    async def main() -> None:
        async with desk(hang) as runner:
            why = ev.Routed("There is no agent 'typo' here.", refusal="unknown_target", skill="act")
            feed, opened = runner.submit("t", "me", SendRequest(said("go")), agent="hub", routed=why)
            assert await opened == 3
            assert (feed.state.state, feed.state.skill) == (TaskState.REJECTED, "act")
            assert (feed.state.agent, reason(feed), runner.running) == ("hub", why.reason, 0)
            head = await runner.tasks.store.heads.get("t", feed.state.task_id)
            assert head is not None and head.state is TaskState.REJECTED

    run(main())


def test_what_was_routed_is_known_again_whoever_was_chosen() -> None:
    async def main() -> None:
        async with desk(quick) as runner:
            key = Dedup("one", b"d", 60_000)
            for refusal, agent in (("", AGENT), ("no_skill", "hub")):
                why = ev.Routed("because", refusal=refusal)
                _, opened = runner.submit("t", "me", SendRequest(said("go")), key, agent=agent, routed=why)
                if refusal:
                    with pytest.raises(Duplicate):
                        await opened
                else:
                    await opened

    run(main())


def test_orderly_stops_are_no_crashes_of_what_was_at_work() -> None:
    async def main() -> None:
        store = Flaky()
        await store.open()
        limits = Limits(cancel_s=0.2, drain_s=0.05, takeovers=2)
        async with desk(hang, limits, store, OnCrash.RESUME) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
        for _ in range(4):
            async with desk(hang, limits, store, OnCrash.RESUME) as runner:
                feed = await runner.find(feed.state.task_id)
                await until(lambda feed=feed: feed.runner is not None)
                assert (feed.state.state, feed.state.crashes.takeovers) == (TaskState.WORKING, 0)
        await store.close()

    run(main())
