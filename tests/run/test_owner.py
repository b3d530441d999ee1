"""Executors that do everything wrong; the task ends in a definite state, with a reason, every time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.run.desk import (
    DONE,
    QUICK,
    WORKING,
    Act,
    Flaky,
    answer,
    delta,
    desk,
    question,
    reason,
    run,
    said,
    until,
)
from trunkline.errors import TurnOver
from trunkline.log import events as ev
from trunkline.log.decide import Cancel
from trunkline.run import buffer, replay
from trunkline.run import owner as owner_module
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.node import Limits
from trunkline.wire.types import Artifact, Message, Part, SendRequest, TaskState

FAILED, CANCELED, COMPLETED = TaskState.FAILED, TaskState.CANCELED, TaskState.COMPLETED


class Odd(BaseException):
    """Not an Exception."""


async def forever() -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom"),
        SystemExit(1),
        Odd("odd"),
        TurnOver("not true"),
        asyncio.CancelledError(),
        BaseExceptionGroup("many", [Odd()]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("dev", [False, True])
def test_an_executor_that_raises_fails_with_a_reason_id(
    error: BaseException, dev: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(work: Work) -> Verdict:
        await work.emit(delta("so far"))
        raise error

    async def main() -> None:
        async with desk(act) as runner:
            runner._node.dev = dev
            feed = await runner.open()
            assert await runner.ended(feed) is FAILED
            assert "Reason id" in reason(feed)
            assert (type(error).__name__ in reason(feed)) is dev
            reason_id = reason(feed).rsplit(" ", 1)[1].rstrip(".")
            assert f"reason={reason_id}" in caplog.text
            assert await runner.log(feed) == [
                feed.records[0].event,
                WORKING,
                delta("so far"),
                feed.records[-1].event,
            ]

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [None, "done", 5, object(), WORKING, question(), ev.Claimed("x"), TaskState.COMPLETED],
    ids=lambda garbage: type(garbage).__name__,
)
def test_an_executor_that_ends_without_a_verdict_fails(garbage: Any) -> None:
    async def act(work: Work) -> Verdict:
        return cast("Verdict", garbage)

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is FAILED
            assert reason(feed) == "The executor ended without a verdict."

    run(main())


def test_the_text_of_an_exception_need_not_be_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    # The test runner could not carry such a line of the log either.
    monkeypatch.setattr(owner_module.log, "disabled", True)

    async def act(work: Work) -> Verdict:
        raise RuntimeError("\ud800")

    async def main() -> None:
        async with desk(act) as runner:
            runner._node.dev = True
            feed = await runner.open()
            assert await runner.ended(feed) is FAILED
            assert "RuntimeError: ?." in reason(feed)

    run(main())


UNWRITABLE = [
    delta("\ud800"),
    ev.Chunk(Artifact("a", metadata={"x": object()})),
    ev.Status(TaskState.WORKING, Message("m", parts=(Part(data=object()),))),
    ev.Status(COMPLETED, Message("m", parts=(Part(text="\udfff"),))),
]


@pytest.mark.parametrize("event", UNWRITABLE, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("how", ["emit", "drain", "verdict", "hang"])
def test_what_cannot_be_written_down_fails_the_task(event: ev.AnyEvent, how: str) -> None:
    async def act(work: Work) -> Verdict:
        if how == "verdict":
            return ev.Replied(Message("m", parts=(Part(text="\ud800"),)))
        await asyncio.sleep(0)
        await work.emit(event)
        for _ in range(200 if how == "drain" else 0):
            await work.emit(delta("x"))
        if how == "hang":
            await forever()
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is FAILED
            assert "Reason id" in reason(feed)
            await runner.left_all()
            await runner.log(feed)

    run(main())


def test_late_emits_are_refused_and_leave_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told: list[str] = []

    async def act(work: Work) -> Verdict:
        work.put(DONE)
        work.put(delta("in the same append"))
        await until(lambda: work.state.over)
        for late in (delta("late"), ev.Status(FAILED), question()):
            try:
                await work.emit(late)
            except TurnOver as over:
                told.append(str(over))
        return ev.Status(FAILED)

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            await runner.left_all()
            assert await runner.log(feed) == [feed.records[0].event, WORKING, DONE]
            assert len(told) == 3

    run(main())


def test_a_background_task_that_goes_on_after_the_end() -> None:
    helpers: list[asyncio.Task[None]] = []

    async def helper(work: Work) -> None:
        while True:
            work.put(delta("x"))
            await asyncio.sleep(0)

    async def act(work: Work) -> Verdict:
        helpers.append(asyncio.get_running_loop().create_task(helper(work)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            with pytest.raises(TurnOver):
                await helpers[0]
            events = await runner.log(feed)
            assert len(events) == feed.state.seq

    run(main())


@pytest.mark.parametrize("emitting", [False, True])
def test_cancel_stops_a_cooperative_executor(emitting: bool) -> None:
    async def act(work: Work) -> Verdict:
        while emitting:
            await work.emit(delta("x"))
            await asyncio.sleep(0)
        return await forever()

    async def main() -> None:
        async with desk(act, Limits(cancel_s=15)) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED
            await runner.left_all()
            events = await runner.log(feed)
            assert events[-1] == ev.Status(CANCELED)
            assert ev.CancelRequested("me") in events

    run(main())


def test_a_caller_is_heard_however_much_the_executor_talks() -> None:
    # One append is in flight at every moment; without precedence a caller's would always come second.
    async def act(work: Work) -> Verdict:
        while len(work.state.history) < 4:
            work.put(delta("x"))
            await asyncio.sleep(0)
        return await forever()

    async def main() -> None:
        async with desk(act, Limits(cancel_s=15)) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            for text in ("one", "two", "three"):
                await runner.say(feed, said(text))
            await runner.cancel(feed, "me")
            assert await runner.ended(feed) is CANCELED
            await runner.log(feed)

    run(main())


def test_an_executor_that_swallows_its_cancel_may_still_finish() -> None:
    async def act(work: Work) -> Verdict:
        try:
            await forever()
        except asyncio.CancelledError:
            await work.emit(delta("cleaned up"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            with pytest.raises(Exception, match="completed"):
                await runner.cancel(feed, "me")
            assert feed.state.state is COMPLETED
            assert answer(feed) == "cleaned up"

    run(main())


def test_an_executor_that_raises_while_it_is_cancelled_is_canceled() -> None:
    async def act(work: Work) -> Verdict:
        try:
            await forever()
        finally:
            raise RuntimeError("in cleanup")

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED

    run(main())


def test_an_executor_that_ignores_its_cancel_is_overruled(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue
        with pytest.raises(TurnOver):
            work.put(delta("late"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED
            assert "task.overruled" in caplog.text
            assert runner.running == 1
            gate.set()
            await runner.left_all()
            await runner.log(feed)

    run(main())


def test_a_cancel_before_the_executor_has_begun() -> None:
    begun: list[Work] = []

    async def act(work: Work) -> Verdict:
        begun.append(work)
        return await forever()

    async def main() -> None:
        async with desk(act) as runner:
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            opened.then(lambda _: next(iter(runner._owners)).stop_with("too early"))
            assert await runner.ended(feed) is FAILED
            assert reason(feed) == "too early"
            assert begun == []

    run(main())


def test_the_stall_guard_minds_silence_not_duration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.run.runner.BEAT_S", 0.01)
    stall = 0.3

    async def act(work: Work) -> Verdict:
        loop = asyncio.get_running_loop()
        if work.state.message.parts[0].text == "talk":
            end = loop.time() + 4 * stall
            while loop.time() < end:
                await work.emit(delta("."))
                await asyncio.sleep(0.01)
            return DONE
        if work.state.message.parts[0].text == "ask":
            await work.ask(question())
            return DONE
        return await forever()

    async def main() -> None:
        async with desk(act, stall_s=stall) as runner:
            talk, ask, hang = [await runner.open(text) for text in ("talk", "ask", "hang")]
            assert await runner.ended(hang) is FAILED
            assert "silent for too long" in reason(hang)
            assert await runner.ended(talk) is COMPLETED
            assert ask.state.state is TaskState.INPUT_REQUIRED
            await runner.say(ask, said("that"))
            assert await runner.ended(ask) is COMPLETED

    run(main())


def test_what_is_said_before_the_first_pause_is_one_append() -> None:
    async def act(work: Work) -> Verdict:
        await work.emit(delta("a"))
        await work.emit(delta("b"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            records = await runner.store.log.read("t", feed.state.task_id)
            assert [one.event for one in records][1:] == [WORKING, delta("a"), delta("b"), DONE]
            assert len({one.at for one in records[1:]}) == 1

    run(main())


def test_a_direct_answer_is_the_only_event() -> None:
    async def act(work: Work) -> Verdict:
        return ev.Replied(said("pong"))

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            assert (await runner.log(feed))[1:] == [ev.Replied(said("pong"))]

    run(main())


def test_a_silent_executor_is_working_after_its_first_pause() -> None:
    async def act(work: Work) -> Verdict:
        return await forever()

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            assert (await runner.log(feed))[1:] == [WORKING]

    run(main())


def test_back_pressure_bounds_what_is_not_durable() -> None:
    most = 0

    async def act(work: Work) -> Verdict:
        nonlocal most
        inner = cast("owner_module.Owner", work)
        for number in range(10_000):
            await work.emit(delta(f"{number} "))
            most = max(most, len(inner._buffer._pending) + len(inner._buffer._in_flight))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            assert feed.state.seq == 10_003
            assert len(feed.records) <= 1_100
            assert answer(feed) == "".join(f"{n} " for n in range(10_000))

    run(main())
    assert most <= 2 * buffer.UNFLUSHED_LIMIT


def test_an_executor_runs_on_when_its_caller_goes_away() -> None:
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await gate.wait()
        await work.ask(question())
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed, _ = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            waiting = asyncio.create_task(runner.tasks.rest(feed, 10))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            gate.set()
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            answering = asyncio.create_task(runner.say(feed, said("that")))
            await asyncio.sleep(0)
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)
            assert await runner.ended(feed) is COMPLETED

    run(main())


def test_one_question_at_a_time() -> None:
    async def act(work: Work) -> Verdict:
        asked = [asyncio.create_task(work.ask(question(text))) for text in ("first", "second")]
        answers = await asyncio.gather(*asked)
        await work.emit(delta("|".join(message.parts[0].text or "" for message in answers)))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            for text in ("first", "second"):
                await runner.reach(feed, TaskState.INPUT_REQUIRED)
                assert reason(feed) == text
                await runner.say(feed, said(f"to {text}"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "to first|to second"

    run(main())


def test_progress_beside_a_question_does_not_close_it() -> None:
    asked = asyncio.Event()

    async def act(work: Work) -> Verdict:
        answering = asyncio.create_task(work.ask(question()))
        await asyncio.sleep(0)
        await work.emit(WORKING)
        await work.emit(delta("meanwhile "))
        asked.set()
        await work.emit(delta((await answering).parts[0].text))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await asked.wait()
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            await runner.say(feed, said("that"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "meanwhile that"

    run(main())


def test_a_question_that_the_executor_gives_up_does_not_eat_the_next_answer() -> None:
    async def act(work: Work) -> Verdict:
        first = asyncio.create_task(work.ask(question("first")))
        await until(lambda: work.state.state is TaskState.INPUT_REQUIRED)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await work.emit(WORKING)
        await work.emit(delta((await work.ask(question("second"))).parts[0].text))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            while reason(feed) != "second":
                await runner.tasks.move(feed, 5)
            await runner.say(feed, said("that"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "that"

    run(main())


@pytest.mark.parametrize("failures", [1, 3])
def test_a_store_that_fails_holds_the_executor_and_loses_nothing(
    failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 0.01)

    async def act(work: Work) -> Verdict:
        cast("Flaky", runner_store[0]).bad_appends = failures
        for number in range(200):
            await work.emit(delta(number))
        await work.ask(question())
        return DONE

    runner_store: list[Flaky] = []

    async def main() -> None:
        async with desk(act) as runner:
            runner_store.append(runner.store)
            feed = await runner.open()
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            assert answer(feed) == "".join(map(str, range(200)))
            await runner.say(feed, said("that"))
            assert await runner.ended(feed) is COMPLETED
            await runner.log(feed)
            assert caplog.text.count("task.unwritten") == failures

    run(main())


@pytest.mark.parametrize("bad_reads", [0, 2])
def test_another_writer_behind_the_feed(bad_reads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 0.01)
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await gate.wait()
        await work.emit(delta("x"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.store.log.append("t", feed.state.task_id, 2, [ev.FollowUp(said("behind"))], at=1)
            runner.store.bad_reads = bad_reads
            gate.set()
            assert await runner.ended(feed) is COMPLETED
            assert (await runner.log(feed))[1:] == [WORKING, ev.FollowUp(said("behind")), delta("x"), DONE]

    run(main())


@pytest.mark.parametrize("news", [ev.Status(FAILED), ev.Claimed("other")], ids=["end", "claim"])
@pytest.mark.parametrize("how", ["emits", "drains", "waits", "asks"])
def test_an_executor_whose_task_was_ended_or_taken_elsewhere_is_stopped(news: ev.AnyEvent, how: str) -> None:
    gate = asyncio.Event()
    ends: list[str] = []

    async def act(work: Work) -> Verdict:
        try:
            await gate.wait()
            for _ in range({"emits": 1, "drains": 100}.get(how, 0)):
                await work.emit(delta("x"))
            if how == "asks":
                await work.ask(question())
            return await forever()
        except (asyncio.CancelledError, TurnOver) as error:
            ends.append(type(error).__name__)
            raise

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.store.log.append("t", feed.state.task_id, 2, [news], at=1)
            gate.set()
            await asyncio.sleep(0)
            if how == "waits":
                await runner.tasks.refresh(feed)
            await runner.left_all()
            assert len(ends) == 1
            assert (await runner.log(feed))[1:] == [WORKING, news]

    run(main())


def test_a_cancel_that_wins_against_a_verdict_in_flight() -> None:
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        await gate.wait()
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            requested = asyncio.create_task(runner.tasks.change(feed, Cancel("me")))
            await asyncio.sleep(0)
            gate.set()
            await requested
            assert await runner.ended(feed) in (COMPLETED, CANCELED)
            await runner.left_all()
            await runner.log(feed)

    run(main())


def test_elapsed_time_is_at_least_a_millisecond() -> None:
    async def act(work: Work) -> Verdict:
        return ev.Status(COMPLETED, metadata={"elapsed": work.elapsed_ms})

    async def main() -> None:
        async with desk(act, QUICK) as runner:
            feed = await runner.open()
            await runner.ended(feed)
            last = (await runner.log(feed))[-1]
            assert isinstance(last, ev.Status)
            assert last.metadata is not None
            assert last.metadata["elapsed"] >= 1

    run(main())


@pytest.mark.parametrize("swallows", [False, True])
def test_an_overruling_that_meets_a_failing_store(swallows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "RETRY_S", 3 * QUICK.cancel_s)
    gate = asyncio.Event()

    async def act(work: Work) -> Verdict:
        while True:
            try:
                await gate.wait()
                return DONE
            except asyncio.CancelledError:
                stores[0].bad_appends = 1
                await work.emit(delta("hard to write"))
                if swallows:
                    return DONE

    stores: list[Flaky] = []

    async def main() -> None:
        async with desk(act) as runner:
            stores.append(runner.store)
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.tasks.change(feed, Cancel("me"))
            assert await runner.ended(feed) is (COMPLETED if swallows else CANCELED)
            gate.set()
            await runner.left_all()
            await runner.log(feed)

    run(main())


class Plan:
    """A function that says the same in each run, whatever happens to it between."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        kinds = ["write", "write", "status", "chunk", "more", "step", "ask", "pause"]
        self.words = [(chance.choice(kinds), chance.randrange(100)) for _ in range(chance.randrange(25))]
        self.done: list[int] = []

    async def act(self, work: Work) -> Verdict:
        place, begun = 0, False
        for kind, number in self.words:
            match kind:
                case "write":
                    await work.emit(ev.Delta("answer", f"{number} ", begun))
                    begun = True
                case "status":
                    await work.emit(ev.Status(TaskState.WORKING, said(f"at {number}")))
                case "chunk" | "more":
                    artifact = Artifact(f"a{number % 2}", parts=(Part(data={"n": number}),))
                    await work.emit(ev.Chunk(artifact, append=kind == "more"))
                case "step":
                    if work.recorded_step(place, kind) is None:
                        self.done.append(place)
                        await work.emit(ev.Stepped(place, kind, number))
                        await work.drain()
                    place += 1
                case "ask":
                    told = await work.ask(question(f"which of {number}?"))
                    await work.emit(ev.Delta("told", told.parts[0].text or ""))
                case _:
                    await asyncio.sleep(0)
        return DONE


async def play(plan: Plan, chance: random.Random | None, crash: OnCrash) -> tuple[Any, list[ev.AnyEvent]]:
    """A task of this plan to its end; with chance, its process goes away now and then."""
    store = Flaky()
    await store.open()
    task_id, left = "", 5 if chance else 0
    while True:
        async with desk(plan.act, replace(QUICK, takeovers=100), store=store, crash=crash) as runner:
            feed = await (runner.find(task_id) if task_id else runner.open())
            task_id = feed.state.task_id
            hops = chance.randrange(12) if chance and left else 1 << 30
            while not feed.state.over and hops:
                hops -= 1
                await asyncio.sleep(0)
                if feed.state.state is TaskState.INPUT_REQUIRED:
                    await runner.say(feed, said(f"answer {len(feed.state.answers)}"))
            if feed.state.over:
                events = await runner.log(feed)
                break
            left -= 1
            for owner in list(runner._owners):
                owner.abandon()
    await store.close()
    task = feed.state.task()
    shown = {one.artifact_id: one.parts for one in task.artifacts}
    return (shown, [message.parts for message in task.history], task.status.state), events


@pytest.mark.parametrize("crash", [OnCrash.RESUME, OnCrash.RESTART], ids=lambda crash: crash.value)
@pytest.mark.parametrize("seed", range(20))
def test_a_task_whose_process_dies_anywhere_ends_as_if_it_had_not(seed: int, crash: OnCrash) -> None:
    print("seed", seed)

    async def main() -> None:
        smooth, expected = await play(Plan(seed), None, crash)
        plan = Plan(seed)
        found, events = await play(plan, random.Random(seed), crash)
        assert found == smooth
        if crash is OnCrash.RESUME:
            assert spoken(events) == spoken(expected)

    run(main())


def spoken(events: list[ev.AnyEvent]) -> list[object]:
    """All that was recorded of the executor's words, in order."""
    told: list[object] = []
    for event in events:
        match event:
            case ev.Delta(text=text):
                told.append(text)
            case ev.Chunk() | ev.Stepped():
                told.append(event)
            case ev.Status(message=message) if message is not None:
                told.append(message.parts)
            case _:
                pass
    return told


def test_a_task_of_a_dead_process_waits_for_its_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(replay, "RETRY_S", 0.01)

    class Away(Flaky):
        """Cannot be read for a while once a task was claimed."""

        def append(self, *args: Any, **kwargs: Any) -> Any:
            self.bad_reads = 3 if isinstance(args[3][0], ev.Claimed) else 0
            return super().append(*args, **kwargs)

    async def act(work: Work) -> Verdict:
        if not work.state.answers:
            await work.ask(question())
        await work.emit(delta(work.state.answers[0].parts[0].text))
        return DONE

    async def main() -> None:
        store = Away()
        await store.open()
        async with desk(act, store=store) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
        async with desk(act, store=store) as runner:
            feed = await runner.find(feed.state.task_id)
            await runner.say(feed, said("that"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed) == "that"
        await store.close()
        assert caplog.text.count("task.unread") == 3

    run(main())


async def cancels_itself(work: Work) -> Verdict:
    asyncio.current_task().cancel()  # type: ignore[union-attr]
    return await forever()


async def is_cancelled_by_its_own_helper(work: Work) -> Verdict:
    main = asyncio.current_task()
    work.loop.call_soon(main.cancel)  # type: ignore[union-attr]
    return await forever()


async def swallows_a_cancel_and_meets_another(work: Work) -> Verdict:
    with contextlib.suppress(asyncio.CancelledError):
        await cancels_itself(work)
    helper = asyncio.create_task(forever())
    await asyncio.sleep(0)
    helper.cancel()
    return await helper


async def swallows_a_cancel_and_cancels_again(work: Work) -> Verdict:
    with contextlib.suppress(asyncio.CancelledError):
        await cancels_itself(work)
    return await cancels_itself(work)


async def cancels_itself_and_returns_nothing(work: Work) -> Verdict:
    asyncio.current_task().cancel()  # type: ignore[union-attr]
    return None  # type: ignore[return-value]


async def raises_generator_exit(work: Work) -> Verdict:
    raise GeneratorExit


async def raises_generator_exit_later(work: Work) -> Verdict:
    await work.emit(delta("so far"))
    await work.drain()
    raise GeneratorExit


@pytest.mark.parametrize(
    "act",
    [
        cancels_itself,
        is_cancelled_by_its_own_helper,
        swallows_a_cancel_and_meets_another,
        swallows_a_cancel_and_cancels_again,
        cancels_itself_and_returns_nothing,
        raises_generator_exit,
        raises_generator_exit_later,
    ],
)
def test_every_way_out_of_an_executor_ends_its_task(act: Act) -> None:
    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            async with asyncio.timeout(60):
                assert await runner.ended(feed) is FAILED
            await runner.left_all()
            assert runner.running == 0

    run(main())


@pytest.mark.parametrize("act", [swallows_a_cancel_and_meets_another, cancels_itself])
def test_a_cancel_of_ones_own_during_a_cancel_is_canceled(act: Act) -> None:
    async def body(work: Work) -> Verdict:
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        return await act(work)

    async def main() -> None:
        async with desk(body) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.WORKING)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED

    run(main())


def test_a_loop_that_ends_without_the_runner_leaves_the_task_to_who_takes_it_over() -> None:
    feeds: list[Any] = []

    async def main() -> None:
        started = desk(lambda _: forever())
        runner = await started.__aenter__()
        feeds.append(await runner.open())
        await runner.reach(feeds[0], TaskState.WORKING)
        feeds.append(runner.store)

    asyncio.run(main())
    asyncio.run(feeds[1].close())
    assert feeds[0].state.state is TaskState.WORKING


def test_a_task_that_ends_as_it_should_is_no_error_and_nothing_of_it_is_late(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def act(work: Work) -> Verdict:
        await work.emit(delta("all of it"))
        return DONE

    async def case() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is COMPLETED
            await until(lambda: not runner.running)
            assert runner.late == 0

    run(case())
    assert [line for line in caplog.messages if line.startswith("task.")] == []


def test_a_run_that_speaks_after_its_task_has_moved_is_late_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    unseen: list[dict[str, Any]] = []

    async def act(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        await work.emit(delta("too late"))
        return DONE

    async def case() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with desk(act) as runner:
            feed = await runner.open()
            await until(lambda: feed.state.seq >= 3)
            await runner.tasks.append(feed, (ev.Claimed("another node"),))
            await until(lambda: not runner.running)
        gc.collect()

    run(case())
    assert [line.split()[0] for line in caplog.messages if line.startswith("task.")] == ["task.late"]
    assert unseen == []


def test_a_coroutine_that_is_closed_is_no_failure_of_its_executor(caplog: pytest.LogCaptureFixture) -> None:
    # As the interpreter does at its end with what still waits.
    async def act(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        return cast("Verdict", await forever())

    async def case() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await until(lambda: feed.state.seq >= 3)
            (owner,) = runner._owners
            cast("Any", owner._task.get_coro()).close()
            assert "task.raised" not in caplog.text
            owner.abandon()

    run(case())


def test_a_run_that_is_cancelled_before_its_first_step_ends_its_task() -> None:
    # Some code of the same process may cancel whatever task it finds; without an owner nobody would say more.
    async def act(work: Work) -> Verdict:
        return DONE

    async def case() -> None:
        async with desk(act) as runner:
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=runner.origin)
            opened.then(lambda _: cast("Any", feed.runner)._task.cancel())
            await opened
            assert await runner.ended(feed) is FAILED
            assert "failed unexpectedly" in reason(feed)

    run(case())
