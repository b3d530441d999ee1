"""Appends against a model of twenty lines: whatever is asked, in whatever groups."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import Conflict, Duplicate
from trunkline.log.events import Delta
from trunkline.log.head import Head
from trunkline.store.records import START, Dedup
from trunkline.store.sqlite import append_plan
from trunkline.store.sqlite.append_plan import RowsStatement
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

TENANTS = ("a", "b")
TASKS = ("t1", "t2", "t3")

appends = st.tuples(
    st.sampled_from(TENANTS),
    st.sampled_from(TASKS),
    st.sampled_from([0, 0, 0, -1, 1]),
    st.integers(1, 4),
    st.sampled_from([None, None, "k1", "k2"]),
    st.integers(1, 40),
)
# Groups of appends, and how far the clock moves after each.
scripts = st.lists(st.tuples(st.lists(appends, max_size=8), st.integers(0, 30)), max_size=8)


class Model:
    """What the log must say, one append at a time."""

    def __init__(self):
        self.logs = {}
        self.keys = {}
        self.order = []
        self.now = 0

    def seq(self, tenant, task_id):
        owner, texts = self.logs.get(task_id, (tenant, []))
        return len(texts) if owner == tenant else 0

    def append(self, tenant, task_id, expected, texts, *, key, life):
        known = self.keys.get((tenant, key))
        if key is not None and known is not None and known[2] > self.now:
            return ("duplicate", known[0], known[1])
        owner, log = self.logs.get(task_id, (tenant, []))
        if owner != tenant:
            return ("conflict", 0)
        if len(log) != expected:
            return ("conflict", len(log))
        self.logs[task_id] = (tenant, log + texts)
        self.order += [(tenant, task_id, text) for text in texts]
        if key is not None:
            self.keys[tenant, key] = (task_id, expected + len(texts), self.now + life)
        return expected + len(texts)


def outcome(result):
    match result:
        case Conflict(actual=actual):
            return ("conflict", actual)
        case Duplicate(task_id=task_id, seq=seq):
            return ("duplicate", task_id, seq)
        case _:
            return result


async def play(script):
    model = Model()
    store = SqliteStore(None, now_ms=lambda: model.now)
    await store.open()
    number = 0
    for group, pause in script:
        futures, expected_outcomes = [], []
        for tenant, task_id, drift, count, key, life in group:
            expected = model.seq(tenant, task_id) + drift
            texts = [f"{number}.{index}" for index in range(count)]
            number += 1
            dedup = None if key is None else Dedup(key, b"", life)
            events = [Delta("a", text) for text in texts]
            futures.append(store.log.append(tenant, task_id, expected, events, at=1, dedup=dedup))
            expected_outcomes.append(model.append(tenant, task_id, expected, texts, key=key, life=life))
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [outcome(result) for result in results] == expected_outcomes
        model.now += pause
    for tenant in TENANTS:
        for task_id in TASKS:
            owner, texts = model.logs.get(task_id, (tenant, []))
            found = await store.log.read(tenant, task_id)
            assert [recorded.event.text for recorded in found] == (texts if owner == tenant else [])
    records, _ = await store.log.tail(START, 10_000)
    assert [(one.tenant, one.task_id, one.recorded.event.text) for one in records] == model.order
    await store.close()


@given(scripts)
def test_the_store_agrees_with_the_model(script):
    asyncio.run(play(script))


# What seemed new and was not


def forget(store):
    """Lets the ledger know of nothing, as after a restart."""
    store.database.plan._places.clear()
    store.database.plan._earlier.clear()


def head(task_id="t1", context="ctx", owner="ann", state=TaskState.WORKING, seq=1):
    return Head(task_id, context, owner, state, 5, seq, "n1")


def with_memory(case):
    async def play():
        store = SqliteStore(None, now_ms=lambda: 1)
        await store.open()
        try:
            return await case(store)
        finally:
            await store.close()

    return asyncio.run(play())


def add(store, task_id="t1", expected=0, tenant="a", **more):
    return store.log.append(tenant, task_id, expected, [Delta("a", "x")], at=1, **more)


def test_tasks_that_were_forgotten_are_found_again():
    async def case(store):
        for number in range(3):
            await add(store, f"t{number}")
        forget(store)
        asked = (
            add(store, "t0"), add(store, "t1", 1), add(store, "t2", tenant="b"),
            add(store, "t2", 1, tenant="b"), add(store, "t3"),
        )  # fmt: skip
        return [outcome(found) for found in await asyncio.gather(*asked, return_exceptions=True)]

    assert with_memory(case) == [("conflict", 1), 2, ("conflict", 0), ("conflict", 0), 1]


def test_a_known_key_is_found_behind_a_conflict():
    async def case(store):
        await add(store, dedup=Dedup("k", b"", 9))
        asked = (add(store, "t2"), add(store, "t2", dedup=Dedup("k", b"", 9)))
        return [outcome(found) for found in await asyncio.gather(*asked, return_exceptions=True)]

    assert with_memory(case) == [1, ("duplicate", "t1", 1)]


def test_a_ledger_keeps_what_is_used_and_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(append_plan, "_HALF", 4)

    async def case(store):
        await add(store, "used")
        for number in range(40):
            await add(store, f"t{number}")
            await add(store, "used", number + 1)
            known = {*store.database.plan._places, *store.database.plan._earlier}
            assert "used" in known
            assert len(known) <= 10
        return len(await store.log.read("a", "used"))

    assert with_memory(case) == 41


def test_a_head_may_change_owner_and_context_in_any_order():
    async def case(store):
        heads = [
            head(), head(seq=2), head(owner="bob", seq=3), head(owner="bob", seq=4),
            head(owner="bob", context="t1", seq=5), head(owner="bob", context="t1", seq=6),
        ]  # fmt: skip
        found = []
        for number, one in enumerate(heads):
            await add(store, expected=number, head=one)
            found.append(await store.heads.get("a", "t1"))
        together = [add(store, "t2", number, head=one) for number, one in enumerate(heads)]
        await asyncio.gather(*together)
        await add(store, "t3")
        await asyncio.gather(*(add(store, "t3", number + 1, head=one) for number, one in enumerate(heads)))
        last = [await store.heads.get("a", "t2"), await store.heads.get("a", "t3")]
        return found == heads, [(one.principal, one.seq) for one in last]

    assert with_memory(case) == (True, [("bob", 6), ("bob", 6)])


def test_a_row_is_repeated():
    statement = RowsStatement("INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT (a) DO NOTHING")
    assert statement.steps([1, 2, 3, 4]) == [
        ("INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT (a) DO NOTHING", [1, 2, 3, 4])
    ]


def test_a_row_may_hold_constants():
    statement = RowsStatement("INSERT INTO t (a, b) VALUES (?, '')")
    assert statement.steps([1, 2]) == [("INSERT INTO t (a, b) VALUES (?, ''), (?, '')", [1, 2])]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 63, 64, 65, 127, 128, 500])
def test_rows_travel_in_few_statements_of_few_sizes_and_none_is_lost(rows):
    statement = RowsStatement("VALUES (?, ?)")
    values = list(range(2 * rows))
    steps = statement.steps(values)
    sizes = [text.count("(") for text, _ in steps]
    assert [value for _, part in steps for value in part] == values
    assert [len(part) for _, part in steps] == [2 * size for size in sizes]
    assert all(size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) for size in sizes)
    assert len(steps) <= 3 + rows // 64
