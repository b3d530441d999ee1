"""One function per operation. Typed request in, bytes or a stream plan out; no HTTP in here."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec
from msgspec import Struct

from trunkline import errors
from trunkline.auth.principal import Principal
from trunkline.clock import now_ms
from trunkline.log.events import PushTarget, Replied
from trunkline.log.fold import NOBODY, State
from trunkline.log.ids import is_uuid, page_token, read_page_token
from trunkline.run.cache import Cache
from trunkline.run.feed import Feed
from trunkline.run.push_configs import PushConfigs
from trunkline.run.runner import Runner
from trunkline.run.tasks import not_found
from trunkline.server.extensions import Asked
from trunkline.server.frames import closing
from trunkline.server.streams import Plan
from trunkline.store.base import Dedup, Where
from trunkline.telemetry import traces
from trunkline.wire.configs import write_config, write_configs
from trunkline.wire.types import (
    ListQuery,
    Message,
    PushConfig,
    PushQuery,
    PushRequest,
    SendRequest,
    Task,
    TaskPage,
    TaskQuery,
)
from trunkline.wire.versions import Version
from trunkline.wire.writer import WRITERS, Dialect

FOR_EVER_MS = 10**15
DEDUP_MS = 24 * 3600 * 1000
# The first word of a run tells a task from a direct message; it comes within one commit.
FIRST_WORD_S = 5.0
# Where the url of a config stands that comes with a message.
INLINE = {
    Dialect.V1: "configuration.taskPushNotificationConfig.url",
    Dialect.V03: "configuration.pushNotificationConfig.url",
    Dialect.V03_PROTO: "configuration.pushNotification.url",
}
_encode = msgspec.json.Encoder().encode


class Caller(Struct, frozen=True, gc=False):
    """Who asks, in which dialect, and what its headers say about repeats, resuming and its trace."""

    principal: Principal
    dialect: Dialect
    wait: bool = True
    idempotency_key: str = ""
    last_event_id: str | None = None
    trace: str = ""
    extensions: Asked | None = None


class Operations:
    """The operations of A2A over one runner."""

    def __init__(self, runner: Runner, *, wait_limit_s: float, streaming: bool) -> None:
        retention_s = runner.limits.retention_s
        self._retention_ms = round(retention_s * 1000) if retention_s else FOR_EVER_MS
        self._runner = runner
        self._tasks = runner.tasks
        self._wait_limit_s = wait_limit_s
        self._streaming = streaming
        # Set once the store is open, if this agent pushes at all.
        self.push: PushConfigs | None = None
        self._cache = Cache()

    async def send(self, caller: Caller, request: SendRequest) -> bytes:
        """Take a message; answer with the task at rest, or at once if so asked."""
        wait = caller.wait if request.wait is None else request.wait
        due = self._tasks.loop.time() + self._wait_limit_s
        feed = await self._take(caller, request, wait=wait)
        traces.about(feed.state.task_id)
        state = feed.state
        if caller.extensions is not None:
            caller.extensions.settle(state.extensions)
        receipt = state.task(request.history_length) if state.seq == 1 and not wait else None
        if receipt is not None:
            await self._tasks.move(feed, FIRST_WORD_S)
        elif wait and not state.resting and (left := due - self._tasks.loop.time()) > 0:
            await self._tasks.rest(feed, left)
        writer = WRITERS[caller.dialect]
        if state.reply is not None:
            return writer.answer_message(state.reply)
        return writer.answer_task(writer.task(receipt or state.task(request.history_length)))

    async def _take(self, caller: Caller, request: SendRequest, *, wait: bool) -> Feed:
        who = caller.principal
        self._check_tenant(who, request.tenant)
        message = request.message
        dedup = _dedup(caller, message)
        try:
            if message.task_id:
                feed = await self._tasks.find(who.tenant, who.name, message.task_id)
                # Clients send their config with every message: it stays one.
                push = await self._inline(caller, request, feed.state.push)
                await self._runner.say(feed, message, dedup, push)
                return feed
            push = await self._inline(caller, request, NOBODY)
            feed, opened = self._runner.submit(
                who.tenant,
                who.name,
                request,
                dedup,
                trace=caller.trace,
                push=push,
                extensions=None if caller.extensions is None else caller.extensions.named,
            )
            if wait:
                # One wake-up instead of two: the feed hears of a failed append as well.
                await self._tasks.rest(feed, self._wait_limit_s)
            if not feed.state.seq:
                # A receipt, or the wait ended before the commit: nobody is told of a task that is not stored.
                await opened
            return feed
        except errors.Duplicate as earlier:
            if dedup is None or earlier.digest != dedup.digest:
                raise errors.InvalidParams(
                    "this id was used for another message; use a fresh one",
                    field="message.messageId",
                    conflict="DUPLICATE_ID",
                ) from None
            return await self._tasks.find(who.tenant, who.name, earlier.task_id)
        except errors.StoreError as error:
            raise unavailable(error) from error

    def _check_tenant(self, who: Principal, tenant: str) -> None:
        if tenant and tenant != who.tenant:
            raise errors.InvalidParams(f"there is no tenant {tenant!r} here", field="tenant")

    def _task(self, caller: Caller, tenant: str, state: State, history_length: int | None) -> bytes:
        dialect = caller.dialect
        body = WRITERS[dialect].task(state.task(history_length))
        if history_length is None and state.over:
            # After its time a task is gone, whichever process swept it.
            until = state.status_at + self._retention_ms
            self._cache.put((tenant, state.task_id, dialect), state.principal, body, until)
        return body

    async def get(self, caller: Caller, query: TaskQuery) -> bytes:
        """A task as it stands."""
        who = caller.principal
        if query.history_length is None and not query.tenant:
            body = self._cache.get((who.tenant, query.id, caller.dialect), who.name, now_ms())
            if body is not None:
                traces.about(query.id)
                return body
        feed = await self._find(caller, query)
        return self._task(caller, feed.tenant, feed.state, query.history_length)

    async def _find(self, caller: Caller, query: TaskQuery) -> Feed:
        who = caller.principal
        if query.tenant and query.tenant != who.tenant:
            raise not_found(query.id)
        feed = await self._tasks.find(who.tenant, who.name, query.id)
        traces.about(query.id)
        return feed

    async def delegate(self, caller: Caller, request: SendRequest) -> Task:
        """Take a message for a workflow engine, which polls."""
        feed = await self._take(caller, request, wait=False)
        traces.about(feed.state.task_id)
        return feed.state.task()

    async def task(self, caller: Caller, query: TaskQuery) -> Task:
        """A task as it stands, not yet written."""
        return (await self._find(caller, query)).state.task()

    def skill_named(self, name: str) -> str:
        """The skill that a workflow engine means; the agent's own name means its default one.

        Raises:
            InvalidParams: there is neither a skill nor an agent of that name.
        """
        return self._runner.executor.named(name)

    async def cancel(self, caller: Caller, query: TaskQuery) -> bytes:
        """Stop a task; the answer is the canceled task."""
        feed = await self._find(caller, query)
        try:
            await self._runner.cancel(feed, caller.principal.name)
        except errors.StoreError as error:
            raise unavailable(error) from error
        return self._task(caller, feed.tenant, feed.state, query.history_length)

    async def list(self, caller: Caller, query: ListQuery) -> bytes:
        """A page of the caller's tasks, newest status first."""
        who = caller.principal
        self._check_tenant(who, query.tenant)
        where = Where(
            owner=who.name,
            context_id=query.context_id or None,
            state=query.status,
            status_from=query.status_timestamp_after,
        )
        scope = _encode((who.tenant, where)).decode()
        after = read_page_token(query.page_token, scope) if query.page_token else None
        page = await self._tasks.store.heads(who.tenant, where, size=query.page_size, after=after)
        found = [await self._tasks.at(who.tenant, head.task_id, head.seq) for head in page.heads]
        # Some may have moved on since the page was read.
        states = sorted([feed.state for feed in found if feed], key=lambda one: one.status_at, reverse=True)
        tasks = [one.task(query.history_length, artifacts=query.include_artifacts) for one in states]
        token = "" if page.next is None else page_token(page.next, scope)
        return WRITERS[caller.dialect].page(TaskPage(tuple(tasks), token, query.page_size, page.total))

    async def stream(self, caller: Caller, request: SendRequest) -> Plan:
        """Take a message and follow its task to the next rest."""
        self._check_streaming()
        feed = await self._take(caller, request, wait=False)
        traces.about(feed.state.task_id)
        if caller.extensions is not None:
            caller.extensions.settle(feed.state.extensions)
        if feed.state.seq == 1:
            await self._tasks.move(feed, FIRST_WORD_S)
        elif caller.last_event_id is not None or request.message.task_id or feed.newer(0) is None:
            return self._resume(caller, feed, through_questions=False)
        if (direct := _direct(feed)) is not None:
            opening: list[tuple[int | None, bytes]] = [(None, WRITERS[caller.dialect].message_frame(direct))]
            return Plan(feed, caller.dialect, opening, None, through_questions=False)
        return Plan(feed, caller.dialect, [], 0, through_questions=False)

    async def subscribe(self, caller: Caller, query: TaskQuery) -> Plan:
        """Follow a task to its end, from now or from the last event the caller saw."""
        self._check_streaming()
        feed = await self._find(caller, query)
        if caller.last_event_id is None and feed.state.over and caller.dialect is Dialect.V1:
            raise errors.UnsupportedOperation(
                f"task {feed.state.task_id} has ended; get it, or resume with Last-Event-ID"
            )
        return self._resume(caller, feed, through_questions=True)

    def _resume(self, caller: Caller, feed: Feed, *, through_questions: bool) -> Plan:
        state, dialect = feed.state, caller.dialect
        if caller.last_event_id is not None:
            after = _place(caller.last_event_id, state)
            return Plan(feed, dialect, [], after, through_questions=through_questions)
        writer = WRITERS[dialect]
        opening: list[tuple[int | None, bytes]] = [(state.seq, writer.task_frame(writer.task(state.task())))]
        if state.over:
            opening += [(None, made) for made in closing(state, writer)]
            return Plan(feed, dialect, opening, None, through_questions=through_questions)
        return Plan(feed, dialect, opening, state.seq, through_questions=through_questions)

    def _check_streaming(self) -> None:
        if not self._streaming:
            raise errors.UnsupportedOperation("this agent does not stream; send and then get the task")

    async def set_push(self, caller: Caller, request: PushRequest) -> bytes:
        """Have somebody told of a task from here on."""
        push = self._pushing()
        feed = await self._find(caller, TaskQuery(request.task_id, tenant=request.tenant))
        target = await self._target(caller, request.config, "url")
        config = await push.set(feed, target, caller.principal.name)
        return write_config(feed.state.task_id, config, caller.dialect)

    async def get_push(self, caller: Caller, query: PushQuery) -> bytes:
        """One push config of a task."""
        push = self._pushing()
        if not query.config_id and caller.dialect is Dialect.V1:
            raise errors.InvalidParams("id is missing; name the config", field="id")
        feed = await self._find(caller, TaskQuery(query.task_id, tenant=query.tenant))
        return write_config(feed.state.task_id, await push.get(feed, query.config_id), caller.dialect)

    async def list_push(self, caller: Caller, query: PushQuery) -> bytes:
        """All push configs of a task."""
        push = self._pushing()
        feed = await self._find(caller, TaskQuery(query.task_id, tenant=query.tenant))
        return write_configs(feed.state.task_id, await push.list(feed), caller.dialect)

    async def delete_push(self, caller: Caller, query: PushQuery) -> bytes:
        """Tell a target nothing more; without an id, as 0.3 allows, none of them."""
        push = self._pushing()
        if not query.config_id and caller.dialect is Dialect.V1:
            raise errors.InvalidParams("id is missing; name the config", field="id")
        feed = await self._find(caller, TaskQuery(query.task_id, tenant=query.tenant))
        await push.delete(feed, query.config_id, caller.principal.name)
        return b"null"

    async def _inline(
        self, caller: Caller, request: SendRequest, known: Mapping[str, PushTarget]
    ) -> PushTarget | None:
        if request.push is None:
            return None
        return await self._target(caller, request.push, INLINE[caller.dialect], known)

    async def _target(
        self, caller: Caller, config: PushConfig, field: str, known: Mapping[str, PushTarget] = NOBODY
    ) -> PushTarget:
        version = Version.V1 if caller.dialect is Dialect.V1 else Version.V03
        return await self._pushing().target(config, version.value, field, known)

    def _pushing(self) -> PushConfigs:
        if self.push is None:
            raise errors.PushNotSupported("this agent sends no push notifications; poll or subscribe instead")
        return self.push

    def extended_card(self, caller: Caller) -> bytes:
        """The card for authenticated callers."""
        if caller.dialect is Dialect.V1:
            raise errors.UnsupportedOperation("this agent has no extended card; its card says so")
        raise errors.ExtendedCardNotConfigured("this agent has no extended card; its card says so")


def unavailable(error: errors.StoreError) -> errors.Unavailable:
    """What a caller hears when the store cannot take its request."""
    del error
    return errors.Unavailable("the store cannot take this now; send the same message again in a while")


def _dedup(caller: Caller, message: Message) -> Dedup | None:
    key = caller.idempotency_key
    if key:
        key = f"{caller.principal.name}\x1fk\x1f{key}"
    elif is_uuid(message.message_id):
        key = f"{caller.principal.name}\x1fm\x1f{message.message_id}"
    else:
        return None
    digest = blake2b(_encode(message), digest_size=16).digest()
    return Dedup(key, digest, now_ms() + DEDUP_MS)


def _direct(feed: Feed) -> Message | None:
    records = feed.newer(0)
    if records and len(records) == 2 and isinstance(records[1].event, Replied):
        return records[1].event.message
    return None


def _place(text: str, state: State) -> int:
    """The seq in a Last-Event-ID."""
    if text.isascii() and text.isdigit() and len(text) < 19 and int(text) <= state.seq:
        return int(text)
    raise errors.InvalidParams(
        f"Last-Event-ID must be the id of an event of this task, 0 to {state.seq}; "
        "subscribe without it to start over",
        field="Last-Event-ID",
    )
