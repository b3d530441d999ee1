"""Out and in again: the same bytes, and never half a task."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.conformance.store.given import AT, A, Author, B, delta, status, submitted, task
from tests.store.conftest import AT as NOW
from trunkline.errors import Misuse
from trunkline.log import events as ev
from trunkline.log.fold import fold
from trunkline.store import backup
from trunkline.store.backup import Restored, export, restore
from trunkline.store.check import check
from trunkline.store.records import Orphan
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

DONE = status(TaskState.COMPLETED)


async def exported(store, tenant=None):
    return b"".join([lines async for lines in export(store, "1.2.3", tenant)])


async def fill(store):
    """A compacted task, one with an event of the future, a running one, and one of somebody else."""
    long = Author(store, "long")
    await long.append(submitted())
    for number in range(40):
        await long.append(delta(), delta("ünï\n"), at=AT + number)
    await long.append(delta(), DONE, at=AT + 50)
    await long.append(ev.PushSet(ev.PushTarget("p", "https://example.com/", "1.0"), "ann"), at=AT + 60)
    assert await store.maintenance.compact(AT + 100) == 1
    later = Author(store, "later")
    await later.append(submitted(), ev.Unread(b'{"kind":"later","x":[1, 2]}'))
    await task(store, "other", tenant=B, state=TaskState.INPUT_REQUIRED)
    await later.append(status())
    for number in range(50):
        await task(store, f"t{number}", at=AT + number)


@pytest.fixture
def other(run):
    """A second store, empty."""
    made = SqliteStore(None, now_ms=lambda: NOW)
    run(made.open())
    yield made
    run(made.close())


def lines_of(data):
    return data.splitlines(keepends=True)


def test_a_round_trip_gives_the_same_bytes(run, store, other):
    async def case():
        await fill(store)
        data = await exported(store)
        done = await restore(other, lines_of(data))
        assert (await check(store), await check(other)) == (await check(store),) * 2
        assert (await check(other)).problems == []
        for tenant, task_id in ((A, "long"), (A, "later"), (B, "other")):
            assert await other.heads.get(tenant, task_id) == await store.heads.get(tenant, task_id)
            assert await other.log.read(tenant, task_id) == await store.log.read(tenant, task_id)
        return data, done, await exported(other)

    data, done, again = run(case())
    assert again == data
    assert lines_of(data)[0] == b'{"trunkline":"1.2.3","format":3}\n'
    assert lines_of(data)[-1] == b'{"end":%d}\n' % (len(lines_of(data)) - 1)
    assert done == Restored(tasks=53, events=len(lines_of(data)) - 2)
    assert b'"seq":81,"at":1800000000039,"event":{"kind":"compacted","count":80}}\n' in data
    assert b'"event":{"kind":"later","x":[1, 2]}}\n' in data


def test_documents_go_with_the_logs_as_far_as_they_may_leave(run, store, other):
    def shown(tenant, doc_id, body):
        return tenant, body.replace(b"secret", b"")

    async def case():
        await store.docs.put(A, "memo", "one", b'{"x":"secret"}', 0)
        await store.docs.put(B, "memo", "one", b'{"x":2}', 0)
        await store.docs.put(A, "cursor", "one", b"7", 0)
        data = b"".join([lines async for lines in export(store, "1", None, {"memo": shown})])
        of_b = b"".join([lines async for lines in export(store, "1", B, {"memo": shown})])
        done = [await restore(other, lines_of(data), {"memo": shown}) for _ in range(2)]
        kept = (await other.docs.get(A, "memo", "one")).body
        await other.docs.put(B, "memo", "one", b"{}", 1)
        with pytest.raises(
            Misuse, match="line 3: the document 'one' of kind memo is here already and differs"
        ):
            await restore(other, lines_of(data), {"memo": shown})
        return data, of_b, done, kept

    data, of_b, done, kept = run(case())
    assert kept == b'{"x":""}' and b"secret" not in data and b"cursor" not in data
    assert lines_of(of_b)[1:-1] == lines_of(data)[2:-1]
    assert done == [Restored(documents=2), Restored(skipped=2)]


def test_an_export_of_the_first_format_is_read(run, other):
    assert run(restore(other, [HEAD.replace(b"2}", b"1}"), FIRST])) == Restored(tasks=1, events=1)


def test_one_tenant_alone(run, store):
    async def case():
        await fill(store)
        return lines_of(await exported(store, B)), lines_of(await exported(store, "nobody"))

    some, none = run(case())
    assert [line.partition(b',"seq"')[0] for line in some[1:-1]] == [
        b'{"tenant":"tenant-b","task":"other"'
    ] * 2
    assert len(none) == 2


def test_what_ran_is_an_orphan_of_the_new_store(run, store, other):
    async def case():
        await task(store, "t1", node="far")
        await restore(other, lines_of(await exported(store)))
        return await other.nodes.orphans(("",))

    assert run(case()) == [Orphan(A, "t1", "far")]


def test_what_is_there_already_is_skipped_and_what_was_cut_goes_on(run, store, other):
    async def case():
        await fill(store)
        data = await exported(store)
        lines = lines_of(data)
        # The first import got as far as the middle of the second task.
        cut = next(place for place, line in enumerate(lines) if b'"long"' in line) + 2
        assert await restore(other, [HEAD, *lines[1:cut]]) == Restored(tasks=2, events=cut - 1)
        assert await restore(other, lines) == Restored(tasks=52, events=len(lines) - 1 - cut, skipped=1)
        assert await restore(other, lines) == Restored(skipped=53)
        return data, await exported(other)

    data, again = run(case())
    assert again == data


def test_another_task_of_the_same_name_is_refused(run, store, other):
    async def case():
        await task(store, "t1")
        await task(store, "t2")
        await task(other, "t2", state=TaskState.FAILED)
        lines = lines_of(await exported(store))
        with pytest.raises(
            Misuse, match=r"line 5: task t2 is here already and differs from event 2 on; import"
        ):
            await restore(other, lines)
        # The one before it came in, and this one stays as it was.
        assert len(await other.log.read(A, "t1")) == 2
        await Author(other, "t3").append(submitted(), status(), DONE)
        with pytest.raises(Misuse, match="line 3: task t3 is here already and differs from event 3 on"):
            longer = [line.replace(b'"t1"', b'"t3"') for line in lines[1:3]]
            await restore(other, [HEAD, *longer])
        return fold("t2", await other.log.read(A, "t2")).state

    assert run(case()) is TaskState.FAILED


def test_an_id_of_another_tenant_is_taken(run, store, other):
    async def case():
        await task(store, "t1")
        await task(other, "t1", tenant=B)
        with pytest.raises(Misuse, match="line 2: the id of task t1 is taken by another tenant"):
            await restore(other, lines_of(await exported(store)))

    run(case())


HEAD, WHOLE = b'{"trunkline":"1","format":2}\n', b'{"trunkline":"1","format":3}\n'
FIRST = b'{"tenant":"a","task":"t1","seq":1,"at":5,"event":{"kind":"submitted","message":{"messageId":"m"},"context_id":"c","owner":"o","node":"n"}}\n'
NEXT = b'{"tenant":"a","task":"t1","seq":2,"at":5,"event":{"kind":"replied","message":{"messageId":"m"}}}\n'


def memo(tenant, doc_id, body):
    """A document that is an object."""
    msgspec.json.decode(body, type=dict)
    return tenant, body


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "line 1: an export begins with"),
        ([FIRST], "line 1: an export begins with"),
        ([b"[]\n"], "line 1: an export begins with"),
        ([b'{"trunkline":"9","format":4}\n'], "line 1: format 4 is not known here, only 1 to 3; upgrade"),
        ([WHOLE, FIRST], "line 2: the export is not whole, or two are in one; nothing of this task"),
        ([WHOLE], "line 1: the export is not whole"),
        ([WHOLE, FIRST, b'{"end":3}\n'], "line 3: the export is not whole"),
        ([WHOLE, FIRST, b'{"end":2}\n', FIRST], "line 3: the export is not whole, or two are in one"),
        ([WHOLE, FIRST, b'{"end":'], "line 3: Input data was truncated"),
        ([HEAD, b'{"document":"odd","tenant":"a","id":"x","body":{}}\n'], "kind 'odd' are not imported"),
        ([HEAD, b'{"document":"memo","tenant":"a","id":"x"}\n'], "line 2: .*`body`"),
        ([HEAD, b'{"document":"memo","tenant":"a","id":"\\u0000","body":{}}\n'], "line 2: .*printable"),
        ([HEAD, b'{"document":"memo","tenant":"a","id":"x","body":5}\n'], "line 2: Expected `object`, got `int`; the doc"),
        ([HEAD, FIRST.replace(b'"c"', b"[" * 9999)], "line 2: maximum recursion depth"),
        ([HEAD, b'{"document":"memo","tenant":"a","id":"x","body":' + b"[" * 9999], "line 2: maximum recursion depth"),
        ([b'{"x":' + b"[" * 9999], "line 1: an export begins with"),
        ([HEAD, FIRST.replace(b'"at":5', b'"at":253402300800000')], "line 2: Expected `int` <= 253402300799999"),
        ([HEAD, FIRST, NEXT[:40]], "line 3: Input data was truncated"),
        ([HEAD, FIRST, b"\n"], "line 3: Input data was truncated"),
        ([HEAD, FIRST, b"null\n"], "line 3: Expected `object`, got `null`"),
        ([HEAD, FIRST, NEXT.replace(b'"seq":2', b'"seq":"2"')], r"line 3: Expected `int`, got `str` - at `\$\.seq`"),
        ([HEAD, FIRST, NEXT.replace(b'"seq":2', b'"seq":3')], "line 3: task t1: event 3 does not follow 1"),
        ([HEAD, FIRST, NEXT.replace(b'"seq":2', b'"seq":1')], "line 3: task t1: event 1 does not follow 1"),
        ([HEAD, FIRST, NEXT.replace(b'"seq":2', b'"seq":0')], r"line 3: Expected `int` >= 1 - at `\$\.seq`"),
        ([HEAD, FIRST, NEXT.replace(b"}}}", b"}},\"more\":1}")], "line 3: Object contains unknown field `more`"),
        ([HEAD, FIRST, NEXT.replace(b'{"messageId":"m"}', b"5")], r"line 3: task t1, event 2: Expected `object`, got `int`"),
        ([HEAD, FIRST, NEXT.replace(b"messageId", b"\xff")], "line 3: "),
        ([HEAD, FIRST, NEXT, NEXT.replace(b'"seq":2', b'"seq":3')], "line 4: task t1: event 3 comes after its end"),
        ([HEAD, NEXT.replace(b'"seq":2', b'"seq":1')], "line 2: task t1: does not begin with what was submitted"),
        ([HEAD, FIRST.replace(b'"t1"', b'"../t"')], r"line 2: '\.\./t' is no task id"),
        ([HEAD, FIRST.replace(b'"a"', b'""')], r"line 2: Expected `str` of length >= 1 - at `\$\.tenant`"),
        (
            [HEAD, FIRST, b'{"tenant":"a","task":"t1","seq":1,"at":5,"event":{"kind":"compacted","count":0}}\n'],
            "line 3: task t1: event 1 does not follow 1",
        ),
    ],
)  # fmt: skip
def test_a_damaged_line_is_named_and_nothing_of_its_task_is_written(run, other, lines, complaint):
    async def case():
        with pytest.raises(Misuse, match=complaint):
            await restore(other, lines, {"memo": memo})
        return await other.log.tail("")

    assert run(case())[0] == []


def test_damaged_document_is_left_out_and_named(run, store, other):
    async def case():
        for name, body in (("one", b"5"), ("two", b"{}")):
            await store.docs.put(A, "memo", name, body, 0)
        left_out = []
        lines = [one async for one in export(store, "1", None, {"memo": memo}, left_out=left_out.append)]
        return left_out, await restore(other, lines_of(b"".join(lines)), {"memo": memo})

    left_out, done = run(case())
    assert left_out == [
        "document 'one' of kind memo is damaged: Expected `object`, got `int`; see trunkline store repair --help"
    ]
    assert done == Restored(documents=1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (ev.Unread(b'{"kind":"cla'), "task t1 cannot be read: "),
        (DONE, "task t1 cannot be read: event 4 comes after its end"),
    ],
    ids=["torn", "order"],
)
def test_damaged_log_is_left_out_and_named(run, store, other, damage, reason):
    async def case():
        damaged = await task(store, "t1", state=TaskState.WORKING)
        await damaged.append(DONE)
        await damaged.append(damage)
        await task(store, "t2")
        left_out = []
        lines = [one async for one in export(store, "1", left_out=left_out.append)]
        return left_out, await restore(other, lines_of(b"".join(lines)))

    (said,), done = run(case())
    assert said.startswith(reason)
    assert done.tasks == 1


def test_an_export_of_nothing(run, store, other):
    async def case():
        return await restore(other, lines_of(await exported(store)))

    assert run(case()) == Restored()


def test_tasks_before_a_damaged_line_are_written(run, other):
    async def case():
        second = FIRST.replace(b'"t1"', b'"t2"')
        with pytest.raises(Misuse, match="line 5: .*; nothing of this task was written"):
            await restore(other, [HEAD, FIRST, NEXT, second, b"{"])
        return len(await other.log.read("a", "t1")), len(await other.log.read("a", "t2"))

    assert run(case()) == (2, 0)


def test_a_task_whose_lines_are_torn_apart_is_refused(run, other):
    async def case():
        second = FIRST.replace(b'"t1"', b'"t2"')
        with pytest.raises(Misuse, match="line 4: task t1: event 2 does not follow 0"):
            await restore(other, [HEAD, FIRST, second, NEXT])

    run(case())


def test_large_tasks_are_written_in_parts(run, store, other, monkeypatch):
    monkeypatch.setattr(backup, "APPEND_EVENTS", 7)
    monkeypatch.setattr(backup, "APPEND_BYTES", 300)
    monkeypatch.setattr(backup, "WAVE_BYTES", 1_000)
    monkeypatch.setattr(backup, "PAGE", 5)

    async def case():
        author = Author(store, "t1")
        await author.append(submitted(), *[delta("x" * (n % 9) * 20) for n in range(60)], DONE)
        await asyncio.gather(*(task(store, f"u{number}") for number in range(5)))
        data = await exported(store)
        await restore(other, lines_of(data))
        assert await other.heads.get(A, "t1") == await store.heads.get(A, "t1")
        return data, await exported(other)

    data, again = run(case())
    assert again == data


def test_a_store_that_fails_says_so(run, store, other):
    async def case():
        await task(store, "t1")
        lines = lines_of(await exported(store))
        await other.database.change(lambda connection: connection.execute("DROP TABLE events"))
        await restore(other, lines)

    with pytest.raises(Exception, match="no such table"):
        run(case())
