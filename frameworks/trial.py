"""What the scripts share: the trials, the words that they wait for, and how a script tells its results."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

MARK = "TRIAL "
COUNT, ANSWER = "count 5 10", "1 2 3 4 5"
ASK, REPLY = "ask Which colour?", "red"
SLEEP, CANCELED = "sleep 30", "canceled"
EXPECTED = {"send": ANSWER, "stream": ANSWER, "again": ANSWER, "question": REPLY, "cancel": CANCELED}
LIMIT_S = 40


def run(*trials: Callable[[str], Awaitable[str]]) -> None:
    """Try all that a client has at the address in the arguments; one that fails does not stop the next."""
    asyncio.run(_run(sys.argv[1], trials))


async def _run(base: str, trials: tuple[Callable[[str], Awaitable[str]], ...]) -> None:
    for trial in trials:
        told, error = "", ""
        try:
            async with asyncio.timeout(LIMIT_S):
                told = str(await trial(base)).strip()
        except TimeoutError:
            error = f"no end within {LIMIT_S} seconds"
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is the result
            error = f"{type(problem).__name__}: {problem}"
        print(f"\n{MARK}{json.dumps([trial.__name__, told, error])}", flush=True)


async def pieces(prompt: str) -> AsyncIterator[str]:
    """What the model of a server says, in pieces; asked to sleep, it takes its time."""
    if "sleep" in prompt:
        await asyncio.sleep(30)
    for number in range(1, 6):
        yield f"{number} " if number < 5 else f"{number}"
        await asyncio.sleep(0.01)
