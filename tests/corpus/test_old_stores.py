"""A SQLite file and a PostgreSQL schema of the version before agents had ids: they open, migrate and read the same.

`schema-2.db` and `schema-2.sql` (a dump, its transactions renumbered from 3 so that any server has passed them)
were written by that version; the JSON beside each is what it read from them. They are never changed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from tests import postgres
from tests.corpus.record import written
from trunkline.log.fold import fold
from trunkline.store.base import Store
from trunkline.store.check import check
from trunkline.store.records import START, Where
from trunkline.store.url import store_from_url

HERE = Path(__file__).parent
AT = 1_800_000_000_000
DROP = "DROP SCHEMA IF EXISTS trunkline CASCADE"


@pytest.fixture(params=["db", "sql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The URL of an old store, and what its own version read from it."""
    expected = json.loads((HERE / f"schema-2.{request.param}.json").read_bytes())
    if request.param == "db":
        shutil.copy(HERE / "schema-2.db", tmp_path / "store.db")
        yield f"sqlite:///{tmp_path}/store.db", expected
        return
    database: postgres.Database = request.getfixturevalue("postgres_database")
    asyncio.run(_execute(database.url, f"{DROP}; {(HERE / 'schema-2.sql').read_text()}"))
    yield database.url, expected
    asyncio.run(_execute(database.url, DROP))


async def _execute(url: str, script: str) -> None:
    connection = await asyncpg.connect(url.partition("?")[0])
    await connection.execute(script)
    await connection.close()


async def _seen(store: Store) -> dict[str, Any]:
    tasks: list[Any] = []
    refs, cursor = await store.maintenance.tasks(START)
    while refs:
        for ref in refs:
            log = await store.log.read(ref.tenant, ref.task_id)
            head = msgspec.to_builtins(await store.heads.get(ref.tenant, ref.task_id))
            # As that version spelled it; what it did not know has its default.
            assert [head.pop(name) for name in ("agent", "parent", "child", "wake_at")] == ["", "", "", None]
            head["owner"] = head.pop("principal")
            tasks.append(
                {
                    "tenant": ref.tenant,
                    "task_id": ref.task_id,
                    "head": head,
                    "seqs": [log[-1].seq, len(log)],
                    "task": json.loads(written(fold(ref.task_id, log).task())),
                }
            )
        refs, cursor = await store.maintenance.tasks(cursor)
    return {
        "tasks": tasks,
        "docs": {
            f"{tenant}/{kind}": [
                [doc.id, doc.rev, doc.body.hex()] for doc in await store.docs.list(tenant, kind)
            ]
            for tenant, kind in (("default", "api-key"), ("acme", "note"))
        },
        "deliveries": [_as_then(one) for one in await store.outbox.list(limit=1000)],
        "lists": {
            f"{tenant}/{principal or ''}": [
                await store.heads.count(tenant, where),
                [head.task_id for head in page.heads],
            ]
            for tenant in ("default", "acme")
            for principal in (None, "ann")
            for where in [Where(principal, agents=("origin", ""))]
            for page in [await store.heads.list(tenant, where, size=500)]
        },
        "tail": await _length(store),
    }


def _as_then(delivery: Any) -> dict[str, Any]:
    found = msgspec.to_builtins(delivery)
    found["lane"] = found.pop("host", found.get("lane"))
    return found


async def _length(store: Store) -> int:
    count, cursor = 0, START
    while True:
        page, cursor = await store.log.tail(cursor)
        if not page:
            return count
        count += len(page)


def test_an_old_store_opens_migrates_and_reads_the_same(old: tuple[str, dict[str, Any]]) -> None:
    url, expected = old

    async def case() -> None:
        store = store_from_url(url, now_ms=lambda: AT)
        await store.open()
        try:
            assert store.migrated[0] == 2 < store.migrated[1]
            assert await _seen(store) == expected
            assert (await check(store)).problems == []
            await store.heads.rebuild()
            assert await _seen(store) == expected
        finally:
            await store.close()

    asyncio.run(case())


def test_an_old_store_goes_on(old: tuple[str, dict[str, Any]]) -> None:
    """What ran belongs to the agent at the origin, documents change, and what ended is pruned."""
    url, expected = old
    running = {
        each["task_id"]
        for each in expected["tasks"]
        if each["head"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    }

    async def case() -> None:
        store = store_from_url(url, now_ms=lambda: AT + 86_400_000)
        await store.open()
        try:
            orphans = await store.nodes.orphans(("origin", ""))
            assert {orphan.task_id for orphan in orphans if orphan.node != "n1"} <= running
            assert {one.task_id for one in await store.nodes.waiting(limit=1000)} >= running
            (doc,) = await store.docs.list("acme", "note")
            assert await store.docs.put("acme", "note", doc.id, b"changed", doc.rev) == doc.rev + 1
            ended = sum(each["head"]["state"][11:] in _ENDED for each in expected["tasks"])
            assert await store.maintenance.prune(AT + 2 * 86_400_000 * 30) == ended
        finally:
            await store.close()

    asyncio.run(case())


_ENDED = ("COMPLETED", "FAILED", "CANCELED", "REJECTED")
