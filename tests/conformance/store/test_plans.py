"""With 10 000 parked and 100 000 ended tasks every question of the runner goes by an index, on both databases."""

from __future__ import annotations

import json
import re
import sqlite3

import asyncpg
import pytest

from trunkline.log.fold import NEVER
from trunkline.log.ids import Position
from trunkline.store.parts import Heads
from trunkline.store.postgres.sessions import SQL as POSTGRES
from trunkline.store.postgres.sessions import TEXTS, Statement
from trunkline.store.records import ASKING, Where
from trunkline.store.statements import statements
from trunkline.wire.types import TaskState

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
# What a page or a count of tasks must not pass over all tasks for.
PAGES = [
    Where(),
    Where(state=TaskState.COMPLETED),
    Where(status_from=AT),
    Where(agents=("alpha",)),
    Where(agents=("rare",), state=TaskState.WORKING),
]
PAGES += [
    Where(state=TaskState.INPUT_REQUIRED),
    Where(state=ASKING),
    Where(principal="ann"),
    Where(principal="ann", state=TaskState.WORKING),
]
# In thousands; to pass over all tasks takes more than 500.
FEW_STEPS = 250
COUNTS = [Where(state=TaskState.WORKING), Where(agents=("alpha",), state=TaskState.WORKING)]
COUNTS += [Where(status_from=AT, born_from="z"), Where(principal="ann", status_from=AT, born_from="z")]


class _Asked:
    """Stands for a database, and keeps what it is asked."""

    def __init__(self, sql):
        self.sql = sql
        self.asked = []

    async def rows_of(self, text, tenant, /, **values):
        self.asked.append((text, values | {"tenant": tenant}))
        return [("[]" if "limit" in values else 0,)]


def _lists(run, sql):
    """The statements of lists and counts, by what they are for, with their values."""
    database = _Asked(sql)
    heads = Heads(database)
    place = Position(AT, "z")

    async def ask():
        for where in PAGES:
            await heads.list("default", where, size=50)
            await heads.list("default", where, size=50, after=place)
        for where in COUNTS:
            await heads.count("default", where)

    run(ask())
    named = [f"{where}{behind}" for where in PAGES for behind in ("", " behind")] + [
        f"count {one}" for one in COUNTS
    ]
    return dict(zip(named, database.asked, strict=True))


def _sqlite(path, lists):
    plain = statements("sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute(NUMBERS + FILL.format(num="num,", n="n,") + " FROM n")
        given = GIVEN | {"agents": '["", "alpha"]'}
        plans = {
            name: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {plain[name]}", given)]
            for name in ASKED
        }
        for name, (text, values) in lists.items():
            given = {
                one: json.dumps(value) if isinstance(value, list | tuple) else value
                for one, value in values.items()
            }
            steps = _steps(connection, text, given)
            assert steps < FEW_STEPS, (name, steps)
    connection.close()
    return plans


def _steps(connection, text, given):
    """How many thousand steps SQLite makes for a statement."""
    steps = []
    connection.set_progress_handler(lambda: steps.append(1), 1000)
    connection.execute(text, given).fetchall()
    connection.set_progress_handler(None, 0)
    return len(steps)


async def _postgres(url, lists):
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
    for name, (text, values) in lists.items():
        statement = Statement(text)
        rows = await connection.fetch(f"EXPLAIN {statement.text}", *statement.values(values))
        plans[name] = [row[0] for row in rows]
        if "open_state" in values and "limit" not in values:
            assert "tasks_open" in " ".join(plans[name]), (name, plans[name])
        elif "agents" in values and "open_state" not in values:
            assert "tasks_ended" in " ".join(plans[name]), (name, plans[name])
    await connection.close()
    return plans


def test_every_question_goes_by_an_index(run, bench):
    if not bench.lasts:
        pytest.skip("the same statements on the same tables as in a file")
    store = bench.make()
    run(store.open())
    run(store.close())
    path = bench.url.removeprefix("sqlite:///")
    if path == bench.url:
        plans = run(_postgres(bench.url, _lists(run, TEXTS)))
    else:
        plans = _sqlite(path, _lists(run, statements("sqlite")))
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
        assert await store.heads.count("default", Where(parent="task-1", agents=("alpha",))) == 3_666
        await store.close()

    run(case())
