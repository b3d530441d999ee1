"""The routes of topics: subscribe to some, or read those of what belongs together."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

import msgspec
from msgspec import Meta

from trunkline.auth.principal import Scope as AuthScope
from trunkline.errors import StoreError, TooManyRequests
from trunkline.fleet.call import ApiCall, ApiQuery, ApiStruct
from trunkline.fleet.route import api_route
from trunkline.fleet.task_lists import PAGE_BYTES, TenantTurns
from trunkline.fleet.topics.frame_writers import SseWriter, WebSocketWriter
from trunkline.fleet.topics.names import NAME_SIZE, named_task
from trunkline.fleet.topics.patterns import REST, read_pattern
from trunkline.fleet.topics.place import FeedPlace, read_place
from trunkline.fleet.topics.reader import TopicFrame, TopicReader, TopicSource
from trunkline.fleet.topics.subscription import TopicSubscription
from trunkline.fleet.views import task_item
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.log.events import Submitted
from trunkline.run.tasks import Tasks
from trunkline.store.records import START
from trunkline.wire.spellings import timestamp

# How many subscribers a process has at once, and a tenant of them.
SUBSCRIBERS, OF_TENANT = 256, 64
# Tasks are looked at for a correlation id in such pages, the newest first, and for so long.
LOOK = 5000
LOOK_S = 5.0
# How many events of the found tasks are read.
EVENTS = 20_000
# The topic that says that events between a place and what is kept are missing; no task has it.
GAP = "bus.gap"
_PAGE = 1000


class TopicQuery(ApiQuery, frozen=True, kw_only=True):
    """Which topics are meant, and behind which frame; `Last-Event-ID` says the same as `after`."""

    topic: str = REST
    after: str = ""


class HistoryQuery(ApiQuery, frozen=True, kw_only=True):
    """A query of the frames that belong together, and how many of them are wanted."""

    correlation_id: Annotated[str, Meta(min_length=1, max_length=NAME_SIZE)]
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class TopicHistory(ApiStruct, frozen=True):
    """Frames, by task and in the order of their events; `complete` says whether these are all."""

    items: list[TopicFrame]
    complete: bool


class TopicApi:
    """The routes about topics; the tasks are those of this process's store."""

    def __init__(self, tasks: Tasks, origin: str, keep_alive_s: float) -> None:
        self._tasks = tasks
        self._log = tasks.store.log
        self._keep_alive_s = keep_alive_s
        self._source = TopicSource(self._log, self._answer, origin)
        self._subscribers: Counter[str] = Counter()
        self._reading = TenantTurns()

    @api_route("GET /bus/subscribe", AuthScope.ADMIN, stream="subscribe")
    async def check(self, call: ApiCall, asked: TopicQuery) -> None:
        """Topics as server-sent events, by a pattern with * and #; Last-Event-ID resumes."""
        await self._place(asked.after, "after", call.tenant)
        read_pattern(asked.topic)

    async def subscribe(
        self, call: ApiCall, asked: TopicQuery, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send the frames of the tenant's topics, from where the caller was.

        Raises:
            InvalidParams: the pattern or the place is none.
            TooManyRequests: there are as many subscribers as there may be.
        """
        pattern = read_pattern(asked.topic)
        named = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
        after, field = (named, "Last-Event-ID") if named else (asked.after, "after")
        place = await self._place(after, field, call.tenant)
        gap = await self._gap(after) if place.has_gap else None
        if self._subscribers[call.tenant] >= OF_TENANT or self._subscribers.total() >= SUBSCRIBERS:
            raise TooManyRequests("as many subscribe as may; close another subscription", retry_after_s=5)
        self._subscribers[call.tenant] += 1
        try:
            reader = TopicReader(self._source, call.tenant, pattern)
            subscription = TopicSubscription(
                self._log, reader, call.tenant, place, self._keep_alive_s, gap=gap
            )
            writer = WebSocketWriter(receive, send) if scope["type"] == "websocket" else SseWriter(send)
            await subscription.serve(receive, writer)
        finally:
            self._subscribers[call.tenant] -= 1

    @api_route("GET /bus/history", AuthScope.ADMIN)
    async def history(self, call: ApiCall, asked: HistoryQuery) -> TopicHistory:
        """Return the topics of the tasks with a correlation ID."""
        async with self._reading.of(call.tenant):
            found, is_all = await self._belonging(call.tenant, asked.correlation_id)
            reader = TopicReader(self._source, call.tenant, (REST,))
            items: list[TopicFrame] = []
            weight = count = 0
            for task_id in found:
                after = 0
                while page := await self._log.read(call.tenant, task_id, after, _PAGE):
                    after = page[-1].seq
                    count += len(page)
                    for recorded in page:
                        frames = await reader.frames(task_id, recorded)
                        weight += sum([len(msgspec.json.encode(frame)) for frame in frames])
                        items += frames
                        if len(items) > asked.limit or weight > PAGE_BYTES:
                            return TopicHistory(items[: asked.limit], False)
                    if count > EVENTS:
                        return TopicHistory(items, False)
                items += reader.flush()
        return TopicHistory(items[: asked.limit], is_all and len(items) <= asked.limit)

    async def _belonging(self, tenant: str, correlation_id: str) -> tuple[list[str], bool]:
        """The tasks of a correlation id, oldest first, and whether all tasks were looked at for them."""
        loop = asyncio.get_running_loop()
        until, place, is_all = loop.time() + LOOK_S, START, False
        text = _written(correlation_id)
        found: list[str] = []
        while not is_all and (place == START or loop.time() < until):
            some, place = await self._tasks.store.maintenance.begun_with(tenant, text, place, LOOK)
            # A message may hold the same text.
            found += [one for one in some if await self._read_correlation(tenant, one) == correlation_id]
            is_all = place == START
        if correlation_id not in found and await self._read_correlation(tenant, correlation_id):
            found.append(correlation_id)
        return sorted(found), is_all

    async def _read_correlation(self, tenant: str, task_id: str) -> str:
        """Return the correlation ID of a task; empty if the task does not exist or cannot be read."""
        try:
            first = await self._log.read(tenant, task_id, 0, 1)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            return ""
        event = first[0].event if first else None
        return named_task(task_id, 0, event, "").correlation_id if isinstance(event, Submitted) else ""

    async def _place(self, text: str, field: str, tenant: str) -> FeedPlace:
        end = await self._log.end()
        if not text:
            return FeedPlace(end)
        return read_place(text, end, await self._tasks.store.maintenance.pruned(tenant), field)

    async def _gap(self, after: str) -> TopicFrame:
        """The frame for a subscriber that has missed what is no longer kept, whatever its pattern."""
        return TopicFrame(GAP, "", timestamp(await self._tasks.store.clock.now()), {"after": after})

    async def _answer(self, tenant: str, task_id: str) -> str:
        try:
            feed = await self._tasks.load(tenant, task_id)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            return ""
        return "" if feed is None else task_item(feed.state, self._source.origin).text


def _written(correlation_id: str) -> str:
    """How the beginning of a task that was dispatched with a correlation id has it."""
    text = msgspec.json.encode({"correlationId": correlation_id}).decode()
    # One that is longer than names may be is known by its beginning.
    return text[1:-2] if len(correlation_id) == NAME_SIZE else text[1:-1]
