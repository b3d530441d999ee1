"""Worker processes for filters and schemas: few, started on demand, killed when a request takes too long."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.net.places import TenantPlaces

_WORKER = Path(__file__).with_name("worker.py")
# How long a process may take to come up on a machine that has other things to do.
_START_S = 60
# Work on a value that blocks the event loop for longer is followed by a pause of so many times its length:
# the requests of others find the loop free.
BLOCKED_S, PAUSES = 0.004, 20
# How many tenants read or write values at a time, at most.
_TENANTS = 10_000
_DIED = "the worker process died of it; it may need more memory than workers may have"
Request = tuple[bytes, bytes, bytes]
# The kind and the body of an answer, and the processor time that it took in seconds.
Answer = tuple[bytes, bytes, float]


class FilterLimits(Struct, frozen=True):
    """The limits on filters: on all of them together, and on each one."""

    # How many run at a time; one tenant has all but one of each kind. A request that has run for `stuck_s`
    # makes room for another: it goes on among the `slow_workers`, or begins again there once one of them is
    # free, for which it waits at most `patience_s`. Each takes at most `deadline_s` of processor time, and at
    # most `wall_s` on a machine that is busy.
    workers: int = 3
    slow_workers: int = 6
    stuck_s: float = 0.1
    deadline_s: float = 5
    patience_s: float = 30
    wall_s: float = 60
    memory: int = 256 << 20
    program: int = 64 << 10
    root: int = 16 << 20
    outputs: int = 10_000
    output: int = 16 << 20


class FilterFailed(Exception):
    """A filter or a check without a result; the text says why. The engine makes it the failure of a node."""


class WorkerBusy(FilterFailed):
    """No worker was free in time, or none could be started."""


class BudgetSpent(FilterFailed):
    """A run has used the processor time that it may use in worker processes."""


class WorkerBudget:
    """The processor time in worker processes that is left to one run, in seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left_s = seconds

    def check(self) -> None:
        """Refuse work once the budget is spent.

        Raises:
            BudgetSpent: nothing is left.
        """
        if self._left_s <= 0:
            raise BudgetSpent(
                f"the run has used the {self._seconds:g} s of processor time of its filters and schemas"
            )

    def charge(self, seconds: float) -> None:
        """Subtract what a request has used."""
        self._left_s -= seconds


class _Worker:
    """One worker process, and how much it has done."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.done = 0
        # Both are pipes.
        self._stdin: Any = process.stdin
        self._stdout: Any = process.stdout

    @property
    def alive(self) -> bool:
        return self.process.returncode is None and not self._stdout.at_eof()

    async def ready(self) -> None:
        """Wait until it has said that it takes requests."""
        await self._stdout.readexactly(1)

    async def ask(self, request: Request) -> Answer:
        """Send a request, and wait for the answer."""
        kind, program, root = request
        self._stdin.write(kind + len(program).to_bytes(4, "big") + len(root).to_bytes(4, "big"))
        self._stdin.write(program)
        self._stdin.write(root)
        await self._stdin.drain()
        header: bytes = await self._stdout.readexactly(10)
        body: bytes = await self._stdout.readexactly(int.from_bytes(header[1:5], "big"))
        self.done += 1
        return header[:1], body, int.from_bytes(header[5:], "big") / 1e6

    def yield_to_others(self) -> None:
        """Run only when no other process wants the processor, from here on."""
        with suppress(AttributeError, OSError):
            os.sched_setscheduler(self.process.pid, os.SCHED_IDLE, os.sched_param(0))

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self._stdin.close()


class WorkerPool:
    """Gives each request to a worker that is free, and takes it away where the request takes too long.

    Requests that are soon answered have workers of their own: however many others of their tenant never end,
    they wait for those only until that is found out, and for those of other tenants no longer than a turn.
    """

    def __init__(self, limits: FilterLimits) -> None:
        self.limits = limits
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._killed: list[_Worker] = []
        self._quick = TenantPlaces(limits.workers, limits.workers - 1)
        self._slow = TenantPlaces(limits.slow_workers, limits.slow_workers - 1)
        # One value of each tenant at a time is read or written.
        self._paced = TenantPlaces(_TENANTS, 1)
        # Of each tenant: for how long its short work has blocked the event loop, and when that was counted.
        self._blocked: dict[str, tuple[float, float]] = {}

    async def ask(
        self, request: Request, tenant: str = "", budget: WorkerBudget | None = None
    ) -> tuple[bytes, bytes]:
        """Return the kind and the body of a worker's answer; tenants take turns.

        Raises:
            BudgetSpent: the budget was spent before.
            WorkerBusy: no worker was free in time.
            FilterFailed: it took too long, or the worker died over it.
        """
        if budget is not None:
            budget.check()
        spent_s = self.limits.deadline_s
        try:
            kind, body, spent_s = await self._answer(request, tenant)
        except WorkerBusy:
            spent_s = 0.0
            raise
        finally:
            # A request that was killed has used all that it may use.
            if budget is not None:
                budget.charge(spent_s)
        return kind, body

    @asynccontextmanager
    async def paced(self, tenant: str = "") -> AsyncGenerator[None]:
        """Read or write a value of a tenant, and pause afterwards if that blocked the event loop for long."""
        clock = asyncio.get_running_loop().time
        async with self._paced.held(tenant):
            began = clock()
            yield
            blocked_s = clock() - began
            if blocked_s > BLOCKED_S:
                await asyncio.sleep(blocked_s * PAUSES)

    async def pace(self, tenant: str, blocked_s: float) -> None:
        """Count short work of a tenant that blocked the event loop, and pause once it adds up.

        The count shrinks by a second in `PAUSES` seconds: only work that goes on and on is slowed down.
        """
        if self._count(tenant, blocked_s) > BLOCKED_S:
            async with self._paced.held(tenant):
                if (counted_s := self._count(tenant, 0)) > BLOCKED_S:
                    await asyncio.sleep(counted_s * PAUSES)

    def _count(self, tenant: str, blocked_s: float) -> float:
        now = asyncio.get_running_loop().time()
        counted_s, since = self._blocked.get(tenant, (0.0, now))
        counted_s = max(counted_s - (now - since) / PAUSES, 0.0) + blocked_s
        self._blocked[tenant] = counted_s, now
        return counted_s

    async def _answer(self, request: Request, tenant: str) -> Answer:
        async with self._quick.held(tenant):
            began = asyncio.get_running_loop().time()
            worker = await self._take()
            used = worker.done > 0
            asked = await self._asked(worker, request, self.limits.stuck_s)
        begun: tuple[_Worker, asyncio.Task[Answer]] | None = None
        if asked.done():
            answer = self._finish(worker, asked)
            if answer is not None:
                return answer
            if not used:
                raise self._failure(began)
            # It may have died of what filters before this one left behind: once more, with a fresh one.
        elif not self._slow.has_room(tenant):
            self._stop(worker, asked)
        else:
            begun = worker, asked
        return await self._slowly(request, begun, tenant)

    async def _slowly(
        self, request: Request, begun: tuple[_Worker, asyncio.Task[Answer]] | None, tenant: str
    ) -> Answer:
        limits = self.limits
        try:
            async with asyncio.timeout(limits.patience_s):
                await self._slow.take(tenant)
        except TimeoutError:
            raise WorkerBusy(
                f"others that take long left no room for it in {limits.patience_s:g} s"
            ) from None
        try:
            began = asyncio.get_running_loop().time()
            worker, asked = begun or (await self._start(), None)
            worker.yield_to_others()
            asked = await self._asked(worker, request, limits.wall_s, asked)
            if not asked.done():
                self._stop(worker, asked)
                raise WorkerBusy(f"the processor left no room for it in {limits.wall_s:g} s")
            # One that yields to others is of no use to a quick request.
            answer = self._finish(worker, asked, keep=False)
        finally:
            self._slow.leave(tenant)
        if answer is None:
            raise self._failure(began - limits.stuck_s)
        return answer

    def _failure(self, began: float) -> FilterFailed:
        """Return the error of a request over which its worker died.

        One that has used its processor time has taken at least as long.
        """
        if asyncio.get_running_loop().time() - began >= self.limits.deadline_s:
            return FilterFailed(f"it takes longer than {self.limits.deadline_s:g} s")
        return FilterFailed(_DIED)

    async def close(self) -> None:
        """End all workers; whoever still waits for one of them fails."""
        for worker in [*self._idle, *self._busy]:
            self._kill(worker)
        self._idle.clear()
        for worker in self._killed:
            await worker.process.wait()
        self._killed.clear()

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            self._kill(worker)
        return await self._start()

    async def _asked(
        self, worker: _Worker, request: Request, limit_s: float, asked: asyncio.Task[Answer] | None = None
    ) -> asyncio.Task[Answer]:
        """The request of a worker, done or not when its time is over."""
        self._busy.add(worker)
        asked = asked or asyncio.get_running_loop().create_task(worker.ask(request))
        try:
            await asyncio.wait({asked}, timeout=limit_s)
        except BaseException:
            # Whoever gives up waiting leaves a worker behind that is still at it.
            self._stop(worker, asked)
            raise
        return asked

    def _finish(self, worker: _Worker, asked: asyncio.Task[Answer], *, keep: bool = True) -> Answer | None:
        """The answer of a worker; None where it died of the request."""
        self._busy.discard(worker)
        error = asked.exception()
        if error is None and keep and worker.alive and len(self._idle) < self.limits.workers:
            self._idle.append(worker)
        else:
            self._kill(worker)
        if isinstance(error, ConnectionError | asyncio.IncompleteReadError):
            return None
        return asked.result()

    def _stop(self, worker: _Worker, asked: asyncio.Task[Answer]) -> None:
        asked.cancel()
        self._busy.discard(worker)
        self._kill(worker)

    async def _start(self) -> _Worker:
        limits = self.limits
        words = (limits.memory, limits.outputs, limits.output, limits.deadline_s)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_WORKER), *map(str, words),
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, cwd="/",
            )  # fmt: skip
            worker = _Worker(process)
            try:
                async with asyncio.timeout(_START_S):
                    await worker.ready()
            except BaseException:
                self._kill(worker)
                raise
            return worker
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise WorkerBusy(f"no worker process could be started: {error}") from None

    def _kill(self, worker: _Worker) -> None:
        worker.kill()
        self._killed = [one for one in self._killed if one.process.returncode is None]
        self._killed.append(worker)


def encode_value(value: object, limit: int) -> bytes:
    """Return a value as JSON.

    Raises:
        FilterFailed: it is no JSON, or has more bytes than the limit.
    """
    try:
        encoded = msgspec.json.encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise FilterFailed(f"the value is no JSON: {error}") from None
    if len(encoded) > limit:
        raise FilterFailed(f"the value has more than {limit >> 20} MiB")
    return encoded
