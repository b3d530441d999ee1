"""A child's end reaches its parent, a parent's cancel its children: on both stores, and after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.run.desk import (
    AGENT,
    DONE,
    LIMIT_S,
    Acts,
    Desk,
    Flaky,
    Shared,
    appended,
    child_rest,
    delta,
    desk,
    run,
    said,
    until,
)
from trunkline.clock import Ids
from trunkline.errors import StoreError
from trunkline.log import events as ev
from trunkline.run import children
from trunkline.run import runner as runner_module
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.store.base import Store
from trunkline.store.url import store_from_url
from trunkline.wire.types import SendRequest, TaskState

CANCELED, COMPLETED, WORKING = TaskState.CANCELED, TaskState.COMPLETED, TaskState.WORKING
SOON = Limits(cancel_s=0.2, drain_s=0.2, park_after_s=0.02)
NEVER_PARKED = Limits(cancel_s=0.2, drain_s=0.2, park_after_s=60)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"sqlite:///{tmp_path}/store.db"
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_url")
    )


class Family:
    """An executor whose parents wait for the child that they are told of, and whose children do as they are told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.ran: list[str] = []

    async def act(self, work: Work) -> Verdict:
        text = work.state.message.parts[0].text or ""
        self.ran.append(text)
        if text == "parent":
            while len(work.state.history) < 2:
                await appended(work)
            child = work.state.history[1].parts[0].text or ""
            await child_rest(work, child)
            return DONE if work.state.ended_children[child] is COMPLETED else ev.Status(TaskState.FAILED)
        if text == "quick":
            await self.go.wait()
            return DONE
        return await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def runner_on(
    store: Store, family: Family, limits: Limits = SOON, crash: OnCrash = OnCrash.RESUME
) -> AsyncIterator[Desk]:
    runner = Desk(store, [HostedAgent(AGENT, Acts(family.act, crash))], Ids(), limits)
    runner.store = store  # type: ignore[assignment]
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()


async def opened(runner: Desk, text: str, parent: Feed | None = None) -> Feed:
    named = "" if parent is None else parent.state.task_id
    feed, ack = runner.submit("t", "me", SendRequest(said(text)), agent=AGENT, parent=named)
    await ack
    return feed


async def in_state(runner: Desk, feed: Feed, state: TaskState) -> None:
    async with asyncio.timeout(LIMIT_S):
        await runner.reach(feed, state)


async def family_of(runner: Desk) -> tuple[Feed, Feed]:
    """A parent and the quick child that it waits for."""
    parent = await opened(runner, "parent")
    child = await opened(runner, "quick", parent)
    assert child.state.parent == parent.state.task_id
    await runner.say(parent, said(child.state.task_id))
    return parent, child


@pytest.mark.parametrize("limits", [SOON, NEVER_PARKED])
def test_the_end_of_a_child_wakes_its_parent(url: str, limits: Limits) -> None:
    async def main() -> None:
        store = store_from_url(url)
        await store.open()
        family = Family()
        async with runner_on(store, family, limits) as runner:
            parent, child = await family_of(runner)
            if limits is SOON:
                while parent.state.child != child.state.task_id:
                    await runner.tasks.move(parent, 5)
            family.go.set()
            assert await runner.ended(parent) is COMPLETED
            ends = [event for event in await runner.log(parent) if isinstance(event, ev.ChildEnded)]
            assert ends == [ev.ChildEnded(child.state.task_id, COMPLETED)]
        await store.close()

    run(main())


def test_cancelling_a_parent_cancels_its_children_and_theirs(url: str) -> None:
    async def main() -> None:
        store = store_from_url(url)
        await store.open()
        async with runner_on(store, Family()) as runner:
            parent = await opened(runner, "parent")
            children_of = [await opened(runner, "hang", parent) for _ in range(3)]
            grandchild = await opened(runner, "hang", children_of[0])
            stranger = await opened(runner, "hang")
            for feed in (*children_of, grandchild, stranger):
                await in_state(runner, feed, WORKING)
            await runner.cancel(parent, "me")
            for feed in (*children_of, grandchild):
                assert await runner.ended(feed) is CANCELED
            assert stranger.state.state is WORKING
            await runner.cancel(stranger, "me")
        await store.close()

    run(main())


def test_what_a_dead_process_left_is_done_by_the_sweep(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, feed: Feed) -> None:
        del self, feed

    async def main() -> None:
        store = store_from_url(url)
        await store.open()
        family = Family()
        async with runner_on(store, family) as runner:
            with monkeypatch.context() as dead:
                # As if the process had died between the two appends.
                dead.setattr(children.Children, "_tell", nothing)
                parent, child = await family_of(runner)
                while parent.state.child != child.state.task_id:
                    await runner.tasks.move(parent, 5)
                family.go.set()
                assert await runner.ended(child) is COMPLETED
                canceled = await opened(runner, "hang")
                orphan = await opened(runner, "hang", canceled)
                await in_state(runner, orphan, WORKING)
                await runner.cancel(canceled, "me")
                await asyncio.sleep(0.05)
                assert not parent.state.over and not orphan.state.over
            await runner._children.round()
            assert await runner.ended(parent) is COMPLETED
            assert await runner.ended(orphan) is CANCELED
        await store.close()

    run(main())


def test_a_parent_with_a_coroutine_is_told_by_the_sweep_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, feed: Feed) -> None:
        del self, feed

    async def main() -> None:
        store = store_from_url("memory:")
        await store.open()
        family = Family()
        async with runner_on(store, family, NEVER_PARKED, OnCrash.FAIL) as runner:
            with monkeypatch.context() as dead:
                dead.setattr(children.Children, "_tell", nothing)
                parent, child = await family_of(runner)
                family.go.set()
                assert await runner.ended(child) is COMPLETED
                await until(lambda: any(owner.awaited for owner in runner._owners))
            await runner._children.round()
            assert await runner.ended(parent) is COMPLETED
        await store.close()

    run(main())


def test_a_store_that_is_away_for_a_moment_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(children, "RETRY_S", 0.001)

    async def main() -> None:
        family = Family()
        async with desk(family.act, SOON, crash=OnCrash.RESUME) as runner:
            parent, child = await family_of(runner)
            loaded, failures = runner.tasks.load, [StoreError("away"), StoreError("away")]

            async def load(tenant: str, task_id: str) -> Feed | None:
                if task_id == parent.state.task_id and failures and child.state.over:
                    raise failures.pop()
                return await loaded(tenant, task_id)

            monkeypatch.setattr(runner.tasks, "load", load)
            family.go.set()
            assert await runner.ended(parent) is COMPLETED
            assert "children.untold" in caplog.text

    run(main())


@pytest.mark.parametrize("kind", [Flaky, Shared])
def test_child_is_opened_although_its_first_write_failed(
    kind: type[Flaky], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "RETRY_S", 0.001)
    monkeypatch.setattr(runner_module, "RETRY_S", 0.001)
    monkeypatch.setattr(runner_module, "LATE_S", 0.05)
    ran: list[str] = []

    async def act(work: Work) -> Verdict:
        ran.append(work.state.task_id)
        if not work.state.parent:
            await work.emit(delta("a"))
            await work.drain()
            store.bad_appends = 1
            await work.children.open("child", AGENT, SendRequest(said("quick")), is_new=True)
            await child_rest(work, "child")
        return DONE

    store = kind()

    async def main() -> None:
        await store.open()
        async with desk(act, NEVER_PARKED, store, OnCrash.RESUME) as runner:
            parent = await runner.open("parent")
            assert await runner.ended(parent) is COMPLETED
            assert ran == [parent.state.task_id, "child"]
        await store.close()

    run(main())


def test_a_damaged_parent_keeps_no_other_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, feed: Feed) -> None:
        del self, feed

    async def main() -> None:
        family = Family()
        async with desk(family.act, NEVER_PARKED, crash=OnCrash.RESUME) as runner:
            with monkeypatch.context() as dead:
                dead.setattr(children.Children, "_tell", nothing)
                (damaged, one), (parent, other) = await family_of(runner), await family_of(runner)
                await until(lambda: sum(len(owner.awaited) for owner in runner._owners) == 2)
                family.go.set()
                assert await runner.ended(one) is await runner.ended(other) is COMPLETED
            loaded = runner.tasks.load

            async def load(tenant: str, task_id: str) -> Feed | None:
                if task_id == damaged.state.task_id:
                    raise StoreError.damaged(task_id, "as told")
                return await loaded(tenant, task_id)

            # Whichever comes first in the round: it is done, and the one that can be told is.
            monkeypatch.setattr(runner.tasks, "load", load)
            await runner._children.round()
            assert await runner.ended(parent) is COMPLETED
            assert not damaged.state.over

    run(main())
