"""One process per file, whoever comes second is refused at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import AT
from trunkline.errors import StoreError, StoreInUse
from trunkline.log.events import Delta
from trunkline.store.sqlite.database import FileLock
from trunkline.store.sqlite.store import SqliteStore

HOLD = Path(__file__).with_name("hold.py")


@pytest.fixture
def holder(path):
    """Another process that has the file open."""
    with subprocess.Popen(
        [sys.executable, str(HOLD), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_second_process_is_refused(run, make, holder):
    with pytest.raises(StoreInUse) as caught:
        run(make().open())
    text = str(caught.value)
    assert f"process {holder.pid};" in text
    assert "one process per SQLite file" in text
    assert "--store" in text


def test_a_killed_process_leaves_nothing_to_clean_up(run, make, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=120)
    store = make()
    run(store.open())
    run(store.close())


def test_a_second_store_of_this_process_is_refused(run, make, store):
    with pytest.raises(StoreInUse, match=rf"this process \(pid {os.getpid()}\)"):
        run(make().open())


def test_another_name_of_the_file_is_the_same_file(run, store, path):
    alias = path.with_name("alias.db")
    alias.symlink_to(path)
    with pytest.raises(StoreInUse):
        run(SqliteStore(str(alias), now_ms=lambda: 0).open())


def test_the_first_keeps_working_when_a_second_was_refused(run, make, store):
    with pytest.raises(StoreInUse):
        run(make().open())
    assert run(store.clock.fire_once("s", 1))
    with pytest.raises(StoreInUse):
        run(make().open())


def test_a_closed_store_lets_the_next_in(run, make):
    for _ in range(3):
        store = make()
        run(store.open())
        run(store.close())


def test_a_holder_without_a_pid_is_named_unknown(path):
    lock = FileLock(str(path))
    lock.acquire()
    Path(f"{path}.lock").write_text("", encoding="ascii")
    with pytest.raises(StoreInUse, match="process unknown"):
        FileLock(str(path)).acquire()
    lock.release()
    lock.release()


def test_the_lock_file_is_private(path):
    lock = FileLock(str(path))
    lock.acquire()
    assert os.stat(f"{path}.lock").st_mode & 0o077 == 0
    lock.release()


@pytest.mark.parametrize("suffix", ["", "-wal", ".lock"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_no_longer_there_takes_no_appends_until_it_is_back(run, store, path, suffix, replaced):
    def append(expected):
        async def write():
            return await store.log.append("a", "t1", expected, [Delta("a", "x")], at=AT)

        return run(write())

    run(store.nodes.join("n1", ("",)))
    run(store.nodes.beat("n1"))
    append(0)
    file, away = Path(f"{path}{suffix}"), path.with_name("away")
    file.rename(away)
    if replaced:
        file.touch()
    told = rf"{file} was removed or replaced"
    with pytest.raises(StoreError, match=told):
        run(store.nodes.beat("n1"))
    with pytest.raises(StoreError, match=told):
        append(1)
    away.rename(file)
    run(store.nodes.beat("n1"))
    assert append(1) == 2
