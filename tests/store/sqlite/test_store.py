"""What only a file can show: durability, faults, modes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.store.given import Author, status, submitted
from tests.store.conftest import AT, change, look
from trunkline.errors import StoreError, StoreInUse
from trunkline.log.events import Delta, Unread
from trunkline.store.records import START, Poll, TaskRef
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

TASKS = 16


def delta(text="x"):
    return Delta("a", text)


async def append(store, task_id="t1", expected=0, text="x"):
    return await store.log.append("default", task_id, expected, [delta(text)], at=AT)


# Durability


def load_and_kill(path, acks):
    """What a writer acknowledged until it was killed."""
    command = [sys.executable, str(Path(__file__).with_name("load.py")), str(path), str(TASKS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "open\n"
        lines = [process.stdout.readline() for _ in range(acks)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return [(name, int(seq)) for name, seq in map(str.split, lines)]


def test_what_was_acknowledged_survives_kill_9(run, make, path):
    acked = Counter()
    for acks in (150, 7, 400, 61):
        for name, seq in load_and_kill(path, acks):
            acked[name] = max(acked[name], seq)
        store = make()
        run(store.open())
        for name, seq in acked.items():
            stored = [recorded.seq for recorded in run(store.log.read("default", name, limit=100_000))]
            assert stored == list(range(1, len(stored) + 1))
            # At most the one append that was under way is stored without its word having got out.
            assert seq <= len(stored) <= seq + 3
        run(store.close())
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


STORED = """
WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100000)
INSERT INTO tasks (num, tenant, task_id, context_id, owner, state, status_at, seq, node)
SELECT n, 'default', 'task-' || n, NULL, 'ann', iif(n % 10, 5, 2), n, 2, 'dead' FROM n;
INSERT INTO events SELECT 2 * num, num, 2, num, '[{"kind":"claimed","node":"n"},{"kind":"claimed","node":"n"}]'
FROM tasks;
"""


def test_a_file_with_100_000_tasks_is_soon_at_work(run, make, path):
    """10 000 of them unfinished; and asking for those again and again costs little."""
    store = make()
    run(store.open())
    run(store.close())
    with sqlite3.connect(path) as connection:
        connection.executescript(STORED)
    connection.close()

    async def case():
        began = time.monotonic()
        store = make()
        await store.open()
        await append(store, "new")
        first = time.monotonic() - began
        orphans = [len(await store.nodes.orphans(("",))) for _ in range(10)]
        asked = time.monotonic() - began - first
        await store.close()
        return first, asked, orphans

    first, asked, orphans = run(case())
    assert first < 1
    assert asked < 1
    assert orphans == [100] * 10


# Faults


def test_an_io_error_fails_the_group_and_replaces_the_connection(path):
    script = Path(__file__).with_name("squeeze.py")
    done = subprocess.run(
        [sys.executable, str(script), str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith(
        "1 2 ['one', 'two'] True the store failed, nothing was written: disk I/O error"
    )


@pytest.mark.parametrize("point", ["BEGIN", "INSERT INTO events", "COMMIT"])
def test_an_error_of_the_disk_at_any_point(run, make, monkeypatch, caplog, point):
    """Nothing of the group is stored, the handle is not used again, and what follows works."""
    broken = []

    class Failing(sqlite3.Connection):
        def execute(self, statement, *values):
            if broken and statement.startswith(point):
                broken.clear()
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Failing))

    async def case():
        store = make()
        await store.open()
        first = Author(store, "t1", "default")
        await first.append(submitted(), at=AT)
        before = store.database._transactions._connection
        broken.append(True)
        both = (
            Author(store, "t2", "default").append(submitted()),
            first.append(status()),
            append(store, "t3"),
        )
        failed = await asyncio.gather(*both, return_exceptions=True)
        assert [type(error) for error in failed] == [StoreError] * 3
        assert "nothing was written: disk I/O error" in str(failed[0])
        assert store.database._transactions._connection is not before
        assert len((await store.log.tail(START))[0]) == 1
        assert (await store.heads.get("default", "t1")).state is TaskState.SUBMITTED
        await first.append(status())
        await append(store, "t3")
        seqs = [record.recorded.seq for record in (await store.log.tail(START))[0]]
        await store.close()
        return seqs

    assert run(case()) == [1, 2, 1]
    assert "store.failed reason=OperationalError" in caplog.text


def test_a_full_disk_and_room_again(run, store, caplog):
    async def limit(pages):
        await change(
            store, lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
        )

    async def case():
        await append(store, "t1")
        await limit(1)
        big = "x" * 50_000
        both = (
            append(store, "t1", 1, big),
            append(store, "t2", 0, big),
            store.docs.put("default", "k", "d", b"x" * 50_000, 0),
        )
        failed = await asyncio.gather(*both, return_exceptions=True)
        assert [type(error) for error in failed] == [StoreError] * 3
        assert "disk is full" in str(failed[0])
        assert (await store.log.read("default", "t2"), await store.docs.get("default", "k", "d")) == (
            [],
            None,
        )
        await limit(1_000_000)
        return await append(store, "t1", 1), await append(store, "t2"), len((await store.log.tail(START))[0])

    assert run(case()) == (2, 1, 3)
    assert "database or disk is full" in caplog.text


def test_a_failed_group_rings_no_bell(run, store):
    async def case():
        listener = store.log.hints()
        await change(store, lambda connection: connection.execute("PRAGMA max_page_count = 1").fetchone())
        with pytest.raises(StoreError):
            await append(store, text="x" * 50_000)
        return await anext(listener)

    assert run(case()) == Poll()


def test_a_foreign_writer_delays_but_does_not_break(run, store, path):
    async def case():
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(append(store))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        return await waiting

    assert run(case()) == 1


def test_a_read_that_fails_says_so_and_the_next_one_works(run, store, caplog):
    async def case():
        with pytest.raises(StoreError, match="could not be read: no such table"):
            await look(store, lambda connection: connection.execute("SELECT * FROM nowhere"))
        return await store.log.read("default", "t1")

    assert run(case()) == []
    assert "store.read_failed" in caplog.text


def test_a_read_that_finds_damage_keeps_its_connection(run, store):
    async def case():
        await append(store)
        used = await look(store, id)
        await change(store, lambda connection: connection.execute("UPDATE events SET body = '[{'"))
        with pytest.raises(StoreError, match="task t1 cannot be read: "):
            await store.log.read("default", "t1")
        ((record,), _) = await store.log.tail(START)
        assert isinstance(record.recorded.event, Unread)
        return await look(store, id) == used

    assert run(case())


# Beside another process


@pytest.fixture
def reader(run, path):
    made = SqliteStore(str(path), now_ms=lambda: AT, read_only=True)
    yield made
    run(made.close())


def test_a_reader_takes_no_lock_and_sees_what_was_written_when_it_was_opened(run, store, reader):
    async def case():
        await append(store)
        await reader.open()
        await append(store, expected=1)
        return len(await reader.log.read("default", "t1")), (await reader.maintenance.tasks(START))[0]

    assert run(case()) == (1, [TaskRef("default", "t1")])


def test_a_reader_writes_nothing(run, store, reader, path):
    async def case():
        await append(store)
        await reader.open()
        with pytest.raises(StoreError, match="not open"):
            await append(reader, expected=1)
        with pytest.raises(StoreError, match=r"store\.db was opened to be read only"):
            await reader.maintenance.prune(AT + 1)
        with pytest.raises(StoreError, match="read only"):
            await reader.nodes.join("n", ("",))
        return len(await store.log.read("default", "t1"))

    assert run(case()) == 1


def test_a_reader_of_a_file_that_nobody_has_open(run, make, reader):
    async def case():
        store = make()
        await store.open()
        await append(store)
        await store.close()
        await reader.open()
        # Whoever comes now is not hindered by it.
        again = make()
        await again.open()
        await append(again, expected=1)
        found = len(await reader.log.read("default", "t1")), len(await again.log.read("default", "t1"))
        await again.close()
        return found

    assert run(case()) == (1, 2)


def test_a_reader_needs_a_file_of_ours(run, reader, path):
    with pytest.raises(StoreError, match=r"store\.db cannot be opened: there is no such file"):
        run(reader.open())
    assert not path.exists()
    sqlite3.connect(path).executescript("CREATE TABLE theirs (x)").connection.close()
    other = SqliteStore(str(path), now_ms=lambda: AT, read_only=True)
    with pytest.raises(StoreError, match="another program"):
        run(other.open())


# The file


def test_readers_cannot_write(run, store, caplog):
    with pytest.raises(StoreError, match="readonly"):
        run(look(store, lambda connection: connection.execute("DELETE FROM events")))


def test_the_file_is_in_wal_mode_and_fsynced(run, store):
    def look(connection):
        return [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
        ]

    assert run(change(store, look)) == ["wal", 2]


def test_readers_never_checkpoint(run, store):
    name = "PRAGMA wal_autocheckpoint"
    assert run(look(store, lambda connection: connection.execute(name).fetchone())) == (0,)


def test_close_folds_the_wal_back(run, make, path):
    store = make()
    run(store.open())
    run(append(store))
    run(store.log.read("default", "t1"))
    run(store.close())
    assert sorted(os.listdir(path.parent)) == ["store.db", "store.db.lock"]


def test_the_files_are_private(run, store, path):
    run(append(store))
    assert [os.stat(f"{path}{end}").st_mode & 0o077 for end in ("", "-wal")] == [0, 0]


def test_no_folder(run, tmp_path):
    with pytest.raises(StoreError, match=r"no folder .*/nowhere"):
        run(SqliteStore(str(tmp_path / "nowhere" / "x.db"), now_ms=lambda: 0).open())


def test_a_folder_is_no_file(run, tmp_path):
    (tmp_path / "x.db").mkdir()
    with pytest.raises(StoreError, match=r"x\.db cannot be opened"):
        run(SqliteStore(str(tmp_path / "x.db"), now_ms=lambda: 0).open())


def test_not_a_database(run, make, path):
    path.write_bytes(b"this is a letter to my aunt, not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        run(make().open())
    assert path.read_bytes().startswith(b"this is a letter")


def test_a_store_that_could_not_be_opened_stays_shut(run, make, path):
    path.write_bytes(b"no database" * 100)
    store = make()
    with pytest.raises(StoreError):
        run(store.open())
    with pytest.raises(StoreError, match="closed"):
        run(store.log.read("a", "t"))
    run(store.close())


def test_an_old_sqlite_is_refused(run, make, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    with pytest.raises(StoreError, match=r"3\.35"):
        run(make().open())


def test_close_ends_the_threads(run, make):
    before = set(threading.enumerate())
    store = make()
    run(store.open())
    run(store.log.read("default", "t1"))
    run(store.close())
    left = [thread.name for thread in set(threading.enumerate()) - before]
    assert not [name for name in left if name.startswith("trunkline")]


def hold(store):
    """Keeps the writer thread busy until the event is set."""
    gate = threading.Event()
    return gate, asyncio.ensure_future(change(store, lambda connection: gate.wait(60)))


def test_a_close_that_takes_too_long_says_so(run, make, monkeypatch):
    async def case():
        store = make()
        await store.open()
        gate, held = hold(store)
        await asyncio.sleep(0)
        monkeypatch.setattr("trunkline.store.database.PATIENCE", 0.01)
        with pytest.raises(StoreError, match="did not finish"):
            await store.close()
        gate.set()
        await held
        await asyncio.to_thread(store.database._writer._thread.join, 10)
        store.database._lock.release()

    run(case())


def test_an_open_that_takes_too_long_says_so(run, make, monkeypatch):
    monkeypatch.setattr("trunkline.store.sqlite.database.PATIENCE", 0.01)
    gate = threading.Event()

    async def case():
        store = make()
        connect = store.database._transactions._connect
        store.database._transactions._connect = lambda: (gate.wait(60), connect())[1]
        with pytest.raises(StoreError, match="did not open"):
            await store.open()
        with pytest.raises(StoreInUse):
            await make().open()
        gate.set()
        await store.database._writer.stop()
        store.database._lock.release()

    run(case())


def test_a_transaction_waits_for_nothing_else(run, store):
    async def case():
        with pytest.raises(StoreError, match="waited for something else"):
            await store.database.transaction(lambda rows: asyncio.sleep(0))
        return await store.docs.put("a", "kind", "id", b"", 0)

    assert run(case()) == 1
