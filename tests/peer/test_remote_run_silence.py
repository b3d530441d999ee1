"""A remote agent that forgets a task, or says nothing of it is given up; its context is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.agents import COMPLETED, WORKING, Error, Stand, card, stored, task
from tests.peer.rig import HOME, PARKING, PATIENT, NearClients, calling, told_by
from tests.run.desk import desk, reason, run
from trunkline import Turn
from trunkline.peer.entry_executor import EntryExecutor
from trunkline.peer.executor import remote_id
from trunkline.peer.remote import CALL_KEY, Peer
from trunkline.peer.remote_run import NOBODY_ANSWERED
from trunkline.run.node import Limits
from trunkline.wire.types import Message, Part, SendRequest, TaskState

ASKING = "TASK_STATE_INPUT_REQUIRED"
QUIET = card(capabilities={"streaming": False})


async def forward(turn: Turn) -> str:
    return (await turn.call("peer", "hello")).text


async def outcome(stand: Stand, limits: Limits = PATIENT, **more: float) -> str:
    """Why the child of a call failed."""
    async with calling(forward, stand, limits=limits, following=told_by(**more)) as runner:
        feed = await runner.open("hello")
        child = await runner.child(feed)
        assert await runner.ended(child) is TaskState.FAILED
        return reason(child)


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_hb_13_a_task_that_is_forgotten_fails_at_the_third_look(limits: Limits) -> None:
    stand = Stand(
        lambda one: task(WORKING) if one.method == "SendMessage" else Error(-32001, "not here"), QUIET
    )

    async def main() -> None:
        assert "no longer knows its task: not here" in await outcome(stand, limits, poll_s=0.01)

    run(main())
    assert stand.methods == ["SendMessage", *["GetTask"] * 3]
    # One card for all of it.
    assert stand.cards == 1


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_hb_17_a_question_that_nobody_answers_ends_the_task_here_and_there(limits: Limits) -> None:
    def script(one: Any) -> Any:
        return task(ASKING) if one.method == "SendMessage" else stored(ASKING)

    stand = Stand(script, QUIET)

    async def main() -> None:
        async with calling(forward, stand, limits=limits, answer_s=0.2) as runner:
            child = await runner.child(await runner.open("hello"))
            await runner.reach(child, TaskState.INPUT_REQUIRED)
            # Whoever reads the task sees until when.
            assert child.state.deadline
            assert await runner.ended(child) is TaskState.FAILED
            assert reason(child) == NOBODY_ANSWERED

    run(main())
    assert stand.methods[-1] == "CancelTask"


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_hb_16_an_agent_that_says_nothing_for_too_long_is_told_to_stop(limits: Limits) -> None:
    def script(one: Any) -> Any:
        return task(WORKING) if one.method == "SendMessage" else stored(WORKING)

    stand = Stand(script, QUIET)

    async def main() -> None:
        assert "it said nothing for 0.2 seconds" in await outcome(stand, limits, poll_s=0.02, silence_s=0.2)

    run(main())
    assert stand.methods[-1] == "CancelTask"
    assert stand.methods.count("CancelTask") == 1


def contexts_sent(*callers: tuple[str, str], context: str = "ours") -> list[str]:
    """The contexts that a remote agent is sent when these say something in one of the same name, in turn."""
    stand = Stand(lambda _: task(COMPLETED, "done"), QUIET)

    async def main() -> None:
        async with calling(forward, stand, following=told_by()) as runner:
            for place, (tenant, principal) in enumerate(callers):
                metadata = {CALL_KEY: {"target": "peer"}}
                content = Message(f"m{place}", context, parts=(Part(text="hello"),), metadata=metadata)
                feed, ack = runner.submit(
                    tenant, principal, SendRequest(content), agent=remote_id(runner.origin)
                )
                await ack
                assert await runner.ended(feed) is TaskState.COMPLETED, reason(feed)

    run(main())
    return [one.params["message"]["contextId"] for one in stand.asked]


def test_hb_17_the_context_that_an_agent_has_told_is_the_one_it_is_sent() -> None:
    # It was told of ours, and calls it c1. Without keys there is only one caller.
    assert contexts_sent(*[("default", "anonymous")] * 2) == ["ours", "c1"]


def test_nobody_reaches_the_remote_conversation_of_another_by_its_name() -> None:
    callers = [("t", "me"), ("t", "you"), ("other", "me"), ("t", "me")]
    mine, yours, others, again = contexts_sent(*callers)
    assert len({"ours", mine, yours, others}) == 4
    # The same name of the same caller is the same conversation, also in another process and on another day.
    assert (again, contexts_sent(callers[0])) == ("c1", [mine])
    assert contexts_sent(callers[1], context=mine) != [mine]


def test_a_conversation_that_was_begun_here_keeps_its_id_before_the_agent_has_told_its_own() -> None:
    stand = Stand(lambda _: task(COMPLETED, "done"), QUIET)

    async def main() -> None:
        async with calling(forward, stand, following=told_by()) as runner:

            async def say(context: str, principal: str = "me") -> str:
                metadata = {CALL_KEY: {"target": "peer"}} if context else None
                content = Message("m" + context, context, parts=(Part(text="hi"),), metadata=metadata)
                agent = remote_id(runner.origin) if context else runner.origin
                feed, ack = runner.submit("t", principal, SendRequest(content), agent=agent)
                await ack
                assert await runner.ended(feed) is TaskState.COMPLETED, reason(feed)
                return feed.state.task_id

            begun = await say("")
            await say(begun)
            await say(begun, "you")
            _, mine, yours = [one.params["message"]["contextId"] for one in stand.asked]
            assert mine == begun != yours

    run(main())


def test_what_a_caller_writes_where_our_own_tasks_say_whom_they_are_for_means_nothing() -> None:
    stand = Stand(lambda _: task(COMPLETED, "done"), QUIET)

    async def main() -> None:
        clients = NearClients(stand)
        executor = EntryExecutor("writer", lambda _: Peer(url=HOME), clients)
        async with desk(executor.run, PATIENT) as runner:
            for place, forged in enumerate(["nonsense", {"target": "elsewhere", "context": "theirs"}, None]):
                metadata = {CALL_KEY: forged} if forged else None
                content = Message(f"m{place}", "ours", parts=(Part(text="hello"),), metadata=metadata)
                feed, ack = runner.submit("t", "me", SendRequest(content), agent=runner.origin)
                await ack
                assert await runner.ended(feed) is TaskState.COMPLETED, reason(feed)
        await clients.close()

    run(main())
    assert [one.params["message"]["contextId"] for one in stand.asked][1:] == ["c1", "c1"]
