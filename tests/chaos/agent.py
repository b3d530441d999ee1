"""The agent of the fault driver: it signs what it writes with the process that wrote it."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import time
from collections import Counter
from typing import Any

from trunkline import Agent, Turn

# Two processes never share it, so the checker can tell who wrote what.
MARK = f"p{secrets.token_hex(4)}"

# How long a name below `hangs.example` hangs; one that begins with `late` does so from its second look-up on.
NAME_S = 10.0
_asked: Counter[object] = Counter()
_system = socket.getaddrinfo


def _look_up(host: Any, *args: Any, **options: Any) -> Any:
    if not isinstance(host, str) or not host.endswith(".hangs.example"):
        return _system(host, *args, **options)
    _asked[host] += 1
    if host.startswith("late") and _asked[host] == 1:
        return _system("127.0.0.1", *args, **options)
    time.sleep(NAME_S)
    raise socket.gaierror(f"{host} has no address")


socket.getaddrinfo = _look_up
agent = Agent("chaos", description="Does what the fault driver asks for.", version="1.0.0")


def _numbers(text: str) -> tuple[int, float]:
    """How many pieces, and the seconds between two."""
    count, pause, *_ = text.split()
    return int(count), int(pause) / 1000


@agent.skill(default=True)
async def quick(text: str) -> str:
    """Give the text back."""
    return text


@agent.skill
async def pieces(turn: Turn) -> None:
    """Write `count pause`: so many signed pieces, so many milliseconds apart."""
    count, pause = _numbers(turn.text)
    for place in range(count):
        await turn.write(f"{MARK}.{place} ")
        await asyncio.sleep(pause)


@agent.skill(on_crash="restart")
async def again(turn: Turn) -> None:
    """Like `pieces`, but from the beginning when its process dies."""
    await pieces(turn)


@agent.skill(on_crash="resume")
async def steady(turn: Turn) -> None:
    """Write `count pause`: so many pieces, each the result of a step that is not done again."""
    count, pause = _numbers(turn.text)
    for place in range(count):
        await turn.write(f"{await turn.step(f'step-{place}', _square, place)} ")
        await asyncio.sleep(pause)


@agent.skill(on_crash="resume")
async def talk(turn: Turn) -> None:
    """A step, a question, and a step with its answer."""
    await turn.write(f"{await turn.step('before', _square, 3)} ")
    answer = await turn.ask("Which one?")
    await asyncio.sleep(0.02)
    await turn.write(f"{answer} {await turn.step('after', _square, 4)} ")


async def _square(number: int) -> int:
    await asyncio.sleep(0.001)
    return number * number


@agent.skill
async def bulk(turn: Turn) -> None:
    """Write `count size`: so many artifacts of so many bytes, as fast as they are taken."""
    count, size, *_ = turn.text.split()
    text = "x" * int(size)
    for _ in range(int(count)):
        await turn.artifact(text=text, artifact_id="bulk", append=True)


@agent.skill
async def ticks(turn: Turn) -> None:
    """Write `count pause size`: so many pieces of that size, each with the time at which it was written."""
    count, pause = _numbers(turn.text)
    filler = "." * int(turn.text.split()[2])
    for _ in range(count):
        await turn.write(f"t{time.time_ns() // 1_000_000} {filler}")
        await asyncio.sleep(pause)


@agent.skill
async def ask(turn: Turn) -> str:
    """Ask once, and give the answer back."""
    await turn.status(f"asked by {MARK}")
    return await turn.ask("Which one?")


@agent.skill
def slow(text: str) -> str:
    """Hold a thread for the milliseconds named first."""
    time.sleep(int(text.split()[0]) / 1000)
    return text


@agent.skill
async def hold(turn: Turn) -> None:
    """Stay at work until somebody cancels it."""
    await turn.status(f"held by {MARK}")
    await asyncio.Event().wait()


@agent.skill(on_crash="resume")
async def deadly(turn: Turn) -> None:
    """End the process that runs it, each time."""
    await turn.status(f"run by {MARK}")
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
