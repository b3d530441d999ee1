"""Holds a store open until its input ends. Argument: file."""

from __future__ import annotations

import asyncio
import sys

from trunkline.store.url import store_from_url


async def main(file: str) -> None:
    store = store_from_url(f"sqlite:///{file}")
    await store.open()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
