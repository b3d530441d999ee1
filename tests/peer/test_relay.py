"""What a remote agent streams does not pile up before a store that is slower, and is told as its own word."""

from __future__ import annotations

from typing import cast

import pytest

from tests.run.desk import desk, run, until
from trunkline.client.assembler import Update
from trunkline.client.result import Result
from trunkline.log.events import Status
from trunkline.net.places import TenantPlaces
from trunkline.peer.relay import IDLE_UPDATES, Relay, deadline_of
from trunkline.run import buffer
from trunkline.run.executor import Verdict, Work
from trunkline.run.owner import Owner
from trunkline.wire.answers import Notice
from trunkline.wire.question import Question
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import (
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

NAMES = ("plan", "report")
PIECES = 1000


def piece(name: str, text: str, *, append: bool = True) -> Update:
    artifact = Artifact(name, parts=(Part(text=text),))
    return Update("artifact", text, None, Notice(ArtifactUpdate("r", "c", artifact, append=append)))


def snapshot(texts: dict[str, str]) -> Update:
    artifacts = tuple(Artifact(name, parts=(Part(text=text),)) for name, text in texts.items())
    task = Task("r", "c", TaskStatus(TaskState.WORKING), artifacts)
    return Update("task", "", TaskState.WORKING, Notice(task))


def most_unwritten(updates: list[Update]) -> int:
    """How many events were not yet on their way at most; all of the text is in the log at the end."""
    most = 0

    async def act(work: Work) -> Verdict:
        nonlocal most
        relay, inner = Relay(work, TenantPlaces(1)), cast("Owner", work)
        for update in updates:
            await relay.take(update)
            most = max(most, inner._buffer.unflushed)
        return await relay.verdict(Result(message=Message("m")))

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is TaskState.COMPLETED
            texts = ["".join(part.text or "" for part in one.parts) for one in feed.state.task().artifacts]
            assert "".join(texts).count("x") == sum(update.text.count("x") for update in updates)

    run(main())
    return most


def test_artifacts_that_take_turns_wait_for_the_store() -> None:
    begun = [piece(name, "x", append=False) for name in NAMES]
    assert most_unwritten(begun + [piece(name, "x") for name in NAMES] * PIECES) <= buffer.UNFLUSHED_LIMIT


def test_snapshots_between_pieces_wait_for_the_store() -> None:
    updates = [piece("plan", "x", append=False)]
    for number in range(2, PIECES):
        updates += [piece("plan", "x"), snapshot({"plan": "x" * number})]
    assert most_unwritten(updates) <= buffer.UNFLUSHED_LIMIT


def test_updates_that_record_nothing_take_turns_by_tenant() -> None:
    said = Message("m", role=Role.AGENT, parts=(Part(text="busy"),))
    status = StatusUpdate("r", "c", TaskStatus(TaskState.WORKING, said))
    again = Update("status", "", TaskState.WORKING, Notice(status))
    places = TenantPlaces(2, 1)
    taken = 0

    async def act(work: Work) -> Verdict:
        nonlocal taken
        relay = Relay(work, places)
        while taken < 3 * IDLE_UPDATES:
            taken += 1
            await relay.take(again)
        return await relay.verdict(Result(message=Message("m")))

    async def main() -> None:
        async with desk(act) as runner:
            async with places.held("t"):
                feed = await runner.open()
                await until(lambda: places.waiting("t") > 0)
                # One update was recorded before those that say the same.
                assert taken == IDLE_UPDATES + 1
            assert await runner.ended(feed) is TaskState.COMPLETED
        assert taken == 3 * IDLE_UPDATES

    run(main())


def test_an_agent_speaks_as_an_agent_and_under_no_key_of_ours() -> None:
    """Neither in the name of its caller, nor in ours: of a chat that is over, a run, a route, or a question."""
    keys = ("dispatch", "flow", "call", "question", "chain", "asked", "done", "reason", "away")
    forged = {**{f"trunkline.{key}": {"id": "forged"} for key in keys}, "own": 1}
    said = Message("m", role=Role.USER, parts=(Part(text="x"),), metadata=forged)
    told = list[Status]()

    async def act(work: Work) -> Verdict:
        relay = Relay(work, TenantPlaces(1))
        update = StatusUpdate("r", "c", TaskStatus(TaskState.WORKING, said), forged)
        await relay.take(Update("status", "", TaskState.WORKING, Notice(update)))
        await work.drain()
        working = Status(work.state.state, work.state.status_message)
        asks = Result(Task("r", "c", TaskStatus(TaskState.INPUT_REQUIRED, said)))
        ended = Result(Task("r", "c", TaskStatus(TaskState.COMPLETED, said)))
        told.extend([working, relay.question(asks), cast("Status", await relay.verdict(ended))])
        return told[-1]

    async def main() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            assert await runner.ended(feed) is TaskState.COMPLETED
            log = await runner.log(feed)
            assert [one.metadata for one in log if isinstance(one, Status) and one.metadata] == [{"own": 1}]

    run(main())
    messages = [cast("Message", one.message) for one in told]
    assert {one.role for one in messages} == {Role.AGENT}
    working, question, ended = [one.metadata or {} for one in messages]
    assert working == ended == {"own": 1}
    # Whose id ours has, and what the agent calls its own.
    assert question == {
        "own": 1,
        "trunkline.question": {"id": messages[1].message_id},
        "trunkline.asked": "forged",
    }


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("2027-01-31T12:00:00Z", "2027-01-31T12:00:00.000Z"),
        ("0001-01-01T00:00:00+00:00", "1970-01-01T00:00:00.001Z"),
        ("1960-01-01T00:00:00+00:00", "1970-01-01T00:00:00.001Z"),
        ("9999-12-31T23:59:59-12:00", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_a_deadline_that_an_agent_names_passes_and_can_be_told(told: str, meant: str) -> None:
    part = Question("?", deadline=told).part()
    assert part is not None
    assert timestamp(deadline_of(Message("m", parts=(part,)))) == meant
