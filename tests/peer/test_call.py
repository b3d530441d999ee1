"""A skill calls another agent: near or remote, with words, data, failures, limits and cancels."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.client.agents import COMPLETED as DONE
from tests.client.agents import (
    WORKING,
    Error,
    Frames,
    Lost,
    Stand,
    card,
    chunk,
    deduplicating,
    message,
    status,
    stored,
    task,
)
from tests.peer.rig import CALLER, PARKING, PATIENT, calling, remote_id, served
from tests.run.desk import reason, run, said
from trunkline import Agent, CallFailed, Turn
from trunkline.errors import InvalidParams, Misuse
from trunkline.log import events as ev
from trunkline.peer.remote import correlation_of
from trunkline.run.executor import Verdict, Work
from trunkline.run.node import Limits
from trunkline.wire.question import read_question
from trunkline.wire.types import Correlation, Message, Part, Role, SendRequest, TaskState

COMPLETED, FAILED, CANCELED = TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED


async def forward(turn: Turn) -> object:
    result = await turn.call("peer", turn.text)
    return {"text": result.text, "data": result.data}


def writer() -> Agent:
    agent = Agent("writer")

    @agent.skill
    async def write(turn: Turn) -> None:
        """Write some words, then a table."""
        await turn.status("thinking")
        for word in ("one ", "two ", "three"):
            await turn.write(word)
        await turn.artifact(data={"n": 3}, name="table")

    return agent


def is_call(event: Any) -> bool:
    return isinstance(event, ev.Stepped) and event.name == "call"


def answer_of(feed: Any) -> Any:
    return feed.state.task().artifacts[-1].parts[0].data


@pytest.mark.parametrize("limits", [PATIENT, PARKING])
def test_question_that_a_near_agent_asks_again_after_another_one_is_asked_again(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def alternate(work: Work) -> Verdict:
        """Ask about a, then about b without an answer, then about a again, as a resumed skill may."""
        for place, name in enumerate("aba"):
            asked = Message(f"{work.state.task_id}:{name}", role=Role.AGENT, parts=(Part(text=name),))
            count = len(work.state.answers)
            work.put(ev.Status(TaskState.INPUT_REQUIRED, asked))
            if place:
                await work.until(lambda count=count: len(work.state.answers) > count, parks=False)
            else:
                await goes_on.wait()
        return ev.Status(COMPLETED)

    async def near(turn: Turn) -> str:
        return (await turn.call("writer", turn.text)).text or "done"

    async def main() -> None:
        async with calling(near, None, writer(), limits=limits) as runner:
            monkeypatch.setattr(runner.agent("writer").executor, "run", alternate)
            feed = await runner.open("hello")
            for text in "aba":
                while reason(feed) != text:
                    await runner.tasks.move(feed, 5)
                if goes_on.is_set():
                    await runner.say(feed, said(f"to {text}"))
                goes_on.set()
            assert await runner.ended(feed) is COMPLETED

    run(main())


@pytest.mark.parametrize("limits", [PATIENT, PARKING])
def test_a_remote_task_is_carried_into_a_child_and_its_result_given(limits: Limits) -> None:
    async def main() -> None:
        async with served(writer()) as app, calling(forward, app, limits=limits) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed) == {"text": "one two three", "data": {"n": 3}}
            child = await runner.child(feed)
            assert child.state.parent == feed.state.task_id and child.state.agent == remote_id("caller")
            log = await runner.log(child)
            steps = [event.name for event in log if isinstance(event, ev.Stepped)]
            assert steps == ["peer.sent", "peer.taken"]
            said = [event.message for event in log if isinstance(event, ev.Status) and event.message]
            assert [message.parts[0].text for message in said] == ["thinking"]
            assert [one.name for one in child.state.task().artifacts] == ["", "table"]

    run(main())


def test_an_agent_of_the_same_host_is_called_without_a_request() -> None:
    async def near(turn: Turn) -> object:
        result = await turn.call("writer", "tea", skill="write")
        return {"text": result.text, "data": result.data}

    async def main() -> None:
        async with calling(near, None, writer()) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed) == {"text": "one two three", "data": {"n": 3}}
            child = await runner.child(feed)
            assert (child.state.agent, child.state.skill) == ("writer", "write")

    run(main())


@pytest.mark.parametrize("given", ["co", ""])
def test_a_child_belongs_to_the_work_that_its_parent_belongs_to(given: str) -> None:
    async def near(turn: Turn) -> str:
        return (await turn.call("writer", "tea", skill="write")).text

    async def main() -> None:
        async with calling(near, None, writer()) as runner:
            message = Message("m", role=Role.USER, parts=(Part(text="hello"),))
            request = SendRequest(message, correlation=Correlation(given, "theirs"))
            feed, opened = runner.submit("t", "me", request, agent=CALLER)
            await opened
            assert await runner.ended(feed) is COMPLETED
            child = (await runner.child(feed)).state
            assert child.correlation == (Correlation("co", feed.state.task_id) if given else None)
            assert correlation_of(child) == (given or child.task_id)

    run(main())


def test_calls_made_together_each_have_their_own_child() -> None:
    agent = Agent("echo")

    @agent.skill
    async def echo(turn: Turn) -> str:
        """Say it again."""
        return turn.text

    async def both(turn: Turn) -> object:
        found = await asyncio.gather(*[turn.call("peer", word) for word in ("a", "b", "c")])
        return {"text": [one.text for one in found]}

    async def main() -> None:
        async with served(agent) as app, calling(both, app) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed) == {"text": ["a", "b", "c"]}

    run(main())


def test_what_fails_there_fails_here_with_its_reason_unless_the_skill_catches_it() -> None:
    agent = Agent("grumpy")

    @agent.skill
    async def refuse(turn: Turn) -> str:
        """Fail."""
        await turn.write("some")
        turn.fail("not today")

    async def careful(turn: Turn) -> object:
        try:
            await turn.call("peer", "please")
        except CallFailed as failed:
            return {"text": str(failed), "state": failed.result.state.name, "part": failed.result.text}

    async def grouped(turn: Turn) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(turn.call("peer", "please"))

    async def main() -> None:
        async with served(agent) as app:
            for skill in (forward, grouped):
                async with calling(skill, app) as runner:
                    feed = await runner.open("hello")
                    assert await runner.ended(feed) is FAILED
                    assert reason(feed) == "peer ended as failed: not today"
            async with calling(careful, app) as runner:
                feed = await runner.open("hello")
                assert await runner.ended(feed) is COMPLETED
                assert answer_of(feed) == {
                    "text": "peer ended as failed: not today",
                    "state": "FAILED",
                    "part": "some",
                }

    run(main())


def test_a_chain_that_is_too_long_ends_with_its_reason() -> None:
    async def around(turn: Turn) -> None:
        await turn.call("caller", turn.text)

    async def main() -> None:
        async with calling(around) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is FAILED
            *way, last = reason(feed).split(": ")
            assert {*way} == {"caller ended as failed", "caller is not called"}
            assert last.endswith("is the last that hop_limit (8) allows in a line")

    run(main())


def test_nobody_of_that_name_is_a_mistake_of_the_author(caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(turn: Turn) -> object:
        with pytest.raises(Misuse, match="'pear' to call; give an address, or an agent of this host, peer"):
            await turn.call("pear", "hello")
        with pytest.raises(Misuse, match="no address of an agent"):
            await turn.call("ftp://x", "hello")
        with pytest.raises(Misuse, match="questions is 'ask' or 'raise'"):
            await turn.call("peer", "hello", questions="up")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="timeout takes seconds"):
            await turn.call("peer", "hello", timeout=0)
        with pytest.raises(Misuse, match="content is empty"):
            await turn.call("peer", [])
        with pytest.raises(Misuse, match="or else data="):
            await turn.call("peer")
        with pytest.raises(Misuse, match="takes data, skill, context, task, timeout, questions, not skil"):
            await turn.call("peer", "hello", skil="x")  # type: ignore[call-arg]
        return "fine"

    async def main() -> None:
        async with calling(wrong) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED, caplog.text

    run(main())


def test_an_agent_without_streams_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.001)
    stand = Stand(
        [task(WORKING), stored(WORKING, "so "), stored(WORKING, "so "), stored(DONE, "so far")],
        card(capabilities={"streaming": False}),
    )

    async def main() -> None:
        async with calling(forward, stand, limits=PARKING) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed)["text"] == "so far"
            assert stand.methods == ["SendMessage", "GetTask", "GetTask", "GetTask"]
            assert stand.asked[0].params["configuration"]["returnImmediately"] is True

    run(main())


def test_an_answer_that_is_a_message_is_the_result() -> None:
    stand = Stand([Frames([message("hello back")])])

    async def main() -> None:
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed)["text"] == "hello back"

    run(main())


def test_an_agent_that_has_forgotten_the_task_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 0.001)

    async def main() -> None:
        answers = [task(WORKING), *[Error(-32001, "no such task")] * 3]
        stand = Stand(answers, card(capabilities={"streaming": False}))
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is FAILED
            assert "no such task" in reason(feed)
            assert stand.methods == ["SendMessage", *["GetTask"] * 3]

    run(main())


def test_a_message_whose_fate_is_unknown_is_not_sent_twice() -> None:
    stand = Stand([Lost()])

    async def main() -> None:
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is FAILED
            assert "uncertain" in reason(feed)
            assert len(stand.asked) == 1

    run(main())


@pytest.mark.parametrize("again", [True, False])
def test_whether_to_send_again_can_be_asked(again: bool) -> None:
    stand = Stand([Lost(), Frames([task(DONE, "done")])])

    async def main() -> None:
        async with calling(forward, stand, uncertain="ask") as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            assert "may be doing the work" in reason(feed)
            await runner.say(feed, said("send again" if again else "leave it"))
            assert await runner.ended(feed) is (COMPLETED if again else FAILED)
            sent = [asked.message_id for asked in stand.asked]
            assert len(set(sent)) == len(sent) == (2 if again else 1)

    run(main())


def test_a_cancel_reaches_the_remote_task() -> None:
    canceled = asyncio.Event()

    def script(asked: Any) -> Any:
        if asked.method == "CancelTask":
            canceled.set()
            return stored("TASK_STATE_CANCELED")
        return Frames([task(WORKING)], stall=True)

    async def main() -> None:
        stand = Stand(script)
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            child = await runner.child(feed)
            while not any(isinstance(one, ev.Stepped) and one.place == 1 for one in await runner.log(child)):
                await runner.tasks.move(child, 1)
            await runner.cancel(feed, "me")
            assert await runner.ended(child) is CANCELED
            async with asyncio.timeout(30):
                await canceled.wait()

    run(main())


def test_a_parked_child_is_canceled_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 3600.0)
    canceled = asyncio.Event()

    def script(asked: Any) -> Any:
        if asked.method == "CancelTask":
            canceled.set()
            return stored("TASK_STATE_CANCELED")
        return task(WORKING) if asked.method == "SendMessage" else stored(WORKING)

    async def main() -> None:
        stand = Stand(script, card(capabilities={"streaming": False}))
        async with calling(forward, stand, limits=PARKING) as runner:
            feed = await runner.open("hello")
            child = await runner.child(feed)
            while child.state.wake_at is None:
                await runner.tasks.move(child, 1)
            await runner.cancel(feed, "me")
            assert await runner.ended(child) is CANCELED
            async with asyncio.timeout(30):
                await canceled.wait()

    run(main())


def test_a_call_that_takes_too_long_is_stopped_there_too() -> None:
    canceled = asyncio.Event()

    def script(asked: Any) -> Any:
        if asked.method == "CancelTask":
            canceled.set()
            return stored("TASK_STATE_CANCELED")
        return Frames([task(WORKING)], stall=True)

    async def short(turn: Turn) -> object:
        await turn.call("peer", "hello", timeout=0.5)
        return "no"

    async def main() -> None:
        async with calling(short, Stand(script)) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is FAILED
            assert "deadline" in reason(feed)
            async with asyncio.timeout(30):
                await canceled.wait()

    run(main())


def test_a_long_answer_in_small_pieces_becomes_few_events() -> None:
    pieces = [chunk("x", append=place > 0) for place in range(5000)]
    numbered = list(enumerate([task(WORKING), *pieces, status(DONE)], 1))

    async def main() -> None:
        stand = Stand([Frames(numbered)])
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is COMPLETED
            assert answer_of(feed)["text"] == "x" * 5000
            child = await runner.child(feed)
            assert len(await runner.log(child)) < 600

    run(main())


def test_a_lost_message_is_sent_again_to_an_agent_that_knows_it() -> None:
    stand = Stand([Lost(), Frames([task(DONE, "done")])], deduplicating())

    async def main() -> None:
        async with calling(forward, stand) as runner:
            feed = await runner.open("hello")
            ended = await runner.ended(feed)
            assert ended is COMPLETED, reason(feed)
            first, second = stand.asked
            assert first.message_id == second.message_id

    run(main())


def curious() -> Agent:
    agent = Agent("curious")

    @agent.skill
    async def wonder(turn: Turn) -> str:
        """Ask for a colour."""
        colour = await turn.ask("Which colour?", choices=["red", "blue"])
        return f"painted {colour}"

    return agent


@pytest.mark.parametrize("limits", [PATIENT, PARKING])
@pytest.mark.parametrize("target", ["peer", "curious"])
def test_a_question_goes_up_and_its_answer_down(target: str, limits: Limits) -> None:
    async def ask_on(turn: Turn) -> str:
        result = await turn.call(target, "hello")
        return result.text + " and " + await turn.ask("Anything else?")

    async def main() -> None:
        async with served(curious()) as app, calling(ask_on, app, curious(), limits=limits) as runner:
            feed = await runner.open("hello")
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            assert feed.state.question is not None
            asked = read_question(feed.state.question)
            assert (str(asked), asked.choices, asked.id) == (
                "Which colour?", ("red", "blue"), feed.state.question.message_id,
            )  # fmt: skip
            with pytest.raises(InvalidParams, match="must be one of red, blue"):
                await runner.say(feed, said("green"))
            await runner.say(feed, said("blue"))
            await runner.until_asked(feed, unlike=asked.id)
            await runner.say(feed, said("thanks"))
            assert await runner.ended(feed) is COMPLETED
            assert feed.state.task().artifacts[0].parts[0].text == "painted blue and thanks"

    run(main())


def test_a_question_can_be_given_to_the_code_which_answers_it() -> None:
    async def decide(turn: Turn) -> str:
        try:
            await turn.call("peer", "hello", questions="raise")
        except CallFailed as asked:
            question = asked.result.question
            assert (str(asked), str(question)) == ("peer asks: Which colour?", "Which colour?")
            result = await turn.call("peer", "red", task=asked.result.task_id)
            return f"{result.text} {await turn.ask('Fine?')}"
        return "not asked"

    async def main() -> None:
        async with served(curious()) as app, calling(decide, app, limits=PARKING) as runner:
            feed = await runner.open("hello")
            # Parked meanwhile, so that all of it is played again.
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            while feed.state.wake_at is None:
                await runner.tasks.move(feed, 5)
            await runner.say(feed, said("yes"))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            assert feed.state.task().artifacts[0].parts[0].text == "painted red yes"

    run(main())


def test_calls_made_together_that_ask_get_their_own_answers_when_played_again() -> None:
    async def both(turn: Turn) -> str:
        found = await asyncio.gather(turn.call("peer", "one"), turn.call("peer", "two"))
        return f"{found[0].text}, {found[1].text}: {await turn.ask('Fine?')}"

    async def main() -> None:
        async with served(curious()) as app, calling(both, app, limits=PARKING) as runner:
            feed = await runner.open("hello")
            answered: dict[str, str] = {}
            for colour in ("blue", "red"):
                await runner.reach(feed, TaskState.INPUT_REQUIRED)
                assert feed.state.question is not None
                question = feed.state.question.message_id
                answered[question] = colour
                await runner.say(feed, said(colour))
                await runner.until_asked(feed, unlike=question)
            while feed.state.wake_at is None:
                await runner.tasks.move(feed, 5)
            await runner.say(feed, said("yes"))
            assert await runner.ended(feed) is COMPLETED, reason(feed)
            text = feed.state.task().artifacts[0].parts[0].text
            children = [cast("Any", one).result["child"] for one in await runner.log(feed) if is_call(one)]
            wanted = [answered[feed.state.child_questions[child][0]] for child in children]
            assert text == f"painted {wanted[0]}, painted {wanted[1]}: yes"

    run(main())


@pytest.mark.parametrize("target", ["peer", "slow"])
def test_an_answer_may_say_how_long_the_call_lasts_from_then_on(target: str) -> None:
    agent = Agent("slow")

    @agent.skill
    async def ponder(turn: Turn) -> str:
        """Ask, and then take far too long."""
        await turn.ask("Really?")
        await turn.sleep(3600)
        return "no"

    async def hurry(turn: Turn) -> str:
        with pytest.raises(CallFailed) as asked:
            await turn.call(target, "hello", questions="raise", timeout=3600)
        await turn.call(target, "yes", task=asked.value.result.task_id, timeout=0.5)
        return "no"

    async def main() -> None:
        async with served(agent) as app, calling(hurry, app, agent, limits=PARKING) as runner:
            feed = await runner.open("hello")
            assert await runner.ended(feed) is FAILED
            assert "deadline" in reason(feed)

    run(main())
