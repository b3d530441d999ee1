"""One way to find a task, one way to change it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from tests.run.desk import DONE, LIMIT_S, WORKING, Flaky, delta, desk, question, run, said, until
from tests.run.stores import set_back
from trunkline.errors import Conflict, Duplicate, StoreError, TaskNotFound, UnsupportedOperation
from trunkline.log import events as ev
from trunkline.log.decide import Cancel, Claim, ForceCancel, Say
from trunkline.run import tasks as tasks_module
from trunkline.run.contexts import CONTEXT_TASKS
from trunkline.run.executor import Verdict, Work
from trunkline.run.tasks import Tasks
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup, Hint
from trunkline.wire.types import Message, TaskState

FIRST = ev.Submitted(said(), "c", "me", "n1")


async def tasks(*events: ev.AnyEvent) -> Tasks:
    store = Flaky()
    await store.open()
    await store.log.append("t", "x", 0, [FIRST, *events], at=1)
    return Tasks(store)


@pytest.mark.parametrize(
    ("tenant", "owner", "task_id"),
    [
        ("t", "you", "x"),
        ("u", "me", "x"),
        ("t", "me", "y"),
        ("t", "me", "../x"),
        ("t", "me", "x" * 200),
        ("t", "", "x"),
    ],
)
def test_what_is_not_yours_is_not_there(tenant: str, owner: str, task_id: str) -> None:
    async def main() -> None:
        found = await tasks()
        kept = await found.find("t", "me", "x", ("",))
        with pytest.raises(TaskNotFound) as foreign:
            await found.find(tenant, owner, task_id, ("",))
        with pytest.raises(TaskNotFound) as unknown:
            await found.find("t", "me", "unknown", ("",))
        if len(task_id) == 1:
            assert str(foreign.value).replace(task_id, "_") == str(unknown.value).replace("unknown", "_")
        assert kept.state.seq == 1
        await found.store.close()

    run(main())


def test_there_is_one_feed_per_task_as_long_as_somebody_holds_it() -> None:
    async def main() -> None:
        found = await tasks()
        feeds = await asyncio.gather(*(found.find("t", "me", "x", ("",)) for _ in range(20)))
        assert len({id(feed) for feed in feeds}) == 1
        assert await found.load("t", "x") is feeds[0]
        assert await found.load("t", "none") is None
        feeds.clear()
        gc.collect()
        await found.store.log.append("t", "x", 1, [WORKING], at=2)
        assert (await found.find("t", "me", "x", ("",))).state.seq == 2
        await found.store.close()

    run(main())


def test_a_feed_is_not_born_behind_the_log() -> None:
    """A reader is held up with what it read; meanwhile another loads, changes and drops the task."""

    class Slow(Flaky):
        held: asyncio.Event | None = None

        async def read(self, *args: object, **kwargs: object) -> list[ev.Recorded]:
            batch = await super().read(*args, **kwargs)
            if (gate := self.held) is not None:
                self.held = None
                await gate.wait()
            return batch

    async def main() -> None:
        store = Slow()
        await store.open()
        await store.log.append("t", "x", 0, [FIRST, question()], at=1)
        found = Tasks(store)
        gate = store.held = asyncio.Event()

        async def change() -> None:
            await found.change(await found.find("t", "me", "x", ("",)), Cancel("me"))

        reading = asyncio.create_task(found.find("t", "me", "x", ("",)))
        await until(lambda: store.held is None)
        changing = asyncio.create_task(change())
        for _ in range(50):
            await asyncio.sleep(0)
        await store.clock.now()
        gate.set()
        await changing
        gc.collect()
        feed = await reading
        assert feed.state.state is TaskState.CANCELED
        assert (await found.find("t", "me", "x", ("",))).state.over
        await store.close()

    run(main())


def test_a_hint_that_comes_while_a_task_is_read_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        fold = found.fold

        async def slowly(tenant: str, task_id: str, until: int | None = None) -> Any:
            state = await fold(tenant, task_id, until)
            await found.store.log.append("t", "x", 2, [delta("late")], at=1)
            assert found.behind(Hint("t", "x", 3)) is None
            return state

        monkeypatch.setattr(found, "fold", slowly)
        assert (await found.find("t", "me", "x", ("",))).state.seq == 3
        await found.store.close()

    run(main())


def test_whoever_watches_hears_of_states_that_an_append_passed_through() -> None:
    async def main() -> None:
        found = await tasks()
        heard: list[Any] = []
        found.watch = lambda _, head, passed, *__: heard.append((head.state, passed))
        feed = await found.find("t", "me", "x", ("",))
        await found.append(feed, (WORKING,))
        await found.append(feed, (ev.Status(TaskState.INPUT_REQUIRED), ev.Status(TaskState.COMPLETED)))
        passed = (TaskState.INPUT_REQUIRED, 3)
        assert heard == [(TaskState.WORKING, None), (TaskState.COMPLETED, passed)]
        await found.store.close()

    run(main())


def test_a_long_task_is_folded_in_pages() -> None:
    async def main() -> None:
        found = await tasks(*(ev.FollowUp(said()) for _ in range(1_499)))
        assert (await found.find("t", "me", "x", ("",))).state.seq == 1_500
        assert (await found.fold("t", "x")).seq == 1_500
        await found.store.close()

    run(main())


@pytest.mark.parametrize("behind", [1, 700])
def test_a_conflict_is_read_and_decided_again(behind: int) -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        feed = await found.find("t", "me", "x", ("",))
        await found.store.log.append("t", "x", 2, [ev.FollowUp(said())] * behind, at=2)
        assert await found.change(feed, Cancel("me")) == (ev.CancelRequested("me"),)
        assert feed.state.seq == 3 + behind
        await found.store.log.append("t", "x", 3 + behind, [DONE], at=3)
        assert await found.change(feed, ForceCancel()) == ()
        with pytest.raises(UnsupportedOperation, match="completed"):
            await found.change(feed, Say(said()))
        assert await found.change(feed, Claim("n2", feed.state.node)) == ()
        await found.store.close()

    run(main())


def test_the_loser_of_a_race_decides_on_what_the_winner_did() -> None:
    async def main() -> None:
        found = await tasks(question())
        feed = await found.find("t", "me", "x", ("",))
        told = await asyncio.gather(
            found.change(feed, Say(said("1"))),
            found.change(feed, Say(said("2"))),
            found.change(feed, Cancel("me")),
            return_exceptions=True,
        )
        assert [type(one) for one in told] == [tuple, tuple, tuple]
        events = [one.event for one in await found.store.log.read("t", "x")][2:]
        assert events == [ev.FollowUp(said("1")), WORKING, ev.FollowUp(said("2")), ev.CancelRequested("me")]
        assert feed.callers == 0
        await found.store.close()

    run(main())


def test_a_change_goes_on_without_its_caller() -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        feed = await found.find("t", "me", "x", ("",))
        changing = asyncio.create_task(found.change(feed, Cancel("me")))
        await asyncio.sleep(0)
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        while not feed.state.cancel_requested:
            await found.move(feed, LIMIT_S)
        assert feed.callers == 0
        await found.store.close()

    run(main())


def test_a_store_that_fails_changes_nothing() -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        store = found.store
        assert isinstance(store, Flaky)
        feed = await found.find("t", "me", "x", ("",))
        store.bad_appends = 1
        with pytest.raises(StoreError, match="full"):
            await found.change(feed, Cancel("me"))
        await store.log.append("t", "x", 2, [ev.FollowUp(said())], at=2)
        store.bad_reads = 1
        with pytest.raises(StoreError, match="gone"):
            await found.change(feed, Cancel("me"))
        assert (feed.state.seq, feed.callers) == (2, 0)
        assert await found.change(feed, Cancel("me"))
        await store.close()

    run(main())


def test_waits_end_at_their_limit() -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        feed = await found.find("t", "me", "x", ("",))
        await found.rest(feed, 0.01)
        await found.end(feed, 0.01)
        await found.move(feed, 0.01)
        await found.end(feed, 0)
        assert feed._resters == []
        await found.change(feed, ForceCancel())
        await found.rest(feed, LIMIT_S)
        await found.end(feed, LIMIT_S)
        await found.store.close()

    run(main())


def test_a_hundred_equal_sends_are_one_task() -> None:
    runs: list[Work] = []

    async def act(work: Work) -> Verdict:
        runs.append(work)
        return DONE

    async def main() -> None:
        dedup = Dedup("key", b"digest", 60_000)
        async with desk(act) as runner:
            told = await asyncio.gather(
                *(runner.open(dedup=dedup) for _ in range(100)), return_exceptions=True
            )
            [feed] = [one for one in told if not isinstance(one, BaseException)]
            others = [one for one in told if isinstance(one, Duplicate)]
            assert len(others) == 99
            assert {(one.task_id, one.digest) for one in others} == {(feed.state.task_id, b"digest")}
            await runner.ended(feed)
            with pytest.raises(Duplicate):
                await runner.open(dedup=dedup)
        assert len(runs) == 1

    run(main())


def test_an_answer_sent_twice_is_taken_once() -> None:
    async def act(work: Work) -> Verdict:
        await work.ask(question())
        return DONE

    async def main() -> None:
        dedup = Dedup("key", b"digest", 60_000)
        async with desk(act) as runner:
            feed = await runner.open()
            await runner.reach(feed, TaskState.INPUT_REQUIRED)
            told = await asyncio.gather(
                *(runner.say(feed, said("yes"), dedup) for _ in range(5)), return_exceptions=True
            )
            assert sorted(type(one).__name__ for one in told if one is not None) in (
                ["Duplicate"] * 4,
                ["Duplicate"] * 3,
            )
            await runner.ended(feed)
            await runner.say(feed, said("yes"), dedup)
            assert [type(event) for event in await runner.log(feed)].count(ev.FollowUp) == 1

    run(main())


def test_a_conflict_says_where_the_log_stands() -> None:
    async def main() -> None:
        found = await tasks()
        with pytest.raises(Conflict) as conflict:
            await found.store.log.append("t", "x", 0, [WORKING], at=1)
        assert conflict.value.actual == 1
        await found.store.close()

    run(main())


def words(messages: tuple[Message, ...]) -> list[str]:
    return ["".join(part.text or "" for part in message.parts) for message in messages]


def test_the_conversation_before_a_task() -> None:
    heard: list[list[str]] = []

    async def act(work: Work) -> Verdict:
        text = words((work.state.message,))[0]
        heard.append(words(work.earlier))
        if text == "ask":
            await work.ask(question("what?"))
        if text == "fail":
            return ev.Status(TaskState.FAILED, said("no luck"))
        await work.emit(delta(f"did {text}"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            for text in ("one", "fail", "ask", "two"):
                feed = await runner.open(text, context_id="c")
                await runner.tasks.rest(feed, 5)
                if text == "ask":
                    await runner.say(feed, said("that"))
                await runner.ended(feed)
            alone = await runner.open("alone", context_id="d")
            await runner.ended(alone)
        before = ["one", "did one", "fail", "no luck"]
        assert heard == [[], before[:2], before, [*before, "ask", "what?", "that", "did ask"], []]

    run(main())


def test_only_so_many_tasks_are_looked_at() -> None:
    heard: list[list[str]] = []

    async def act(work: Work) -> Verdict:
        heard.append(words(work.earlier))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            for number in range(CONTEXT_TASKS + 5):
                await runner.ended(await runner.open(str(number), context_id="c"))
        assert heard[-1] == [str(n) for n in range(4, CONTEXT_TASKS + 4)]

    run(main())


def test_a_log_that_was_set_back_is_read_anew() -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        await found.store.log.append("t", "x", 2, [delta("lost")], at=2)
        feed = await found.find("t", "me", "x", ("",))
        await set_back(found.store, "x", 2)
        waiting = [feed.changed(found.loop), feed.rested(found.loop)]
        with pytest.raises(Conflict):
            await found.change(feed, Cancel("me"))
        # Whoever follows it is told at once, also one who comes too late to hear it.
        for future in (*waiting, feed.changed(found.loop)):
            with pytest.raises(Conflict):
                await future
        fresh = await found.find("t", "me", "x", ("",))
        assert fresh is not feed
        assert await found.change(fresh, Cancel("me")) == (ev.CancelRequested("me"),)
        assert fresh.state.seq == 3
        await found.store.close()

    run(main())


def test_a_conflict_with_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "RETRY_S", 0.0)
    monkeypatch.setattr(tasks_module, "LONGEST_CHANGE_S", 0.05)

    async def main() -> None:
        found = await tasks(WORKING)
        feed = await found.find("t", "me", "x", ("",))

        def refuse(*_: Any, **__: Any) -> Ack:
            ack = Ack()
            ack.settle(Conflict(9))
            return ack

        monkeypatch.setattr(found.store.log, "append", refuse)
        with pytest.raises(Conflict):
            await found.change(feed, Cancel("me"))
        assert feed.callers == 0
        await found.store.close()

    run(main())


def test_a_hundred_who_race_are_all_heard() -> None:
    async def main() -> None:
        found = await tasks(WORKING)
        feed = await found.find("t", "me", "x", ("",))
        await asyncio.gather(*(found.change(feed, Say(said(str(n)))) for n in range(100)))
        assert feed.state.seq == 102
        await found.store.close()

    run(main())


def test_a_task_at_work_is_not_forgotten_and_no_older_prune_takes_a_newer_one_back() -> None:
    async def act(work: Work) -> Verdict:
        await work.emit(delta("begun"))
        return await asyncio.get_running_loop().create_future()

    async def case() -> None:
        async with desk(act) as runner:
            feed = await runner.open()
            await until(lambda: feed.state.seq >= 3)
            later = feed.state.status_at + 60_000
            runner.tasks.forget(later)
            # There is one feed for a task, or its readers would not hear what its executor says.
            assert await runner.find(feed.state.task_id) is feed
            runner.tasks.forget(later - 30_000)
            assert runner.tasks.pruned_before((runner.origin,)) == later

    run(case())
