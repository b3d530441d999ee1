"""Pages that are larger than SQLite lets one value be."""

from __future__ import annotations

import sqlite3

import pytest

from tests.store.conftest import AT, look
from trunkline.errors import StoreError
from trunkline.log.events import Delta
from trunkline.store.sqlite import log


@pytest.fixture
def tight(run, store):
    """A store with ten events of 10 kB, of which few fit into one value."""

    async def fill():
        for seq in range(10):
            await store.log.append("default", "t1", seq, [Delta("a", f"{seq}" * 10_000)], at=AT)

    run(fill())
    return store


def limited(call, length, **arguments):
    def look(connection):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
        return call(connection, **arguments)

    return look


def test_read_takes_them_in_halves(run, tight):
    whole = run(tight.log.read("default", "t1"))
    call = limited(log.read_events, 35_000, tenant="default", task_id="t1", after=0, limit=1000)
    assert run(look(tight, call)) == whole
    call = limited(log.read_events, 35_000, tenant="default", task_id="t1", after=2, limit=7)
    assert run(look(tight, call)) == whole[2:9]


def test_tail_takes_what_fits(run, tight):
    first = run(look(tight, limited(log._tail, 35_000, after=0, limit=1000)))
    assert 0 < len(first) < 10
    seqs = [append.last for append in first]
    page, cursor = first, str(first[-1].id)
    while page:
        page, cursor = run(tight.log.tail(cursor))
        seqs += [record.recorded.seq for record in page]
    assert seqs == list(range(1, 11))


@pytest.mark.parametrize("call", [log.read_events, log._tail])
def test_one_that_does_not_fit_is_an_error(run, tight, call, caplog):
    arguments = {"after": 0, "limit": 1} if call is log._tail else {
        "tenant": "default", "task_id": "t1", "after": 0, "limit": 1,
    }  # fmt: skip
    with pytest.raises(StoreError, match="too big"):
        run(look(tight, limited(call, 5_000, **arguments)))
