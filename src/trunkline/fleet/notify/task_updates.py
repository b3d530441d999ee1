"""Updates while agents work: a channel has one message for each long task, edited as the task goes on.

What a message says is read from the task itself. A document keeps which message is whose, so that a hub that
is started again edits the same one, and of several hubs one does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.client.result import text_of
from trunkline.errors import Conflict, StoreError
from trunkline.fleet.notify.channel import EditableChannel
from trunkline.fleet.notify.notice import CHAT
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.views import task_item
from trunkline.log.fold import State
from trunkline.store.base import Store
from trunkline.store.documents import DocumentKind, json_decoder
from trunkline.store.mirror import Mirror
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.fleet")
KIND = "task-update"
# How often tasks are looked at, which is how often a message is edited at most.
EVERY_S = 5.0
# What ends sooner is not shown.
AFTER_MS = 5_000
# How many tasks of a tenant are shown at once, and among how many such are looked for.
SHOWN, LOOKED_AT = 20, 40
# What one channel is told in a minute at most; the rest waits for the next look.
PER_MINUTE, MINUTE_MS = 50, 60_000
# How long nobody else tries what somebody has begun, and how long the end of a task is tried to be told.
CLAIM_MS, END_MS = 30_000, 600_000
# How long an attempt may take; nobody else makes one meanwhile.
ATTEMPT_S = 20.0
_WORDS = 500


class MessageShown(Struct, frozen=True, array_like=True):
    """A message in one channel: its id, a hash of what it says, and when it may be changed again."""

    message: str = ""
    said: str = ""
    next_at: int = 0


class ShownTask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task that is shown, by the channels that show it."""

    shown: dict[str, MessageShown] = {}

    def told(self, name: str, message: MessageShown) -> ShownTask:
        """The same with the message of one channel changed."""
        return replace(self, shown={**self.shown, name: message})


TASK_UPDATES: DocumentKind[ShownTask] = DocumentKind(KIND, json_decoder(ShownTask))


class TaskUpdates:
    """Shows the tasks of the tenants that receivers want; `load` returns the state of a task."""

    def __init__(
        self,
        store: Store,
        load: Callable[[str, str], Awaitable[State | None]],
        channels: Mapping[str, tuple[NoticeReceiver, EditableChannel]],
        *,
        tenants: Callable[[], Iterable[str]],
        closed: Container[str],
        now_ms: Callable[[], int],
        origin: str,
    ) -> None:
        """Take the channels by the names of their receivers, and what gives the tenants that there are."""
        self._store = store
        self._load = load
        self._channels = channels
        self._tenants = tenants
        self._closed = closed
        self._now = now_ms
        self._origin = origin
        self._mirror = Mirror(store.docs, TASK_UPDATES)
        self._told: dict[str, deque[int]] = {name: deque(maxlen=PER_MINUTE) for name in channels}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                log.warning("updates.stopped error=%s", error)
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Begin to show what has worked for a while, and show what has changed.

        Raises:
            StoreError: the store does not answer.
        """
        await self._mirror.refresh()
        for tenant in self._wanted():
            await self._find(tenant)
        for tenant, task_id in list(self._mirror.documents):
            await self._show(tenant, task_id)

    def _wanted(self) -> list[str]:
        known = {*self._tenants()}
        for receiver, _ in self._channels.values():
            known.update(() if receiver.tenants == "all" else receiver.tenants)
        return [
            tenant
            for tenant in sorted(known)
            if tenant not in self._closed
            and any([receiver.wants("progress", tenant) for receiver, _ in self._channels.values()])
        ]

    async def _find(self, tenant: str) -> None:
        page = await self._store.heads.list(tenant, Where(state=TaskState.WORKING), size=LOOKED_AT)
        count = sum([key[0] == tenant for key in self._mirror.documents])
        for head in page.heads:
            if count >= SHOWN or (tenant, head.task_id) in self._mirror.documents:
                continue
            state = await self._state(tenant, head.task_id)
            # What is done for another task is part of that one.
            if state is None or state.over or state.parent:
                continue
            if self._now() - state.created_at >= AFTER_MS:
                count += 1
                await self._put(tenant, head.task_id, ShownTask(), self._mirror.rev(tenant, head.task_id))

    async def _show(self, tenant: str, task_id: str) -> None:
        state = await self._state(tenant, task_id)
        if state is None or tenant in self._closed:
            await self._forget(tenant, task_id)
            return
        content = update_text(state, self._origin)
        for name, (receiver, _) in self._channels.items():
            if receiver.wants("progress", tenant):
                await self._tell(tenant, task_id, name, content, is_over=state.over)
        known = self._mirror.documents.get((tenant, task_id))
        if known is None or not state.over:
            return
        is_told = all([one.said == _hashed(content) for one in known.value.shown.values()])
        if is_told or self._now() - state.status_at > END_MS:
            await self._forget(tenant, task_id)

    async def _tell(self, tenant: str, task_id: str, name: str, content: str, *, is_over: bool) -> None:
        hashed = _hashed(content)
        known = self._mirror.documents.get((tenant, task_id))
        now = self._now()
        before = None if known is None else known.value.shown.get(name, MessageShown())
        if known is None or before is None or before.said == hashed or before.next_at > now:
            return
        if is_over and before == MessageShown():
            # It ended before anybody was shown that it works.
            return
        if not self._may(name, now):
            return
        begun = known.value.told(name, replace(before, next_at=now + CLAIM_MS))
        if not await self._put(tenant, task_id, begun, known.rev):
            # Another hub does it.
            return
        nonce = sha256("\x1f".join([tenant, task_id, name]).encode()).hexdigest()[:25]
        message, trouble = await self._attempt(name, content, nonce, before.message)
        if trouble:
            log.warning("updates.failed receiver=%s task=%s reason=%s", name, task_id, trouble)
            return
        known = self._mirror.documents.get((tenant, task_id))
        if known is not None:
            made = known.value.told(name, MessageShown(message, hashed))
            await self._put(tenant, task_id, made, known.rev)

    async def _attempt(self, name: str, content: str, nonce: str, message: str) -> tuple[str, str]:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._channels[name][1].show(content, nonce, message)
        except TimeoutError:
            return "", "timeout"
        except Exception as error:
            # A channel is code of others: the other channels go on.
            log.error("notify.broke receiver=%s", name, exc_info=error)
            return "", type(error).__name__

    def _may(self, name: str, now: int) -> bool:
        told = self._told[name]
        if len(told) == PER_MINUTE and abs(now - told[0]) < MINUTE_MS:
            return False
        told.append(now)
        return True

    async def _state(self, tenant: str, task_id: str) -> State | None:
        try:
            return await self._load(tenant, task_id)
        except StoreError as error:
            if error.damaged_task != task_id:
                raise
            return None

    async def _put(self, tenant: str, task_id: str, made: ShownTask, rev: int) -> bool:
        try:
            await self._mirror.put(tenant, task_id, msgspec.json.encode(made), expected_rev=rev)
        except Conflict:
            await self._mirror.refresh()
            return False
        return True

    async def _forget(self, tenant: str, task_id: str) -> None:
        await self._store.docs.delete(tenant, KIND, task_id)
        await self._mirror.refresh()


def update_text(state: State, origin: str) -> str:
    """What a channel shows of a task: who does what, how it stands, its last words, or what came of it."""
    item = task_item(state, origin)
    skill = f" ({item.skill})" if item.skill else ""
    if state.over:
        words = (item.error or item.text)[:_WORDS]
    else:
        words = text_of(state.status_message) or item.text
        words = words[-_WORDS:]
    return f"{item.agent}{skill}: {item.state}\n{words}".rstrip()[:CHAT]


def _hashed(content: str) -> str:
    return sha256(content.encode()).hexdigest()[:16]
