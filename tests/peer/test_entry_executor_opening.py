"""What is sent to an agent that knows a message again is recorded with the first message of its task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.peer.rig import HOME, PATIENT, Caller, NearClients, served
from tests.peer.test_remote_run import Mortal, drive
from tests.run.desk import Flaky, Shared, run, said
from tests.run.pair import die
from trunkline import Agent, Turn
from trunkline.clock import Ids
from trunkline.log.events import Stepped, Submitted
from trunkline.peer.entry_executor import EntryExecutor
from trunkline.peer.remote import Peer
from trunkline.run.hops import KEY
from trunkline.run.node import HostedAgent
from trunkline.wire.types import Metadata, SendRequest, TaskState

NAME = "writer"


def writing(runs: list[str]) -> Agent:
    agent = Agent(NAME)

    @agent.skill
    async def write(turn: Turn) -> str:
        """Write."""
        runs.append(turn.text)
        return f"{turn.text}, written"

    return agent


@asynccontextmanager
async def having(app: Any, store: Flaky, *, knows: bool = True, **recorded: Any) -> AsyncGenerator[Caller]:
    """A runner whose agent is elsewhere; `knows` its interface already, as after the first task.

    What is sent is recorded with the members of `recorded`.
    """
    clients = NearClients(app)
    if knows:
        await clients.of(NAME, Peer(url=HOME)).capabilities()
    executor = EntryExecutor(NAME, lambda _: Peer(url=HOME), clients)

    def opening(tenant: str, first: Submitted) -> tuple[Stepped, ...]:
        entry, *sent = executor.opening(tenant, first)
        return entry, *[replace(one, result={**cast("Metadata", one.result), **recorded}) for one in sent]

    runner = Caller(store, [HostedAgent(NAME, executor, opening=opening)], Ids(), PATIENT)
    runner.store = store
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()


def test_who_does_a_task_and_what_is_sent_is_recorded_with_its_first_message() -> None:
    async def case() -> None:
        runs: list[str] = []
        store = Shared()
        await store.open()
        async with served(writing(runs)) as app, having(app, store, knows=False) as runner:
            logs: list[list[object]] = []
            for text in ("first", "second"):
                feed, opened = runner.submit("t", "me", SendRequest(said(text)), agent=NAME)
                await opened
                opening = [one.event for one in feed.records]
                await runner.tasks.rest(feed, 30.0)
                assert feed.state.state is TaskState.COMPLETED
                logs.append(opening)
        await store.close()
        # Before the first its interface is not known, so it is not known either who would take what.
        assert [type(one) for one in logs[0]] == [Submitted, Stepped]
        assert [type(one) for one in logs[1]] == [Submitted, Stepped, Stepped]
        assert runs == ["first", "second"]

    run(case())


def test_the_work_of_an_entry_is_done_once_whichever_append_is_the_last() -> None:
    async def scenario(deadly: int) -> bool:
        """Whether the process died at all."""
        runs: list[str] = []
        store = Mortal(deadly)
        await store.open()
        async with served(writing(runs)) as app:
            async with having(app, store) as first:
                feed, _ = first.submit("t", "me", SendRequest(said("go")), agent=NAME)
                task_id = feed.state.task_id
                while not feed.state.seq and not store.dead.is_set():  # noqa: ASYNC110 - either may come
                    await asyncio.sleep(0)
                ended = await drive(first, store, task_id)
                if not ended:
                    await die(first)
                    store.revive()
                    async with having(app, store) as second:
                        assert await drive(second, store, task_id)
                        feed = await second.find(task_id)
                assert feed.state.state is TaskState.COMPLETED, (deadly, feed.state.status_message)
                assert feed.state.task().artifacts[0].parts[0].text == "go, written"
                assert runs == ["go"], deadly
        await store.close()
        return not ended

    died: list[bool] = []

    async def note(deadly: int) -> None:
        died.append(await scenario(deadly))

    while not died or died[-1]:
        run(note(len(died) + 1))
    assert len(died) > 1


@pytest.mark.parametrize("recorded", [{}, {"counted": False}], ids=["new", "by an earlier version"])
def test_what_an_earlier_version_has_sent_is_sent_again_as_it_was(recorded: dict[str, bool]) -> None:
    heard: list[bool] = []
    agent = Agent(NAME)

    @agent.skill
    async def write(turn: Turn) -> str:
        """Write."""
        heard.append(KEY in turn.metadata)
        return ""

    async def case() -> None:
        store = Shared()
        await store.open()
        async with served(agent) as app, having(app, store, **recorded) as runner:
            feed, _ = runner.submit("t", "me", SendRequest(said("go")), agent=NAME)
            await runner.tasks.rest(feed, 30.0)
            assert feed.state.state is TaskState.COMPLETED
        await store.close()

    run(case())
    assert heard == [not recorded]
