"""Groups whose acknowledgement was lost, sessions that were killed, databases that stay away."""

from __future__ import annotations

import asyncio

import pytest

from tests.store.postgres.proxy import Proxy
from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.log.events import Delta
from trunkline.store.records import Dedup, OutboxEntry

AT = 1_800_000_000_000


def delta(text="x"):
    return Delta("a", text)


def test_a_lost_acknowledgement_is_recognised(run, postgres_url, opened):
    async def case():
        async with Proxy(postgres_url) as proxy, opened(proxy.url) as store:
            await store.log.append("a", "t1", 0, [delta()], at=AT)
            proxy.swallow = True
            second = await store.log.append("a", "t1", 1, [delta(), delta()], at=AT)
            texts = [recorded.seq for recorded in await store.log.read("a", "t1")]
            return second, proxy.swallowed, texts, await store.log.append("a", "t1", 3, [delta()], at=AT)

    assert run(case()) == (3, 1, [1, 2, 3], 4)


def test_a_whole_group_is_recognised(run, postgres_url, opened):
    def some(store, mark, seq):
        appends = []
        for n in range(20):
            dedup = Dedup(f"{mark}{n}", b"", 60_000) if n % 2 else None
            announcement = [OutboxEntry(f"{mark}d{n}", seq + 1, "hook", "lane", AT)]
            appends.append(
                store.log.append("a", f"t{n}", seq, [delta()], at=AT, dedup=dedup, deliveries=announcement)
            )
            appends.append(store.log.append("a", f"t{n}", seq + 1, [delta()], at=AT))
        return asyncio.gather(*appends, return_exceptions=True)

    async def case():
        async with Proxy(postgres_url) as proxy, opened(proxy.url) as store:
            await some(store, "first", 0)
            proxy.swallow = True
            results = await some(store, "second", 2)
            lengths = {len(await store.log.read("a", f"t{n}")) for n in range(20)}
            return results, proxy.swallowed, lengths

    assert run(case()) == ([3, 4] * 20, 1, {4})


def test_what_another_wrote_meanwhile_is_not_taken_for_ours(run, postgres_url, opened):
    async def case():
        async with Proxy(postgres_url) as proxy, opened(proxy.url) as here, opened(postgres_url) as there:
            await here.log.append("a", "t1", 0, [delta()], at=AT)
            # Lost on its way there: nothing of it arrives.
            proxy.silent = True
            ours = here.log.append("a", "t1", 1, [delta("ours")], at=AT)
            await there.log.append("a", "t1", 1, [delta("theirs")], at=AT)
            proxy.silent = False
            proxy.cut()
            with pytest.raises(Conflict) as caught:
                await ours
            return caught.value.actual, [one.event.text for one in await there.log.read("a", "t1")]

    assert run(case()) == (2, ["x", "theirs"])


def test_a_key_that_our_own_lost_append_recorded_is_no_duplicate(run, postgres_url, opened):
    async def case():
        async with Proxy(postgres_url) as proxy, opened(proxy.url) as store:
            await store.log.append("a", "t0", 0, [delta()], at=AT, dedup=Dedup("k0", b"", 60_000))
            proxy.swallow = True
            first = await store.log.append("a", "t1", 0, [delta()], at=AT, dedup=Dedup("k1", b"", 60_000))
            with pytest.raises(Duplicate) as caught:
                await store.log.append("a", "t2", 0, [delta()], at=AT, dedup=Dedup("k1", b"", 60_000))
            return first, caught.value.task_id

    assert run(case()) == (1, "t1")


def test_a_killed_session_costs_nothing(run, postgres_url, postgres_database, opened):
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'trunkline writer %'"

    async def case():
        async with opened(postgres_url) as store:
            seq = 0
            for _ in range(5):
                seq = await store.log.append("a", "t1", seq, [delta()], at=AT)
                await asyncio.to_thread(postgres_database.execute, kill)
                seq = await store.log.append("a", "t1", seq, [delta()], at=AT)
            return seq, [one.seq for one in await store.log.read("a", "t1")]

    assert run(case()) == (10, list(range(1, 11)))


def test_sessions_killed_under_load_lose_and_repeat_nothing(run, postgres_url, postgres_database, opened):
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'trunkline writer %'"

    async def case():
        over = asyncio.Event()

        async def work(store, name):
            seq = 0
            while not over.is_set():
                seq = await store.log.append("a", name, seq, [delta(str(seq)), delta(str(seq + 1))], at=AT)
            return seq

        async with opened(postgres_url) as store:
            workers = [asyncio.create_task(work(store, f"t{n}")) for n in range(20)]
            for _ in range(10):
                await asyncio.to_thread(postgres_database.execute, kill)
                await asyncio.sleep(0.03)
            over.set()
            lasts = await asyncio.gather(*workers)
            logs = [await store.log.read("a", f"t{n}", limit=100_000) for n in range(20)]
            return lasts, logs

    lasts, logs = run(case())
    for last, log in zip(lasts, logs, strict=True):
        assert [one.event.text for one in log] == [str(n) for n in range(last)]


def test_a_database_that_stays_away_is_an_error_within_a_second(run, server, url, opened, caplog):
    async def timed(promise):
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(StoreError) as caught:
            await promise
        return loop.time() - started, str(caught.value)

    async def case():
        async with opened(url) as store:
            await store.log.append("a", "t1", 0, [delta()], at=AT)
            await asyncio.to_thread(server.crash)
            try:
                first = await asyncio.gather(
                    *(timed(store.log.append("a", "t1", 1, [delta()], at=AT)) for _ in range(5))
                )
                later = [await timed(store.log.append("a", "t1", 1, [delta()], at=AT)) for _ in range(3)]
                reads = [await timed(store.log.read("a", "t1")) for _ in range(3)]
            finally:
                await asyncio.to_thread(server.start)
            loop = asyncio.get_running_loop()
            started = loop.time()
            while True:
                try:
                    last = await store.log.append("a", "t1", 1, [delta()], at=AT)
                    break
                except StoreError:
                    await asyncio.sleep(0.02)
            back = loop.time() - started
            return first, later, reads, last, back, len(await store.log.read("a", "t1"))

    first, later, reads, last, back, length = run(case())
    assert max(seconds for seconds, _ in first + reads) < 1.0
    assert max(seconds for seconds, _ in later) < 0.5
    assert (last, length) == (2, 2)
    assert back < 2.0
    assert "store.failed" in caplog.text
    assert "store.back" in caplog.text
    assert "planted-5f0c1e" not in caplog.text


def test_crashes_of_the_database_under_load_lose_nothing(run, server, url, opened):
    """Four crashes; what was acknowledged is there, in its place, once."""

    async def work(store, name, acked, over):
        seq = tried = 0
        while not over.is_set():
            try:
                tried += 1
                text = f"{name}-{tried}"
                last = await store.log.append("a", name, seq, [delta(text)] * 2, at=AT)
                acked[name, last] = text
                seq = last
            except StoreError:
                await asyncio.sleep(0.02)
                try:
                    log = await store.log.read("a", name, seq)
                    seq = log[-1].seq if log else seq
                except StoreError:
                    continue

    async def case():
        acked, over = {}, asyncio.Event()
        async with opened(url) as store:
            workers = [asyncio.create_task(work(store, f"t{n}", acked, over)) for n in range(16)]
            for _ in range(4):
                await asyncio.sleep(0.25)
                await asyncio.to_thread(server.crash)
                await asyncio.to_thread(server.start)
            await asyncio.sleep(0.25)
            over.set()
            await asyncio.gather(*workers)
            return acked, {f"t{n}": await store.log.read("a", f"t{n}", limit=100_000) for n in range(16)}

    acked, logs = run(case())
    assert len(acked) > 100
    for log in logs.values():
        assert [one.seq for one in log] == list(range(1, len(log) + 1))
        texts = [one.event.text for one in log]
        assert len(set(texts)) == len(texts) / 2
    for (name, last), text in acked.items():
        assert [one.event.text for one in logs[name][last - 2 : last]] == [text, text]


def test_an_unknown_outcome_says_so(run, server, url, opened):
    async def case():
        async with Proxy(url) as proxy, opened(proxy.url) as store:
            await store.log.append("a", "t1", 0, [delta()], at=AT)
            proxy.silent = True
            promise = store.log.append("a", "t1", 1, [delta()], at=AT)
            await asyncio.sleep(0.05)
            proxy.cut()
            with pytest.raises(StoreError, match="not known whether it was written"):
                await promise
            proxy.silent = False
            proxy.cut()

    run(case())
