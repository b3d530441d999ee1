"""The agent that asked for work is asked first: who that is, and what of its answers counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fleet.office import NORTH, Office, office
from trunkline.clock import now_ms
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.inbox import InboxItem, inbox_of
from trunkline.fleet.notify.callers import PASS, UNNAMED, CallerFirst
from trunkline.fleet.notify.notice import FIRST_MS, Notice
from trunkline.fleet.routing.choose import Standing
from trunkline.fleet.routing.dispatcher import Dispatcher
from trunkline.run import hops
from trunkline.wire.types import Task

Work = Callable[[Office, CallerFirst], Awaitable[Any]]


class Fleet:
    """One agent, under two names: the desk that asks and is asked."""

    def find(self, tenant: str, name: str, skill: str) -> Standing | None:
        return Standing(agent="desk", skills=None) if name == "desk" else None

    def with_skill(self, tenant: str, skill: str) -> list[Standing]:
        return []

    def tell_try(self, tenant: str, name: str) -> None:
        pass


class Clock:
    later_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.later_ms


def listed(name: str, **members: Any) -> Listed:
    catalogue = Catalogue()
    entry = Entry(name=name, owner="api", kind="skill", imported="a:b", tenants=(NORTH,), **members)
    catalogue.take(NORTH, name, entry)
    return cast("Listed", catalogue.find(NORTH, name))


def calling(work: Work, clock: Clock | None = None, announced_by: str = "", **asking: Any) -> None:
    async def main(at: Office) -> None:
        runner = at.application.host.runner
        known = {"alice": listed("alice", announced_by=announced_by), "desk": listed("desk", **asking)}
        dispatcher = Dispatcher(runner, Fleet())
        callers = CallerFirst(
            runner, dispatcher, inbox_of(runner), lambda _, name: known.get(name), clock or Clock()
        )
        await work(at, callers)

    office(main)


async def asked(at: Office, who: str = "alice", word: str = "ask", **members: Any) -> tuple[Any, InboxItem]:
    task = (await at.send(who, word, **members))["id"]
    inbox = inbox_of(at.application.host.runner)
    state = await inbox.asking(NORTH, task)
    assert state is not None
    item = inbox.question(state)
    assert item is not None
    return state, item


def test_who_is_asked_first() -> None:
    async def work(at: Office, callers: CallerFirst) -> None:
        assert callers.caller_of(NORTH, (await asked(at))[0]) == "alice"
        # Bob is no agent of the catalogue; what he sends for another agent says so.
        assert callers.caller_of(NORTH, (await asked(at, "bob"))[0]) == ""
        chained = {hops.KEY: {"root": "r", "hops": 1, "budget": 9}}
        assert callers.caller_of(NORTH, (await asked(at, "bob", metadata=chained))[0]) == UNNAMED

    calling(work)


@pytest.mark.parametrize(("key", "first"), [("alice", "alice"), ("mallory", "")])
def test_an_agent_that_another_key_has_announced_is_not_the_caller(key: str, first: str) -> None:
    async def work(at: Office, callers: CallerFirst) -> None:
        assert callers.caller_of(NORTH, (await asked(at))[0]) == first

    calling(work, announced_by=key)


def test_people_are_told_at_once_of_a_login() -> None:
    async def work(at: Office, callers: CallerFirst) -> None:
        chained = {hops.KEY: {"root": "r", "hops": 1, "budget": 9}}
        assert callers.caller_of(NORTH, (await asked(at, word="login"))[0]) == ""
        assert callers.caller_of(NORTH, (await asked(at, "bob", "login", metadata=chained))[0]) == ""

    calling(work)


def test_people_alone_are_asked_where_the_entry_says_so() -> None:
    async def work(at: Office, callers: CallerFirst) -> None:
        assert callers.caller_of(NORTH, (await asked(at))[0]) == ""

    calling(work, reviewer="operator")


@pytest.mark.parametrize(
    ("words", "answered"), [("red", True), (f" {PASS.lower()}. ", False), ("", False), ("ask", False)]
)
def test_what_of_its_answers_counts(words: str, answered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(task: Task) -> SimpleNamespace:
        return SimpleNamespace(text=words)

    def asking(item: InboxItem) -> str:
        return "ask" if words == "ask" else "answer"

    monkeypatch.setattr("trunkline.fleet.notify.callers.Result", said)
    # One that asks something itself gives no answer, and is not waited for.
    monkeypatch.setattr("trunkline.fleet.notify.callers._words", asking)

    async def work(at: Office, callers: CallerFirst) -> None:
        state, item = await asked(at)
        notice = Notice(at=state.status_at, question=item.question, caller="desk")
        async with asyncio.timeout(30):
            while (found := await callers.ask(NORTH, notice, item)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert found is answered
        if answered:
            assert (await at.until(item.task_id, "completed"))["text"] == "heard red"
            (closed,) = (await at.get("carol", "/api/inbox?state=closed"))["items"]
            assert closed["answeredBy"] == "desk"
        elif words == "ask":
            opened = [
                one for one in (await at.get("root", "/api/tasks"))["items"] if one["state"] == "canceled"
            ]
            assert len(opened) == 1
        # Whoever asks again asks by the same task.
        assert len((await at.get("root", "/api/tasks"))["items"]) == 2

    calling(work)


@pytest.mark.parametrize("later_ms", [FIRST_MS, -86_400_000])
def test_an_unnamed_agent_has_its_time(later_ms: int) -> None:
    """People are told after it, and at once if the clock was set back."""
    clock = Clock()

    async def work(at: Office, callers: CallerFirst) -> None:
        state, item = await asked(at)
        notice = Notice(at=state.status_at, question=item.question, caller=UNNAMED)
        assert await callers.ask(NORTH, notice, item) is None
        clock.later_ms = later_ms
        assert await callers.ask(NORTH, notice, item) is False

    calling(work, clock)


def test_caller_that_cannot_be_asked_now_is_asked_later_or_people_are() -> None:
    clock = Clock()

    async def work(at: Office, callers: CallerFirst) -> None:
        state, item = await asked(at)
        notice = Notice(at=state.status_at, question=item.question, caller="desk")
        at.application.host.runner.drain()
        assert await callers.ask(NORTH, notice, item) is None
        clock.later_ms = FIRST_MS
        assert await callers.ask(NORTH, notice, item) is False

    calling(work, clock)
