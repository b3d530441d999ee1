"""Pages of tasks, as `ListTasks` shows them: bounded in bytes, and whole also where one task is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import Struct, field

from trunkline.auth.principal import Principal, Scope
from trunkline.log.head import Head
from trunkline.log.ids import Position, page_token, read_page_token
from trunkline.run.tasks import Tasks
from trunkline.server.caller import READ, permit, view
from trunkline.store.records import Where
from trunkline.wire.types import INTERRUPTED, ListQuery, Task, TaskPage

# A page of tasks ends with the one that makes it this large.
PAGE_BYTES = 1 << 20
# Pages that are read at once: each may hold as much as a task.
AT_ONCE = 4
_encode = msgspec.json.Encoder().encode


class TaskPages(Struct, eq=False):
    """Reads the tasks of an agent, or of all, page by page."""

    _tasks: Tasks
    _agents: tuple[str, ...] | None
    _reading: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, AT_ONCE))

    async def read(self, principal: Principal, query: ListQuery) -> TaskPage:
        """A page of a principal's tasks; of what asks also others', if it may answer."""
        inbox = query.status in INTERRUPTED and Scope.ANSWER in principal.scopes
        if not inbox:
            permit(principal, READ)
        where = Where(
            principal=None if inbox else principal.name,
            context_id=query.context_id or None,
            state=query.status,
            status_from=query.status_timestamp_after,
            agents=self._agents,
        )
        scope = _encode((principal.tenant, where)).decode()
        after = read_page_token(query.page_token, scope) if query.page_token else None
        page = await self._tasks.store.heads.list(principal.tenant, where, size=query.page_size, after=after)
        async with self._reading:
            found, read = await self._read_tasks(principal, page.heads, query)
        end = page.next
        if read < len(page.heads):
            last = page.heads[read - 1]
            end = Position(last.status_at, last.task_id)
        # Some may have moved on since the page was read.
        tasks = [task for _, task in sorted(found, key=lambda one: one[0], reverse=True)]
        token = "" if end is None else page_token(end, scope)
        is_all = after is None and page.next is None
        total = len(page.heads) if is_all else await self._tasks.store.heads.count(principal.tenant, where)
        return TaskPage(tuple(tasks), token, query.page_size, total)

    async def _read_tasks(
        self, principal: Principal, heads: Sequence[Head], query: ListQuery
    ) -> tuple[list[tuple[int, Task]], int]:
        """The tasks behind the first heads, as many as make a page, with their times; and how many heads."""
        found: list[tuple[int, Task]] = []
        size = 0
        for read, head in enumerate(heads, 1):
            state = await self._tasks.listed(principal.tenant, head)
            if state is not None:
                task = view(principal, state, query.history_length, artifacts=query.include_artifacts)
                found.append((state.status_at, task))
                size += len(_encode(task))
            if size >= PAGE_BYTES:
                # A hundred tasks may be gigabytes; the token says where the next page begins.
                return found, read
        return found, len(heads)
