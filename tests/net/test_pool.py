"""Permits are never lost, whatever happens to those who hold or await one."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loops import leap
from tests.net.targets import OK, Call, names, site
from trunkline.errors import Unreachable
from trunkline.net.egress import Egress, target
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient
from trunkline.net.pool import ConnectionPool

LINES = 3
# What the server does with a request, and what the caller does.
FATES = st.sampled_from(["ok", "cut", "hang", "stream", "garbage"])
WAYS = st.sampled_from(["read", "close", "cancel-0", "cancel-1", "cancel-5", "cancel-20"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(FATES, WAYS, st.sampled_from(["GET", "POST"])), min_size=1, max_size=12))
def test_no_permit_is_lost(plan: list[tuple[str, str, str]]) -> None:
    async def respond(call: Call) -> bytes:
        fate = call.path.strip("/")
        if fate == "cut":
            call.writer.transport.abort()
        elif fate == "hang":
            await asyncio.Event().wait()
        elif fate == "stream":
            call.writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
            await asyncio.Event().wait()
        return b"220 what\r\n\r\n" if fate == "garbage" else OK

    async def one(caller: SocketHttpClient, url: str, way: str, method: str) -> None:
        try:
            reply = await caller.open(HttpRequest(method, url, (), b"" if method == "POST" else None))
        except Unreachable:
            return
        try:
            if way == "read":
                await reply.read(100, idle_s=0.02)
        except Unreachable:
            pass
        finally:
            await reply.close()

    async def main() -> None:
        async with site(respond) as there, asyncio.timeout(60):
            caller = SocketHttpClient(Egress(loopback=True, resolver=names()), connections=LINES)
            await one(caller, there.url("/ok"), "read", "GET")
            work: list[asyncio.Task[None]] = []
            for fate, way, method in plan:
                work.append(asyncio.create_task(one(caller, there.url(f"/{fate}"), way, method)))
            for turn in range(21):
                for task, (_, way, _) in zip(work, plan, strict=True):
                    if way == f"cancel-{turn}":
                        task.cancel()
                await asyncio.sleep(0)
            # Those who would wait for ever for a head are given up.
            _, waiting = await asyncio.wait(work, timeout=0.03)
            while waiting:
                for task in waiting:
                    task.cancel()
                _, waiting = await asyncio.wait(work, timeout=0.03)
            (pool,) = caller._pools.values()  # noqa: SLF001 - nothing outside shows it
            assert pool.free == LINES
            assert len(pool.idle) <= len(pool.connections) <= LINES
            assert all(not line.busy for line in pool.connections)
            reply = await caller.open(HttpRequest("GET", there.url("/ok")))
            assert await reply.read(10) == b"ok"
            lines = list(pool.connections)
            await caller.close()
            assert not pool.connections and not pool.idle
            assert all(line.gone.done() for line in lines)

    asyncio.run(main())


def test_a_permit_given_to_somebody_who_has_left_goes_to_the_next() -> None:
    async def main() -> None:
        pool = ConnectionPool(target("http://agent.example/"), 1, lambda: None)
        await pool.acquire()
        served: list[int] = []

        async def wait(number: int) -> None:
            await pool.acquire()
            served.append(number)
            pool.release()

        waiting = [asyncio.create_task(wait(number)) for number in range(4)]
        await asyncio.sleep(0)
        # One leaves while it waits, one after it was called but before it has come.
        waiting[0].cancel()
        await asyncio.sleep(0)
        pool.release()
        waiting[1].cancel()
        ends: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(end, asyncio.CancelledError) for end in ends] == [True, True, False, False]
        assert served == [2, 3]
        assert pool.free == 1
        assert pool.is_unused

    asyncio.run(main())


def test_who_waits_behind_long_calls_gets_a_line_of_its_own() -> None:
    async def main() -> None:
        pool = ConnectionPool(target("http://agent.example/"), 1, lambda: None, most=3)
        await pool.acquire()
        impatient = [asyncio.create_task(pool.acquire()) for _ in range(3)]
        _, waiting = await asyncio.wait(impatient, timeout=60)
        assert len(waiting) == 1, "no more than there may be"
        pool.release()
        await asyncio.gather(*waiting)
        for _ in range(3):
            pool.release()
        assert (pool.free, pool.limit, pool.is_unused) == (3, 3, True)

    leap(main())
