"""Questions: which answer is taken for which, and what becomes of one that is not answered."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.log.samples import opening, recorded
from tests.run.desk import DONE, WORKING, Act, Desk, answer, delta, desk, reason, run, said, until
from tests.run.pair import die, pair, seen
from tests.run.test_parking import SOON
from tests.stepped_clock import SteppedClock
from trunkline.clock import now_ms
from trunkline.errors import InvalidParams, Unanswered
from trunkline.log import events as ev
from trunkline.log.decide import Emit, decide
from trunkline.log.delegation import RestChild
from trunkline.log.fold import fold
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.questions import bounded
from trunkline.store.records import Dedup
from trunkline.wire.question import question_metadata
from trunkline.wire.types import Message, SendRequest, TaskState

ASKING, COMPLETED = TaskState.INPUT_REQUIRED, TaskState.COMPLETED
# Less than the test may take.
PATIENCE_MS = 20_000
URL = "https://hooks.example/a"


def test_a_question_is_bounded_unless_it_says_so_itself() -> None:
    before = now_ms()
    assert bounded(asked("q"), 0) == asked("q")
    assert bounded(asked("q", deadline=7), 60) == asked("q", deadline=7)
    assert before + 60_000 <= bounded(asked("q"), 60).deadline <= now_ms() + 60_000


def asked(name: str, deadline: int = 0) -> ev.Status:
    """A question of this id."""
    return ev.Status(ASKING, replace(said(f"{name}?"), message_id=name), deadline=deadline)


def answering(name: str, text: str) -> Message:
    """An answer that names its question."""
    return replace(said(text), message_id=f"to-{name}", metadata=question_metadata(name))


async def asks_twice(work: Work) -> Verdict:
    """Gives the first question up as soon as it is asked, and asks another."""
    first = asyncio.ensure_future(work.ask(asked("first")))
    await until(lambda: work.state.state is ASKING or first.done())
    first.cancel()
    given_up = await asyncio.gather(first, return_exceptions=True)
    await work.emit(delta(type(given_up[0]).__name__))
    told = await work.ask(asked("second"))
    await work.emit(delta(f" {told.parts[0].text}"))
    return DONE


async def waits(work: Work) -> Verdict:
    """Asks with a deadline that has passed as soon as it is asked, and again without one."""
    try:
        told = await work.ask(asked("first", deadline=now_ms()))
    except Unanswered:
        told = await work.ask(asked("second"))
    await work.emit(delta(told.parts[0].text))
    return DONE


async def reach_second(runner: Desk, feed: Feed) -> None:
    while reason(feed) != "second?":
        await runner.tasks.move(feed, 5)


@pytest.mark.parametrize("act", [asks_twice, waits])
def test_a_late_answer_to_the_first_question_is_never_taken_for_the_second(act: Act) -> None:
    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await reach_second(runner, feed)
            seq = feed.state.seq
            with pytest.raises(InvalidParams, match="does not ask the question 'first'") as refusal:
                await runner.say(feed, answering("first", "late"))
            assert refusal.value.field == "message.metadata.trunkline.question"
            assert refusal.value.details == {"conflict": "QUESTION_CLOSED"}
            assert (feed.state.state, feed.state.seq) == (ASKING, seq)
            await runner.say(feed, answering("second", "that"))
            assert await runner.ended(feed) is COMPLETED
            assert answer(feed).endswith("that")
            texts = [part.text for message in feed.state.history for part in message.parts]
            assert texts == ["go", "first?", "second?", "that"]

    run(main())


@pytest.mark.parametrize("act", [asks_twice, waits])
def test_a_second_question_is_posted_as_a_change_of_its_own(act: Act) -> None:
    async def main() -> None:
        async with desk(act) as runner:
            target = ev.PushTarget("p", URL, "1.0")
            feed, opened = runner.submit("t", "me", SendRequest(said()), agent=runner.origin, push=target)
            await opened
            await reach_second(runner, feed)
            told = await runner.store.outbox.list(task_id=feed.state.task_id)
            records = {one.seq: one.event for one in await runner.store.log.read("t", feed.state.task_id)}
            states = [records[one.seq] for one in told]
            posted = [one.state.name for one in states if isinstance(one, ev.Status)]
            assert sorted(posted) == ["INPUT_REQUIRED", "INPUT_REQUIRED", "WORKING", "WORKING"]

    run(main())


def test_an_answer_that_was_taken_is_known_when_it_comes_again() -> None:
    async def act(work: Work) -> Verdict:
        await work.ask(asked("first"))
        await work.ask(asked("second"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            dedup = Dedup("key", b"digest", now_ms() + 60_000)
            await runner.say(feed, answering("first", "this"), dedup)
            await reach_second(runner, feed)
            seq = feed.state.seq
            await runner.say(feed, answering("first", "this"), dedup)
            assert feed.state.seq == seq

    run(main())


@pytest.mark.parametrize("act", [asks_twice, waits])
def test_a_run_that_is_resumed_hears_of_its_questions_what_the_first_one_heard(act: Act) -> None:
    async def main() -> None:
        async with pair(act, crash=OnCrash.RESUME) as (here, there):
            feed = await here.open()
            await reach_second(here, feed)
            await die(here)
            other = await seen(there, feed)
            await there.say(other, said("that"))
            assert await there.ended(other) is COMPLETED
            closed = [event for event in await there.log(other) if isinstance(event, ev.QuestionClosed)]
            assert closed == [ev.QuestionClosed(0, withdrawn=act is asks_twice)]
            # The one that was given up ends as a wait that is over, at once.
            assert answer(other) == ("TimeoutError that" if act is asks_twice else "that")

    run(main())


class Hands:
    """The clock of a test, which is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._clock = SteppedClock(monkeypatch)

    def move(self, runner: Desk) -> None:
        """The patience is over, and the node looks for what is due."""
        self._clock.move(PATIENCE_MS)
        runner._takeover.call()


async def patient(work: Work) -> Verdict:
    """Waits for an answer for as long as its patience lasts."""
    with pytest.raises(Unanswered, match="not answered in time"):
        await work.ask(asked("first", deadline=now_ms() + PATIENCE_MS))
    return DONE


async def closed_once(runner: Desk, feed: Feed) -> None:
    assert await runner.ended(feed) is COMPLETED
    events = await runner.log(feed)
    # The question that stood open was not asked again.
    assert sum(isinstance(event, ev.Status) and event.state is ASKING for event in events) == 1
    assert [event for event in events if isinstance(event, ev.QuestionClosed)] == [ev.QuestionClosed(0)]


@pytest.mark.parametrize("crash", list(OnCrash))
def test_a_deadline_outlives_the_process_that_asked(crash: OnCrash, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands(monkeypatch)

    async def main() -> None:
        async with pair(patient, crash=crash) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            assert feed.state.wake_at == feed.state.deadline
            await die(here)
            other = await seen(there, feed)
            hands.move(there)
            await closed_once(there, other)

    run(main())


def test_a_deadline_outlives_a_node_that_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands(monkeypatch)

    async def main() -> None:
        async with pair(patient) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await here.stop()
            other = await seen(there, feed)
            assert (other.state.node, other.state.wake_at) == ("", feed.state.deadline)
            hands.move(there)
            await closed_once(there, other)

    run(main())


def test_question_is_asked_though_the_one_before_was_answered_while_its_run_was_played_again() -> None:
    is_answered, runs = asyncio.Event(), list[Work]()

    async def asks_three(work: Work) -> Verdict:
        await work.ask(asked("first"))
        runs.append(work)
        if len(runs) == 2:
            await is_answered.wait()
        # Others may settle it, so that another node continues the task.
        await work.ask(asked("second"), lambda: False)
        told = await work.ask(asked("third"))
        await work.emit(delta(told.parts[0].text))
        return DONE

    async def main() -> None:
        async with pair(asks_three, crash=OnCrash.RESUME) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await here.say(feed, answering("first", "one"))
            await reach_second(here, feed)
            await die(here)
            other = await seen(there, feed)
            await until(lambda: len(runs) == 2)
            await there.say(other, answering("second", "two"))
            is_answered.set()
            while reason(other) != "third?":
                await there.tasks.move(other, 5)
            await there.say(other, answering("third", "three"))
            assert await there.ended(other) is COMPLETED
            assert answer(other) == "three"

    run(main())


def test_answer_to_an_own_question_is_not_taken_for_that_of_a_child() -> None:
    async def relays(work: Work) -> Message:
        await work.until(lambda: work.state.has_rested("child", 0))
        return await work.ask(asked("of-child"), lambda: False)

    async def asks_beside_its_child(work: Work) -> Verdict:
        told = await asyncio.gather(relays(work), work.ask(asked("own")))
        await work.emit(delta(" ".join([one.parts[0].text or "" for one in told])))
        return DONE

    async def main() -> None:
        async with pair(asks_beside_its_child, crash=OnCrash.RESUME) as (here, there):
            feed = await here.open()
            await here.reach(feed, ASKING)
            await die(here)
            other = await seen(there, feed)
            await there.tasks.change(other, RestChild("child", ASKING, "of-child"))
            # The next run first comes to the question of the child.
            await there.say(other, answering("own", "mine"))
            while reason(other) != "of-child?":
                await there.tasks.move(other, 5)
            await there.say(other, answering("of-child", "theirs"))
            assert await there.ended(other) is COMPLETED
            assert answer(other) == "theirs mine"

    run(main())


def test_a_parked_question_is_closed_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = Hands(monkeypatch)

    async def main() -> None:
        async with desk(patient, SOON, crash=OnCrash.RESUME) as runner:
            feed = await runner.open()
            await runner.reach(feed, ASKING)
            while feed.state.node:
                await runner.tasks.move(feed, 5)
            assert feed.state.parked_until == feed.state.deadline
            await runner.left_all()
            hands.move(runner)
            await closed_once(runner, feed)

    run(main())


def test_an_answer_that_comes_before_the_deadline_is_recorded_wins() -> None:
    state = fold("t", recorded((opening(), asked("first", 5), ev.FollowUp(said("yes")), WORKING)))
    over = (ev.QuestionClosed(0), WORKING)
    assert decide(state, Emit("n1", over)) == (WORKING,)
    # One that nobody waits for any more is closed whatever has come.
    withdrawn = (ev.QuestionClosed(0, withdrawn=True), WORKING)
    assert decide(state, Emit("n1", withdrawn)) == withdrawn
