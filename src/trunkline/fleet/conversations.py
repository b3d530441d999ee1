"""The conversations of a caller: its tasks by context, their messages, and their removal."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trunkline.auth.principal import Scope as AuthScope
from trunkline.clock import now_ms
from trunkline.errors import InvalidParams, RouteNotFound
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import api_route
from trunkline.fleet.task_lists import PAGE_BYTES, TaskLists
from trunkline.fleet.views import task_item
from trunkline.log.fold import State
from trunkline.run.contexts import messages_of
from trunkline.run.runner import Runner
from trunkline.store.records import Head, Where
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import TERMINAL, Message, Role
from trunkline.wire.writer import V03

# Tasks of one conversation whose messages are read, the newest ones; a page of heads.
TASKS_LIMIT, _PAGE = 1000, 200
_PREVIEW = 200


class ConversationItem(ApiStruct, frozen=True, kw_only=True):
    """A conversation by its newest task; `text` is the beginning of the newest reply."""

    context_id: str
    task_id: str
    agent: str
    state: str
    text: str
    updated_at: str


class ConversationMessage(ApiStruct, frozen=True, kw_only=True):
    """A message of a conversation, with its parts as A2A 0.3 writes them."""

    message_id: str
    task_id: str
    agent: str
    role: Literal["user", "agent"]
    text: str
    parts: list[Any]


class ConversationDeleted(ApiStruct, frozen=True, kw_only=True):
    """A conversation that was deleted, and how many tasks went with it."""

    context_id: str
    tasks: int


class ConversationApi:
    """The operations of the API on the conversations of a caller."""

    def __init__(self, runner: Runner) -> None:
        self._origin = runner.origin
        self._tasks = runner.tasks
        self._store = runner.tasks.store
        self._lists = TaskLists(runner.tasks)

    @api_route("GET /conversations", AuthScope.READ)
    async def list(self, call: ApiCall, asked: PageQuery) -> ApiPage:
        """A page of the caller's own conversations, the one that moved last first."""
        where = Where(principal=call.principal.name)

        async def made(state: State) -> ConversationItem | None:
            if state.parent:
                return None
            newest = await self._heads(call, state.context_id, 1)
            return self._item(state) if newest and newest[0].task_id == state.task_id else None

        return await self._lists.page(call.tenant, where, asked, made, "conversations")

    def _item(self, state: State) -> ConversationItem:
        task = task_item(state, self._origin)
        return ConversationItem(
            context_id=state.context_id,
            task_id=state.task_id,
            agent=task.agent,
            state=task.state,
            text=task.text[:_PREVIEW],
            updated_at=timestamp(state.status_at),
        )

    @api_route("GET /conversations/{id}/messages", AuthScope.READ)
    async def messages(self, call: ApiCall, asked: PageQuery) -> ApiPage:
        """A page of the messages of a conversation, oldest first.

        Raises:
            RouteNotFound: the caller has no such conversation.
            InvalidParams: `after` is not a place in it.
        """
        heads = await self._found(call, TASKS_LIMIT)
        after_task, after_place = _place(asked.after)
        items: list[object] = []
        weight, last = 0, ""
        # Task IDs sort by birth.
        for head in sorted(heads, key=lambda one: one.task_id):
            if head.task_id < after_task:
                continue
            state = await self._tasks.fold(call.tenant, head.task_id)
            for place, message in enumerate(messages_of(state)):
                if head.task_id == after_task and place <= after_place:
                    continue
                if weight >= PAGE_BYTES or len(items) == asked.limit:
                    return ApiPage(items, last)
                items.append(item := _message(message, state, self._origin))
                weight += len(msgspec.json.encode(item))
                last = f"{head.task_id}:{place}"
        return ApiPage(items, None)

    @api_route("DELETE /conversations/{id}", AuthScope.WRITE)
    async def delete(self, call: ApiCall) -> ConversationDeleted:
        """Delete a conversation with its tasks, which must have ended, and theirs.

        Raises:
            RouteNotFound: the caller has no such conversation.
            InvalidParams: one of its tasks is open, which is a conflict.
        """
        heads = await self._found(call)
        for parent in heads:
            # Grows while it is read: children have children.
            heads += await self._children(call.tenant, parent.task_id)
        if open_tasks := [head.task_id for head in heads if head.state not in TERMINAL]:
            raise InvalidParams(
                f"task {open_tasks[0]} of this conversation is open; cancel it first",
                field="contextId",
                conflict="CONVERSATION_OPEN",
            )
        task_ids = [head.task_id for head in heads]
        gone = await self._store.maintenance.drop(call.tenant, task_ids, now_ms() + 1)
        self._tasks.forget_tasks(call.tenant, task_ids)
        return ConversationDeleted(context_id=call.id, tasks=gone)

    async def _found(self, call: ApiCall, limit: int | None = None) -> list[Head]:
        heads = await self._heads(call, call.id, limit)
        if not heads:
            raise RouteNotFound(f"there is no conversation {call.id!r}", missing="CONVERSATION_NOT_FOUND")
        return heads

    async def _heads(self, call: ApiCall, context_id: str, limit: int | None) -> list[Head]:
        """Return the newest tasks that the caller requested in a context; all of them without a limit."""
        where = Where(principal=call.principal.name, context_id=context_id)
        found: list[Head] = []
        after = None
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await self._store.heads.list(call.tenant, where, size=size, after=after)
            found += page.heads
            after = page.next
            if after is None:
                break
        return found

    async def _children(self, tenant: str, task_id: str) -> list[Head]:
        found: list[Head] = []
        after = None
        while True:
            page = await self._store.heads.list(tenant, Where(parent=task_id), size=_PAGE, after=after)
            found += page.heads
            after = page.next
            if after is None:
                return found


def _message(message: Message, state: State, origin: str) -> ConversationMessage:
    return ConversationMessage(
        message_id=message.message_id,
        task_id=state.task_id,
        agent=state.agent or origin,
        role="agent" if message.role is Role.AGENT else "user",
        text=message.text,
        parts=msgspec.json.decode(V03.message(message))["parts"],
    )


def _place(after: str) -> tuple[str, int]:
    if not after:
        return "", -1
    task_id, _, place = after.rpartition(":")
    if not task_id or not place.isdecimal() or len(place) > 9:
        raise InvalidParams("after is the next of an earlier page", field="after")
    return task_id, int(place)
