"""The session for hints is lost and found; nothing depends on it."""

from __future__ import annotations

import asyncio

from trunkline.log.events import Delta
from trunkline.store.hints import HintBroadcast
from trunkline.store.postgres.address import DatabaseAddress
from trunkline.store.postgres.hints import MOST_HINTS, PAYLOAD_BYTES, PostgresHints, payloads_of
from trunkline.store.records import Hint, Poll

AT = 1_800_000_000_000
KILL = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'trunkline hints %'"


async def next_hint(listener):
    while isinstance(found := await anext(listener), Poll):
        pass
    return found


def test_it_rings_again_after_its_session_was_lost(run, postgres_url, postgres_database, opened, caplog):
    async def case():
        async with opened(postgres_url) as here, opened(postgres_url) as there:
            await asyncio.to_thread(postgres_database.execute, KILL)
            listener = there.log.hints()
            seq = 0
            async with asyncio.timeout(60):
                waiting = asyncio.create_task(next_hint(listener))
                while not waiting.done():
                    seq = await here.log.append("a", "t1", seq, [Delta("a", "x")], at=AT)
                    await asyncio.wait({waiting}, timeout=0.05)
            return await waiting

    found = run(case())
    assert (found.tenant, found.task_id) == ("a", "t1")
    assert "hints.lost" in caplog.text


def test_listeners_are_told_to_look_when_it_comes_back(run, postgres_url, postgres_database, opened):
    async def case():
        async with opened(postgres_url) as here, opened(postgres_url) as there:
            listener = there.log.hints()
            loop = asyncio.get_running_loop()
            await here.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            await next_hint(listener)
            await asyncio.to_thread(postgres_database.execute, KILL)
            started = loop.time()
            assert isinstance(await anext(listener), Poll)
            return loop.time() - started

    assert run(case()) < 0.8


def test_without_it_the_store_opens_and_polls(run, postgres_url, opened, monkeypatch, caplog):
    connect = DatabaseAddress.connect

    async def without_hints(self, role, **more):
        if role == "hints":
            raise ConnectionRefusedError("no direct connections here")
        return await connect(self, role, **more)

    monkeypatch.setattr(DatabaseAddress, "connect", without_hints)

    async def case():
        async with opened(postgres_url) as here, opened(postgres_url) as there:
            listener = there.log.hints()
            await here.log.append("a", "t1", 0, [Delta("a", "x")], at=AT)
            while not isinstance(await anext(listener), Poll):
                pass
            return await there.log.news([Hint("a", "t1", 0)])

    assert len(run(case())) == 1
    assert "replicas hear of each other by looking" in caplog.text


def test_payloads_are_short_and_whole(run, postgres_url):
    grown = [("tenant" * 5, f"{'é' * 100}{n}", n) for n in range(500)]
    payloads = list(payloads_of(grown))
    assert max(len(payload.encode()) for payload in payloads) <= PAYLOAD_BYTES
    heard = []
    listening = HintBroadcast()

    async def hear():
        hints = PostgresHints(DatabaseAddress(postgres_url), listening, HintBroadcast())
        listener = listening.listen()
        for payload in payloads:
            hints._heard(None, 1, "", payload)
        while len(heard) < len(grown):
            heard.append(await anext(listener))

    run(hear())
    assert heard == [Hint(*one) for one in grown]


def test_too_many_hints_become_one_word(run, postgres_url):
    async def case():
        listening = HintBroadcast()
        listener = listening.listen()
        (payload,) = payloads_of([("a", f"t{n}", 1) for n in range(MOST_HINTS + 1)])
        PostgresHints(DatabaseAddress(postgres_url), listening, HintBroadcast())._heard(None, 1, "", payload)
        return await anext(listener)

    assert run(case()) == Poll()
