"""Appends without end and says what was acknowledged; killed by its test. Arguments: file, tasks."""

from __future__ import annotations

import asyncio
import os
import sys

from trunkline.errors import Conflict
from trunkline.log.events import Delta
from trunkline.store.url import store_from_url


async def work(store, task_id: str) -> None:
    seq = 0
    while True:
        size = 1 + seq % 3
        try:
            seq = await store.log.append("default", task_id, seq, [Delta("a", "x" * 50)] * size, at=1)
        except Conflict as conflict:
            seq = conflict.actual
        else:
            # One write of a short line to a pipe is whole or not at all.
            os.write(1, f"{task_id} {seq}\n".encode())


async def main(file: str, tasks: int) -> None:
    store = store_from_url(f"sqlite:///{file}")
    await store.open()
    os.write(1, b"open\n")
    await asyncio.gather(*(work(store, f"task-{number}") for number in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
