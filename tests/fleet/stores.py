"""Both databases, opened as often as a test has replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from trunkline.store.base import Store
from trunkline.store.url import store_from_url

AT = 1_800_000_000_000


class Replicas:
    """One database; each replica has a store of its own where the database can be shared."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.now = AT

    def run(self, work: Callable[..., Awaitable[Any]], count: int = 1) -> Any:
        """Do something with the stores of so many replicas."""

        async def main() -> Any:
            async with asyncio.timeout(60), AsyncExitStack() as opened:
                stores: list[Store] = []
                for _ in range(count):
                    if not stores or stores[0].shared:
                        store = store_from_url(self.url, now_ms=lambda: self.now)
                        await store.open()
                        opened.push_async_callback(store.close)
                        stores.append(store)
                return await work(*(stores * count)[:count])

        return asyncio.run(main())
