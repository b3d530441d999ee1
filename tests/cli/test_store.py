"""`trunkline store …`: what each command prints and refuses, alone and beside a running server."""

from __future__ import annotations

import asyncio
import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.conformance.store.given import Author, delta, status, submitted, task
from tests.harness import Agent, ServerProcess
from trunkline.clock import Ids, now_ms
from trunkline.flow.definition.canonical import definition_hash
from trunkline.store.sqlite.database import SQLITE
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import TaskState

DAY = 86_400_000
NEWEST = SQLITE[-1].version
DONE = status(TaskState.COMPLETED)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(trunkline: Command) -> Command:
    """Run `trunkline store`: exit code, output, complaint."""
    return partial(trunkline, "store")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """trunkline.db with an old task, a long recent one and a running one."""
    path = tmp_path / "trunkline.db"

    async def fill() -> None:
        store = SqliteStore(str(path), now_ms=now_ms)
        await store.open()
        now = now_ms()
        await task(store, "old", state=TaskState.FAILED, at=now - 8 * DAY)
        await task(store, "hours", state=TaskState.COMPLETED, at=now - 7_200_000)
        long = Author(store, "long", "tenant-b")
        await long.append(submitted(), at=now - 50)
        for _ in range(20):
            await long.append(delta(), at=now - 50)
        await long.append(DONE, at=now - 50)
        await task(store, "running", at=now - 50)
        await store.close()

    asyncio.run(fill())
    return path


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


# check


def test_check_counts(command: Command, filled: Path) -> None:
    code, out, _ = command("check")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "tasks     4 (2 completed, 1 failed, 1 working)"
    assert lines[1] == "events    28"
    assert lines[2].startswith("bytes     ")
    assert lines[3:] == ["documents 0", "problems  0"]


def test_check_names_each_problem(command: Command, filled: Path) -> None:
    damage(filled, "DELETE FROM events WHERE task = 3 AND seq = 5")
    code, out, _ = command("check", "--store", "sqlite:///trunkline.db")
    assert code == 1
    assert out.splitlines()[-2:] == ["problem   task long: event 6 does not follow 4", "problems  1"]
    code, out, _ = command("check", "--json")
    assert code == 1
    told = json.loads(out)
    assert told["problems"] == [{"task_id": "long", "text": "event 6 does not follow 4"}]
    assert told["tasks"] == {"failed": 1, "completed": 1, "working": 1}
    assert (told["events"], told["unread"]) == (6, 0)


def test_check_tells_of_kinds_it_does_not_know(command: Command, filled: Path) -> None:
    damage(filled, 'UPDATE events SET body = \'[{"kind":"later"}]\' WHERE task = 3 AND seq = 5')
    code, out, _ = command("check")
    assert code == 0
    assert "unread    1 (of kinds that a newer version wrote" in out


def test_check_changes_nothing(command: Command, filled: Path) -> None:
    before = filled.read_bytes()
    assert command("check")[0] == 0
    assert filled.read_bytes() == before


@pytest.mark.parametrize("name", ["check", "rebuild", "prune", "waiting", "export"])
def test_no_file_is_made_where_none_was(command: Command, tmp_path: Path, name: str) -> None:
    code, _, said = command(name, "--store", "sqlite:///typo.db")
    assert code == 2
    assert said.startswith(f"Error: {tmp_path}/typo.db cannot be opened: there is no such file\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args", [("check",), ("migrate",), ("rebuild",), ("prune",), ("waiting",), ("export",), ("import", "-")]
)
def test_a_store_in_memory_is_of_no_use_here(command: Command, args: tuple[str, ...]) -> None:
    code, _, said = command(*args, "--store", "memory:")
    assert (code, said.splitlines()[0]) == (
        2, "Error: a store in memory ends with its process: name another one with --store",
    )  # fmt: skip


def test_the_store_comes_from_the_settings(
    command: Command, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.rename(tmp_path / "mine.db")
    (tmp_path / "trunkline.toml").write_text('store = "sqlite:///mine.db"\n')
    assert "tasks     4 " in command("check")[1]
    monkeypatch.setenv("TRUNKLINE_STORE", "sqlite:///none.db")
    assert "none.db" in command("check")[2]


# rebuild


def test_rebuild_mends_what_lists_show(command: Command, filled: Path) -> None:
    damage(filled, "UPDATE tasks SET state = 1, seq = 2 WHERE task_id = 'long'")
    assert "task long: its head does not fit its log" in command("check")[1]
    assert command("rebuild") == (
        0, "sqlite:///trunkline.db: 4 tasks are listed as their logs have them\n", "",
    )  # fmt: skip
    assert command("check")[0] == 0


# migrate


def test_migrate_says_from_where_to_where(command: Command, tmp_path: Path) -> None:
    assert command("migrate") == (0, f"sqlite:///trunkline.db: schema 0 is now {NEWEST}\n", "")
    assert command("migrate") == (0, "sqlite:///trunkline.db: the schema is up to date\n", "")


@pytest.mark.parametrize("name", ["migrate", "check", "export", "prune"])
def test_a_newer_store_is_refused(command: Command, filled: Path, name: str) -> None:
    damage(filled, "PRAGMA user_version = 99")
    code, _, said = command(name)
    assert code == 2
    assert f"was written by a newer trunkline (schema 99, this one knows {NEWEST}); upgrade trunkline" in said


def test_an_older_store_is_not_read_before_it_is_migrated(command: Command, filled: Path) -> None:
    damage(filled, "PRAGMA user_version = 0")
    code, _, said = command("check")
    assert code == 2
    assert f"has schema 0 and this trunkline reads {NEWEST}: run trunkline store migrate" in said


# waiting and cancel


def test_without_a_server_every_open_task_waits_and_can_be_canceled(command: Command, tmp_path: Path) -> None:
    task_id = Ids().new()

    async def fill() -> None:
        store = SqliteStore(str(tmp_path / "trunkline.db"), now_ms=now_ms)
        await store.open()
        # As a process that was killed leaves it.
        await store.nodes.join("n1", ["alpha"])
        author = Author(store, task_id, "north")
        await author.append(submitted(agent="alpha"), status())
        await task(store, "ended", state=TaskState.COMPLETED)
        await store.close()

    asyncio.run(fill())
    assert command("waiting") == (0, f"{task_id}  working         alpha  north\nwaiting  1\n", "")
    assert command("waiting", "--tenant", "south") == (0, "waiting  0\n", "")
    told = [{"id": task_id, "tenant": "north", "agent": "alpha", "state": "working"}]
    assert json.loads(command("waiting", "--json")[1]) == told
    code, _, said = command("cancel", task_id)
    assert (code, said.splitlines()[0]) == (
        1, f"Error: no task '{task_id}' waits for its agent; see the list of waiting tasks",
    )  # fmt: skip
    assert command("cancel", task_id, "--tenant", "north") == (0, f"task {task_id} is canceled\n", "")
    assert command("waiting") == (0, "waiting  0\n", "")
    assert "is not the id of a task" in command("cancel", "a/b")[2]


# prune


def test_prune_forgets_and_compacts(command: Command, filled: Path) -> None:
    assert command("prune") == (0, "forgotten  1\ncompacted  1\n", "")
    assert "tasks     3 (2 completed, 1 working)" in command("check")[1]
    assert command("prune", "--older-than", "90m") == (0, "forgotten  1\ncompacted  0\n", "")
    assert command("prune", "--older-than", "0s") == (0, "forgotten  1\ncompacted  0\n", "")
    assert "tasks     1 (1 working)" in command("check")[1]


@pytest.mark.parametrize(("age", "gone"), [("9d", 0), ("191h", 1), ("8000s", 1), ("1m", 2)])
def test_ages(command: Command, filled: Path, age: str, gone: int) -> None:
    assert command("prune", "--older-than", age)[1].splitlines()[0] == f"forgotten  {gone}"


@pytest.mark.parametrize("age", ["", "7", "d", "-7d", "7 d", "7w", "9999999999d"])
def test_an_age_that_is_none(command: Command, filled: Path, age: str) -> None:
    code, _, said = command("prune", f"--older-than={age}")
    assert (code, said.splitlines()[0]) == (
        2, f"Error: --older-than takes a number and s, m, h or d, for example 7d, not {age!r}",
    )  # fmt: skip


def test_the_age_comes_from_the_settings(
    command: Command, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_RETENTION", "0")
    code, _, said = command("prune")
    assert code == 2
    assert "the setting retention keeps tasks for ever: say --older-than" in said
    monkeypatch.setenv("TRUNKLINE_RETENTION", "3600")
    assert command("prune")[1].splitlines()[0] == "forgotten  2"


# export and import


def test_what_a_hub_keeps_is_carried_too(command: Command, tmp_path: Path) -> None:
    hash = definition_hash({"document": {"name": "echo"}})
    bodies = {
        ("model.notes", "scout"): b'[{"id":"1","text":"remember","at":1}]',
        ("model.todos", "scout"): b'[{"id":"2","text":"do it","at":2}]',
        ("workflow", hash): b'{"document":{"name":"echo"}}',
        # The hash that an id means is no JSON in the store.
        ("workflow.id", "echo"): hash.encode(),
    }

    async def kept(file: str, *, writes: bool) -> dict[tuple[str, str], bytes | None]:
        store = SqliteStore(str(tmp_path / file), now_ms=now_ms)
        await store.open()
        try:
            for (kind, one_id), body in bodies.items() if writes else ():
                await store.docs.put("acme", kind, one_id, body, 0)
            found = {key: await store.docs.get("acme", *key) for key in bodies}
            return {key: None if doc is None else doc.body for key, doc in found.items()}
        finally:
            await store.close()

    assert asyncio.run(kept("kept.db", writes=True)) == bodies
    assert command("export", "all.jsonl", "--store", "sqlite:///kept.db") == (0, "", "")
    for told in ("4 documents\nskipped    0\n", "0 documents\nskipped    4\n"):
        assert command("import", "all.jsonl", "--store", "sqlite:///copy.db")[1].endswith(told)
    assert asyncio.run(kept("copy.db", writes=False)) == bodies
    wrong = (tmp_path / "all.jsonl").read_text().replace(f'"{hash}"}}', "[1]}")
    (tmp_path / "wrong.jsonl").write_text(wrong)
    code, _, said = command("import", "wrong.jsonl", "--store", "sqlite:///other.db")
    assert code == 2 and "the document was not written" in said


def test_damaged_document_is_listed_left_out_and_repaired(
    command: Command, filled: Path, tmp_path: Path
) -> None:
    async def fill() -> None:
        store = SqliteStore(str(filled), now_ms=now_ms)
        await store.open()
        for doc_id in ("one", "two"):
            form = {"id": doc_id, "name": "One", "schedule": "0 3 * * *", "skill": "work"}
            body = json.dumps({"form": form, "since": 1}).encode()
            await store.docs.put("acme", "ceremony", doc_id, body, 0)
        await store.close()

    asyncio.run(fill())
    assert command("export", "good.jsonl") == (0, "", "")
    damage(filled, "UPDATE docs SET body = x'ff' WHERE kind = 'ceremony'")
    code, out, _ = command("check")
    reason = (
        "Input data was truncated" if "truncated" in out else "JSON is malformed: invalid character (byte 0)"
    )
    assert (code, out.splitlines()[-3:]) == (
        1,
        [
            f"damaged   ceremony one (tenant acme): {reason}",
            f"damaged   ceremony two (tenant acme): {reason}",
            "problems  2",
        ],
    )
    (shown, _) = json.loads(command("check", "--json")[1])["damaged"]
    assert shown == {"tenant": "acme", "kind": "ceremony", "id": "one", "reason": reason}
    code, _, said = command("export", "less.jsonl")
    assert code == 1
    assert said.splitlines()[0].startswith("left out: document 'one' of kind ceremony is damaged: ")
    assert command("import", "less.jsonl", "--store", "sqlite:///copy.db")[1].startswith("imported   4 tasks")
    restored = command("repair", "ceremony", "one", "--tenant", "acme", "--from", "good.jsonl")
    assert restored == (0, "ceremony one (tenant acme): restored\n", "")
    assert command("repair", "ceremony", "two", "--tenant", "acme", "--from", "less.jsonl")[0] == 2
    assert command("repair", "ceremony", "two", "--tenant", "acme")[1].endswith(": removed\n")
    for words in (("ceremony", "one", "--tenant", "acme"), ("ceremony", "two"), ("nothing", "two")):
        assert command("repair", *words)[0] == 1
    assert command("check")[0] == 0


def test_a_round_trip(command: Command, filled: Path, tmp_path: Path) -> None:
    assert command("export", "all.jsonl") == (0, "", "")
    assert os.stat("all.jsonl").st_mode & 0o077 == 0
    assert command("import", "all.jsonl", "--store", "sqlite:///copy.db") == (
        0, "imported   4 tasks, 28 events, 0 documents\nskipped    0\n", "",
    )  # fmt: skip
    assert command("import", "all.jsonl", "--store", "sqlite:///copy.db")[1].endswith("skipped    4\n")
    assert command("export", "again.jsonl", "--store", "sqlite:///copy.db")[0] == 0
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    assert command("check", "--store", "sqlite:///copy.db")[0] == 0
    code, out, _ = command("export", "--tenant", "tenant-b")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, lines[0]["format"], lines.pop()["end"]) == (0, 3, len(lines))
    assert {(line["tenant"], line["task"]) for line in lines[1:]} == {("tenant-b", "long")}
    assert [line["seq"] for line in lines[1:]] == list(range(1, 23))


@pytest.mark.parametrize("name", ["all.jsonl", "all.jsonl.part"])
def test_an_export_follows_no_link(command: Command, filled: Path, tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    other.write_text("as it was")
    (tmp_path / name).symlink_to(other)
    assert command("export", "all.jsonl") == (0, "", "")
    assert other.read_text() == "as it was"
    assert not (tmp_path / "all.jsonl").is_symlink()
    assert os.stat("all.jsonl").st_mode & 0o077 == 0


def test_from_standard_input(
    command: Command, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("export", "all.jsonl")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "all.jsonl").read_bytes())))
    assert command("import", "-", "--store", "sqlite:///copy.db")[1].startswith("imported   4 tasks")


def test_a_damaged_export_is_refused_by_its_line(command: Command, filled: Path, tmp_path: Path) -> None:
    command("export", "all.jsonl")
    data = (tmp_path / "all.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(data[:-20])
    code, _, said = command("import", "cut.jsonl", "--store", "sqlite:///copy.db")
    assert code == 2
    assert said.startswith("Error: line 29: Input data was truncated; nothing of this task was written\n")
    assert "tasks     3 " in command("check", "--store", "sqlite:///copy.db")[1]


def test_files_that_cannot_be_read_or_written(command: Command, filled: Path) -> None:
    assert (
        "Error: none.jsonl cannot be read: No such file or directory\n" in command("import", "none.jsonl")[2]
    )
    said = command("export", "nowhere/all.jsonl")[2]
    assert said.startswith("Error: nowhere/all.jsonl cannot be written: No such file or directory\n")


def test_an_export_that_failed_leaves_the_last_one(command: Command, filled: Path, tmp_path: Path) -> None:
    command("export", "all.jsonl")
    before = (tmp_path / "all.jsonl").read_bytes()
    damage(filled, "DROP TABLE events")
    code, _, said = command("export", "all.jsonl")
    assert code == 2
    assert "the store could not be read: " in said
    assert (tmp_path / "all.jsonl").read_bytes() == before


def test_a_reader_that_has_seen_enough(filled: Path) -> None:
    script = "from trunkline.cli.main import main; main()"
    command = [sys.executable, "-c", script, "store", "export"]
    with subprocess.Popen(
        command, cwd=filled.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(30) == 1
        assert process.stderr.read() == b""


# Beside a running server


def test_beside_a_server(command: Command, tmp_path: Path) -> None:
    store = ("--store", "sqlite:///tasks.db")
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        sent = {agent.send(f"echo {number}")["id"] for number in range(5)}
        code, out, _ = command("check", *store)
        assert (code, out.splitlines()[0]) == (0, "tasks     5 (5 completed)")
        assert command("export", "live.jsonl", *store)[0] == 0
        assert command("prune", *store) == (0, "forgotten  0\ncompacted  0\n", "")
        for refused, reason in {
            ("import", "live.jsonl"): "stop it or choose another --store",
            ("migrate",): "stop it or choose another --store",
            ("rebuild",): "stop it or choose another --store",
        }.items():
            code, _, said = command(*refused, *store)
            assert code == 2
            assert f"tasks.db is open in process {server.process.pid}; one process per SQLite file" in said
            assert reason in said
        agent.close()
    lines = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert {line["task"] for line in lines[1:-1]} == sent


# PostgreSQL


def test_the_same_on_postgresql(command: Command, filled: Path, tmp_path: Path, postgres_url: str) -> None:
    there = ("--store", postgres_url)
    assert command("migrate", *there)[0] == 0
    assert command("export", "all.jsonl")[0] == 0
    assert command("import", "all.jsonl", *there) == (
        0,
        "imported   4 tasks, 28 events, 0 documents\nskipped    0\n",
        "",
    )
    assert command("import", "all.jsonl", *there)[1].endswith("skipped    4\n")
    assert command("rebuild", *there)[1].endswith(": 4 tasks are listed as their logs have them\n")
    code, out, _ = command("check", *there)
    assert (code, out.splitlines()[0]) == (0, "tasks     4 (2 completed, 1 failed, 1 working)")
    assert command("export", "there.jsonl", *there)[0] == 0
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    assert command("prune", *there)[1].splitlines()[0] == "forgotten  1"
    assert command("export", "small.jsonl", *there)[0] == 0
    assert command("import", "small.jsonl", "--store", "sqlite:///copy.db")[0] == 0
    # There, `prune` has left the moment for other processes.
    there_now = command("check", *there)[1].replace("documents 1", "documents 0")
    assert command("check", "--store", "sqlite:///copy.db")[1] == there_now


def test_nothing_is_imported_or_rebuilt_beside_servers_that_share_a_store(
    command: Command, filled: Path, tmp_path: Path, postgres_url: str
) -> None:
    store = ("--store", postgres_url)
    command("export", "all.jsonl")
    (tmp_path / "served").mkdir()
    with ServerProcess(tmp_path / "served", store=postgres_url) as server:
        for words in (("import", "all.jsonl"), ("rebuild",)):
            code, _, said = command(*words, *store)
            assert code == 2 and "1 running servers use this store: stop them first" in said
        server.stop()
    assert command("import", "all.jsonl", *store)[1].startswith("imported   4 tasks")
    assert command("rebuild", *store)[0] == 0
