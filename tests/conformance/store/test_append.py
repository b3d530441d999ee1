"""Append: compare-and-set, atomicity, order, groups."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.store.given import AT, A, B, delta, deltas, message, status, submitted
from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.log import events as ev
from trunkline.log.head import Head
from trunkline.store.records import Dedup, OutboxEntry
from trunkline.wire.types import Artifact, Part, Role, TaskState


async def refusal(append) -> BaseException | int:
    try:
        return await append
    except StoreError as error:
        return error


def test_first_append_gives_one(run, store):
    assert run(store_append(store, [delta()])) == 1


async def store_append(store, events, expected=0, tenant=A, task_id="t1", **more):
    return await store.log.append(tenant, task_id, expected, events, at=AT, **more)


def test_append_gives_the_last_seq(run, store):
    assert run(store_append(store, deltas(3))) == 3


def test_append_goes_on_from_expected(run, store):
    async def case():
        await store_append(store, deltas(2))
        return await store_append(store, deltas(2), expected=2)

    assert run(case()) == 4


def test_append_returns_something_awaitable_at_once(run, store):
    async def case():
        future = store.log.append(A, "t1", 0, [delta()], at=AT)
        assert not asyncio.iscoroutine(future)
        return await future

    assert run(case()) == 1


def test_an_append_that_nobody_awaits_is_written(run, store):
    async def case():
        _kept = store.log.append(A, "t1", 0, [delta()], at=AT)
        await store.log.append(A, "t1", 1, [delta()], at=AT)
        return len(await store.log.read(A, "t1"))

    assert run(case()) == 2


def test_stale_expected_conflicts_with_the_actual_seq(run, store):
    async def case():
        await store_append(store, deltas(3))
        with pytest.raises(Conflict) as caught:
            await store_append(store, [delta()], expected=1)
        return caught.value.actual

    assert run(case()) == 3


def test_expected_beyond_the_end_conflicts(run, store):
    async def case():
        await store_append(store, deltas(2))
        with pytest.raises(Conflict) as caught:
            await store_append(store, [delta()], expected=9)
        return caught.value.actual

    assert run(case()) == 2


def test_unknown_task_with_expected_conflicts_at_zero(run, store):
    async def case():
        with pytest.raises(Conflict) as caught:
            await store_append(store, [delta()], expected=4)
        return caught.value.actual

    assert run(case()) == 0


def test_creating_twice_conflicts(run, store):
    async def case():
        await store_append(store, [delta()])
        with pytest.raises(Conflict) as caught:
            await store_append(store, [delta()])
        return caught.value.actual

    assert run(case()) == 1


def test_negative_expected_conflicts(run, store):
    async def case():
        with pytest.raises(Conflict):
            await store_append(store, [delta()], expected=-1)

    run(case())


def test_a_conflict_writes_nothing(run, store):
    async def case():
        await store_append(store, deltas(2))
        head = Head("t1", "c", "ann", TaskState.FAILED, AT, 2, "n1")
        dedup = Dedup("k", b"d", 10_000)
        delivery = OutboxEntry("d1", 2, "hook", "lane", AT)
        with pytest.raises(Conflict):
            await store_append(store, [delta()], expected=1, head=head, dedup=dedup, deliveries=[delivery])
        assert await store.heads.get(A, "t1") is None
        assert await store.outbox.take(10, 1000, per_lane=10) == []
        # The key is free: the refused append did not record it.
        return await store_append(store, [delta()], expected=2, dedup=dedup)

    assert run(case()) == 3


def test_one_of_many_rivals_wins(run, store):
    async def case():
        rivals = [store.log.append(A, "t1", 0, [delta(str(index))], at=AT) for index in range(50)]
        return await asyncio.gather(*rivals, return_exceptions=True), await store.log.read(A, "t1")

    results, events = run(case())
    assert [result for result in results if isinstance(result, int)] == [1]
    assert sum(isinstance(result, Conflict) for result in results) == 49
    assert len(events) == 1


def test_the_first_rival_in_line_wins(run, store):
    async def case():
        rivals = [store.log.append(A, "t1", 0, [delta(str(index))], at=AT) for index in range(5)]
        await asyncio.gather(*rivals, return_exceptions=True)
        return (await store.log.read(A, "t1"))[0].event

    assert run(case()) == delta("0")


def test_a_chain_sent_without_waiting_is_written_in_order(run, store):
    async def case():
        chain = [store.log.append(A, "t1", seq, [delta(str(seq))], at=AT) for seq in range(200)]
        assert await asyncio.gather(*chain) == list(range(1, 201))
        return [recorded.event.text for recorded in await store.log.read(A, "t1")]

    assert run(case()) == [str(seq) for seq in range(200)]


def test_a_broken_link_breaks_the_rest_of_the_chain(run, store):
    async def case():
        first = store.log.append(A, "t1", 0, [delta()], at=AT)
        wrong = store.log.append(A, "t1", 5, [delta()], at=AT)
        after = store.log.append(A, "t1", 6, [delta()], at=AT)
        right = store.log.append(A, "t1", 1, [delta()], at=AT)
        return await asyncio.gather(first, wrong, after, right, return_exceptions=True)

    first, wrong, after, right = run(case())
    assert (first, right) == (1, 2)
    assert isinstance(wrong, Conflict)
    assert isinstance(after, Conflict)


def test_many_tasks_in_parallel_are_dense(run, store):
    async def work(task_id):
        seq = 0
        for _ in range(15):
            seq = await store.log.append(A, task_id, seq, deltas(1 + seq % 3, seq), at=AT)
        return seq

    async def case():
        names = [f"task-{index:03}" for index in range(100)]
        lasts = await asyncio.gather(*map(work, names))
        for name, last in zip(names, lasts, strict=True):
            events = await store.log.read(A, name, limit=10_000)
            assert [recorded.seq for recorded in events] == list(range(1, last + 1))
            assert [recorded.event.text for recorded in events] == [f"{index} " for index in range(last)]

    run(case())


def test_one_append_larger_than_a_group(run, store):
    async def case():
        assert await store_append(store, deltas(1_300)) == 1_300
        return await store.log.read(A, "t1", limit=5_000)

    assert [recorded.seq for recorded in run(case())] == list(range(1, 1_301))


def test_many_appends_larger_than_a_group_together(run, store):
    async def case():
        appends = [store.log.append(A, f"t{index}", 0, deltas(90), at=AT) for index in range(20)]
        return await asyncio.gather(*appends)

    assert run(case()) == [90] * 20


def test_bodies_larger_than_a_group_together(run, store):
    async def case():
        text = "x" * 400_000
        await asyncio.gather(*(store.log.append(A, f"t{n}", 0, [delta(text)], at=AT) for n in range(8)))
        return [len((await store.log.read(A, f"t{n}"))[0].event.text) for n in range(8)]

    assert run(case()) == [400_000] * 8


def test_one_huge_body(run, store):
    async def case():
        text = "é" * 3_000_000
        await store_append(store, [delta(text), delta("after")])
        first, second = await store.log.read(A, "t1")
        return first.event.text == text, second.event.text

    assert run(case()) == (True, "after")


def test_many_new_tasks_in_one_group(run, store):
    async def case():
        names = [f"t{index}" for index in range(400)]
        await asyncio.gather(*(store.log.append(A, name, 0, [delta(name)], at=AT) for name in names))
        return [(await store.log.read(A, name))[0].event.text for name in names[::57]]

    assert run(case()) == [f"t{index}" for index in range(0, 400, 57)]


def test_no_events_is_a_mistake(run, store):
    async def case():
        with pytest.raises(Misuse, match="t1"):
            await store_append(store, [])

    run(case())


def test_what_is_no_json_is_a_mistake_of_its_caller_alone(run, store):
    async def case():
        odd = ev.Status(TaskState.WORKING, metadata={"odd": object()})
        beside = store.log.append(A, "t2", 0, [delta()], at=AT)
        with pytest.raises(Misuse, match="JSON"):
            store.log.append(A, "t1", 0, [odd], at=AT)
        return await beside

    assert run(case()) == 1


def test_text_that_is_no_unicode_is_a_mistake(run, store):
    async def case():
        with pytest.raises(Misuse):
            store.log.append(A, "t1", 0, [delta("\ud800")], at=AT)

    run(case())


def test_a_bad_append_does_not_harm_its_group(run, store):
    async def case():
        bad = store.log.append(A, "\ud800", 0, [delta()], at=AT)
        good = [store.log.append(A, f"t{index}", 0, [delta()], at=AT) for index in range(5)]
        return await asyncio.gather(bad, *good, return_exceptions=True)

    bad, *good = run(case())
    assert isinstance(bad, StoreError)
    assert good == [1] * 5


def test_numbers_that_do_not_fit_harm_nobody_else(run, store):
    async def case():
        bad = store.log.append(A, "t0", 0, [delta()], at=1 << 70)
        good = store.log.append(A, "t1", 0, [delta()], at=AT)
        return await asyncio.gather(bad, good, return_exceptions=True), await store.log.read(A, "t0")

    (bad, good), nothing = run(case())
    assert isinstance(bad, StoreError)
    assert (good, nothing) == (1, [])


def test_a_task_goes_on_after_a_bad_append(run, store):
    async def case():
        await store_append(store, [delta()])
        with pytest.raises(StoreError):
            await store.log.append(A, "t1", 1, [delta()], at=1 << 70)
        return await store_append(store, [delta()], expected=1)

    assert run(case()) == 2


def test_a_cancelled_caller_does_not_stop_the_write(run, store):
    async def case():
        waiting = asyncio.ensure_future(store.log.append(A, "t1", 0, [delta()], at=AT))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return await store_append(store, [delta()], expected=1)

    assert run(case()) == 2


def test_a_promise_nobody_waits_for_is_let_go(run, store):
    async def case():
        first = store.log.append(A, "t1", 0, [delta()], at=AT)
        store.log.append(A, "t1", 0, [delta()], at=AT)
        return await first

    assert run(case()) == 1


def test_another_tenants_task_conflicts_and_shows_nothing(run, store):
    async def case():
        await store_append(store, deltas(4))
        refusals = [await refusal(store_append(store, [delta()], seq, tenant=B)) for seq in (0, 4)]
        return refusals, await store.log.read(A, "t1"), await store.log.read(B, "t1")

    refusals, kept, foreign = run(case())
    assert [error.actual for error in refusals] == [0, 0]
    assert (len(kept), foreign) == (4, [])


def test_two_tenants_race_for_one_id(run, store):
    async def case():
        race = (store.log.append(tenant, "t1", 0, [delta(tenant)], at=AT) for tenant in (A, B))
        results = await asyncio.gather(*race, return_exceptions=True)
        return results, len(await store.log.read(A, "t1")), len(await store.log.read(B, "t1"))

    (won, lost), of_a, of_b = run(case())
    assert won == 1
    assert isinstance(lost, Conflict)
    assert (of_a, of_b) == (1, 0)


@pytest.mark.parametrize(
    "event",
    [
        submitted(),
        ev.Claimed("n2"),
        ev.FollowUp(message("more")),
        ev.Status(TaskState.INPUT_REQUIRED, message("which?"), {"k": [1, None, True, 1.5]}),
        ev.Delta("answer", "text", last=True),
        ev.Chunk(Artifact("a", parts=(Part(data={"x": [1]}), Part(raw="aGk="))), append=True, last=True),
        ev.Replied(message("done")),
        ev.CancelRequested("ann"),
    ],
    ids=lambda event: type(event).__name__.lower(),
)
def test_every_kind_comes_back_equal(run, store, event):
    async def case():
        await store_append(store, [event])
        return (await store.log.read(A, "t1"))[0]

    assert run(case()) == ev.Recorded(1, AT, event)


def test_a_kind_of_a_newer_version_is_kept_as_it_is(run, store):
    async def case():
        unread = ev.Unread(b'{"kind":"tomorrow","deep":{"x":[1,null]}}')
        await store_append(store, [delta("a"), unread, delta("b")])
        first = [recorded.event for recorded in await store.log.read(A, "t1")]
        return first, [record.recorded.event for record in (await store.log.tail(""))[0]], unread

    first, tail, unread = run(case())
    assert first == tail == [delta("a"), unread, delta("b")]


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0b\0", "ÄÖÜ ß", "日本語", "👩‍👩‍👧‍👦", "\u202e", '"quoted" \\ back', "'; DROP TABLE events; --",
     "\n\r\t\x1f\x7f", "\ufeff", "\u2028\u2029", "{}", "null", "%s ? :name"],
)  # fmt: skip
def test_any_text_comes_back_equal(run, store, text):
    async def case():
        event = ev.FollowUp(message(text))
        await store_append(store, [event])
        assert [record.recorded.event for record in (await store.log.tail(""))[0]] == [event]
        return (await store.log.read(A, "t1"))[0].event.message.parts[0].text

    assert run(case()) == text


def test_big_and_small_numbers_in_metadata_survive(run, store):
    async def case():
        metadata = {"big": 2**53 + 1, "small": -1, "float": 0.1, "deep": [[[[{}]]]]}
        await store_append(store, [ev.Status(TaskState.WORKING, metadata=metadata)])
        return (await store.log.read(A, "t1"))[0].event.metadata == metadata

    assert run(case())


def test_the_time_of_an_append_is_kept_for_all_its_events(run, store):
    async def case():
        await store.log.append(A, "t1", 0, deltas(2), at=5)
        await store.log.append(A, "t1", 2, deltas(1), at=7)
        return [recorded.at for recorded in await store.log.read(A, "t1")]

    assert run(case()) == [5, 5, 7]


def test_roles_and_states_keep_their_spelling(run, store):
    async def case():
        said = ev.FollowUp(message("x"))
        spoken = ev.FollowUp(type(said.message)("m", role=Role.AGENT))
        await store_append(store, [spoken, status(TaskState.AUTH_REQUIRED)])
        first, second = await store.log.read(A, "t1")
        return first.event.message.role, second.event.state

    assert run(case()) == (Role.AGENT, TaskState.AUTH_REQUIRED)


def test_more_tasks_than_are_remembered(run, store):
    async def case():
        names = [f"t{index:05}" for index in range(9_000)]
        for start in range(0, len(names), 3_000):
            part = names[start : start + 3_000]
            await asyncio.gather(*(store.log.append(A, name, 0, [delta()], at=AT) for name in part))
        again = [store.log.append(A, name, 1, [delta()], at=AT) for name in (names[0], names[-1])]
        late = store.log.append(A, names[1], 0, [delta()], at=AT)
        return await asyncio.gather(*again, late, return_exceptions=True)

    oldest, newest, late = run(case())
    assert (oldest, newest, late.actual) == (2, 2, 1)
