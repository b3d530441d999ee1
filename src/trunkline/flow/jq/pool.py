"""Worker processes for filters: few, started when they are needed, killed when one takes too long."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

_WORKER = Path(__file__).with_name("worker.py")
# How long a process may take to come up on a machine that has other things to do.
_START_S = 60
_DIED = "jq died of it; it may need more memory than filters may have"


class FilterLimits(Struct, frozen=True):
    """What filters may take: all of them together, and each one."""

    # How many run at a time. One that has run for `stuck_s` makes room for another, up to `most_workers`.
    workers: int = 2
    most_workers: int = 8
    stuck_s: float = 0.2
    deadline_s: float = 5
    memory: int = 256 << 20
    program: int = 64 << 10
    root: int = 16 << 20
    outputs: int = 10_000
    output: int = 16 << 20


class FilterFailed(Exception):
    """A filter that gave no value; the text says why. The engine makes it the failure of a node."""


class _Worker:
    """One worker process, how much it has done, and since when it has been busy."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.done = 0
        self.since = 0.0
        # Both are pipes.
        self._stdin: Any = process.stdin
        self._stdout: Any = process.stdout

    @property
    def alive(self) -> bool:
        return self.process.returncode is None and not self._stdout.at_eof()

    async def ready(self) -> None:
        """Wait until it has said that it takes requests."""
        await self._stdout.readexactly(1)

    async def ask(self, kind: bytes, program: bytes, root: bytes) -> tuple[bytes, bytes]:
        """Send a request, and wait for the answer."""
        self._stdin.write(kind + len(program).to_bytes(4, "big") + len(root).to_bytes(4, "big"))
        self._stdin.write(program)
        self._stdin.write(root)
        await self._stdin.drain()
        header: bytes = await self._stdout.readexactly(5)
        body: bytes = await self._stdout.readexactly(int.from_bytes(header[1:], "big"))
        self.done += 1
        return header[:1], body

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        self._stdin.close()


class WorkerPool:
    """Gives each request to a worker that is free, and takes it away where the request takes too long."""

    def __init__(self, limits: FilterLimits) -> None:
        self._limits = limits
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._killed: list[_Worker] = []
        self._starting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def ask(self, kind: bytes, program: bytes, root: bytes) -> tuple[bytes, bytes]:
        """The kind and the body of a worker's answer.

        Raises:
            FilterFailed: it took too long, or the worker died over it.
        """
        worker = await self._take()
        used = worker.done > 0
        try:
            return await self._asked(worker, kind, program, root)
        except EOFError:
            if not used:
                raise FilterFailed(_DIED) from None
        # It may have died of what filters before this one left behind.
        worker = await self._take(fresh=True)
        try:
            return await self._asked(worker, kind, program, root)
        except EOFError:
            raise FilterFailed(_DIED) from None

    async def close(self) -> None:
        """End all workers; whoever still waits for one of them fails."""
        for worker in [*self._idle, *self._busy]:
            self._kill(worker)
        self._idle.clear()
        for worker in self._killed:
            await worker.process.wait()
        self._killed.clear()

    async def _asked(self, worker: _Worker, kind: bytes, program: bytes, root: bytes) -> tuple[bytes, bytes]:
        answered = False
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                answer = await worker.ask(kind, program, root)
            answered = True
            return answer
        except TimeoutError:
            raise FilterFailed(f"it takes longer than {self._limits.deadline_s:g} s") from None
        except (ConnectionError, asyncio.IncompleteReadError):
            raise EOFError from None
        finally:
            # Whoever gave up waiting leaves a worker behind that is still at it.
            self._give_back(worker, answered=answered)

    async def _take(self, *, fresh: bool = False) -> _Worker:
        while True:
            worker = self._idle.pop() if self._idle else None
            if worker is not None and (fresh or not worker.alive):
                self._kill(worker)
                continue
            if worker is None and self._has_room():
                worker = await self._start()
            if worker is not None:
                worker.since = _now()
                self._busy.add(worker)
                return worker
            await self._one_freed()

    def _has_room(self) -> bool:
        stuck_since = _now() - self._limits.stuck_s
        quick = sum(worker.since > stuck_since for worker in self._busy)
        return (
            quick + self._starting < self._limits.workers
            and len(self._busy) + self._starting < self._limits.most_workers
        )

    async def _one_freed(self) -> None:
        """Wait until a worker is given back, or until one that does not come back may count as stuck."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(self._limits.stuck_s):
                await waiter
        except TimeoutError:
            pass
        finally:
            with suppress(ValueError):
                self._waiting.remove(waiter)

    def _give_back(self, worker: _Worker, *, answered: bool) -> None:
        self._busy.discard(worker)
        if answered and worker.alive and len(self._idle) < self._limits.workers:
            self._idle.append(worker)
        else:
            self._kill(worker)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    async def _start(self) -> _Worker:
        self._starting += 1
        limits = self._limits
        words = (limits.memory, int(limits.deadline_s), limits.outputs, limits.output)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", str(_WORKER), *map(str, words),
                stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}, cwd="/", start_new_session=True,
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
            raise FilterFailed(f"no worker process for filters could be started: {error}") from None
        finally:
            self._starting -= 1

    def _kill(self, worker: _Worker) -> None:
        worker.kill()
        self._killed = [one for one in self._killed if one.process.returncode is None]
        self._killed.append(worker)


def _now() -> float:
    return asyncio.get_running_loop().time()
