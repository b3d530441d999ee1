"""Agents whose doings can be counted, held and let go from outside; served in a process of their own."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator

from trunkline import Agent, Turn

# The second is long enough to go out as a delta of its own.
FIRST, SECOND = "the first half, ", "and then the second half of it"
_gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
_done: Counter[str] = Counter()

agent = Agent("subject", description="Counts what it does and waits where it is told to")
mute = Agent("mute", description="Does not stream", streaming=False)


@agent.skill(default=True)
async def act(turn: Turn) -> str | None:
    """Do what the first word says, under the key that is the second."""
    word, key, *rest = [*turn.text.split(" ", 2), "", ""]
    match word:
        case "tick":
            while True:
                _done[key] += 1
                await asyncio.sleep(0.002)
        case "once":
            _done[key] += 1
            return f"did {key}"
        case "done":
            return str(_done[key])
        case "open":
            _gates[key].set()
        case "halves":
            await turn.write(FIRST)
            await _gates[key].wait()
            await turn.write(SECOND)
        case "tool":
            await turn.status(f"calling the tool {rest[0]}")
            await _gates[key].wait()
            await turn.write("found it")
        case "hang":
            await _gates[key].wait()
        case _:
            turn.reject(f"unknown: {word}")
    return None


@agent.skill
async def fading(turn: Turn) -> AsyncIterator[str]:
    """Stop in the middle of a generator, without a verdict."""
    yield "a beginning"
    await asyncio.sleep(0)
    return


@agent.skill
async def nothing(turn: Turn) -> None:
    """End without a word."""


@agent.skill
async def lost(turn: Turn) -> None:
    """End as a function does that awaits something that somebody cancelled."""
    waiting = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    waiting.cancel()
    await waiting


@mute.skill
def echo(text: str) -> str:
    """Give back what was sent."""
    return text
