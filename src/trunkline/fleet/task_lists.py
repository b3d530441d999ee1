"""Pages of what the tasks of a tenant show: bounded in items, in bytes and in what is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import msgspec

from trunkline.fleet.call import ApiPage, PageQuery
from trunkline.log.fold import State
from trunkline.log.ids import Position, page_token, read_page_token
from trunkline.run.tasks import Tasks
from trunkline.store.records import Where

# How many tasks a page looks at where not every one of them belongs to it.
LOOK = 200
# A page ends with the item that makes it this large.
PAGE_BYTES = 1 << 20
# Pages that are read at once, of a tenant and in all: each may hold as much as a task.
LISTING, LISTING_IN_ALL = 4, 16


class TenantTurns:
    """Turns to read a page: whoever asks for a thousand waits behind itself, and holds up no other tenant."""

    def __init__(self) -> None:
        self._of_tenant: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._in_all = asyncio.Semaphore(LISTING_IN_ALL)

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncGenerator[None]:
        """One of a tenant's turns, when it comes."""
        found = self._of_tenant.get(tenant)
        if found is None:
            found = self._of_tenant[tenant] = asyncio.Semaphore(LISTING)
        async with found, self._in_all:
            yield


class TaskLists:
    """Pages over the tasks of a store: heads are read in order, and only what is shown of them is folded."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._listing = TenantTurns()

    async def page(
        self,
        tenant: str,
        where: Where,
        asked: PageQuery,
        make: Callable[[State], Awaitable[object | None]],
        name: str = "",
    ) -> ApiPage:
        """The items of the next tasks; `name` tells this list from others over the same tasks.

        Where only some of the tasks have one, a page may have fewer items than it could, or none.
        """
        scope = msgspec.json.encode((tenant, where, name)).decode()
        after = read_page_token(asked.after, scope, field="after") if asked.after else None
        size = LOOK if name else asked.limit
        async with self._listing.of(tenant):
            page = await self._tasks.store.heads.list(tenant, where, size=size, after=after)
            items: list[object] = []
            end, weight = page.next, 0
            for read, head in enumerate(page.heads, 1):
                state = await self._tasks.listed(tenant, head)
                item = None if state is None else await make(state)
                if item is not None:
                    items.append(item)
                    weight += len(msgspec.json.encode(item))
                if (weight >= PAGE_BYTES or len(items) == asked.limit) and read < len(page.heads):
                    end = Position(head.status_at, head.task_id)
                    break
        return ApiPage(items, None if end is None else page_token(end, scope))
