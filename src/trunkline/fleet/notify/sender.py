"""Sends due notices: one attempt at a time for each, by one of the processes that share a store."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial

from trunkline.clock import wait_event
from trunkline.errors import StoreError
from trunkline.fleet.inbox import Inbox
from trunkline.fleet.notify.callers import CallerFirst
from trunkline.fleet.notify.channel import Channel
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notice import (
    ATTEMPTS,
    CALLER,
    RESULT,
    ChannelMessage,
    Notice,
    alert_text,
    notice_id,
    question_text,
    result_text,
)
from trunkline.fleet.notify.notices import Key, NoticeStore
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.views import task_item
from trunkline.wire.spellings import timestamp

log = logging.getLogger("trunkline.fleet")
# How long an attempt may take; the next one is due later than that.
ATTEMPT_S = 30.0
# How much one receiver is told at once.
TOGETHER = 8
# What one receiver is told in a minute at most; the rest waits.
PER_MINUTE = 60
MINUTE_MS = 60_000
LONGEST_S = 30.0
SWEEP_S = 3600.0


class NoticeSender:
    """Sends each notice when it is due; `channels` are those of the receivers, by name."""

    def __init__(
        self,
        notice_store: NoticeStore,
        inbox: Inbox,
        receivers: Sequence[NoticeReceiver],
        channels: Mapping[str, Channel],
        *,
        links: AnswerLinks,
        callers: CallerFirst | None = None,
        now_ms: Callable[[], int],
        closed: Container[str] = (),
    ) -> None:
        """Take the tenants that are closed: nothing is sent about them."""
        self._notice_store = notice_store
        self._inbox = inbox
        self._receivers = receivers
        self._channels = channels
        self._links = links
        self._callers = callers
        self._now = now_ms
        self._closed = closed
        self._told: dict[str, deque[int]] = {one.name: deque(maxlen=PER_MINUTE) for one in receivers}
        self.woken = asyncio.Event()

    async def run(self) -> None:
        """Tell what is due, until cancelled: a receiver that takes long, or hangs, delays no other."""
        sweep_at = 0.0
        loop = asyncio.get_running_loop()
        working: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self.woken.clear()
                if loop.time() >= sweep_at:
                    await self._tried(self._notice_store.sweep(self._now()))
                    sweep_at = loop.time() + SWEEP_S
                for name, turn in self._turns().items():
                    if name not in working or working[name].done():
                        working[name] = group.create_task(self._tried(turn()))
                await wait_event(self.woken, self._pause_s())

    async def tell_due(self) -> None:
        """Tell everything that is due now, once."""
        await _all_of([turn() for turn in self._turns().values()])

    async def _tried(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StoreError as error:
            log.warning("notify.stopped error=%s", error)

    def _turns(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What each receiver is told in its turn, by its name; the callers of tasks have one too."""
        of_receivers = {one.name: partial(self._turn, one) for one in self._receivers}
        return {CALLER: self._turn_of_callers, **of_receivers}

    async def _turn(self, receiver: NoticeReceiver) -> None:
        now, places = self._now(), asyncio.Semaphore(TOGETHER)

        async def tell(key: Key) -> None:
            async with places:
                await self._tell(*key, receiver)

        due = [tell(key) for key in self._waiting(receiver, now) if self._may(receiver.name, now)]
        await _all_of(due)

    async def _turn_of_callers(self) -> None:
        open_notices = self._open_notices()
        await _all_of([self._ask_caller(*key) for key, notice in open_notices if notice.waits_for_caller])

    def _waiting(self, receiver: NoticeReceiver, now: int) -> list[Key]:
        """What a receiver is to be told now; tenants take turns: the flood of one holds up no other."""
        turns: Counter[str] = Counter()
        found: list[tuple[int, Key]] = []
        for key, notice in self._open_notices():
            if notice.is_due(key[0], receiver, now):
                turns[key[0]] += 1
                found.append((turns[key[0]], key))
        return [key for _, key in sorted(found, key=lambda one: one[0])]

    def _open_notices(self) -> list[tuple[Key, Notice]]:
        return [(key, notice) for key, notice in self._notice_store.notices if key[0] not in self._closed]

    async def _ask_caller(self, tenant: str, doc_id: str) -> None:
        """Have the caller of a task answer its question, if it can; else people are told from now on."""
        known = self._notice_store.mirror.documents.get((tenant, doc_id))
        state = await self._notice_store.look(tenant, doc_id)
        item = None if state is None else self._inbox.question(state)
        if known is None or item is None or item.question != known.value.question or self._callers is None:
            return
        answered = await self._callers.ask(tenant, known.value, item)
        if answered is not None:
            log.info("notify.caller agent=%s task=%s answered=%s", known.value.caller, doc_id, answered)
            await self._notice_store.change(tenant, doc_id, partial(_ended, CALLER))

    def _pause_s(self) -> float:
        """How long nothing is due; who waits for an agent looks each second."""
        if any([notice.waits_for_caller for _, notice in self._open_notices()]):
            return 1.0
        moments = [
            at
            for (tenant, _), notice in self._open_notices()
            for receiver in self._receivers
            if (at := notice.due_at(tenant, receiver)) is not None
        ]
        left_s = (min(moments, default=1 << 62) - self._now()) / 1000
        return min(max(left_s, 1.0), LONGEST_S)

    def _may(self, name: str, now: int) -> bool:
        """Whether a receiver has not been told too much lately; counts it then."""
        told = self._told[name]
        if len(told) == PER_MINUTE and abs(now - told[0]) < MINUTE_MS:
            return False
        told.append(now)
        return True

    async def _tell(self, tenant: str, doc_id: str, receiver: NoticeReceiver) -> None:
        said = await self._text(tenant, doc_id, receiver)
        if said is None or not await self._begin(tenant, doc_id, receiver):
            return
        trouble = await self._attempt(receiver, said)
        if not trouble:
            if said.members["type"] == RESULT:
                # No other receiver is sent a result.
                await self._notice_store.forget(tenant, doc_id)
            else:
                await self._notice_store.change(tenant, doc_id, partial(_ended, receiver.name))
            log.info("notify.told receiver=%s id=%s", receiver.name, said.id)
            return
        known = self._notice_store.mirror.documents.get((tenant, doc_id))
        attempts = ATTEMPTS if known is None else known.value.told[receiver.name].attempts
        level = logging.ERROR if attempts >= ATTEMPTS else logging.WARNING
        log.log(level, "notify.failed receiver=%s attempt=%d reason=%s", receiver.name, attempts, trouble)

    async def _begin(self, tenant: str, doc_id: str, receiver: NoticeReceiver) -> bool:
        """Write an attempt down; whether it is ours to make."""
        now = self._now()

        def revise(known: Notice | None) -> Notice | None:
            is_due = known is not None and known.is_due(tenant, receiver, now)
            return known.begun(receiver.name, now) if known is not None and is_due else None

        return await self._notice_store.change(tenant, doc_id, revise)

    async def _attempt(self, receiver: NoticeReceiver, said: ChannelMessage) -> str:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return await self._channels[receiver.name].send(said)
        except TimeoutError:
            return "timeout"
        except Exception as error:
            # Of a library that a receiver needs: the others are told all the same.
            log.error("notify.broke receiver=%s", receiver.name, exc_info=error)
            return type(error).__name__

    async def _text(self, tenant: str, doc_id: str, receiver: NoticeReceiver) -> ChannelMessage | None:
        """Return the message of a notice; None if its question was closed or its task was deleted."""
        known = self._notice_store.mirror.documents.get((tenant, doc_id))
        if known is None:
            return None
        notice = known.value
        id = notice_id(tenant, doc_id, notice, receiver.name)
        if notice.alert is not None:
            return alert_text(id, tenant, notice.alert, timestamp(notice.at))
        if notice.is_result:
            ended = await self._notice_store.read_result(tenant, doc_id)
            return None if ended is None else result_text(id, tenant, task_item(ended, self._inbox.origin))
        state = await self._notice_store.look(tenant, doc_id)
        item = None if state is None else self._inbox.question(state)
        if state is None or item is None or item.question != notice.question:
            return None
        link = ""
        if receiver.link:
            link = self._links.make(tenant, doc_id, item.question, receiver.name, state.deadline or 0)
        return question_text(id, tenant, item, link)


async def _all_of(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it, whatever becomes of a part; the first failure is raised in the end."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


def _ended(name: str, known: Notice | None) -> Notice | None:
    return None if known is None else known.ended(name)
