"""A remote task that is told of by webhooks, looked at and streamed: its end is heard once, whoever is first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from tests.client.agents import COMPLETED, WORKING, Error, Frames, Lost, Stand, card, stored, task
from tests.peer.rig import PARKING, PATIENT, Caller, calling, told_by
from tests.run.desk import reason, run
from tests.sample import at_most
from trunkline import Turn
from trunkline.client.result import Result
from trunkline.log.events import Notified, Status
from trunkline.peer.callbacks import TOLD_BYTES, read_callback
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.wire.types import TERMINAL, TaskState

QUIET = card(capabilities={"streaming": False})
COST = {
    "kind": "data",
    "data": {"costUsd": 0.25},
    "metadata": {"mimeType": "application/vnd.protolabs.cost-v1+json"},
}
SAID = {"kind": "text", "text": "done"}
ARTIFACT = {"artifactId": "a0", "parts": [SAID, COST]}
PLAIN = {
    "artifactId": "a0",
    "parts": [{"text": "done"}, {"data": {"costUsd": 0.25}, "metadata": COST["metadata"]}],
}
# With and without parking, so that `make chaos` has a thousand.
TIMES = at_most(500, 15)
ENDED = {"taskId": "t1", "contextId": "c1"}
SHAPES: dict[str, Any] = {
    "task": {
        "kind": "task",
        "id": "t1",
        "contextId": "c1",
        "status": {"state": "completed"},
        "artifacts": [ARTIFACT],
    },
    "status with artifact": {
        "kind": "status-update",
        **ENDED,
        "status": {"state": "completed"},
        "final": True,
        "artifact": ARTIFACT,
    },
    "1.0 task": {
        "task": {"id": "t1", "contextId": "c1", "status": {"state": COMPLETED}, "artifacts": [PLAIN]}
    },
    "1.0 status with artifact": {
        "statusUpdate": {**ENDED, "status": {"state": COMPLETED}, "artifacts": [PLAIN]}
    },
}
BARE = {"statusUpdate": {**ENDED, "status": {"state": COMPLETED}}}
LARGE = {"task": {**SHAPES["1.0 task"]["task"], "metadata": {"own": "x" * TOLD_BYTES}}}
PIECE = {"artifactUpdate": {**ENDED, "artifact": PLAIN}}


async def forward(turn: Turn) -> str:
    return (await turn.call("peer", "hello")).text


async def follow(
    stand: Stand, work: Callable[[Caller, Feed], Awaitable[None]], limits: Limits = PATIENT, **more: float
) -> None:
    """A caller whose remote task has begun."""
    async with calling(forward, stand, limits=limits, following=told_by(**more)) as runner:
        feed = await runner.open("hello")
        child = await runner.child(feed)
        await work(runner, child)
        assert await runner.ended(feed) is TaskState.COMPLETED, reason(feed)


async def post(runner: Caller, child: Feed, told: Any) -> None:
    await runner.notify(child, read_callback(msgspec.json.encode(told)))


async def parked(runner: Caller, feed: Feed) -> None:
    while feed.state.wake_at is None or feed.state.node:
        await runner.tasks.move(feed, 5)


async def asked(stand: Stand, *methods: str) -> None:
    while not set(methods) <= set(stand.methods):  # noqa: ASYNC110 - an agent says nothing of it
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
@pytest.mark.parametrize("shape", SHAPES)
def test_hb_10_an_end_is_taken_from_every_shape_of_a_webhook(shape: str, limits: Limits) -> None:
    stand = Stand(lambda one: task(WORKING) if one.method == "SendMessage" else stored(WORKING), QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        await asked(stand, "GetTask")
        if limits is PARKING:
            await parked(runner, child)
        await post(runner, child, SHAPES[shape])
        assert await runner.ended(child) is TaskState.COMPLETED
        result = Result(child.state.task())
        assert (result.text, result.cost_usd) == ("done", 0.25)
        # Again: there is nothing to be added to what has ended.
        seq = child.state.seq
        await post(runner, child, SHAPES[shape])
        assert child.state.seq == seq

    # No poll would come for an hour.
    run(follow(stand, work, limits, poll_s=3600))
    config = stand.asked[0].params["configuration"]["taskPushNotificationConfig"]
    assert config["url"].startswith("http://127.0.0.1:9/api/a2a/callback/")
    assert config["token"]


@pytest.mark.parametrize("told", [BARE, PIECE], ids=["an end alone", "a piece"])
def test_what_a_webhook_leaves_out_is_fetched(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 3600)
    now = [stored(WORKING)]
    stand = Stand(lambda one: task(WORKING) if one.method == "SendMessage" else now[0], QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        await asked(stand, "GetTask")
        now[0] = stored(COMPLETED, "fetched")
        await post(runner, child, told)
        assert await runner.ended(child) is TaskState.COMPLETED
        assert Result(child.state.task()).text == "fetched"

    run(follow(stand, work, poll_s=3600))


@pytest.mark.parametrize("forgotten", [Error(-32001), stored(WORKING)], ids=["forgotten", "behind"])
def test_an_end_that_was_told_counts_when_the_agent_cannot_say_more(forgotten: Any) -> None:
    stand = Stand(lambda one: task(WORKING) if one.method == "SendMessage" else forgotten, QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        await asked(stand, "SendMessage")
        await post(runner, child, BARE)
        assert await runner.ended(child) is TaskState.COMPLETED

    run(follow(stand, work))


def test_a_webhook_is_heard_beside_a_stream_that_hangs() -> None:
    stand = Stand(lambda _: Frames([task(WORKING)], stall=True))

    async def work(runner: Caller, child: Feed) -> None:
        while "peer.taken" not in [
            getattr(one.event, "name", "") for one in await runner.tasks.records(child)
        ]:
            await runner.tasks.move(child, 5)
        await post(runner, child, SHAPES["task"])
        assert await runner.ended(child) is TaskState.COMPLETED
        assert Result(child.state.task()).text == "done"

    run(follow(stand, work))


def test_a_webhook_about_another_task_is_no_end_of_this_one() -> None:
    now = [stored(WORKING)]
    stand = Stand(lambda one: task(WORKING) if one.method == "SendMessage" else now[0], QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        await asked(stand, "GetTask")
        await post(
            runner, child, {"statusUpdate": {"taskId": "other", "status": {"state": "TASK_STATE_FAILED"}}}
        )
        now[0] = stored(COMPLETED, "right")
        assert await runner.ended(child) is TaskState.COMPLETED
        assert Result(child.state.task()).text == "right"

    run(follow(stand, work, poll_s=0.02))


def test_an_agent_that_refuses_to_call_back_is_sent_the_message_without() -> None:
    def script(one: Any) -> Any:
        if one.method == "SendMessage":
            return (
                Error(-32602, "no such webhook")
                if "taskPushNotificationConfig" in one.params["configuration"]
                else task(WORKING)
            )
        return stored(COMPLETED, "done")

    stand = Stand(script, QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        assert await runner.ended(child) is TaskState.COMPLETED, reason(child)

    run(follow(stand, work))
    assert stand.methods == ["SendMessage", "SendMessage", "GetTask"]
    assert len({one.message_id for one in stand.asked[:2]}) == 1


@pytest.mark.parametrize("told", [BARE, LARGE], ids=["an end alone", "an end without its large task"])
def test_an_end_that_is_told_before_the_first_frame_costs_no_result(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline.peer.hearing.LISTEN_S", 0.001)
    answered, following = asyncio.Event(), told_by()

    async def script(one: Any) -> Any:
        if one.method != "SendStreamingMessage":
            return stored(COMPLETED, "done")
        await answered.wait()
        return Frames([task(COMPLETED, "done")])

    async def main() -> None:
        async with calling(forward, Stand(script), following=following) as runner:
            child = await runner.child(await runner.open("hello"))
            while not following.hearings._begun:  # noqa: ASYNC110 - who listens tells nobody
                await asyncio.sleep(0)
            await post(runner, child, told)
            # Whatever is made of it is made before the agent says more.
            for _ in range(50):
                await asyncio.sleep(0)
            answered.set()
            assert await runner.ended(child) is TaskState.COMPLETED, reason(child)
            assert Result(child.state.task()).text == "done"

    run(main())


@pytest.mark.parametrize("told", [SHAPES["task"], BARE], ids=["a task", "an end alone"])
def test_a_message_whose_end_was_told_is_not_uncertain_when_its_answer_is_lost(told: Any) -> None:
    answered = asyncio.Event()

    async def script(one: Any) -> Any:
        if one.method != "SendMessage":
            return stored(COMPLETED, "done")
        await answered.wait()
        return Lost()

    stand = Stand(script, QUIET)

    async def work(runner: Caller, child: Feed) -> None:
        await asked(stand, "SendMessage")
        await post(runner, child, told)
        answered.set()
        assert await runner.ended(child) is TaskState.COMPLETED, reason(child)
        assert Result(child.state.task()).text == "done"

    run(follow(stand, work))
    assert stand.methods.count("SendMessage") == 1


@pytest.mark.sampled
@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_hb_11_push_poll_and_stream_together_give_one_outcome(limits: Limits) -> None:
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)

    async def once() -> None:
        now, streaming = [stored(WORKING)], draw.random() < 0.5

        def script(one: Any) -> Any:
            if one.method == "GetTask":
                return now[0]
            if streaming:
                rest = [task(COMPLETED, "done")] if one.method != "SendStreamingMessage" else []
                return Frames([task(WORKING), *rest], cut=draw.random() < 0.5)
            return task(WORKING)

        stand = Stand(script, card(capabilities={"streaming": streaming}))

        async def work(runner: Caller, child: Feed) -> None:
            for _ in range(draw.randrange(4)):
                await asyncio.sleep(draw.choice((0, 0.005)))
            now[0] = stored(COMPLETED, "done")
            shapes = draw.choices([*SHAPES.values(), BARE, PIECE], k=3)
            await asyncio.gather(*(post(runner, child, shape) for shape in shapes))
            assert await runner.ended(child) is TaskState.COMPLETED
            assert Result(child.state.task()).text == "done"
            events = [one.event for one in await runner.tasks.records(child)]
            ends = [one for one in events if isinstance(one, Status) and one.state in TERMINAL]
            assert len(ends) == 1, (seed, events)
            assert len([one for one in events if isinstance(one, Notified)]) <= 3

        await follow(stand, work, limits, poll_s=0.01)

    for _ in range(TIMES):
        run(once())
