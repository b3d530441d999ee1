"""The way out is made once, when it is first needed, and not before."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from trunkline.errors import Unreachable
from trunkline.net.egress import Egress
from trunkline.net.outbound import Outbound
from trunkline.net.way import Way


def test_it_is_made_once_beside_the_loop_and_judges_like_the_client() -> None:
    made: list[threading.Thread] = []

    def make() -> Outbound:
        made.append(threading.current_thread())
        return Outbound(Egress())

    async def work() -> None:
        way = Way(make)
        outcomes = await asyncio.gather(
            *(way.check("http://127.0.0.1/") for _ in range(5)),
            way.post("http://10.0.0.1/", b"", ()),
            way.get("http://10.0.0.1/"),
            return_exceptions=True,
        )
        assert [getattr(one, "reason", "") for one in outcomes] == ["refused"] * 7
        await way.close()

    asyncio.run(work())
    assert len(made) == 1
    assert made[0] is not threading.main_thread()


def test_one_that_nobody_went_has_nothing_to_close() -> None:
    def make() -> Outbound:
        raise AssertionError("nobody asked for it")

    asyncio.run(Way(make).close())


def test_one_who_gives_up_does_not_take_it_from_others() -> None:
    gate = threading.Event()

    def make() -> Outbound:
        gate.wait(10)
        return Outbound(Egress())

    async def work() -> None:
        way = Way(make)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await way.check("http://127.0.0.1/")
        gate.set()
        with pytest.raises(Unreachable):
            await way.check("http://127.0.0.1/")

    asyncio.run(work())


def test_a_server_starts_without_its_library() -> None:
    code = "import sys, trunkline.app; print([name for name in ('httpx2', 'joserfc') if name in sys.modules])"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.strip() == "[]"


def test_one_that_could_not_be_made_is_made_again_and_does_not_hinder_the_end() -> None:
    failures = [OSError("too many open files")]

    def make() -> Outbound:
        if failures:
            raise failures.pop()
        return Outbound(Egress())

    async def work() -> None:
        way = Way(make)
        with pytest.raises(OSError, match="too many"):
            await way.check("http://127.0.0.1/")
        await way.close()
        with pytest.raises(Unreachable):
            await way.check("http://127.0.0.1/")
        await way.close()

    asyncio.run(work())
