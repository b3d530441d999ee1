"""The agent as a coordinate: lists, orphans, waiting tasks and retention by agent."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, B, ids, listed, task
from trunkline.store.records import Orphan, Waiting, Where
from trunkline.wire.types import INTERRUPTED, TaskState

DONE, WORKING = TaskState.COMPLETED, TaskState.WORKING


@pytest.fixture
def three(run, store):
    """One task of each of three agents, the first from before agents had ids."""

    async def fill():
        for number, agent in enumerate(("", "alpha", "beta")):
            await task(store, f"t{number}", agent=agent, node="gone", at=AT + number)

    run(fill())
    return store


@pytest.mark.parametrize(
    ("agents", "found"),
    [
        (None, ["t2", "t1", "t0"]),
        (("alpha", ""), ["t1", "t0"]),
        (("beta",), ["t2"]),
        (("gamma",), []),
        ((), []),
    ],
)
def test_a_list_of_agents(run, three, agents, found):
    assert ids(run(listed(three, Where(agents=agents)))) == found
    assert run(three.heads.count(A, Where(agents=agents))) == len(found)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_of_agents_with_open_and_ended_tasks(run, store, size):
    async def case():
        for number in range(24):
            agent, state = ("alpha", "beta", "gamma")[number % 3], (DONE, WORKING)[number // 3 % 2]
            tenant = B if number == 12 else A
            await task(store, f"t{number:02}", tenant=tenant, agent=agent, state=state, at=AT + number // 2)
        wheres = [Where(agents=("beta", "alpha", "beta")), Where(agents=("alpha",), state=DONE)]
        return [ids(await listed(store, where, size=size)) for where in wheres]

    both, ended = run(case())
    assert both == [f"t{number:02}" for number in reversed(range(24)) if number % 3 < 2 and number != 12]
    assert ended == ["t18", "t06", "t00"]


def test_agents_beside_the_other_filters(run, three):
    where = Where("ann", "ctx", WORKING, AT + 1, ("alpha", "", "beta"))
    assert ids(run(listed(three, where))) == ["t2", "t1"]


def test_a_head_names_its_agent(run, three):
    async def case():
        return (await three.heads.get(A, "t1")).agent, (await three.heads.get(A, "t0")).agent

    assert run(case()) == ("alpha", "")


def test_a_rebuilt_head_names_its_agent_and_parent(run, store):
    async def case():
        await task(store, "t1", agent="alpha", parent="p1")
        before = await store.heads.get(A, "t1")
        await store.heads.rebuild()
        return before, await store.heads.get(A, "t1")

    before, after = run(case())
    assert before == after
    assert (after.agent, after.parent) == ("alpha", "p1")


@pytest.mark.parametrize(("agents", "found"), [(("alpha",), ["t1"]), (("", "beta"), ["t0", "t2"]), ((), [])])
def test_orphans_of_the_agents_that_a_node_carries(run, three, agents, found):
    orphans = run(three.nodes.orphans(agents))
    assert [orphan.task_id for orphan in orphans] == found
    assert all(orphan.agent in agents for orphan in orphans)


def test_an_orphan_names_its_agent(run, three):
    assert run(three.nodes.orphans(("alpha",))) == [Orphan(A, "t1", "gone", "alpha")]


def test_who_waits_for_an_agent(run, three):
    async def case():
        await three.nodes.join("n1", ("", "alpha"))
        first = await three.nodes.waiting()
        await three.nodes.join("n2", ("beta",))
        second = await three.nodes.waiting()
        await three.nodes.leave("n1")
        return first, second, await three.nodes.waiting()

    first, second, third = run(case())
    assert first == [Waiting(A, "t2", "beta", WORKING)]
    assert second == []
    assert [one.task_id for one in third] == ["t0", "t1"]


def test_who_joins_again_carries_other_agents(run, three):
    async def case():
        await three.nodes.join("n1", ("", "alpha"))
        await three.nodes.join("n1", ("", "beta"))
        return await three.nodes.waiting()

    assert [one.task_id for one in run(case())] == ["t1"]


def test_waiting_are_open_tasks_of_a_tenant_in_pages(run, store):
    async def case():
        for number, state in enumerate((*sorted(INTERRUPTED, key=str), WORKING, DONE, TaskState.SUBMITTED)):
            await task(store, f"t{number}", agent="alpha", state=state)
            await task(store, f"u{number}", agent="alpha", state=state, tenant=B)
        pages, after = [], ""
        while page := await store.nodes.waiting(A, 2, after):
            after = page[-1].task_id
            pages.append([one.task_id for one in page])
        return pages, len(await store.nodes.waiting())

    assert run(case()) == ([["t0", "t1"], ["t2", "t4"]], 8)


def test_prune_of_some_agents(run, store):
    async def case():
        for number, agent in enumerate(("", "alpha", "beta")):
            await task(store, f"t{number}", agent=agent, state=DONE)
        counts = [await store.maintenance.prune(AT + 1, agents) for agents in (("alpha", ""), ("alpha",), ())]
        return counts, ids(await listed(store, Where())), await store.maintenance.prune(AT + 1)

    assert run(case()) == ([2, 0, 0], ["t2"], 1)


def test_prune_of_one_tenant(run, store):
    async def case():
        for tenant, agent in ((A, "alpha"), (A, "beta"), (B, "alpha")):
            await task(store, f"{tenant}-{agent}", agent=agent, tenant=tenant, state=DONE)
        counts = [await store.maintenance.prune(AT + 1, agents, A) for agents in (("alpha",), None)]
        return counts, await store.heads.count(B, Where())

    assert run(case()) == ([1, 1], 1)
