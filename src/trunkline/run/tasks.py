"""The one lookup path to a task, and the one way to change it.

Nobody reaches a task but through `find`, which knows its tenant, its principal and its agent; nobody
appends but through `append`, which tells the feed. So store and stream are one thing.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property
from weakref import WeakValueDictionary

from trunkline.clock import now_ms
from trunkline.errors import Conflict, Duplicate, StoreError, TaskNotFound
from trunkline.log.decide import Command, decide
from trunkline.log.events import AnyEvent, PushSet, Recorded, Status, Submitted
from trunkline.log.fold import State
from trunkline.log.head import Head, head_after, state_from
from trunkline.log.ids import is_task_id
from trunkline.log.notifications import announced, delivery_id, lane
from trunkline.run.feed import PAGE, Feed, weight
from trunkline.store.base import Store
from trunkline.store.group_commit import Ack, Follower
from trunkline.store.records import Dedup, Hint, OutboxEntry, TailRecord, TaskRef
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.run")
CANCELED = TaskState.CANCELED
# How many events of many tasks are read at once.
NEWS = 2000
# How many events of one task are read at first, and again after a page that took longer than so many seconds.
_FIRST_PAGE, _QUICK_S = 4, 0.01
# How long a change gives way to others that are faster.
LONGEST_CHANGE_S = 10.0
RETRY_S = 0.5
Watch = Callable[[str, Head, tuple[TaskState, int] | None, str, str], None]


class Tasks:
    """The tasks of a store, as this process sees them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._feeds: WeakValueDictionary[tuple[str, str], Feed] = WeakValueDictionary()
        self._waits: dict[int, set[Future[None]]] = {}
        self.patient = True
        self._loads: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._missed: set[tuple[str, str]] = set()
        # Called for every append of this process that changes a head: tenant, head, the state before it in
        # the same append with its seq, the caller's trace, and its correlation ID.
        self.watch: Watch | None = None
        # Whether the store failed to take the last thing it was given.
        self.failing = False
        # Before which moments tasks were forgotten, by the names of their agents; None has those of all.
        self._pruned: dict[str | None, int] = {}
        # How many events came after the end of their task, or after somebody else's claim.
        self.late = 0
        # Told when an append of this process ends a task that has a parent or makes it ask, or cancels one.
        self.rested: Callable[[Feed], None] | None = None
        # Told when an append of this process has something for the outbox.
        self.announced: Callable[[Feed], None] | None = None

    @cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop everything runs on; asking for it anew costs a system call each time."""
        return asyncio.get_running_loop()

    async def find(
        self,
        tenant: str,
        principal: str,
        task_id: str,
        agents: Collection[str] | None,
        also: Callable[[State], bool] | None = None,
    ) -> Feed:
        """The feed of a task that this principal asked for, of an agent recorded under one of these names.

        Without names it may be any agent's.
        `also` says which tasks of others it may see.

        Raises:
            TaskNotFound: there is none, or it is somebody else's: the answer is the same.
        """
        try:
            feed = await self.load(tenant, task_id)
        except StoreError as error:
            if not error.damaged_task:
                raise
            head = await self.store.heads.get(tenant, task_id)
            if head is None or head.principal != principal or not _is_of(head.agent, agents):
                raise not_found(task_id) from None
            raise
        if feed is not None and _is_of(feed.state.agent, agents):
            if feed.state.principal == principal or (also is not None and also(feed.state)):
                return feed
        raise not_found(task_id)

    async def load(self, tenant: str, task_id: str) -> Feed | None:
        """The feed of a task as its log stands now, for the runner itself."""
        feed = self._feeds.get((tenant, task_id))
        if feed is None:
            return await self._load(tenant, task_id)
        if self.store.shared and not feed.state.over:
            # Another process may have said more, and this caller may have heard of it there.
            await self.refresh(feed)
        return feed

    async def renew(self, feed: Feed) -> None:
        """Bring a feed up to the log where other processes write too: also an ended task takes configs."""
        if self.store.shared:
            await self.refresh(feed)

    def forget(self, before: int, agents: Collection[str] | None = None) -> None:
        """Let go of tasks that ended before a moment, of these agents or of all; the store is asked again."""
        for name in (None,) if agents is None else agents:
            self._pruned[name] = max(before, self._pruned.get(name, 0))
        for key, feed in list(self._feeds.items()):
            state = feed.state
            if state.over and state.status_at < before and (agents is None or state.agent in agents):
                self._feeds.pop(key, None)

    def forget_of(self, before: Mapping[str, int]) -> None:
        """Let go of the tasks of tenants that ended before the moment of each; the store is asked again."""
        for key, feed in list(self._feeds.items()):
            if feed.state.over and feed.state.status_at < before.get(key[0], 0):
                self._feeds.pop(key, None)

    def forget_tasks(self, tenant: str, task_ids: Iterable[str]) -> None:
        """Evict these tasks; the store is asked again."""
        for task_id in task_ids:
            self._feeds.pop((tenant, task_id), None)

    def pruned_before(self, agents: Collection[str] | None) -> int:
        """When a task of these agents must have ended to be in the store still, whoever has pruned it."""
        names = self._pruned if agents is None else (None, *agents)
        return max([self._pruned.get(name, 0) for name in names], default=0)

    def drop(self, feed: Feed, error: StoreError) -> None:
        """Let go of a feed that is not what the log holds; whoever asks for its task reads the log anew."""
        log.error("feed.broken task=%s seq=%d error=%s", feed.state.task_id, feed.state.seq, error)
        if self.holds(feed):
            del self._feeds[feed.tenant, feed.state.task_id]
        feed.give_up(error)

    async def at(self, tenant: str, task_id: str, seq: int) -> Feed | None:
        """The feed of a task that stands at this seq or later."""
        feed = self._feeds.get((tenant, task_id))
        return feed if feed is not None and feed.state.seq >= seq else await self.load(tenant, task_id)

    async def listed(self, tenant: str, head: Head) -> State | None:
        """The task behind a head of a list; None if it was forgotten meanwhile."""
        try:
            feed = await self.at(tenant, head.task_id, head.seq)
        except StoreError as error:
            if not error.damaged_task:
                raise
            # One task that cannot be read must not take the others' list away.
            log.error("task.damaged task=%s error=%s", head.task_id, error)
            return state_from(head)
        return None if feed is None else feed.state

    def behind(self, hint: Hint) -> Feed | None:
        """The feed that does not yet hold what a hint tells of, if somebody here holds one."""
        key = (hint.tenant, hint.task_id)
        feed = self._feeds.get(key)
        if feed is None and key in self._loads:
            # It is being read right now, and may be older than this when it is there.
            self._missed.add(key)
        return feed if feed is not None and feed.state.seq < hint.seq else None

    def holds(self, feed: Feed) -> bool:
        """Return whether a feed is the one of its task here."""
        return self._feeds.get((feed.tenant, feed.state.task_id)) is feed

    def is_run(self, tenant: str, task_id: str) -> bool:
        """Whether an executor of this process is at work on a task."""
        feed = self._feeds.get((tenant, task_id))
        return feed is not None and feed.runner is not None

    def open_feeds(self) -> list[Feed]:
        """The feeds that may still move."""
        return [feed for feed in self._feeds.values() if feed.state.seq and not feed.state.over]

    async def _load(self, tenant: str, task_id: str) -> Feed | None:
        if not is_task_id(task_id):
            return None
        key = (tenant, task_id)
        # One reader at a time. There must be one feed per task, and it must not be born behind the log
        # because another one was loaded, moved on and dropped while we read.
        async with self._loads.setdefault(key, asyncio.Lock()):
            feed = self._feeds.get(key)
            if feed is None:
                state = await self.fold(tenant, task_id)
                missed = key in self._missed
                self._missed.discard(key)
                if not state.seq:
                    return None
                feed = self._feeds[key] = Feed(tenant, state)
                if missed:
                    await self.refresh(feed)
            return feed

    async def load_all(self, tasks: Collection[TaskRef]) -> dict[TaskRef, Feed]:
        """The feeds of many tasks as their logs stand now, read together; without those that are damaged."""
        async with AsyncExitStack() as held:
            # In one order, so that two who load the same ones wait for each other in one order only.
            for ref in sorted(set(tasks), key=lambda ref: ref.task_id):
                key = (ref.tenant, ref.task_id)
                await held.enter_async_context(self._loads.setdefault(key, asyncio.Lock()))
            feeds = {
                ref: self._feeds.get((ref.tenant, ref.task_id)) or Feed(ref.tenant, State(ref.task_id))
                for ref in tasks
            }
            await self.refresh_all(feeds)
            for ref, feed in feeds.items():
                key = (ref.tenant, ref.task_id)
                if feed.state.seq:
                    self._feeds[key] = feed
                if key in self._missed:
                    self._missed.discard(key)
                    await self.refresh(feed)
        return {ref: feed for ref, feed in feeds.items() if feed.state.seq}

    async def fold(self, tenant: str, task_id: str, until: int | None = None) -> State:
        """The state of a task straight from the log, as it stands or as it stood at a seq."""
        state, size = State(task_id), _FIRST_PAGE
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            batch = await self.store.log.read(tenant, task_id, state.seq, size)
            for recorded in batch:
                if until is not None and recorded.seq > until:
                    return state
                try:
                    state.apply(recorded)
                except ValueError as error:
                    raise StoreError.damaged(task_id, error) from error
            if not state.over:
                # What has ended does not grow, so nobody asks for its size.
                state.size += weight(batch)
            if len(batch) < size:
                return state
            # An event may be large: pages of large ones would fill the memory and block the event loop.
            size = min(2 * size, PAGE) if clock() - began < _QUICK_S else _FIRST_PAGE

    async def records(self, feed: Feed) -> list[Recorded]:
        """The whole log of a task."""
        if not feed.base:
            return list(feed.records)
        return [one async for page in self.pages(feed, 0) for one in page]

    async def pages(self, feed: Feed, after: int, size: int = PAGE) -> AsyncIterator[list[Recorded]]:
        """Yield the log of a task behind a seq, in pages of so many events."""
        while True:
            page = await self.store.log.read(feed.tenant, feed.state.task_id, after, size)
            if page:
                after = page[-1].seq
                yield page
            if len(page) < size:
                return

    def begin(self, tenant: str, task_id: str) -> Feed:
        """The feed of a task that does not exist yet."""
        feed = self._feeds[(tenant, task_id)] = Feed(tenant, State(task_id))
        return feed

    def append(
        self,
        feed: Feed,
        events: Sequence[AnyEvent],
        dedup: Dedup | None = None,
        then: Follower | None = None,
        *,
        claim: Dedup | None = None,
    ) -> Ack:
        """Append at the feed's seq; the feed has taken the events in when `then` is called."""
        state = feed.state
        expected, at = state.seq, now_ms()
        head = head_after(state, events, at)
        # Only a caller brings a target along: with the first message, or by a command of its own.
        telling = state.push or ((feed.callers or not expected) and _brings(events))
        principal = state.principal if head is None else head.principal
        deliveries = _deliveries(feed.tenant, principal, state, events, at) if telling else ()

        def committed(error: StoreError | None) -> None:
            if error is None:
                self.failing = False
                feed.take(expected, events, at, ack.size)
                if head is not None and self.watch is not None:
                    first, passed = events[0], None
                    if isinstance(first, Status) and first.state is not head.state:
                        # Passed through within this append; it is told as well.
                        passed = (first.state, expected + 1)
                    given = state.correlation
                    correlation_id = "" if given is None else given.correlation_id
                    self.watch(feed.tenant, head, passed, state.trace, correlation_id)
                if head is not None and state.resting and (state.parent or state.state is CANCELED):
                    if self.rested is not None:
                        self.rested(feed)
                if deliveries and self.announced is not None:
                    self.announced(feed)
            elif not isinstance(error, Conflict | Duplicate):
                self.failing = True
            if then is not None:
                then(error)

        ack = self.store.log.append(
            feed.tenant, state.task_id, expected, events,
            at=at, head=head, deliveries=deliveries, dedup=dedup, claim=claim,
        )  # fmt: skip
        # Before any awaiting coroutine runs: whoever is woken finds the feed up to date.
        ack.then(committed)
        return ack

    async def change(
        self,
        feed: Feed,
        command: Command,
        dedup: Dedup | None = None,
        *,
        unless: Callable[[], bool] | None = None,
    ) -> tuple[AnyEvent, ...]:
        """Decide on the newest state and append, until nobody was faster; gives what was added.

        Nothing is, if `unless` is so by the time it would be.

        Raises:
            Conflict: others were faster for too long, or the log is shorter than what was seen of it.
            TaskNotFound: it has ended elsewhere and was forgotten since.
        """
        feed.callers += 1
        try:
            until = self.loop.time() + LONGEST_CHANGE_S
            while events := () if unless is not None and unless() else decide(feed.state, command):
                expected = feed.state.seq
                try:
                    await self.append(feed, events, dedup)
                    break
                except Conflict as conflict:
                    if conflict.actual < expected:
                        self.drop(feed, conflict)
                        raise (conflict if conflict.actual else not_found(feed.state.task_id)) from None
                    if self.loop.time() >= until:
                        raise
                if feed.state.seq == expected:
                    await self.refresh(feed)
                if feed.state.seq == expected:
                    # A conflict with nothing: to ask faster does not help.
                    await asyncio.sleep(RETRY_S)
            return events
        finally:
            feed.callers -= 1
            if feed.runner is not None:
                feed.runner.moved()

    async def refresh(self, feed: Feed) -> None:
        """Bring the feed up to the log."""
        while True:
            batch = await self.store.log.read(feed.tenant, feed.state.task_id, feed.state.seq, PAGE)
            try:
                feed.catch_up(batch)
            except ValueError as error:
                raise StoreError.damaged(feed.state.task_id, error) from error
            if len(batch) < PAGE:
                return

    async def refresh_all(self, feeds: dict[TaskRef, Feed]) -> None:
        """Bring many feeds up to their logs by few questions; one that is damaged is dropped."""
        count = NEWS
        while feeds and count >= NEWS:
            places = [Hint(ref.tenant, ref.task_id, feed.state.seq) for ref, feed in feeds.items()]
            try:
                news = await self.store.log.news(places, NEWS)
            except StoreError as error:
                if not error.damaged_task:
                    raise
                for ref in [ref for ref in feeds if ref.task_id == error.damaged_task]:
                    # It concerns those who read it, not the other feeds.
                    self.drop(feeds.pop(ref), error)
                continue
            count = len(news)
            for ref, records in _by_task(news).items():
                if not self._take_in(feeds[ref], records):
                    del feeds[ref]

    def _take_in(self, feed: Feed, records: list[Recorded]) -> bool:
        try:
            feed.catch_up(records)
        except ValueError as error:
            self.drop(feed, StoreError.damaged(feed.state.task_id, error))
            return False
        return True

    async def rest(self, feed: Feed, limit_s: float) -> None:
        """Wait until the task is terminal or interrupted, at most this long."""
        if feed.state.resting or not self.patient:
            return
        loop = self.loop
        future = feed.rested(loop)
        # Waits of one second share a timer: most end long before it, and a timer each would cost more.
        due = int(loop.time() + limit_s) + 1
        waiting = self._waits.get(due)
        if waiting is None:
            waiting = self._waits[due] = set()
            loop.call_at(due, self._expire, due)
        waiting.add(future)
        try:
            await future
        finally:
            waiting.discard(future)
            feed.forget(future)

    def _expire(self, due: int) -> None:
        for future in self._waits.pop(due, ()):
            _end(future)

    def end_waits(self) -> None:
        """Nothing more will be heard here: whoever waits for a rest goes on with the task as it is."""
        self.patient = False
        for due in list(self._waits):
            self._expire(due)

    async def end(self, feed: Feed, limit_s: float) -> None:
        """Wait until the task is over, at most this long."""
        loop = self.loop
        deadline = loop.time() + limit_s
        while not feed.state.over and (left := deadline - loop.time()) > 0:
            await self.move(feed, left)

    async def move(self, feed: Feed, limit_s: float) -> None:
        """Wait until the log of the task moves, at most this long."""
        loop = self.loop
        future = feed.changed(loop)
        timer = loop.call_later(limit_s, _end, future)
        try:
            await future
        finally:
            timer.cancel()


def _is_of(agent: str, agents: Collection[str] | None) -> bool:
    return agents is None or agent in agents


def _by_task(news: list[TailRecord]) -> dict[TaskRef, list[Recorded]]:
    found: dict[TaskRef, list[Recorded]] = {}
    for record in news:
        found.setdefault(TaskRef(record.tenant, record.task_id), []).append(record.recorded)
    return found


def _end(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _brings(events: Sequence[AnyEvent]) -> bool:
    first = events[0]
    if type(first) is Submitted:
        return first.push is not None
    return any([type(event) is PushSet for event in events])


def _deliveries(
    tenant: str, principal: str, state: State, events: Sequence[AnyEvent], at: int
) -> list[OutboxEntry]:
    return [
        OutboxEntry(
            delivery_id(state.task_id, seq, target.id),
            seq,
            target.id,
            lane(target.url, tenant, principal),
            at,
        )
        for seq, target in announced(state, events)
    ]


def not_found(task_id: str) -> TaskNotFound:
    """The one answer for a task that is not there and for one that is not the caller's."""
    named = f"task {task_id!r}" if is_task_id(task_id) else "the task"
    return TaskNotFound(f"{named} was not found")
