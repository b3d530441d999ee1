"""Orders become tasks of the agents that are chosen; what cannot be given to anybody is born rejected."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import Any, cast

import pytest

from tests.run.desk import DONE, Acts, Desk, desk, said
from trunkline.errors import InvalidParams, Unavailable
from trunkline.fleet.journal import Journals
from trunkline.fleet.routing import dispatcher as dispatcher_module
from trunkline.fleet.routing.choose import Standing, Wish
from trunkline.fleet.routing.dispatcher import HUB, Dispatched, Dispatcher, DispatchOrder, Policy
from trunkline.log import events as ev
from trunkline.run.executor import Executor, Verdict, Work
from trunkline.run.node import HostedAgent
from trunkline.store.records import Dedup, Where
from trunkline.wire.types import Correlation, TaskState

BOTH = ("ann", "ben")


class Few:
    """A fleet of some agents."""

    def __init__(self, *standings: Standing) -> None:
        self.known = {one.agent: one for one in standings}
        self.tried: list[str] = []
        self.is_sound = True
        self.undiscovered: list[Standing] = []

    def is_discovering(self, tenant: str) -> bool:
        """Return whether an agent was still without its card; it shows the card next."""
        found, self.undiscovered = self.undiscovered, []
        self.known |= {one.agent: one for one in found}
        return bool(found)

    def find(self, tenant: str, name: str, skill: str) -> Standing | None:
        return self.known.get(name)

    def with_skill(self, tenant: str, skill: str) -> Sequence[Standing]:
        return [one for one in self.known.values() if one.skills and skill in one.skills]

    def tell_try(self, tenant: str, name: str) -> None:
        self.tried.append(name)


def agent(name: str, *skills: str, **more: Any) -> Standing:
    return Standing(agent=name, skills=frozenset(skills or ("draft",)), **more)


class Counter:
    """The dispatcher at work, with what its agents were given."""

    def __init__(self, runner: Desk, fleet: Few, policy: Policy) -> None:
        self.runner, self.fleet = runner, fleet
        self.now = 1_800_000_000_000
        self.dispatcher = Dispatcher(runner, fleet, policy, now=lambda: self.now)

    async def ask(
        self, text: str = "go", context: str = "", task_id: str = "", **members: Any
    ) -> list[Dispatched]:
        order = DispatchOrder(tenant="t", principal="me", message=said(text, context), **members)
        return await self.dispatcher.dispatch(order, task_id=task_id)

    async def one(self, text: str = "go", context: str = "", **members: Any) -> tuple[str, str, str]:
        """The agent, the refusal and the id of the one task that an order becomes."""
        (made,) = await self.ask(text, context, **members)
        routed = (await self.runner.log(made.feed))[1]
        assert isinstance(routed, ev.Routed)
        return made.feed.state.agent, routed.refusal, made.feed.state.task_id


def counter(
    work: Callable[[Counter], Awaitable[None]],
    *standings: Standing,
    policy: Policy | None = None,
    hold: bool = False,
) -> None:
    async def act(task: Work) -> Verdict:
        if hold:
            await asyncio.Event().wait()
        return DONE

    async def main() -> None:
        async with asyncio.timeout(60), desk(act) as runner:
            names = {HUB, *[one.agent for one in standings]}
            await runner.carry(
                [
                    runner.agent(runner.origin),
                    *[HostedAgent(name, cast("Executor", Acts(act))) for name in names],
                ]
            )
            await work(Counter(runner, Few(*standings), policy or Policy()))

    asyncio.run(main())


def test_task_of_a_given_id_is_opened_only_once_an_earlier_attempt_is_known_to_have_failed() -> None:
    async def work(at: Counter) -> None:
        # After a write that failed, the runner holds the empty feed until it knows what the log has.
        pending = at.runner.tasks.begin("t", "planned")
        with pytest.raises(Unavailable):
            await at.ask(task_id="planned", targets=("ann",))
        del pending
        (made,) = await at.ask(task_id="planned", targets=("ann",))
        assert made.is_new and made.feed.state.task_id == "planned"

    counter(work, agent("ann"))


def test_hb07_three_refusals_are_three_rejected_tasks_and_nobody_is_asked() -> None:
    async def work(at: Counter) -> None:
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, "no_skill"),
            ({"skill": "fly"}, "unknown_skill"),
            ({"skill": "draft", "targets": ("anm",)}, "unknown_target"),
            ({"targets": ("all",)}, "no_skill"),
            ({"skill": "fly", "targets": ("all",)}, "unknown_skill"),
        ]
        for members, refusal in cases:
            made = await at.one(**members)
            assert made[:2] == (HUB, refusal)
            feed = await at.runner.tasks.load("t", made[2])
            assert feed is not None and feed.state.state is TaskState.REJECTED
        assert at.fleet.tried == []

    counter(work, agent("ann"))


def test_a_task_records_who_was_chosen_and_why() -> None:
    async def work(at: Counter) -> None:
        (made,) = await at.ask(
            skill="draft", correlation_id="c-1", metadata={"mine": 1}, trigger="ceremony:x"
        )
        state = made.feed.state
        assert (state.agent, made.is_new) == ("ann", True)
        assert state.metadata == {
            "mine": 1,
            "skillHint": "draft",
            "trunkline.dispatch": {"correlationId": "c-1", "trigger": "ceremony:x"},
        }
        first, routed, *_ = await at.runner.log(made.feed)
        assert isinstance(first, ev.Submitted) and isinstance(routed, ev.Routed)
        assert (routed.winner, [one.agent for one in routed.candidates]) == ("ann", ["ann"])
        assert at.fleet.tried == ["ann"]

    counter(work, agent("ann"), agent("ben", "other"))


def test_several_targets_have_an_outcome_each() -> None:
    async def work(at: Counter) -> None:
        made = await at.ask(skill="draft", targets=("ben", "typo", "ann"))
        assert [one.feed.state.agent for one in made] == ["ben", HUB, "ann"]
        born = [cast("ev.Submitted", (await at.runner.log(one.feed))[0]) for one in made]
        told = [(one.metadata or {})["trunkline.dispatch"]["correlationId"] for one in born]
        assert len(set(told)) == 1
        everybody = await at.ask(skill="draft", targets=("all",), correlation_id="c")
        assert [one.feed.state.agent for one in everybody] == ["ann", "ben"]
        again = await at.ask(skill="draft", targets=("all",), correlation_id="c")
        assert [one.feed.state.task_id for one in again] == [one.feed.state.task_id for one in everybody]
        assert not any(one.is_new for one in again)
        with pytest.raises(InvalidParams, match="at most 100"):
            await at.ask(skill="draft", targets=tuple(str(n) for n in range(101)))

    counter(work, agent("ann"), agent("ben"), agent("cat", "other"))


def test_requests_with_one_correlation_header_are_different_tasks() -> None:
    async def work(at: Counter) -> None:
        made = [
            one.feed.state
            for text in ("one", "two")
            for one in await at.ask(
                text, skill="draft", targets=("ann", "ben"), correlation=Correlation("c", "p")
            )
        ]
        assert len({state.task_id for state in made}) == 4
        assert {state.correlation for state in made} == {Correlation("c", "p")}
        told = [(state.metadata or {})["trunkline.dispatch"]["correlationId"] for state in made]
        assert told == ["c"] * 4

    counter(work, agent("ann"), agent("ben"))


def test_a_correlation_id_is_one_task_whoever_is_drawn() -> None:
    async def work(at: Counter) -> None:
        first = await at.one(skill="draft", correlation_id="c-1")
        for _ in range(10):
            assert await at.one(skill="draft", correlation_id="c-1") == first
        with pytest.raises(InvalidParams, match="other work"):
            await at.one("something else", skill="draft", correlation_id="c-1")
        assert (await at.one(skill="draft", correlation_id="c-2"))[2] != first[2]

    counter(work, agent("ann"), agent("ben"))


def test_an_id_that_was_given_is_one_task() -> None:
    async def work(at: Counter) -> None:
        first, again = [(await at.ask(skill="draft", task_id="run-1"))[0] for _ in range(2)]
        assert first.feed.state.task_id == again.feed.state.task_id == "run-1"
        assert (first.is_new, again.is_new) == (True, False)
        several = [await at.ask(skill="draft", targets=BOTH, task_id="run-2") for _ in range(2)]
        ids = [[one.feed.state.task_id for one in some] for some in several]
        assert ids[0] == ids[1] and len(set(ids[0])) == 2

    counter(work, agent("ann"), agent("ben"))


def test_a_conversation_stays_with_its_agent() -> None:
    async def work(at: Counter) -> None:
        first, _, task_id = await at.one(skill="draft")
        for _ in range(8):
            assert (await at.one(context=task_id, skill="draft"))[0] == first
            assert (await at.one(context=task_id))[0] == first
        other = next(name for name in BOTH if name != first)
        assert (await at.one(context=task_id, targets=(other,)))[0] == other
        # A conversation of somebody else's is none of this principal's.
        assert await at.dispatcher.sticky("t", "you", task_id) == ""

    counter(work, agent("ann"), agent("ben"))


def test_concurrency_is_never_passed() -> None:
    async def work(at: Counter) -> None:
        made = await asyncio.gather(*[at.one(skill="draft") for _ in range(6)])
        assert sorted(name for name, _, _ in made) == ["ann", "ann", HUB, HUB, HUB, HUB]
        assert {refusal for _, refusal, _ in made} == {"", "unavailable"}

    counter(work, agent("ann", concurrency=2), hold=True)


def test_a_subject_cools_down() -> None:
    async def work(at: Counter) -> None:
        assert (await at.one(skill="draft", subject="repo#1"))[:2] == ("ann", "")
        assert (await at.one(skill="draft", subject="repo#1"))[:2] == (HUB, "cooldown")
        assert (await at.one(skill="draft", subject="repo#2"))[:2] == ("ann", "")
        at.now += 30_000
        made = await asyncio.gather(*[at.one(skill="draft", subject="repo#1") for _ in range(3)])
        assert sorted(refusal for _, refusal, _ in made) == ["", "cooldown", "cooldown"]

    counter(work, agent("ann", cooldown_s=30.0))


def test_what_was_asked_for_before_begins_no_cooldown_anew() -> None:
    async def work(at: Counter) -> None:
        first = await at.one(skill="draft", correlation_id="c-1")
        at.now += 30_000
        assert await at.one(skill="draft", correlation_id="c-1") == first
        with pytest.raises(InvalidParams, match="other work"):
            await at.one("another", skill="draft", correlation_id="c-1")
        assert (await at.one(skill="draft"))[:2] == ("ann", "")

    counter(work, agent("ann", cooldown_s=30.0))


def test_draws_of_the_dispatcher_are_those_of_its_random_numbers() -> None:
    async def work(at: Counter) -> None:
        numbers = Random(28)
        at.dispatcher = Dispatcher(at.runner, cast("Any", at.fleet), chance=numbers.random)
        won = [(await at.dispatcher.explain("t", "me", Wish(skill="draft"))).winner for _ in range(3000)]
        again = Random(28)
        wanted = ["ann" if again.random() < 2 / 3 else "ben" for _ in range(3000)]
        assert won == wanted and abs(won.count("ann") - 2000) < 80

    counter(work, agent("ann", success_rate=1.0), agent("ben", success_rate=0.5))


class Killed(BaseException):
    """The end of a process."""


class Mortal:
    """A part of a store, or a runner; the process dies before or after one of its calls."""

    def __init__(self, part: Any, steps: Iterator[int], dies_at: int) -> None:
        self._part, self._steps, self._dies_at = part, steps, dies_at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name in ("docs", "heads", "tasks", "store"):
            return Mortal(found, self._steps, self._dies_at)
        if inspect.iscoroutinefunction(found):
            return self._stepped(found)
        return self._submitted if name == "submit" else found

    def _step(self) -> None:
        if next(self._steps) == self._dies_at:
            raise Killed

    def _stepped(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*given: Any, **named: Any) -> Any:
            self._step()
            found = await call(*given, **named)
            self._step()
            return found

        return counted

    def _submitted(self, *given: Any, **named: Any) -> Any:
        self._step()
        feed, ack = self._part.submit(*given, **named)

        async def recorded() -> int:
            seq = await ack
            self._step()
            return seq

        return feed, recorded()


def test_repeated_dispatch_is_never_refused_for_work_that_was_not_done() -> None:
    """The process dies before or after each call; the same request again is done, and done once."""
    ended = False
    dies_at = 0

    async def work(at: Counter) -> None:
        nonlocal ended
        runner = at.runner
        dedup = Dedup("me\x1fown", b"x", 60_000)
        mortal: Any = Mortal(runner, itertools.count(1), dies_at)
        order = DispatchOrder(tenant="t", principal="me", message=said("go"), skill="draft", dedup=dedup)
        dispatcher = Dispatcher(mortal, cast("Any", at.fleet), now=lambda: at.now)
        try:
            await dispatcher.dispatch(order)
            ended = True
        except Killed:
            pass
        assert (await at.one(skill="draft", dedup=dedup))[:2] == ("ann", "")
        page = await runner.store.heads.list("t", Where(), size=10)
        assert [head.agent for head in page.heads] == ["ann"]
        assert (await at.one(skill="draft"))[:2] == (HUB, "cooldown")

    while not ended:
        dies_at += 1
        counter(work, agent("ann", cooldown_s=3600.0))
    assert dies_at > 6


def test_a_storm_of_refusals_makes_one_alarm(caplog: pytest.LogCaptureFixture) -> None:
    async def work(at: Counter) -> None:
        for _ in range(25):
            await at.one(skill="fly")
        rows = (await Journals(at.runner.tasks.store.docs).read("t", HUB)).rows
        assert [(row.kind, row.about["refusal"], row.about["skill"]) for row in rows] == [
            ("storm", "unknown_skill", "fly")
        ]

    with caplog.at_level(logging.WARNING):
        counter(work, agent("ann"))
    assert sum("dispatch.storm" in one.getMessage() for one in caplog.records) == 1


def test_what_would_be_chosen_is_told_and_not_recorded() -> None:
    async def work(at: Counter) -> None:
        assert (await at.dispatcher.explain("t", "me", Wish())).winner == "ann"
        assert (await at.dispatcher.explain("t", "me", Wish(target="x"))).refusal == "unknown_target"
        told = {
            (await at.dispatcher.explain("t", "me", Wish(skill="draft", key="k"))).winner for _ in range(9)
        }
        assert told == {"ben"}
        assert at.runner.tasks.open_feeds() == [] and at.fleet.tried == []

    policy = Policy(helm="ann", splits={"draft": {"ben": 1.0}})
    counter(work, agent("ann"), agent("ben"), policy=policy)


def test_an_agent_that_is_not_carried_yet_takes_nothing() -> None:
    async def work(at: Counter) -> None:
        at.fleet.known["new"] = agent("new", "fresh")
        assert (await at.one(skill="fresh"))[:2] == (HUB, "unavailable")

    counter(work, agent("ann"))


@pytest.mark.parametrize("targets", [(), ("all",)])
def test_work_for_a_skill_waits_for_cards_that_are_still_to_come(targets: tuple[str, ...]) -> None:
    async def work(at: Counter) -> None:
        at.fleet.undiscovered = [agent("ann", "fresh")]
        assert (await at.one(skill="fresh", targets=targets))[:2] == ("ann", "")
        assert (await at.one(skill="other", targets=targets))[:2] == (HUB, "unknown_skill")

    counter(work, agent("ann"))


def test_work_waits_for_a_card_that_never_comes_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Counter) -> None:
        monkeypatch.setattr(dispatcher_module, "DISCOVERY_S", 0.01)
        monkeypatch.setattr(at.fleet, "is_discovering", lambda tenant: True)
        assert (await at.one(skill="fresh"))[:2] == (HUB, "unknown_skill")

    counter(work, agent("ann"))


def test_work_that_an_agent_does_not_accept_starts_no_cooldown() -> None:
    async def work(at: Counter) -> None:
        at.fleet.known["new"] = agent("new", "fresh", cooldown_s=30.0)
        assert [(await at.one(skill="fresh"))[1] for _ in range(2)] == ["unavailable"] * 2

    counter(work, agent("ann"))
