"""The tasks of a tenant as operators list, read, follow and cancel them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

from trunkline.auth.principal import Scope as AuthScope
from trunkline.errors import InvalidParams, Refused
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, Limit, PageQuery, read_seq
from trunkline.fleet.event_stream import EventStream, place_in
from trunkline.fleet.route import api_route
from trunkline.fleet.task_lists import PAGE_BYTES, TaskLists
from trunkline.fleet.views import (
    EventRow,
    TaskDetail,
    TaskItem,
    child_item,
    delivery_item,
    event_row,
    task_detail,
    task_item,
)
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.log.events import Recorded
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.store.records import Where
from trunkline.wire.spellings import milliseconds, plain_state, state_named
from trunkline.wire.types import STATES, TaskState

NEWEST = 200


class TaskFilter(PageQuery, frozen=True, kw_only=True):
    """Which tasks are meant; what is empty does not narrow."""

    agent: str = ""
    skill: str = ""
    state: str = ""
    context_id: str = ""
    since: str = ""


class LogQuery(PageQuery, frozen=True, kw_only=True):
    """Which events are meant: those after a seq."""

    limit: Limit = NEWEST


class CancelTasksForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tasks that are to be cancelled."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=100)]


class CancelOutcome(ApiStruct, frozen=True, kw_only=True):
    """The outcome of cancelling one task."""

    task_id: str
    state: str = ""
    error: str = ""


class CancelOutcomes(ApiStruct, frozen=True, kw_only=True):
    """The outcomes of cancelling several tasks, in their order."""

    tasks: list[CancelOutcome]


class TaskApi:
    """The operations of the API on tasks, through the runner of this process."""

    def __init__(self, runner: Runner, keep_alive_s: float) -> None:
        self._runner = runner
        self._keep_alive_s = keep_alive_s
        self._tasks = runner.tasks
        self._store = runner.tasks.store
        self._lists = TaskLists(runner.tasks)

    @api_route("GET /tasks", AuthScope.READ)
    async def list(self, call: ApiCall, asked: TaskFilter) -> ApiPage:
        """A page of tasks, newest status first."""
        where = Where(
            principal=None if call.sees_all else call.principal.name,
            context_id=asked.context_id or None,
            state=_state(asked.state) if asked.state else None,
            status_from=milliseconds(asked.since, "since") if asked.since else None,
            agents=self._runner.names_of(asked.agent) if asked.agent else None,
        )

        async def made(state: State) -> TaskItem | None:
            return self._item(state) if asked.skill in ("", state.skill) else None

        return await self._lists.page(
            call.tenant, where, asked, made, f"skill {asked.skill}" if asked.skill else ""
        )

    def _item(self, state: State) -> TaskItem:
        return task_item(state, self._runner.origin)

    async def find(self, call: ApiCall, task_id: str = "") -> Feed:
        """The feed of a task that the caller may see.

        Raises:
            TaskNotFound: there is none, or it is somebody else's: the answer is the same.
        """
        return await self._tasks.find(
            call.tenant, call.principal.name, task_id or call.id, None, lambda _: call.sees_all
        )

    @api_route("GET /tasks/{id}", AuthScope.READ)
    async def get(self, call: ApiCall) -> TaskDetail:
        """Return a task with its result, its newest events, its deliveries, its parent and its children."""
        feed = await self.find(call)
        tenant, state = call.tenant, feed.state
        records = await self._store.log.read(tenant, state.task_id, max(0, state.seq - NEWEST), NEWEST)
        kept, _ = _fitting(records[::-1])
        children = await self._store.heads.list(tenant, Where(parent=state.task_id), size=NEWEST)
        sent = await self._store.outbox.list(tenant=tenant, task_id=state.task_id, limit=NEWEST)
        return task_detail(
            state,
            self._runner.origin,
            events=kept[::-1],
            deliveries=[delivery_item(one) for one in sent],
            parent=state.parent,
            children=[child_item(head, self._runner.origin) for head in children.heads],
        )

    @api_route("GET /tasks/{id}/log", AuthScope.READ)
    async def log(self, call: ApiCall, asked: LogQuery) -> ApiPage:
        """The events of a task after a seq."""
        feed = await self.find(call)
        after = read_seq(asked.after, "after") if asked.after else 0
        records = await self._store.log.read(call.tenant, feed.state.task_id, after, asked.limit)
        rows, last = _fitting(records)
        return ApiPage([*rows], str(last) if last < feed.state.seq and rows else None)

    @api_route("GET /tasks/{id}/events", AuthScope.READ, stream="stream")
    async def check(self, call: ApiCall) -> None:
        """The events of a task as server-sent events, to its end; Last-Event-ID resumes."""
        await self.find(call)

    async def stream(self, call: ApiCall, _: object, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events of a task to its end, from where the caller was."""
        feed = await self.find(call)
        named = dict(scope["headers"]).get(b"last-event-id")
        after = place_in(feed, None if named is None else named.decode("latin-1"))
        await EventStream(self._store.log, feed, after, self._keep_alive_s).serve(receive, send)

    @api_route("POST /tasks/{id}/cancel", AuthScope.WRITE)
    async def cancel(self, call: ApiCall) -> TaskItem:
        """Cancel a task."""
        feed = await self.find(call)
        await self._runner.cancel(feed, call.principal.name)
        return self._item(feed.state)

    @api_route("POST /tasks:cancel", AuthScope.WRITE)
    async def cancel_all(self, call: ApiCall, form: CancelTasksForm) -> CancelOutcomes:
        """Cancel several tasks."""
        found = await asyncio.gather(*[self._cancel_one(call, task_id) for task_id in form.ids])
        return CancelOutcomes(tasks=found)

    async def _cancel_one(self, call: ApiCall, task_id: str) -> CancelOutcome:
        try:
            feed = await self.find(call, task_id)
            await self._runner.cancel(feed, call.principal.name)
        except Refused as refused:
            return CancelOutcome(task_id=task_id, error=refused.message)
        return CancelOutcome(task_id=task_id, state=self._item(feed.state).state)


def _fitting(records: list[Recorded]) -> tuple[list[EventRow], int]:
    """The first of these events as rows, as many as make a page, and the seq of the last one."""
    rows: list[EventRow] = []
    weight = last = 0
    for recorded in records:
        row = event_row(recorded)
        weight += len(msgspec.json.encode(row))
        if rows and weight > PAGE_BYTES:
            break
        rows.append(row)
        last = recorded.seq
    return rows, last


def _state(text: str) -> TaskState:
    found = state_named(text)
    if found is None or found not in STATES:
        raise InvalidParams(
            f"there is no state {text!r}; choose {', '.join(map(plain_state, STATES))}", field="state"
        )
    return found
