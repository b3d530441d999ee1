"""Our own client at the same work: `trunkline_client.py URL send|stream WARM SECONDS PARALLEL CHUNKS`."""

from __future__ import annotations

import sys

import uvloop
from calling import TEXT, measure

from trunkline.client.client import Client
from trunkline.wire.types import TaskState


async def main(url: str, mode: str, *amounts: str) -> None:
    """Find the card once, then call."""
    warm, seconds, parallel, chunks = map(float, amounts)
    async with Client(url, timeout_s=60) as client:

        async def send() -> int:
            return 1 if (await client.send("echo hello")).ok else -1

        async def stream() -> int:
            count, size, state = 0, 0, None
            async for update in client.stream(f"chunks {chunks:.0f}"):
                count += 1
                size += len(update.text)
                state = update.state or state
            return count if state is TaskState.COMPLETED and size == chunks * TEXT else -1

        await measure(send if mode == "send" else stream, warm=warm, seconds=seconds, parallel=int(parallel))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
