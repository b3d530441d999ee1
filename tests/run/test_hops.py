"""Chains of agents: what travels with a message, and where they end."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.run.desk import DONE, QUICK, desk, question, reason, run, said, until
from tests.stepped_clock import DAY_MS, SteppedClock
from trunkline.clock import now_ms
from trunkline.errors import InvalidParams, UnsupportedOperation
from trunkline.log.events import Recorded, Submitted
from trunkline.log.fold import State
from trunkline.run.executor import Verdict, Work
from trunkline.run.hops import KEY, Bounds, Grants, check, deadline, relayed
from trunkline.wire.types import Message, Metadata, Part, Role, SendRequest, TaskState

NOW = 1_800_000_000_000
BOUNDS = Bounds()


def _request(chain: Any, *, within: str = "message") -> SendRequest:
    said = Message(
        "m", role=Role.USER, parts=(Part(text="go"),), metadata={KEY: chain} if within == "message" else None
    )
    return SendRequest(said, metadata={KEY: chain} if within == "request" else None)


def _state(chain: Any = None, task_id: str = "first", **more: Any) -> State:
    state = State(task_id)
    said = Message("m", metadata=None if chain is None else {KEY: chain})
    state.apply(
        Recorded(1, 0, Submitted(message=said, context_id="c", principal="me", node="n", skill="s", **more))
    )
    return state


@pytest.mark.parametrize("metadata", [None, {}, {"other": 1}])
def test_a_message_without_one_opens_a_root(metadata: Metadata | None) -> None:
    check(SendRequest(Message("m", metadata=metadata), metadata=metadata), BOUNDS, NOW)
    assert Grants(BOUNDS).take(_state(metadata=metadata)) == {"root": "first", "hops": 1, "budget": 63}


@pytest.mark.parametrize(
    "chain",
    [
        {},
        {"hops": 7, "budget": 1, "root": "r", "deadline": NOW + 1},
        {"hops": 0},
        {"hops": 3.0, "budget": 2.0, "deadline": float(NOW + 1000)},
        {"budget": 1_000_000},
        {"cost": 0.01},
        {"root": "r", "unknown": [1]},
        {"hops": None, "budget": None, "deadline": None},
    ],
)
@pytest.mark.parametrize("within", ["message", "request"])
def test_what_may_go_on(chain: Any, within: str) -> None:
    check(_request(chain, within=within), BOUNDS, NOW)


@pytest.mark.parametrize(
    ("chain", "reason", "setting"),
    [
        ({"hops": 8}, "CHAIN_HOPS", "hop_limit is 8"),
        ({"hops": 99, "budget": 5}, "CHAIN_HOPS", "hop_limit"),
        ({"budget": 0}, "CHAIN_BUDGET", "task_budget"),
        ({"cost": 0}, "CHAIN_COST", "spent"),
        ({"deadline": NOW}, "CHAIN_DEADLINE", "deadline"),
        ({"deadline": 0}, "CHAIN_DEADLINE", "deadline"),
    ],
)
@pytest.mark.parametrize("within", ["message", "request"])
def test_what_may_not(chain: Any, reason: str, setting: str, within: str) -> None:
    with pytest.raises(UnsupportedOperation, match=setting) as refused:
        check(_request(chain, within=within), BOUNDS, NOW)
    assert refused.value.details == {"reason": reason}


@pytest.mark.parametrize(
    ("chain", "place"),
    [
        (None, ""),
        ([], ""),
        ("x", ""),
        (7, ""),
        ({"hops": "1"}, ".hops"),
        ({"hops": -1}, ".hops"),
        ({"hops": True}, ".hops"),
        ({"hops": 1.5}, ".hops"),
        ({"hops": float("inf")}, ".hops"),
        ({"hops": 2**60}, ".hops"),
        ({"budget": -1}, ".budget"),
        ({"budget": [1]}, ".budget"),
        ({"deadline": "tomorrow"}, ".deadline"),
        ({"root": 5}, ".root"),
        ({"root": "x" * 257}, ".root"),
        ({"root": "a\nb"}, ".root"),
        ({"root": None}, ".root"),
    ],
)
def test_what_cannot_be_read_is_named(chain: Any, place: str) -> None:
    for within, start in (("message", "message.metadata"), ("request", "metadata")):
        with pytest.raises(InvalidParams) as refused:
            check(_request(chain, within=within), BOUNDS, NOW)
        assert refused.value.field == f"{start}.trunkline.chain{place}"


def test_the_message_counts_before_the_request() -> None:
    check(SendRequest(Message("m", metadata={KEY: {"hops": 1}}), metadata={KEY: {"hops": 9}}), BOUNDS, NOW)


def test_a_line_of_agents_gets_as_far_as_it_may() -> None:
    state, lengths = _state(), [1]
    while True:
        try:
            given = Grants(BOUNDS).take(state)
        except UnsupportedOperation as end:
            assert end.details == {"reason": "CHAIN_HOPS"}
            break
        check(_request(given), BOUNDS, NOW)
        assert (given["root"], given["hops"]) == ("first", len(lengths))
        lengths.append(given["budget"])
        state = _state(given, f"task {len(lengths)}")
    assert lengths == [1, 63, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("hops", [1, 2, 8, 40])
def test_a_tree_is_never_larger_than_its_budget(tasks: int, hops: int) -> None:
    bounds = Bounds(hops, tasks)

    def grow(state: State) -> int:
        grants, made = Grants(bounds), 1
        while True:
            try:
                given = grants.take(state)
            except UnsupportedOperation:
                return made
            check(_request(given), bounds, NOW)
            made += grow(_state(given, "below"))

    made = grow(_state())
    assert made <= tasks
    assert made == tasks or hops <= 8, "what may be made can be made"


def test_a_task_can_call_many_and_the_first_of_these_more_than_the_later_ones() -> None:
    def calls(state: State) -> list[Metadata]:
        grants, given = Grants(BOUNDS), list[Metadata]()
        with pytest.raises(UnsupportedOperation):
            while True:
                given.append(grants.take(state))
        return given

    first = calls(_state())
    assert len(first) >= 50
    below = [len(calls(_state(one, "below"))) for one in (first[0], first[10], first[49])]
    assert below == [11, 6, 1]


def test_a_caller_cannot_bring_more_than_we_allow() -> None:
    assert Grants(Bounds(8, 10)).take(_state({"budget": 10**6}))["budget"] == 7
    assert Grants(Bounds(8, 10)).take(_state({"budget": 5}))["budget"] == 4
    with pytest.raises(UnsupportedOperation, match="task_budget") as refused:
        Grants(BOUNDS).take(_state({"budget": 1}))
    assert refused.value.details == {"reason": "CHAIN_BUDGET"}


def test_root_and_deadline_go_on() -> None:
    chain = {"root": "r", "hops": 2, "budget": 9, "deadline": NOW}
    assert Grants(BOUNDS).take(_state(chain)) == {"root": "r", "hops": 3, "budget": 5, "deadline": NOW}
    assert Grants(BOUNDS).take(_state({"deadline": NOW}))["root"] == "first"


def test_what_was_recorded_unread_begins_anew() -> None:
    assert Grants(BOUNDS).take(_state("nonsense")) == {"root": "first", "hops": 1, "budget": 63}
    assert deadline(_state("nonsense")) is None


@pytest.mark.parametrize(("chain", "found"), [(None, None), ({}, None), ({"deadline": NOW}, NOW)])
def test_deadline_is_read_from_message_or_request(chain: Any, found: int | None) -> None:
    assert deadline(_state(chain)) == found
    assert deadline(_state(metadata=None if chain is None else {KEY: chain})) == found


def test_threads_of_one_run_share_one_budget() -> None:
    grants, state = Grants(Bounds(8, 500)), _state()

    def take(_: int) -> int:
        try:
            return grants.take(state)["budget"]
        except UnsupportedOperation:
            return 0

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(200))) == 499


def _with_chain(chain: Any) -> SendRequest:
    return SendRequest(Message("m", role=Role.USER, parts=said().parts, metadata={KEY: chain}))


def test_a_task_is_not_opened_beyond_the_limits() -> None:
    async def act(work: Work) -> Verdict:
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            with pytest.raises(UnsupportedOperation, match="hop_limit"):
                runner.submit("t", "me", _with_chain({"hops": 8}), agent=runner.origin)
            feed, opened = runner.submit("t", "me", _with_chain({"hops": 7}), agent=runner.origin)
            await opened
            assert await runner.ended(feed) is TaskState.COMPLETED

    run(main())


@pytest.mark.parametrize("asks", [False, True])
def test_a_deadline_ends_what_runs_and_not_what_waits(asks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteppedClock(monkeypatch)
    monkeypatch.setattr("trunkline.run.runner.BEAT_S", 0.01)

    async def act(work: Work) -> Verdict:
        if asks:
            await work.ask(question())
        await asyncio.Event().wait()
        return DONE

    async def main() -> None:
        async with desk(act, QUICK) as runner:
            beats = list[str]()
            beat = runner.store.nodes.beat

            async def counted(node: str) -> None:
                beats.append(node)
                await beat(node)

            async def watched(times: int) -> None:
                seen = len(beats)
                await until(lambda: len(beats) > seen + times)

            monkeypatch.setattr(runner.store.nodes, "beat", counted)
            chain = {"deadline": now_ms() + 20_000}
            feed, opened = runner.submit("t", "me", _with_chain(chain), agent=runner.origin)
            await opened
            await runner.reach(feed, TaskState.INPUT_REQUIRED if asks else TaskState.WORKING)
            await watched(1)
            # By the monotonic clock, whatever the time of day.
            clock.step(DAY_MS)
            clock.move(15_000)
            await watched(3)
            assert not feed.state.over
            clock.step(-2 * DAY_MS)
            clock.move(5_000)
            if asks:
                await watched(3)
                assert feed.state.state is TaskState.INPUT_REQUIRED
                await runner.say(feed, said("this one"))
            assert await runner.ended(feed) is TaskState.FAILED
            assert reason(feed) == "The deadline that came with the message has passed."

    run(main())


def test_of_a_cost_each_call_hands_on_a_half_of_what_is_left() -> None:
    grants, state = Grants(BOUNDS), _state({"cost": 8})
    assert grants.cost_left(state) == 8.0
    assert grants.take(state)["cost"] == 4.0
    grants.spent = 2.0
    assert (grants.cost_left(state), grants.take(state)["cost"]) == (2.0, 1.0)
    grants.spent = 3.5
    with pytest.raises(UnsupportedOperation) as refused:
        grants.take(state)
    assert refused.value.details["reason"] == "CHAIN_COST"
    assert Grants(BOUNDS).cost_left(_state()) is None and "cost" not in Grants(BOUNDS).take(_state())


@pytest.mark.parametrize("cost", ["1", -1, True, float("nan"), float("inf"), []])
def test_a_cost_is_a_number_of_dollars(cost: Any) -> None:
    with pytest.raises(InvalidParams, match="number of dollars"):
        check(_request({"cost": cost}), BOUNDS, NOW)


@pytest.mark.parametrize(
    ("chain", "told"),
    [
        (None, {"root": "first", "hops": 1}),
        ({"deadline": 5, "own": "word"}, {"root": "first", "hops": 1, "deadline": 5}),
        (
            {"root": "r", "hops": 3, "budget": 4, "cost": 2},
            {"root": "r", "hops": 4, "budget": 4, "cost": 2.0},
        ),
    ],
)
@pytest.mark.parametrize("within", ["message", "request"])
def test_what_is_done_elsewhere_is_one_task_more_in_the_line(chain: Any, told: Any, within: str) -> None:
    at_request = {"metadata": {KEY: chain}} if within == "request" and chain else {}
    assert relayed(_state(None if at_request else chain, **at_request)) == {KEY: told}
