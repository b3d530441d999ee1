"""Row 19: whoever subscribes in the middle, at whatever moment, gets a snapshot and what follows; no gap, nothing twice."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.chaos.checker import check
from tests.chaos.client import Refusal
from tests.chaos.history import History, Reading
from tests.chaos.inside import Inside, inside
from trunkline import Agent, Turn

PIECES = 22
STEPS = 3


class Script:
    """A skill that says where it is, so that a reader can come at any point."""

    def __init__(self) -> None:
        self.places: list[asyncio.Event] = []
        self.agent = Agent("script")
        self.agent.skill(self.write)

    async def write(self, turn: Turn) -> None:
        """Write piece by piece."""
        for place in range(PIECES):
            await turn.write(f"{place} ")
            # Each piece is an append of its own: the more places there are to come in between.
            await turn._work.drain()
            self.places[place].set()
            await asyncio.sleep(0)

    async def task(self, app: Inside) -> str:
        self.places = [asyncio.Event() for _ in range(PIECES)]
        return (await app.send("go", wait=False))["id"]


async def _read(app: Inside, reading: Reading, *headers: tuple[bytes, bytes]) -> None:
    async for frame in app.frames("SubscribeToTask", {"id": reading.task_id}, *headers):
        reading.frames.append(frame)
        reading.ended = frame.state == "completed"


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_reader_may_come_at_any_point(kind: str, tmp_path: Path) -> None:
    script = Script()
    readings: list[Reading] = []

    async def main() -> None:
        url = "memory:" if kind == "memory" else f"sqlite:///{tmp_path}/tasks.db"
        async with inside(script.agent, url, coalesce_milliseconds=0) as app:
            for point in range(PIECES * STEPS):
                reading = Reading("me", await script.task(app), snapshot=True)
                await script.places[point // STEPS].wait()
                for _ in range(point % STEPS):
                    await asyncio.sleep(0)
                try:
                    await _read(app, reading)
                except Refusal as refusal:
                    # The task was faster than its reader, who is told so.
                    assert refusal.code == -32004
                    continue
                assert reading.ended
                readings.append(reading)
            assert check(await app.logs(), History(0, readings=readings)) == []

    asyncio.run(main())
    assert len(readings) >= 50
    assert len({reading.frames[0].seq for reading in readings}) >= 10, "they came at different moments"


def test_a_reader_may_leave_and_resume_at_any_point() -> None:
    script = Script()
    readings: list[Reading] = []

    async def main() -> None:
        async with inside(script.agent, coalesce_milliseconds=0) as app:
            for point in range(PIECES):
                task_id = await script.task(app)
                reading = Reading("me", task_id, snapshot=False)
                readings.append(reading)
                after = 0
                while not reading.ended:
                    # So many frames on each connection, then a fresh one.
                    header = (b"last-event-id", b"%d" % after)
                    async with aclosing(app.frames("SubscribeToTask", {"id": task_id}, header)) as frames:
                        async for frame in frames:
                            reading.frames.append(frame)
                            after = frame.seq or 0
                            reading.ended = frame.state == "completed"
                            if len(reading.frames) % (point + 1) == 0:
                                break
            assert check(await app.logs(), History(0, readings=readings)) == []

    asyncio.run(main())
    assert {len(reading.frames) for reading in readings} == {PIECES + 4}
