"""Joins as a node, starts a task, says so and waits to be killed. Arguments: URL, node."""

from __future__ import annotations

import asyncio
import sys

from trunkline.log.events import Status, Submitted
from trunkline.log.head import Head
from trunkline.store.url import store_from_url
from trunkline.wire.types import Message, TaskState


async def main(url: str, node: str) -> None:
    store = store_from_url(url)
    await store.open()
    await store.nodes.join(node, ("",))
    events = [Submitted(Message("m"), "c", "ann", node), Status(TaskState.WORKING)]
    head = Head(f"of-{node}", "c", "ann", TaskState.WORKING, 1, 2, node)
    await store.log.append("a", f"of-{node}", 0, events, at=1, head=head)
    print("joined", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
