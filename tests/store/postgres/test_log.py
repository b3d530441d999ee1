"""A tail stops below everything that is still being written."""

from __future__ import annotations

import asyncpg

from trunkline.log.events import Delta

AT = 1_800_000_000_000


def test_a_tail_waits_for_an_older_transaction_and_then_skips_nothing(run, postgres_url, opened):
    async def case():
        older = await asyncpg.connect(
            postgres_url, server_settings={"search_path": "trunkline", "trunkline.tenant": "*"}
        )
        async with opened(postgres_url) as store:
            await store.log.append("a", "t0", 0, [Delta("a", "before")], at=AT)
            first, cursor = await store.log.tail("")
            transaction = older.transaction()
            await transaction.start()
            await older.fetchval("SELECT pg_current_xact_id()::text")
            await store.log.append("a", "t1", 0, [Delta("a", "later number, committed first")], at=AT)
            held, same = await store.log.tail(cursor)
            await older.execute(
                "INSERT INTO events (task_id, first, last, tenant, at, body, mark) "
                "VALUES ('t2', 1, 1, 'a', 1, convert_to($1, 'UTF8'), 0)",
                '[{"kind":"delta","artifact_id":"a","text":"earlier number, committed last"}]',
            )
            await transaction.commit()
            await older.close()
            rest, _ = await store.log.tail(cursor)
            return len(first), held, same == cursor, [record.task_id for record in rest]

    assert run(case()) == (1, [], True, ["t2", "t1"])
