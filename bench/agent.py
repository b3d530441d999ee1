"""The agent of the replica scenarios: events at a steady rate, and tasks that begin again elsewhere."""

from __future__ import annotations

import asyncio
import os
import random
from time import monotonic_ns

from trunkline import Agent, Turn
from trunkline.demo.agent import Gate
from trunkline.demo.agent import act as demo
from trunkline.wire.types import Message

agent = Agent("bench", description="Does what the first word of the text says.", version="1.0.0")

quiet = Agent("quiet", description="Works without a word.", version="1.0.0", streaming=False)
LATE_S = 0.3

waiter = Agent("waiter", description="Waits.", version="1.0.0", on_crash="resume")
DAY_S = 24 * 3600

_gate = Gate()


@quiet.skill
async def work(turn: Turn) -> str:
    """`hold` for ever, say when it ended `late`, or give back the text."""
    if turn.text == "hold":
        await asyncio.Event().wait()
    if turn.text == "late":
        await asyncio.sleep(LATE_S)
        return f"late-{monotonic_ns()}."
    return turn.text


@waiter.skill
async def wait(turn: Turn) -> str:
    """`ask` for an answer, `sleep` for a day, or say it again at once."""
    if turn.text == "ask":
        return await turn.ask("Go on?")
    if turn.text == "sleep":
        await turn.sleep(DAY_S)
    return turn.text


@agent.skill(default=True, on_crash="restart")
async def act(turn: Turn) -> Message | None:
    """`ticks COUNT MILLISECONDS` after a `release`, `stay` until the process ends, or as the demo agent."""
    word, *numbers = turn.text.split()
    if word == "ticks":
        await _gate.wait()
        await _ticks(turn, int(numbers[0]), float(numbers[1]) / 1000)
        return None
    if word == "stay":
        await turn.artifact(text=f"here-{os.getpid()}.", name="stay")
        await asyncio.Event().wait()
    if word == "release":
        _gate.release()
    return await demo(turn)


async def _ticks(turn: Turn, count: int, period_s: float) -> None:
    """Events that say when they were emitted, by a clock that all processes of a machine share."""
    loop = asyncio.get_running_loop()
    # Not all tasks at the same instant: that would be bursts, not a rate.
    first = loop.time() + random.random() * period_s
    for place in range(count):
        await asyncio.sleep(max(0.0, first + place * period_s - loop.time()))
        await turn.artifact(
            text=f"tick-{place:06d}-{monotonic_ns()}.",
            name="ticks",
            artifact_id="ticks",
            append=place > 0,
            last=place == count - 1,
        )
