"""With 10 000 parked and 100 000 ended tasks every question of the runner goes by an index, on both databases."""

from __future__ import annotations

import re
import sqlite3

import asyncpg
import pytest

from trunkline.log.fold import NEVER
from trunkline.store.postgres.sessions import SQL as POSTGRES
from trunkline.store.records import Where
from trunkline.store.statements import statements

AT = 1_800_000_000_000
FILL = f"""
INSERT INTO tasks (
    {{num}} tenant, task_id, context_id, owner, state, status_at, seq, node, agent, parent, child, wake_at
)
SELECT
    {{n}} 'default', 'task-' || n, 'ctx-' || n, 'ann', CASE WHEN n > 10000 THEN 5 WHEN n % 2 = 0 THEN 2 ELSE 3 END,
    n, 2, CASE WHEN n > 10000 THEN 'dead' ELSE '' END, CASE WHEN n % 3 = 0 THEN 'alpha' ELSE '' END,
    CASE WHEN n % 10 = 0 THEN 'task-1' ELSE '' END, '', CASE WHEN n > 10000 THEN NULL ELSE {NEVER} END
"""
NUMBERS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 110000) "
ASKED = ("orphans", "claimed", "waiting", "rested_children", "open_children_of_ended", "ended_tasks")
GIVEN = {
    "agents": ["", "alpha"], "now": AT, "limit": 100, "after": "", "tenant": None, "before": 5, "carried": [""],
    "dead": ["", "gone"], "known": ["gone"], "search": False, "node": "gone", "agent": "", "after_at": 0, "after_id": "",
}  # fmt: skip


def _sqlite(path):
    plain = statements("sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute(NUMBERS + FILL.format(num="num,", n="n,") + " FROM n")
        given = GIVEN | {"agents": '["", "alpha"]'}
        plans = {
            name: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {plain[name]}", given)]
            for name in ASKED
        }
    connection.close()
    return plans


async def _postgres(url):
    connection = await asyncpg.connect(
        url.partition("?")[0], server_settings={"search_path": "trunkline", "trunkline.tenant": "*"}
    )
    await connection.execute(FILL.format(num="", n="") + " FROM generate_series(1, 110000) AS n")
    await connection.execute("ANALYZE tasks; SET plan_cache_mode = force_generic_plan")
    plans = {}
    for name in ASKED:
        statement = POSTGRES[name]
        rows = await connection.fetch(f"EXPLAIN {statement.text}", *statement.values(GIVEN))
        plans[name] = [row[0] for row in rows]
    await connection.close()
    return plans


def test_every_question_goes_by_an_index(run, bench):
    if not bench.lasts:
        pytest.skip("the same statements on the same tables as in a file")
    store = bench.make()
    run(store.open())
    run(store.close())
    path = bench.url.removeprefix("sqlite:///")
    plans = run(_postgres(bench.url)) if path == bench.url else _sqlite(path)
    for name, plan in plans.items():
        assert not [step for step in plan if "Seq Scan on tasks" in step], (name, plan)
        scans = [step for step in plan if re.match(r"SCAN (tasks|t|p|c)\b", step)]
        assert not [step for step in scans if "INDEX" not in step], (name, plan)
    _finds_nothing(run, bench.make())


def _finds_nothing(run, store):
    """Nobody who looks for work finds what is parked, and a list finds all of it."""

    async def case():
        await store.open()
        assert await store.nodes.orphans(("", "alpha")) == []
        assert await store.nodes.rested_children() == []
        assert await store.nodes.open_children_of_ended() == []
        page = await store.heads.list("default", Where(parent="task-1", agents=("alpha",)), size=3)
        assert page.total == 3_666
        await store.close()

    run(case())
