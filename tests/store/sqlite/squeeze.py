"""Lets the kernel refuse every further byte of the file, then allows it again. Argument: file.

Prints the outcomes: appends before, while and after, and whether the connection was replaced.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys

from trunkline.errors import StoreError
from trunkline.log.events import Delta
from trunkline.store.url import store_from_url


async def main(file: str) -> None:
    logging.disable()
    store = store_from_url(f"sqlite:///{file}")
    await store.open()
    before = store.database._transactions._connection
    first = await store.log.append("default", "t1", 0, [Delta("a", "one")], at=1)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    pair = [
        store.log.append("default", task_id, seq, [Delta("a", "x")], at=1)
        for task_id, seq in (("t1", 1), ("t2", 0))
    ]
    failed = await asyncio.gather(*pair, return_exceptions=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert all(type(error) is StoreError for error in failed), failed
    second = await store.log.append("default", "t1", 1, [Delta("a", "two")], at=1)
    texts = [recorded.event.text for recorded in await store.log.read("default", "t1")]
    replaced = store.database._transactions._connection is not before
    await store.close()
    print(first, second, texts, replaced, failed[0])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
