"""The caller's process dies after each of its appends in turn: the work is done once all the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.peer.rig import PARKING, PATIENT, Caller, calling, served
from tests.run.desk import Shared, run, said
from tests.run.pair import die
from trunkline import Agent, Turn
from trunkline.errors import StoreError
from trunkline.run import children
from trunkline.run.node import Limits
from trunkline.store.group_commit import Ack
from trunkline.wire.types import SendRequest, TaskState


class Mortal(Shared):
    """A store whose process dies with an append: what is asked of it afterwards is never answered."""

    def __init__(self, deadly: int) -> None:
        super().__init__()
        self._left = deadly
        self.dead = asyncio.Event()

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        if self.dead.is_set():
            return Ack()
        ack = super().append(*args, **kwargs)
        ack.then(self._count)
        return ack

    def _count(self, error: StoreError | None) -> None:
        self._left -= error is None
        if not self._left:
            self.dead.set()

    def revive(self) -> None:
        self.dead = asyncio.Event()


def asking(runs: list[str]) -> Agent:
    agent = Agent("writer")

    @agent.skill
    async def write(turn: Turn) -> None:
        """Ask and write."""
        runs.append(turn.text)
        await turn.status("thinking")
        await turn.write("I take ")
        colour = await turn.ask("Which colour?")
        await turn.write(colour)

    return agent


async def forward(turn: Turn) -> str:
    result = await turn.call("peer", turn.text)
    return f"{result.text}, says the peer"


async def drive(runner: Caller, store: Mortal, task_id: str) -> bool:
    """Be the caller until the task has ended or the process has died; whether it has ended."""
    died = asyncio.ensure_future(store.dead.wait())

    async def be_caller() -> None:
        feed = await runner.find(task_id)
        while not feed.state.over:
            if feed.state.interrupted and not feed.state.answers:
                await runner.say(feed, said("red"))
            await runner.tasks.move(feed, 0.5)

    work = asyncio.ensure_future(be_caller())
    await asyncio.wait([died, work], return_when=asyncio.FIRST_COMPLETED)
    died.cancel()
    ended = work.done()
    if ended:
        await work
    work.cancel()
    await asyncio.wait([work, died])
    return ended


@pytest.mark.parametrize("limits", [PATIENT, PARKING], ids=["kept", "parked"])
def test_the_work_is_done_once_whichever_append_is_the_last(
    limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "SWEEP_S", 0.1)

    async def scenario(deadly: int) -> bool:
        """Whether the process died at all."""
        runs: list[str] = []
        store = Mortal(deadly)
        await store.open()
        async with served(asking(runs)) as app:
            async with calling(forward, app, limits=limits, store=store) as first:
                feed, _ = first.submit("t", "me", SendRequest(said("go")), agent=first.origin)
                task_id = feed.state.task_id
                while not feed.state.seq and not store.dead.is_set():  # noqa: ASYNC110 - either may come
                    await asyncio.sleep(0)
                ended = await drive(first, store, task_id)
                if not ended:
                    await die(first)
                    store.revive()
                    async with calling(forward, app, limits=limits, store=store) as second:
                        assert await drive(second, store, task_id)
                        feed = await second.find(task_id)
                assert feed.state.state is TaskState.COMPLETED, (deadly, feed.state.status_message)
                text = feed.state.task().artifacts[0].parts[0].text
                assert text == "I take red, says the peer", deadly
                assert runs == ["go"], deadly
        await store.close()
        return not ended

    died: list[bool] = []

    async def note(deadly: int) -> None:
        died.append(await scenario(deadly))

    while not died or died[-1]:
        run(note(len(died) + 1))
    assert len(died) > 10
