"""Nodes and orphans."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, B, status, task
from trunkline.log import events as ev
from trunkline.store.records import Orphan
from trunkline.wire.types import INTERRUPTED, TERMINAL, TaskState


async def orphaned(store, limit=100):
    return [ref.task_id for ref in await store.nodes.orphans(("",), limit)]


def test_no_tasks_no_orphans(run, store):
    assert run(store.nodes.orphans(("",))) == []


@pytest.mark.parametrize("state", [TaskState.SUBMITTED, TaskState.WORKING], ids=str)
def test_a_running_task_of_nobody_is_an_orphan(run, store, state):
    async def case():
        await task(store, "t1", node="gone", state=state)
        return await store.nodes.orphans(("",))

    assert run(case()) == [Orphan(A, "t1", "gone")]


@pytest.mark.parametrize("state", sorted(TERMINAL | INTERRUPTED, key=str), ids=str)
def test_a_resting_task_is_none(run, store, state):
    async def case():
        await task(store, "t1", node="gone", state=state)
        return await store.nodes.orphans(("",))

    assert run(case()) == []


def test_a_joined_node_keeps_its_tasks(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        await task(store, "t2", node="n2")
        return await orphaned(store)

    assert run(case()) == ["t2"]


def test_joining_twice_is_joining(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        return await orphaned(store)

    assert run(case()) == []


def test_leaving_gives_them_up(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        await store.nodes.leave("n1")
        return await orphaned(store)

    assert run(case()) == ["t1"]


def test_nodes_are_listed_with_what_they_carry(run, store):
    async def case():
        await store.nodes.join("n2", ("", "desk"))
        await store.nodes.join("n1", ("alpha",))
        await store.nodes.join("n3", ("",))
        await store.nodes.leave("n3")
        await store.nodes.beat("n1")
        found = await store.nodes.list()
        assert all(one.beat > 0 for one in found)
        return [(one.id, one.agents, one.alive) for one in found]

    assert run(case()) == [("n1", ("alpha",), True), ("n2", ("", "desk"), True)]


def test_leaving_unknown_is_fine(run, store):
    assert run(store.nodes.leave("nobody")) is None


def test_a_beat_keeps_a_node(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        await store.nodes.beat("n1")
        return await orphaned(store)

    assert run(case()) == []


def test_a_beat_does_not_bring_a_node_back(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        await store.nodes.leave("n1")
        await store.nodes.beat("n1")
        return await orphaned(store)

    assert run(case()) == ["t1"]


def test_a_claim_by_a_living_node_ends_it(run, store):
    async def case():
        await store.nodes.join("n2", ("",))
        author = await task(store, "t1", node="gone")
        await author.append(ev.Claimed("n2"))
        return await orphaned(store)

    assert run(case()) == []


def test_the_end_of_a_task_ends_it(run, store):
    async def case():
        author = await task(store, "t1", node="gone")
        await author.append(status(TaskState.FAILED))
        return await orphaned(store)

    assert run(case()) == []


def test_oldest_first_and_bounded(run, store):
    async def case():
        for name, at in (("t1", AT + 3), ("t2", AT + 1), ("t3", AT + 2)):
            await task(store, name, node="gone", at=at)
        return await orphaned(store), await orphaned(store, limit=2)

    assert run(case()) == (["t2", "t3", "t1"], ["t2", "t3"])


def test_orphans_of_all_tenants(run, store):
    async def case():
        await task(store, "t1", tenant=A, node="gone")
        await task(store, "t2", tenant=B, node="gone", at=AT + 1)
        return await store.nodes.orphans(("",))

    assert run(case()) == [Orphan(A, "t1", "gone"), Orphan(B, "t2", "gone")]


def test_who_joined_and_has_not_left_is_alive(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await store.nodes.join("n2", ("",))
        await store.nodes.leave("n2")
        return [await store.nodes.alive(node) for node in ("n1", "n2", "n3", "")]

    assert run(case()) == [True, False, False, False]


def test_who_joins_again_is_alive(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        await store.nodes.leave("n1")
        await store.nodes.join("n1", ("",))
        return await store.nodes.alive("n1")

    assert run(case())


def test_an_orphan_names_the_last_node_that_claimed_it(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        author = await task(store, "t1", node="n0")
        await author.append(ev.Claimed("n1"))
        before = await store.nodes.orphans(("",))
        await store.nodes.leave("n1")
        return before, await store.nodes.orphans(("",))

    assert run(case()) == ([], [Orphan(A, "t1", "n1")])


def test_nodes_do_not_survive_their_process(run, bench):
    if not bench.lasts:
        pytest.skip("nothing outlives a store in memory")

    async def case():
        store = bench.make()
        await store.open()
        await store.nodes.join("n1", ("",))
        await task(store, "t1", node="n1")
        await store.close()
        store = bench.make()
        await store.open()
        found = await orphaned(store)
        await store.close()
        return found

    assert run(case()) == ["t1"]


def test_what_a_node_claimed_last_and_has_not_rested_page_by_page(run, store):
    async def case():
        await store.nodes.join("n1", ("", "other"))
        authors = [await task(store, f"t{n}", node="n1", tenant=A if n % 2 else B) for n in range(5)]
        await authors[1].append(ev.Claimed("n2"))
        await authors[2].append(status(TaskState.INPUT_REQUIRED))
        await task(store, "t9", node="n1", agent="other")
        whole = await store.nodes.claimed("n1", ("",))
        first = await store.nodes.claimed("n1", ("", "other"), 2)
        rest = await store.nodes.claimed("n1", ("", "other"), 9, first[-1].task_id)
        await authors[0].append(status(TaskState.WORKING))
        return whole, first + rest, (await store.nodes.claimed("n1", ("",), 1))[0].seq

    whole, paged, seq = run(case())
    assert whole == [Orphan(B, "t0", "n1", "", 2), Orphan(A, "t3", "n1", "", 2), Orphan(B, "t4", "n1", "", 2)]
    assert paged == [*whole, Orphan(A, "t9", "n1", "other", 2)]
    # Told apart from the claim before: something has happened to the task in between.
    assert seq == 3


def test_of_what_was_let_go_an_orphan_has_the_head(run, store):
    async def case():
        await store.nodes.join("n1", ("",))
        author = await task(store, "t1", node="n1")
        await author.append(ev.Claimed(""))
        await (await task(store, "t2", node="gone")).append(status(TaskState.WORKING))
        await (await task(store, "t3", node="n1")).append(ev.Parked(wake_at=1))
        heads = {name: await store.heads.get(A, name) for name in ("t1", "t2", "t3")}
        return heads, {one.task_id: one for one in await store.nodes.orphans(("",))}

    heads, found = run(case())
    assert found == {
        "t1": Orphan(A, "t1", "", released=heads["t1"]),
        "t2": Orphan(A, "t2", "gone"),
        # Who wakes it looks at what it waited for.
        "t3": Orphan(A, "t3", ""),
    }
    assert heads["t1"].node == "" and heads["t1"].seq == 3
