"""A subscription that is read beside everything else, with the times at which its frames came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.chaos.client import BROKEN, Client, Refusal, note, now_ms
from tests.chaos.fleet import Server
from tests.chaos.history import Got, Reading
from tests.chaos.rows import Run


class Watch:
    """An open subscription, read in the background."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.times: list[int] = []
        self.last_at = time.monotonic()
        self.longest_silence = 0.0
        self._news = asyncio.Event()

    def came(self) -> None:
        now = time.monotonic()
        if len(self.times) > 1:
            self.longest_silence = max(self.longest_silence, now - self.last_at)
        self.last_at = now
        self.times.append(now_ms())
        self._news.set()

    async def until(self, reached: Callable[[list[Got]], bool], limit_s: float = 30.0) -> None:
        async with asyncio.timeout(limit_s):
            while not self.reading.frames or not reached(self.reading.frames):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(run: Run, client: Client, server: Server, task_id: str) -> AsyncIterator[Watch]:
    reading = Reading(client.who, task_id, snapshot=True)
    run.history.readings.append(reading)
    watch = Watch(reading)

    async def read() -> None:
        try:
            async for frame, _, data in client.frames(server, "SubscribeToTask", {"id": task_id}):
                if frame.seq is not None:
                    note(reading, frame, data)
                    watch.came()
        except (*BROKEN, Refusal):
            return

    task = asyncio.create_task(read())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
