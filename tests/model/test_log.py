"""The log against the reference: two replicas on one real store, commands alone and in races."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.model.reference import ENDS, Model, Told
from tests.sample import at_most
from trunkline.clock import Ids, now_ms
from trunkline.errors import Duplicate, Refused, TurnOver
from trunkline.log import events as ev
from trunkline.log.decide import Cancel, Claim, Command, Emit, ForceCancel, Release, Say
from trunkline.log.fold import fold
from trunkline.run.tasks import Tasks
from trunkline.store.records import Dedup
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Artifact, Message, TaskState

STEPS = at_most(10_000, 2_000)
SAID = Message("m")
WORDS: dict[str, ev.AnyEvent] = {
    "working": ev.Status(TaskState.WORKING),
    "delta": ev.Delta("a", "x"),
    "chunk": ev.Chunk(Artifact("b")),
    "input-required": ev.Status(TaskState.INPUT_REQUIRED),
    "completed": ev.Status(TaskState.COMPLETED),
    "failed": ev.Status(TaskState.FAILED),
    "rejected": ev.Status(TaskState.REJECTED),
    "replied": ev.Replied(SAID),
}
nodes = st.sampled_from(["n1", "n2"])
emits = st.lists(
    st.sampled_from([*WORDS, "delta", "chunk", "working", "input-required"]), min_size=1, max_size=4
)
commands = st.one_of(
    st.tuples(st.just("say"), st.sampled_from(["", "n1", "n2"])),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("force")),
    st.tuples(st.just("claim"), nodes, st.sampled_from(["", "n1", "n2"])),
    st.tuples(st.just("release"), nodes),
    st.tuples(st.just("emit"), nodes, emits).map(lambda three: (three[0], three[1], *three[2])),
)
places = st.integers(0, 2)
replicas = st.integers(0, 1)


def command(words: tuple[str, ...]) -> Command:
    match words:
        case "say", node:
            return Say(SAID, node)
        case ("cancel",):
            return Cancel("me")
        case ("force",):
            return ForceCancel()
        case "claim", node, dead:
            return Claim(node, dead)
        case "release", node:
            return Release(node)
        case _, node, *said:
            return Emit(node, tuple(WORDS[word] for word in said))
    raise AssertionError(words)


def word(event: ev.AnyEvent) -> str:
    match event:
        case ev.Status(state=state):
            return plain_state(state)
        case ev.Claimed(node=node):
            return f"claimed {node}"
        case _:
            return type(event).__struct_config__.tag


class Machine(RuleBasedStateMachine):
    """Up to three tasks, seen by two replicas."""

    steps = 0
    loop: asyncio.AbstractEventLoop
    store: SqliteStore
    ids = Ids()

    def __init__(self) -> None:
        super().__init__()
        self.replicas = [Tasks(self.store), Tasks(self.store)]
        self.models: list[Model] = []
        self.task_ids: list[str] = []
        self.feeds: dict[tuple[int, int], Any] = {}
        self.keys: dict[str, tuple[str, bytes]] = {}
        self.prefix = self.ids.new()

    @precondition(lambda self: len(self.models) < 3)
    @rule(key=st.sampled_from("kl"), body=st.sampled_from([b"same", b"other"]), node=nodes)
    def submit(self, key: str, body: bytes, node: str) -> None:
        """The key of a message is good for one task, whatever comes after it."""
        Machine.steps += 1
        task_id, tasks = self.ids.new(), self.replicas[0]
        dedup = Dedup(f"{self.prefix} {key}", body, 60_000)

        async def work() -> Any:
            feed = tasks.begin("t", task_id)
            await tasks.append(feed, (ev.Submitted(SAID, "c", "me", node),), dedup)
            return feed

        try:
            feed = self.loop.run_until_complete(work())
        except Duplicate as duplicate:
            assert (duplicate.task_id, duplicate.digest) == self.keys[key]
        else:
            assert key not in self.keys
            self.keys[key] = task_id, body
            self.feeds[0, len(self.models)] = feed
            self.models.append(Model(node))
            self.task_ids.append(task_id)

    async def _look(self, replica: int, place: int) -> None:
        # As hints would do it: a replica knows what was committed before; of what is on its way it learns by conflict.
        tasks = self.replicas[replica]
        if (replica, place) not in self.feeds:
            self.feeds[replica, place] = await tasks.find("t", "me", self.task_ids[place], ("",))
        await tasks.refresh(self.feeds[replica, place])

    async def _do(self, replica: int, place: int, words: tuple[str, ...]) -> str:
        try:
            await self.replicas[replica].change(self.feeds[replica, place], command(words))
        except (Refused, TurnOver) as told:
            return str(told)
        return ""

    @precondition(lambda self: self.models)
    @rule(replica=replicas, place=places, words=commands)
    def one(self, replica: int, place: int, words: tuple[str, ...]) -> None:
        """A command alone: the outcome is the model's."""
        Machine.steps += 1
        place %= len(self.models)
        [told], stored = self._together(place, [(replica, words)])
        assert agrees([(words, told)], self.models[place])
        assert stored == self.models[place].log

    @precondition(lambda self: self.models)
    @rule(place=places, racers=st.lists(st.tuples(replicas, commands), min_size=2, max_size=3))
    def race(self, place: int, racers: list[tuple[int, tuple[str, ...]]]) -> None:
        """Several at once: there is an order in which the model says the same."""
        Machine.steps += 1
        place %= len(self.models)

        told, stored = self._together(place, racers)
        outcomes = [(words, text) for (_, words), text in zip(racers, told, strict=True)]
        for order in permutations(outcomes):
            model = deepcopy(self.models[place])
            if agrees(order, model) and model.log == stored:
                self.models[place] = model
                return
        raise AssertionError((self.models[place].log, outcomes, stored))

    def _together(self, place: int, racers: list[tuple[int, tuple[str, ...]]]) -> tuple[list[str], list[str]]:
        """Do these at once; gives what each was told, and the log behind them, which is dense and ends once."""

        async def work() -> tuple[list[str], list[ev.Recorded]]:
            for replica in sorted({replica for replica, _ in racers}):
                await self._look(replica, place)
            told = await asyncio.gather(*(self._do(replica, place, words) for replica, words in racers))
            return told, await self.store.log.read("t", self.task_ids[place])

        told, records = self.loop.run_until_complete(work())
        assert [one.seq for one in records] == list(range(1, len(records) + 1))
        stored = [word(one.event) for one in records]
        assert [at for at, one in enumerate(stored) if one in ENDS] in ([], [len(stored) - 1])
        return told, stored

    def teardown(self) -> None:
        for place, model in enumerate(self.models):
            records = self.loop.run_until_complete(self.store.log.read("t", self.task_ids[place]))
            assert [word(one.event) for one in records] == model.log
            state = fold("x", records)
            shown = "replied" if state.reply is not None else plain_state(state.state)
            assert (shown, state.node, state.cancel_requested) == (model.state, model.node, model.stopping)


def agrees(outcomes: Any, model: Model) -> bool:
    """Whether the model, doing this in this order, tells the losers what they were told."""
    for words, text in outcomes:
        try:
            model.do(*words)
        except Told as told:
            if str(told).replace("replied", "completed") not in text:
                return False
        else:
            if text:
                return False
    return True


@pytest.mark.sampled
def test_the_log_agrees_with_the_model() -> None:
    loop = asyncio.new_event_loop()
    Machine.loop, Machine.store, Machine.steps = loop, SqliteStore(None, now_ms=now_ms), 0
    loop.run_until_complete(Machine.store.open())
    try:
        while Machine.steps < STEPS:
            run_state_machine_as_test(
                Machine, settings=settings(max_examples=at_most(225, 45), stateful_step_count=50)
            )
    finally:
        loop.run_until_complete(Machine.store.close())
        loop.close()
    print(f"{Machine.steps} steps")
