"""How appends are gathered, seen from a backend that only notes its groups."""

from __future__ import annotations

import asyncio

import pytest

from trunkline.errors import Conflict, StoreError, TaskFull
from trunkline.log.events import Delta
from trunkline.store import group_commit as rules
from trunkline.store.group_commit import GROUP_BYTES, GROUP_EVENTS, ROUNDS, GroupCommit
from trunkline.store.hints import HintBroadcast


class Backend:
    """Keeps each group until it is told to end it."""

    def __init__(self):
        self.groups = []
        self.writer = GroupCommit(self.groups.append, HintBroadcast())

    def append(self, events=1, size=1, task_id="t"):
        parts = [Delta("a", "x" * size)] * events
        return self.writer.append("a", task_id, 0, parts, at=1, head=None, deliveries=(), dedup=None)

    def finish(self, *outcomes):
        group = self.groups[-1]
        self.writer.done(group, outcomes or [1] * len(group))


@pytest.fixture
def backend(run):
    async def make():
        backend = Backend()
        backend.writer.start()
        return backend

    return run(make())


async def turn(rounds=ROUNDS + 1):
    """As many rounds of the loop as any group waits for."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def sizes(backend):
    return [len(group) for group in backend.groups]


def test_an_idle_writer_flushes_in_the_same_turn(run, backend):
    async def case():
        backend.append()
        await turn(1)

    run(case())
    assert sizes(backend) == [1]


def test_an_append_larger_than_a_task_is_refused_and_harms_nobody(run, backend, monkeypatch):
    monkeypatch.setattr(rules, "BYTES_LIMIT", 1000)

    async def case():
        with pytest.raises(TaskFull, match="task t has reached its limit"):
            backend.append(size=1000)
        backend.append(size=900)
        await turn()

    run(case())
    assert sizes(backend) == [1]


def test_appends_made_together_share_a_group(run, backend):
    async def case():
        for _ in range(9):
            backend.append()
        await turn()

    run(case())
    assert sizes(backend) == [9]


def test_what_comes_meanwhile_is_the_next_group(run, backend):
    async def case():
        first = backend.append()
        await turn()
        rest = [backend.append() for _ in range(5)]
        await turn()
        assert sizes(backend) == [1]
        backend.finish()
        assert first.done()
        await turn(1)
        assert sizes(backend) == [1, 5]
        assert not any(future.done() for future in rest)

    run(case())


def test_what_comes_in_the_next_rounds_goes_with_the_group_behind_one_of_many(run, backend):
    async def case():
        first = [backend.append() for _ in range(9)]
        await turn()
        backend.append()
        # Whoever hears of the first group appends at once.
        first[-1].then(lambda error: backend.append() and None)
        backend.finish()
        for _ in range(ROUNDS - 1):
            await turn(1)
            backend.append()
        assert sizes(backend) == [9]
        await turn(1)
        assert sizes(backend) == [9, 2 + ROUNDS - 1]

    run(case())


def test_a_group_holds_no_more_events_than_allowed(run, backend):
    async def case():
        futures = [backend.append(events=60) for _ in range(20)]
        await turn()
        while not all(future.done() for future in futures):
            backend.finish()
            await turn()

    run(case())
    assert sizes(backend) == [GROUP_EVENTS // 60, GROUP_EVENTS // 60, 4]


def test_a_group_holds_no_more_bytes_than_allowed(run, backend):
    async def case():
        futures = [backend.append(size=GROUP_BYTES // 3) for _ in range(5)]
        await turn()
        while not all(future.done() for future in futures):
            backend.finish()
            await turn()

    run(case())
    assert sizes(backend) == [2, 2, 1]


def test_a_group_that_is_just_full_is_one_group(run, backend, monkeypatch):
    async def case():
        for events in (GROUP_EVENTS // 2, GROUP_EVENTS // 2, 1):
            backend.append(events=events)
        await turn()
        backend.finish()
        await turn()
        backend.finish()
        monkeypatch.setattr(rules, "GROUP_BYTES", 2 * len(backend.groups[-1][0].body))
        for _ in range(3):
            backend.append()
        await turn()
        backend.finish()
        await turn()
        backend.finish()

    run(case())
    assert sizes(backend) == [2, 1, 2, 1]


def test_a_huge_append_goes_alone(run, backend):
    async def case():
        futures = [backend.append(), backend.append(events=2, size=GROUP_BYTES), backend.append()]
        await turn()
        while not all(future.done() for future in futures):
            backend.finish()
            await turn()

    run(case())
    assert sizes(backend) == [1, 1, 1]


def test_each_caller_gets_its_own_outcome(run, backend):
    async def case():
        futures = [backend.append() for _ in range(3)]
        await turn()
        backend.finish(7, Conflict(3), StoreError("disk"))
        return await asyncio.gather(*futures, return_exceptions=True)

    first, second, third = run(case())
    assert (first, second.actual, str(third)) == (7, 3, "disk")


def test_stop_waits_for_what_was_taken(run, backend):
    async def case():
        backend.append()
        stopping = asyncio.ensure_future(backend.writer.stop())
        await turn()
        assert not stopping.done()
        backend.finish()
        await stopping
        with pytest.raises(StoreError, match="closed"):
            await backend.append()

    run(case())


def test_an_observer_hears_of_every_group(run, backend):
    heard = []
    backend.writer.observer = lambda outcomes, seconds: heard.append((list(outcomes), seconds >= 0))

    async def case():
        backend.append()
        await turn()
        backend.append()
        backend.append()
        backend.finish(7)
        await turn()
        backend.finish(8, Conflict(3))

    run(case())
    (first, _), (second, timed) = heard
    assert (first, second[0], type(second[1]), timed) == ([7], 8, Conflict, True)
