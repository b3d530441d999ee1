"""The events of a feed before its window, read from the store again page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator

from trunkline.errors import StoreError
from trunkline.log.events import Recorded
from trunkline.run.feed import PAGE, Feed, weight
from trunkline.store.base import Log

FIRST_PAGE = 16
PAGE_BYTES = 16 << 10
LONGEST_PAGE = 1 << 20


async def pages(log: Log, feed: Feed, after: int) -> AsyncIterator[list[Recorded]]:
    """Events after a seq up to the window, read from the store.

    Raises:
        StoreError: they are no longer there.
    """
    count = FIRST_PAGE
    while after < feed.base:
        batch = await log.read(feed.tenant, feed.state.task_id, after, min(count, feed.base - after))
        if not batch:
            # Pruned under the reader: it must end, or it would ask for them forever.
            raise StoreError(f"the events of task {feed.state.task_id} after {after} are no longer kept")
        after = batch[-1].seq
        yield batch
        # By weight and not by number: whoever reads slowly makes the server hold a page of it. But not event
        # by event: a store reads an append whole, whatever is asked of it.
        size = weight(batch)
        if size > LONGEST_PAGE:
            count = max(1, count // 4)
        elif size > 2 * PAGE_BYTES:
            count = max(min(count, FIRST_PAGE), count // 2)
        elif size < PAGE_BYTES:
            count = min(PAGE, 2 * count)
