"""Filters give what jq gives, see nothing of the process, and one that never ends costs nobody else anything."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tracemalloc
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from uvloop import new_event_loop

from trunkline.flow.jq import pool as pools
from trunkline.flow.jq.filters import MISSING, Filters
from trunkline.flow.jq.paths import is_plain
from trunkline.flow.jq.pool import FilterFailed, FilterLimits, WorkerPool

PATIENT = FilterLimits(deadline_s=60)
ROOT = {"a": [1, 2], "s": "x"}
# One of the longest plain filters.
SUM = "+".join([".a"] * 330)


def using(limits: FilterLimits, work: Callable[[Filters], Awaitable[None]]) -> None:
    async def main() -> None:
        pool = WorkerPool(limits)
        try:
            await work(Filters(pool))
        finally:
            await pool.close()

    asyncio.run(main())


VALUES: list[tuple[str, object]] = [
    (".a | map(. + 1)", [2, 3]),
    ("empty", None),
    ("1, 2", [1, 2]),
    ("false, false", [False, False]),
    (".a[0], .missing", [1, None]),
    ('if .s == "x" then "\\(.s)!" else 1 end', "x!"),
    ("try error(1) catch .", 1),
    ('"[1]" | fromjson | tostring', "[1]"),
    ("12345678901234567890 + 0", 12345678901234567168),
    ("nan", None),
    ("infinite", 1.7976931348623157e308),
    ('{"debug": .s} | .debug', "x"),
]
FAILURES = [
    (".a |", "syntax error"),
    ("", "program"),
    ("$nobody", "not defined"),
    (".s.x", "Cannot index string"),
    ('error("mine")', "mine"),
    ("1, error(2)", "2"),
    ("env", "may not use 'env'"),
    ("$ENV", "may not use '.ENV'"),
    ("[inputs]", "may not use 'inputs'"),
    (".a | stderr", "may not use 'stderr'"),
    ("1, halt", "may not use 'halt'"),
    ("repeat(1)", "more than 10000 values"),
    ("limit(1e9; repeat(1))", "more than 10000 values"),
    ("reduce range(3000) as $i (null; [.])", "recursion"),
    ("(" * 30_000 + "1" + ")" * 30_000, "memory"),
    ("x" * (1 << 20), "at most 65536 characters"),
    ("1\0 | halt", "NUL"),
    ('"x" * 1e9 | length', "memory"),
]


def test_what_filters_give_and_how_they_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "none of a filter's business")

    async def work(filters: Filters) -> None:
        for program, value in VALUES:
            assert await filters.value(program, ROOT) == value, program
        for program, reason in FAILURES:
            with pytest.raises(FilterFailed, match=reason) as caught:
                await filters.value(program, ROOT)
            assert len(str(caught.value)) <= 1000
        assert await filters.value(".a | add", ROOT) == 3, "it goes on after all of them"
        assert await filters.wrong(".a | map(. + 1)") is None
        assert "syntax error" in (await filters.wrong(".a |") or "")
        assert await filters.wrong("error(1)") is None, "it is compiled, not run"
        with pytest.raises(FilterFailed, match="no JSON"):
            await filters.value(". | tojson", {"a": object()})
        assert await filters.value(". | tojson", {"a": float("nan")}) == '{"a":null}'

    using(PATIENT, work)


def test_no_filter_reads_a_file(tmp_path: Path) -> None:
    (tmp_path / "a2a_agents.json").write_text('{"token": "hunter2"}')
    (tmp_path / "module.jq").write_text('def leak: "hunter2";')
    near_root = str(tmp_path / "a2a_agents").removeprefix("/")
    imports = [
        f'import "{near_root}" as $x; {{x: $x}}',
        f'import "{tmp_path}/a2a_agents" as $x; $x',
        f'import "a2a_agents" as $x {{search: "{tmp_path}"}}; $x',
        f'import "a2a_agents" as $x {{"search": ["/nowhere", "{tmp_path}"]}}; $x::x',
        f'# a comment\\\n import\n import # another\n"{near_root}"\n as # 3\n$x\n;$x',
        f'\t\r\nimport"{near_root}"as$x;$x',
        f'import "\\u0061{near_root.replace("/", chr(92) + "/")}" as $x; $x',
        f'module {{name: "m"}}; import "{near_root}" as $x; $x',
        f'import "module" as m {{search: "{tmp_path}"}}; m::leak',
        f'include "module" {{search: "{tmp_path}"}}; leak',
        f'include "{tmp_path.relative_to("/")}/module"; leak',
        f'def f: 1; import "{near_root}" as $x; $x',
        f'"{near_root}" | modulemeta',
        f'try ("{near_root}" | modulemeta) catch .',
    ]

    async def work(filters: Filters) -> None:
        for program in imports:
            with pytest.raises(
                FilterFailed, match="may not use '(import|include|module|modulemeta)'"
            ) as caught:
                await filters.value(program, {})
            assert "hunter2" not in str(caught.value), program
            assert "may not use" in (await filters.wrong(program) or ""), program

    using(PATIENT, work)


def test_a_filter_that_never_ends_fails_and_the_others_go_on() -> None:
    async def work(filters: Filters) -> None:
        endless = [asyncio.create_task(filters.value("def f: f; f", n)) for n in range(12)]
        honest = [asyncio.create_task(filters.value(". | tostring", n)) for n in range(5)]
        # Eight may run at a time, and twelve never end before their time.
        done, _ = await asyncio.wait(honest, timeout=60)
        assert {task.result() for task in done} == set("01234")
        assert not any(task.done() for task in endless), "nobody waited for one of them to fail"
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)

    # A busy machine may take a moment for an honest one too, which is then among those that take long.
    using(FilterLimits(workers=2, deadline_s=120, stuck_s=0.5), work)


def test_filters_of_one_tenant_that_never_end_keep_no_other_waiting() -> None:
    async def work(filters: Filters) -> None:
        # Whether each of them takes long is found out one after the other: so many would take a minute.
        endless = [asyncio.create_task(filters.value("def f: f; f", n, "noisy")) for n in range(240)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            assert [await filters.value(". | tojson", n, "quiet") for n in range(5)] == list("01234")
            # One that takes long has its turn before the others of the noisy one.
            assert await filters.value("last(range(300000))", None, "quiet") == 299999
        for task in endless:
            task.cancel()
        await asyncio.gather(*endless, return_exceptions=True)

    using(FilterLimits(workers=1, slow_workers=2, stuck_s=0.25, deadline_s=5, patience_s=600), work)


def test_workers_start_on_the_loop_of_the_server() -> None:
    async def main() -> None:
        pool = WorkerPool(PATIENT)
        assert await Filters(pool).value(". | tojson", 1) == "1"
        (pid,) = _children()
        assert os.getpgid(pid) == pid, "an interrupt from the terminal does not reach it"
        assert os.getsid(pid) == os.getsid(0), "its niceness counts beside this process"
        await pool.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())


def test_the_deadline_of_a_filter() -> None:
    async def work(filters: Filters) -> None:
        with pytest.raises(FilterFailed, match=r"longer than 0\.2 s"):
            await filters.value("last(range(1e12))", None)

    using(FilterLimits(deadline_s=0.2), work)


def test_a_filter_that_finds_no_room_among_those_that_take_long_fails() -> None:
    async def work(filters: Filters) -> None:
        # Which of the two is found to take long first is up to their processes.
        both = [asyncio.create_task(filters.value("def f: f; f", place)) for place in range(2)]
        ended, endless = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        assert len(endless) == 1
        with pytest.raises(FilterFailed, match=r"no room for it in 0\.1 s"):
            await ended.pop()
        assert await filters.value(". | tojson", 3) == "3"
        other = endless.pop()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)

    using(FilterLimits(slow_workers=1, deadline_s=120, patience_s=0.1), work)


def test_no_process_is_left_behind() -> None:
    before = _children()

    async def work(filters: Filters) -> None:
        endless = asyncio.create_task(filters.value("def f: f; f", None))
        assert await filters.value(". | tojson", 1) == "1"
        endless.cancel()
        await asyncio.gather(endless, return_exceptions=True)
        assert await filters.value(". | tojson", 2) == "2"
        assert _children() - before, "one is kept for the next filter"

    using(PATIENT, work)
    assert _children() == before


def test_a_stop_of_all_processes_of_a_service_leaves_the_filters_to_the_pool() -> None:
    async def work(filters: Filters) -> None:
        asked = asyncio.ensure_future(filters.value("last(range(600000))", None))
        while not (workers := filters._pool._busy):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        # As systemd does.
        os.kill(next(iter(workers)).process.pid, signal.SIGTERM)
        assert await asked == 599_999

    using(PATIENT, work)


def test_a_worker_that_is_gone_is_replaced() -> None:
    async def work(filters: Filters) -> None:
        assert await filters.value(". | tojson", 1) == "1"
        (pid,) = _children() - before
        os.kill(pid, signal.SIGKILL)
        assert await filters.value(". | tojson", 2) == "2"

    before = _children()
    using(PATIENT, work)


def test_what_is_too_large() -> None:
    async def work(filters: Filters) -> None:
        with pytest.raises(FilterFailed, match="more than 1 MiB"):
            await filters.value(". | tojson", "x" * (1 << 20))
        with pytest.raises(FilterFailed, match="1000 characters"):
            await filters.value('"x" * 1000', None)

    using(FilterLimits(deadline_s=60, root=1 << 20, output=1000), work)


def test_plain_filters_start_no_process() -> None:
    before = _children()

    async def work(filters: Filters) -> None:
        assert await filters.value('.s == "x" and .a[1] > 1', ROOT) is True
        assert filters.quick(".s", ROOT) == "x"
        assert filters.quick(".s | ascii_upcase", ROOT) is MISSING
        assert _children() == before

    using(PATIENT, work)


def test_plain_filters_that_add_up_are_followed_by_a_pause_of_their_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []

    async def pause(delay: float) -> None:
        paused.append(delay)

    async def work(filters: Filters) -> None:
        monkeypatch.setattr(pools.asyncio, "sleep", pause)
        assert await filters.value(".s", ROOT, "acme") == "x"
        assert not paused
        equal = {"a": [0] * 900, "b": [0] * 900}
        # Each takes less than a millisecond; together they would keep everybody waiting.
        for _ in range(1000):
            assert await filters.value(".a == .b", equal, "acme") is True
            if paused:
                break
        assert paused[0] >= pools.BLOCKED_S * pools.PAUSES
        assert await filters.value(".s", ROOT, "other") == "x"
        assert len(paused) == 1
        # So does each that is compiled, when a definition is registered.
        for number in range(1000):
            assert await filters.wrong(f"{SUM}+{number}", "third") is None
            if len(paused) > 1:
                break
        assert len(paused) == 2

    using(PATIENT, work)


def test_compiled_plain_filters_take_little_memory() -> None:
    tracemalloc.start()
    try:
        assert all(is_plain(f"{number}+{SUM}") for number in range(200))
        assert tracemalloc.get_traced_memory()[0] < 32 << 20
    finally:
        tracemalloc.stop()


def _children() -> set[int]:
    """The ids of the worker processes that this one has started."""
    listed = subprocess.run(
        ["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return {
        int(row[0]) for row in rows if len(row) == 3 and int(row[1]) == os.getpid() and "worker.py" in row[2]
    }
