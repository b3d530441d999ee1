"""Heads: one row per task, keyset pages, filters, and the same again from the log."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import (
    AT,
    A,
    Author,
    B,
    delta,
    ids,
    listed,
    message,
    status,
    submitted,
    task,
)
from trunkline.log import events as ev
from trunkline.log.head import Head
from trunkline.log.ids import Position
from trunkline.store.records import ASKING, Where
from trunkline.wire.types import INTERRUPTED, STATES, TaskState

EVERYTHING = Where()


def test_no_head_without_a_task(run, store):
    assert run(store.heads.get(A, "t1")) is None


def test_no_head_when_none_was_written(run, store):
    async def case():
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        page = await store.heads.list(A, EVERYTHING, size=5)
        return await store.heads.get(A, "t1"), page.heads, await store.heads.count(A, EVERYTHING)

    assert run(case()) == (None, [], 0)


def test_a_head_comes_back_equal(run, store):
    async def case():
        head = Head("t1", "ctx", "ann", TaskState.INPUT_REQUIRED, AT, 1, "n1")
        await store.log.append(A, "t1", 0, [submitted()], at=AT, head=head)
        return (
            await store.heads.get(A, "t1") == head == (await store.heads.list(A, EVERYTHING, size=1)).heads[0]
        )

    assert run(case())


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name.lower())
def test_every_state_is_kept(run, store, state):
    async def case():
        await task(store, "t1", state=state)
        found = ids(await listed(store, Where(state=state)))
        return (await store.heads.get(A, "t1")).state, found, ids(await listed(store, Where(state=ASKING)))

    assert run(case()) == (state, ["t1"], ["t1"] if state in INTERRUPTED else [])


@pytest.mark.parametrize("text", ["", "ünï", "日本", "'; --", '"', "a\\b", "👍", "%_"])
def test_any_context_and_owner(run, store, text):
    async def case():
        await task(store, "t1", context=text, owner=text, node=text)
        await task(store, "t2", context="else", owner="else")
        head = await store.heads.get(A, "t1")
        assert (head.context_id, head.principal, head.node) == (text, text, text)
        return [
            ids(await listed(store, where))
            for where in (
                Where(principal=text),
                Where(context_id=text),
                Where(principal=text, context_id=text),
            )
        ]

    assert run(case()) == [["t1"]] * 3


def test_a_later_head_replaces_the_earlier(run, store):
    async def case():
        author = await task(store, "t1")
        await author.append(status(TaskState.COMPLETED), at=AT + 5)
        return await store.heads.get(A, "t1"), await store.heads.count(A, EVERYTHING)

    head, total = run(case())
    assert (head.state, head.status_at, head.seq, total) == (TaskState.COMPLETED, AT + 5, 3, 1)


def test_the_last_head_of_a_group_stays(run, store):
    async def case():
        states = [TaskState.SUBMITTED, TaskState.WORKING, TaskState.FAILED]
        await asyncio.gather(
            *(
                store.log.append(
                    A, "t1", seq, [delta()], at=AT, head=Head("t1", "c", "ann", state, AT + seq, seq + 1, "n")
                )
                for seq, state in enumerate(states)
            )
        )
        return await store.heads.get(A, "t1")

    head = run(case())
    assert (head.state, head.seq) == (TaskState.FAILED, 3)


def test_an_append_without_a_head_leaves_it(run, store):
    async def case():
        author = await task(store, "t1")
        before = await store.heads.get(A, "t1")
        await author.append(delta(), delta())
        return before == await store.heads.get(A, "t1")

    assert run(case())


def test_a_head_may_come_later_than_its_task(run, store):
    async def case():
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        head = Head("t1", "c", "ann", TaskState.WORKING, AT, 2, "n")
        await store.log.append(A, "t1", 1, [status()], at=AT, head=head)
        return await store.heads.get(A, "t1") == head

    assert run(case())


def test_another_tenant_sees_no_head(run, store):
    async def case():
        await task(store, "t1")
        page = await store.heads.list(B, EVERYTHING, size=5)
        count = await store.heads.count(B, EVERYTHING)
        return await store.heads.get(B, "t1"), page.heads, count, page.next

    assert run(case()) == (None, [], 0, None)


@pytest.fixture
def shelf(run, store):
    """Twelve tasks: three owners, four contexts, changing states and times."""
    states = [TaskState.WORKING, TaskState.COMPLETED, TaskState.FAILED]

    async def fill():
        for n in range(12):
            await task(
                store,
                f"t{n:02}",
                owner=f"owner-{n % 3}",
                context=f"ctx-{n % 4}",
                state=states[n // 4],
                at=AT + (n * 7 % 12) * 10,
            )
        await task(store, "foreign", tenant=B, owner="owner-0", context="ctx-0")

    run(fill())
    return store


def expected(chosen):
    kept = [n for n in range(12) if chosen(n)]
    return [f"t{n:02}" for n in sorted(kept, key=lambda n: (n * 7 % 12, n), reverse=True)]


FILTERS = {
    "all": (EVERYTHING, lambda n: True),
    "owner": (Where(principal="owner-1"), lambda n: n % 3 == 1),
    "context": (Where(context_id="ctx-2"), lambda n: n % 4 == 2),
    "state": (Where(state=TaskState.COMPLETED), lambda n: n // 4 == 1),
    "states": (Where(state=(TaskState.WORKING, TaskState.INPUT_REQUIRED)), lambda n: n < 4),
    "owner+states": (
        Where(principal="owner-1", state=(TaskState.WORKING, TaskState.SUBMITTED)),
        lambda n: n % 3 == 1 and n < 4,
    ),
    "other states": (Where(state=ASKING), lambda n: False),
    "from": (Where(status_from=AT + 60), lambda n: n * 7 % 12 >= 6),
    "owner+context": (Where(principal="owner-0", context_id="ctx-0"), lambda n: n % 12 == 0),
    "owner+state": (Where(principal="owner-2", state=TaskState.WORKING), lambda n: n % 3 == 2 and n < 4),
    "owner+from": (Where(principal="owner-2", status_from=AT + 30), lambda n: n % 3 == 2 and n * 7 % 12 >= 3),
    "context+state": (Where(context_id="ctx-1", state=TaskState.FAILED), lambda n: n % 4 == 1 and n >= 8),
    "all four": (
        Where("owner-0", "ctx-3", TaskState.WORKING, AT + 10),
        lambda n: n % 3 == 0 and n % 4 == 3 and n < 4 and n * 7 % 12 >= 1,
    ),
    "no owner": (Where(principal="nobody"), lambda n: False),
    "empty owner": (Where(principal=""), lambda n: False),
    "future": (Where(status_from=AT + 10**9), lambda n: False),
}


@pytest.mark.parametrize("size", [1, 2, 5, 50])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_order_and_pages(run, shelf, name, size):
    where, chosen = FILTERS[name]

    async def case():
        return ids(await listed(shelf, where, size=size)), await shelf.heads.count(A, where)

    found, total = run(case())
    assert found == expected(chosen)
    assert total == len(found)


def test_a_context_named_after_its_task(run, store):
    async def case():
        await task(store, "t1", context="t1", owner="ann")
        await task(store, "t2", context="t1", owner="ann", at=AT + 1)
        await task(store, "t3", context="t1", owner="bob", at=AT + 2)
        await task(store, "t4", context="t4", owner="ann", at=AT + 3)
        await task(store, "t5", context="t6", owner="ann")
        # Named like a context, and of another one.
        await task(store, "t6", context="t5", owner="ann")
        first = (await store.heads.get(A, "t1")).context_id
        asked = (Where(context_id="t1"), Where("ann", "t1"), Where(context_id="t4"), Where(context_id="t6"))
        return (
            first,
            [ids(await listed(store, where)) for where in asked],
            await listed(store, Where(context_id="t1"), tenant=B),
        )

    assert run(case()) == ("t1", [["t3", "t2", "t1"], ["t2", "t1"], ["t4"], ["t5"]], [])


@pytest.mark.parametrize("principals", [100, 101])
def test_pages_of_any_number_of_principals(run, store, principals):
    async def case():
        numbers = range(principals * 2)
        await asyncio.gather(
            *(task(store, f"t{n:03}", owner=f"o{n % principals:03}", at=AT + n // 2) for n in numbers)
        )
        await task(store, "foreign", tenant=B, owner="o000", at=AT + 999)
        return ids(await listed(store, EVERYTHING, size=50)), ids(await listed(store, EVERYTHING, size=500))

    expected = [f"t{n:03}" for n in reversed(range(principals * 2))]
    assert run(case()) == (expected, expected)


def test_an_exact_last_page_has_no_next(run, shelf):
    async def case():
        first = await shelf.heads.list(A, EVERYTHING, size=6)
        second = await shelf.heads.list(A, EVERYTHING, size=6, after=first.next)
        return first.next is None, second.next is None, len(second.heads)

    assert run(case()) == (False, True, 6)


def test_next_names_the_last_of_the_page(run, shelf):
    page = run(shelf.heads.list(A, EVERYTHING, size=4))
    last = page.heads[-1]
    assert page.next == Position(last.status_at, last.task_id)


def test_status_from_is_inclusive(run, store):
    async def case():
        await task(store, "t1", at=AT)
        return [await store.heads.count(A, Where(status_from=AT + n)) for n in (-1, 0, 1)]

    assert run(case()) == [1, 1, 0]


def test_equal_times_are_ordered_by_id(run, store):
    async def case():
        for name in ("b", "a", "c"):
            await task(store, name)
        return ids(await listed(store, EVERYTHING, size=1))

    assert run(case()) == ["c", "b", "a"]


def test_a_position_that_is_gone_still_works(run, shelf):
    found = run(shelf.heads.list(A, EVERYTHING, size=50, after=Position(AT + 55, "gone")))
    assert [head.status_at for head in found.heads] == sorted((AT + n * 10 for n in range(6)), reverse=True)


def test_a_task_that_moves_up_is_not_repeated_on_later_pages(run, store):
    async def case():
        authors = [await task(store, f"t{n}", at=AT + n) for n in range(4)]
        first = await store.heads.list(A, EVERYTHING, size=2)
        await authors[0].append(status(TaskState.COMPLETED), at=AT + 100)
        second = await store.heads.list(A, EVERYTHING, size=2, after=first.next)
        return ids(first.heads), ids(second.heads)

    assert run(case()) == (["t3", "t2"], ["t1"])


# Rebuild


async def snapshot(store):
    return {tenant: await listed(store, EVERYTHING, tenant=tenant, size=50) for tenant in (A, B)}


def test_rebuild_of_nothing(run, store):
    assert run(store.heads.rebuild()) == 0


def test_rebuild_gives_the_same_rows(run, shelf):
    async def case():
        before = await snapshot(shelf)
        return before, await shelf.heads.rebuild(), await snapshot(shelf)

    before, count, after = run(case())
    assert count == 13
    assert before == after


def test_rebuild_of_one_tenant_counts_only_that(run, shelf):
    async def case():
        before = await snapshot(shelf)
        return (
            await shelf.heads.rebuild(B),
            await shelf.heads.rebuild("nobody"),
            before == await snapshot(shelf),
        )

    assert run(case()) == (1, 0, True)


def test_rebuild_stands_at_the_last_listed_change(run, store):
    async def case():
        author = Author(store, "t1")
        await author.append(submitted(), status(), delta(), at=AT)
        await author.append(delta(), ev.FollowUp(message()), at=AT + 1)
        await author.append(ev.Claimed("n2"), delta(), at=AT + 2)
        before = await store.heads.get(A, "t1")
        await store.heads.rebuild()
        return before, await store.heads.get(A, "t1")

    before, after = run(case())
    assert before == after
    assert (after.seq, after.node, after.status_at) == (6, "n2", AT)


def test_rebuild_mends_wrong_heads(run, store):
    async def case():
        author = await task(store, "t1", state=TaskState.COMPLETED)
        right = await store.heads.get(A, "t1")
        wrong = Head("t1", "bad", "bad", TaskState.WORKING, 1, 3, "bad")
        await store.log.append(A, "t1", author.state.seq, [delta()], at=AT, head=wrong)
        await store.log.append(
            A, "t2", 0, [delta()], at=AT, head=Head("t2", "", "x", TaskState.FAILED, 1, 1, "")
        )
        assert await store.heads.rebuild() == 1
        return right == await store.heads.get(A, "t1"), await store.heads.get(A, "t2")

    assert run(case()) == (True, None)


def test_rebuild_of_a_reply_and_of_a_long_task(run, store):
    async def case():
        one = await task(store, "t1")
        await one.append(ev.Replied(message()), at=AT + 3)
        long = await task(store, "t2")
        for _ in range(5):
            await long.append(*[delta()] * 1_000)
        before = await snapshot(store)
        return await store.heads.rebuild(), before == await snapshot(store)

    assert run(case()) == (2, True)


def test_rebuild_over_several_pages_beside_appends(run, store):
    async def case():
        authors = await asyncio.gather(*(task(store, f"t{n:03}") for n in range(250)))

        async def work(author):
            await author.append(status(TaskState.COMPLETED), at=AT + 9)

        count, *_ = await asyncio.gather(store.heads.rebuild(), *map(work, authors[::2]))
        before = await snapshot(store)
        assert await store.heads.rebuild() == count
        return count, before == await snapshot(store), before[A][0].status_at

    assert run(case()) == (250, True, AT + 9)


def test_appends_go_on_after_a_rebuild(run, store):
    async def case():
        author = await task(store, "t1")
        await store.heads.rebuild()
        await author.append(status(TaskState.COMPLETED), at=AT + 1)
        return (await store.heads.get(A, "t1")).state

    assert run(case()) is TaskState.COMPLETED


def test_tasks_that_were_opened_from_a_moment_on(run, store):
    async def case():
        for name, parent in (("01", ""), ("05", ""), ("06", "05"), ("07", "")):
            await task(store, name, parent=parent)
        await task(store, "08", tenant=B)
        wheres = (Where(born_from="05"), Where(born_from="05", status_from=AT), Where(born_from="08"))
        return [ids(await listed(store, where)) for where in wheres]

    assert run(case()) == [["07", "05"], ["07", "05"], []]
