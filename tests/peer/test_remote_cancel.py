"""Whenever a stop comes, the remote agent that does the work is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from tests.client.agents import WORKING as AT_WORK
from tests.client.agents import Frames, Stand, card, deduplicating, stored, task
from tests.peer.rig import CALLER, PARKING, Caller, calling, remote_id
from tests.run.desk import Flaky, Shared, reason, run, said, until
from tests.run.pair import die
from trunkline import Turn
from trunkline.log import events as ev
from trunkline.peer.remote import CALL_KEY, Target
from trunkline.run import owner
from trunkline.run.feed import Feed
from trunkline.run.node import Limits
from trunkline.store.group_commit import Ack
from trunkline.store.records import Orphan
from trunkline.store.url import store_from_url
from trunkline.wire.types import SendRequest, TaskState

FAILED, CANCELED, ASKS = TaskState.FAILED, TaskState.CANCELED, TaskState.INPUT_REQUIRED
ASKING = "TASK_STATE_INPUT_REQUIRED"
HASTY = Limits(cancel_s=0.1, drain_s=0.2, park_after_s=60)
POLLED = card(capabilities={"streaming": False})


class Remote(Stand):
    """An agent whose one task is at work, or asks, until it is canceled."""

    def __init__(self, state: str = AT_WORK, own_card: Any = POLLED) -> None:
        super().__init__(self._say, own_card)
        self.state = state
        # What keeps it from answering to messages, and to a cancel.
        self.gate: asyncio.Event | None = None
        self.cancel_gate: asyncio.Event | None = None
        # How many messages it has not answered.
        self.kept = 0

    async def _say(self, asked: Any) -> Any:
        if asked.method == "CancelTask":
            assert asked.params["id"] == "t1"
            if self.cancel_gate is not None:
                await self.cancel_gate.wait()
            self.state = "TASK_STATE_CANCELED"
            return stored(self.state)
        if asked.method in ("SendMessage", "SendStreamingMessage") and self.gate is not None:
            self.kept += 1
            try:
                await self.gate.wait()
            finally:
                self.kept -= 1
        if asked.method == "SendMessage":
            return task(self.state, said="which?")
        if asked.method == "GetTask":
            return stored(self.state, said="which?")
        return Frames([task(self.state, said="which?")], stall=self.state == AT_WORK)

    @property
    def canceled(self) -> bool:
        return self.state == "TASK_STATE_CANCELED"

    async def was_canceled(self) -> None:
        """Wait until it was, for as long as `run` lets."""
        await until(lambda: self.canceled)


async def forward(turn: Turn) -> object:
    return (await turn.call("peer", turn.text)).text


async def handed_on(runner: Caller) -> Feed:
    """A new task that the remote agent is to do."""
    message = replace(said("hello"), metadata={CALL_KEY: to_builtins(Target("peer"))})
    feed, opened = runner.submit("t", "me", SendRequest(message), agent=remote_id(CALLER))
    await opened
    return feed


async def begun(runner: Caller) -> Feed:
    """A task that the remote agent has, and that is known here."""
    feed = await handed_on(runner)
    await taken(runner, feed)
    return feed


async def taken(runner: Caller, feed: Feed) -> None:
    while not any(isinstance(one, ev.Stepped) and one.place == 1 for one in await runner.log(feed)):
        await runner.tasks.move(feed, 1)


class Left:
    """A task of a remote agent whose process has died, and the store that it is in."""

    def __init__(self, store: Flaky, feed: Feed) -> None:
        self.store = store
        self._task_id = feed.state.task_id

    async def seen(self, runner: Caller) -> Feed:
        """The task as another process sees it."""
        found = await runner.tasks.load("t", self._task_id)
        assert found is not None
        return found


@asynccontextmanager
async def left(remote: Remote, store: Flaky, state: TaskState = TaskState.WORKING) -> AsyncGenerator[Left]:
    await store.open()
    async with calling(forward, remote, store=store) as first:
        feed = await begun(first)
        await first.reach(feed, state)
        await die(first)
        yield Left(store, feed)
    await store.close()


def store_of(*, shared: bool) -> Flaky:
    return Shared() if shared else Flaky()


Stop = Callable[[Caller, Feed], Coroutine[Any, Any, None]]
LATE = "The deadline that came with the message has passed."
either_store = pytest.mark.parametrize("shared", [False, True], ids=["alone", "replicas"])


async def cancel(runner: Caller, feed: Feed) -> None:
    await runner.cancel(feed, "me")


async def stop(runner: Caller, feed: Feed) -> None:
    del runner
    assert feed.runner is not None
    feed.runner.stop_with(LATE)


either_stop = pytest.mark.parametrize("how", [cancel, stop])


async def ended_by(how: Stop, runner: Caller, feed: Feed) -> None:
    """The task has ended as it is to be by such a stop."""
    assert await runner.ended(feed) is (CANCELED if how is cancel else FAILED)
    assert how is cancel or reason(feed) == LATE


@either_store
@either_stop
def test_a_stop_while_a_takeover_reads_the_log(
    how: Stop, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, gate, prepare = asyncio.Event(), asyncio.Event(), owner.prepare

    async def held(*args: Any, **more: Any) -> Any:
        found = await prepare(*args, **more)
        reads.set()
        await gate.wait()
        return found

    async def main() -> None:
        remote = Remote()
        async with left(remote, store_of(shared=shared)) as old:
            monkeypatch.setattr(owner, "prepare", held)
            async with calling(forward, remote, store=old.store) as second:
                await reads.wait()
                feed = await old.seen(second)
                stopping = asyncio.create_task(how(second, feed))
                await until(lambda: feed.runner is not None and feed.runner.stopped)
                gate.set()
                await stopping
                await ended_by(how, second, feed)
                await remote.was_canceled()

    run(main())


@pytest.mark.parametrize("verdict", [ev.Status(CANCELED), ev.Status(FAILED)], ids=["cancel", "deadline"])
def test_a_stop_before_the_first_step_of_a_takeover(verdict: ev.Status) -> None:
    async def main() -> None:
        remote = Remote()
        async with left(remote, Flaky()) as old, calling(forward, remote, store=old.store) as second:
            # Before anything is awaited, so nothing is taken over yet.
            takeover = cast("Any", second)._takeover
            begin = takeover._begin

            def begin_and_stop(feed: Feed, *more: Any) -> None:
                begin(feed, *more)
                assert feed.runner is not None
                feed.runner.stop(verdict)

            takeover._begin = begin_and_stop
            feed = await old.seen(second)
            assert await second.ended(feed) is verdict.state
            await remote.was_canceled()

    run(main())


async def nothing() -> None:
    """Look for nothing that is to be taken over."""


@either_store
@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_before_anything_is_taken_over(state: str, shared: bool) -> None:
    async def main() -> None:
        remote = Remote(state)
        known = ASKS if state == ASKING else TaskState.WORKING
        async with left(remote, store_of(shared=shared), known) as old:
            async with calling(forward, remote, store=old.store, limits=HASTY) as second:
                # As if thousands came before it.
                cast("Any", second)._takeover.round = nothing
                feed = await old.seen(second)
                await second.cancel(feed, "me")
                assert feed.state.state is CANCELED
                await remote.was_canceled()

    run(main())


class Unburied(Shared):
    """A store that has not found out that a node is dead."""

    async def alive(self, node: str) -> bool:
        del node
        return True

    async def orphans(self, *args: Any) -> list[Orphan]:
        return [one for one in await super().orphans(*args) if not one.node]


@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_of_what_a_dead_replica_has_that_nobody_has_missed(state: str) -> None:
    async def main() -> None:
        remote = Remote(state)
        known = ASKS if state == ASKING else TaskState.WORKING
        async with left(remote, Unburied(), known) as old:
            async with calling(forward, remote, store=old.store, limits=HASTY) as second:
                feed = await old.seen(second)
                await second.cancel(feed, "me")
                assert feed.state.state is CANCELED
                await remote.was_canceled()

    run(main())


class Leaving(Shared):
    """A store of which a node takes leave right after somebody has seen that it lives."""

    leave_now: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def alive(self, node: str) -> bool:
        found = await super().alive(node)
        if self.leave_now is not None:
            leaving, self.leave_now = self.leave_now, None
            await leaving()
        return found


@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_of_what_another_replica_is_letting_go_of(state: str) -> None:
    async def main() -> None:
        store, remote = Leaving(), Remote(state)
        await store.open()
        async with calling(forward, remote, store=store, limits=HASTY) as there:
            async with calling(forward, remote, store=store, limits=HASTY) as here:
                old = await begun(here)
                await here.reach(old, ASKS if state == ASKING else TaskState.WORKING)
                feed = await Left(store, old).seen(there)
                store.leave_now = here.stop
                await there.cancel(feed, "me")
                assert feed.state.state is CANCELED
                await remote.was_canceled()
        await store.close()

    run(main())


@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_at_a_process_that_goes_down(state: str) -> None:
    gate = asyncio.Event()

    async def busy(turn: Turn) -> str:
        await gate.wait()
        return "done"

    async def main() -> None:
        store, remote = Flaky(), Remote(state)
        await store.open()
        async with calling(busy, remote, store=store, limits=Limits(drain_s=30)) as runner:
            feed = await begun(runner)
            await runner.reach(feed, ASKS if state == ASKING else TaskState.WORKING)
            # What keeps the process: what others do is let go of at once.
            own = await runner.open()
            stopping = asyncio.create_task(runner.stop())
            await until(lambda: feed.runner is None)
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED and not own.state.over
            await remote.was_canceled()
            gate.set()
            await stopping
        await store.close()

    run(main())


def test_a_process_that_goes_down_waits_for_a_cancel_that_it_passes_on() -> None:
    async def main() -> None:
        store, remote = Flaky(), Remote()
        remote.cancel_gate = asyncio.Event()
        await store.open()
        async with calling(forward, remote, store=store, limits=Limits(drain_s=30)) as runner:
            feed = await begun(runner)
            canceling = asyncio.create_task(runner.cancel(feed, "me"))
            await until(lambda: "CancelTask" in remote.methods)
            stopping = asyncio.create_task(runner.stop())
            await until(lambda: runner.draining)
            assert not cast("Any", runner)._settled()
            remote.cancel_gate.set()
            await canceling
            assert remote.canceled
            await stopping
        await store.close()

    run(main())


class Crossing(Shared):
    """A store that has something done at the moment in which a task is parked."""

    meanwhile: Callable[[], None] = staticmethod(lambda: None)

    def append(self, *args: Any, **kwargs: Any) -> Ack:
        if any(isinstance(one, ev.Parked) for one in args[3]):
            self.meanwhile()
        return super().append(*args, **kwargs)


@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_that_crosses_a_parking(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.peer.remote_run.FIRST_PAUSE_S", 3600.0)

    async def main() -> None:
        store, remote = Crossing(), Remote(state)
        await store.open()
        canceling: list[asyncio.Task[None]] = []
        async with calling(forward, remote, store=store, limits=PARKING) as runner:
            feed = await handed_on(runner)
            store.meanwhile = lambda: canceling.append(asyncio.create_task(runner.cancel(feed, "me")))
            assert await runner.ended(feed) is CANCELED
            await remote.was_canceled()
            await asyncio.gather(*canceling)
        await store.close()

    run(main())


CARDS = {
    "polled": POLLED,
    "streamed": card(),
    "deduplicating": deduplicating(),
}


@pytest.mark.parametrize("own_card", CARDS.values(), ids=CARDS)
@either_stop
def test_a_stop_between_a_message_and_its_first_answer(how: Stop, own_card: Any) -> None:
    async def main() -> None:
        remote = Remote(own_card=own_card)
        remote.gate = asyncio.Event()
        async with calling(forward, remote) as runner:
            feed = await handed_on(runner)
            await until(lambda: bool(remote.asked))
            stopping = asyncio.create_task(how(runner, feed))
            await until(lambda: feed.runner is not None and feed.runner.stopped)
            remote.gate.set()
            await stopping
            await ended_by(how, runner, feed)
            await remote.was_canceled()
            assert len(remote.asked) == 2

    run(main())


def test_a_message_that_is_not_answered_keeps_no_task_from_its_end() -> None:
    async def main() -> None:
        remote = Remote()
        remote.gate = asyncio.Event()
        async with calling(forward, remote, limits=HASTY) as runner:
            feed = await handed_on(runner)
            await until(lambda: bool(remote.asked))
            await runner.cancel(feed, "me")
            assert feed.state.state is CANCELED
            await runner.left_all()
            assert remote.methods == ["SendMessage"]
            remote.gate.set()
            await until(lambda: not remote.kept)

    run(main())


@pytest.mark.parametrize("knows", [True, False], ids=["deduplicating", "not"])
def test_a_cancel_after_a_crash_between_a_message_and_its_first_answer(knows: bool) -> None:
    """What the message became only an agent can tell that knows it again."""

    async def main() -> None:
        remote, store = Remote(own_card=deduplicating() if knows else POLLED), Flaky()
        remote.gate = asyncio.Event()
        await store.open()
        async with calling(forward, remote, store=store) as first:
            old = await handed_on(first)
            await until(lambda: bool(remote.asked))
            await die(first)
            remote.gate.set()
            async with calling(forward, remote, store=store) as second:
                feed = await Left(store, old).seen(second)
                await second.cancel(feed, "me")
                assert feed.state.state is CANCELED
                if knows:
                    await remote.was_canceled()
                sent = [one.message_id for one in remote.asked if "Message" in one.method]
                assert len(sent) == (2 if knows else 1) and len(set(sent)) == 1
        await store.close()

    run(main())


@either_store
def test_a_parent_that_is_canceled_while_it_and_its_call_are_taken_over(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, prepare = asyncio.Event(), owner.prepare

    async def held(*args: Any, **more: Any) -> Any:
        found = await prepare(*args, **more)
        await gate.wait()
        return found

    async def main() -> None:
        remote, store = Remote(), store_of(shared=shared)
        await store.open()
        async with calling(forward, remote, store=store) as first:
            parent = await first.open("hello")
            child = await first.child(parent)
            await taken(first, child)
            await die(first)
            monkeypatch.setattr(owner, "prepare", held)
            async with calling(forward, remote, store=store) as second:
                near, far = await Left(store, parent).seen(second), await Left(store, child).seen(second)
                await until(lambda: near.runner is not None and far.runner is not None)
                canceling = asyncio.create_task(second.cancel(near, "me"))
                await until(lambda: near.runner is None or near.runner.stopped)
                gate.set()
                await canceling
                assert (await second.ended(near), await second.ended(far)) == (CANCELED, CANCELED)
                await remote.was_canceled()
        await store.close()

    run(main())


@pytest.mark.parametrize("state", [AT_WORK, ASKING])
def test_a_cancel_at_one_of_two_replicas_when_the_other_dies(state: str, postgres_url: str) -> None:
    async def main() -> None:
        remote = Remote(state)
        known = ASKS if state == ASKING else TaskState.WORKING
        stores = [cast("Flaky", store_from_url(postgres_url)) for _ in range(2)]
        for store in stores:
            await store.open()
        async with calling(forward, remote, store=stores[1]) as there:
            async with calling(forward, remote, store=stores[0]) as here:
                old = await begun(here)
                await here.reach(old, known)
                feed = await Left(stores[1], old).seen(there)
                await die(here)
                await there.cancel(feed, "me")
                assert feed.state.state is CANCELED
                await remote.was_canceled()
        for store in stores:
            await store.close()

    run(main())
