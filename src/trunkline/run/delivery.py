"""Delivers webhooks: takes what is due from the outbox, signs it, posts it, and settles it.

The outbox row was written with the event it announces, so a worker that dies loses nothing: its
leases run out and another one posts again, under the same id. Rows of one task and target come one
after the other. Every host, principal and tenant has its share, so that none keeps another one waiting.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import CancelledError, Event, Semaphore, Task
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping

from msgspec import Struct

from trunkline.clock import now_ms, random_bits
from trunkline.errors import Misuse, StoreError, Unreachable
from trunkline.log.notifications import DeletePush
from trunkline.log.notifications import lane as lane_of
from trunkline.net.breaker import Breaker
from trunkline.net.fetch import FetcherOf
from trunkline.net.resolver import on_behalf_of
from trunkline.run.feed import Feed
from trunkline.run.notification import NotificationComposer, OutgoingNotification
from trunkline.run.retry import BUSY, DOWN_MS, GONE, Attempt, RetrySchedule, patience_ms
from trunkline.run.tasks import Tasks
from trunkline.store.records import Delivery, DeliveryOutcome, DeliveryResult, Shares, host_of

log = logging.getLogger("trunkline.webhook")
IN_FLIGHT = 192
# Of these so many are for hosts that have nothing on its way and for principals that have little: a few
# hosts that hang must not hold all of it.
SPARE = 64
# Of those so many for such principals alone, and of those so many for such tenants: one that names host after
# host which hangs must not hold all of it either.
LAST = 32
LAST_OF_TENANTS = 16
LAST_PER_PRINCIPAL = 4
LAST_PER_TENANT = 8
# To one host, and of that for one principal: it may hang for that one alone.
PER_HOST = 9
PER_LANE = 6
LOOK_S = 1.0
# A clock that differs by less from one reading to the next was not set.
STEP_S = 1.0
# Retries that are further away are found by looking.
SOON_S = 60.0
LATE_S = 0.05
PAUSE_S = 0.5
# Feeds that are kept for what is due of them, and how large a task may be for that.
HELD = 1024
HELD_BYTES = 64 << 10
# While this much is on its way, only what is held is posted: others may be as large as a task can be.
BYTES = 32 << 20
READERS = 8
LATER_MS = 1000
# How much longer than its POST a delivery is leased: time to settle it.
SLACK_MS = 15_000
# A client that does not keep its own time limit must not hold a place for ever.
SLACK_S = 5.0
LOG_LINES = {
    outcome: f"delivery.{outcome.value} task=%s state=%s status=%s attempt=%d host=%s id=%s"
    for outcome in DeliveryOutcome
}


class DeliveryCounts(Struct):
    """How many deliveries of a process ended in which way, for metrics."""

    done: int = 0
    retried: int = 0
    dead: int = 0
    dropped: int = 0
    # How long the oldest of what was taken last had been due.
    lag_ms: int = 0


class DeliveryWorker:
    """Posts this process's share of the outbox."""

    def __init__(
        self,
        tasks: Tasks,
        composer: NotificationComposer,
        poster_of: FetcherOf,
        breaker: Breaker,
        schedule: RetrySchedule,
        *,
        timeout_s: float,
        clock: Callable[[], int] = now_ms,
        counts: DeliveryCounts | None = None,
    ) -> None:
        self._tasks = tasks
        self._composer = composer
        self._poster_of = poster_of
        self._breaker = breaker
        self._schedule = schedule
        self._limit_s = timeout_s + SLACK_S
        self._lease_ms = round(timeout_s * 1000) + SLACK_MS
        self._clock = clock
        # How far the time of day was ahead of the loop's clock; None before it was first read.
        self._ahead_s: float | None = None
        self._woken = Event()
        # What an earlier process left is due now.
        self._woken.set()
        self._ended = Event()
        self._by_lane: Counter[str] = Counter()
        self._work: set[Task[None]] = set()
        self._settled: list[DeliveryResult] = []
        self._bytes = 0
        self._reading = Semaphore(READERS)
        self._stopping = False
        self._taking = True
        # Feeds of what was announced here, kept alive so that they need not be read back from the store.
        self._held: OrderedDict[str, Feed] = OrderedDict()
        self.counts = counts or DeliveryCounts()

    def announced(self, feed: Feed) -> None:
        """Something of this task is due, by an append of this process."""
        self._held.pop(feed.state.task_id, None)
        if feed.state.size <= HELD_BYTES:
            self._held[feed.state.task_id] = feed
            if len(self._held) > HELD:
                self._held.popitem(last=False)
        self._woken.set()

    async def run(self) -> None:
        """Take and post until stopped; settle what was posted, many at a time."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_all())
            group.create_task(self._settle_all())
        if not self._stopping:
            # A group says nothing of a task that was cancelled.
            raise RuntimeError("the delivery of webhooks has ended by itself")

    async def stop(self, limit_s: float) -> None:
        """Take nothing more; give what is on its way this long, and the rest back."""
        self._stopping = True
        self._woken.set()
        if self._work:
            await asyncio.wait(self._work, timeout=limit_s)
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self._ended.set()

    async def _take_all(self) -> None:
        try:
            while not self._stopping:
                await self._wait()
                await self._take_due()
        finally:
            self._taking = False
            self._ended.set()

    async def _rebase(self) -> None:
        """Shorten the waits of deliveries at the start, and after the clock was set back."""
        ahead_s = self._clock() / 1000 - asyncio.get_running_loop().time()
        if self._ahead_s is None or ahead_s < self._ahead_s - STEP_S:
            await self._tasks.store.outbox.rebase(self._lease_ms)
        self._ahead_s = ahead_s

    async def _take_due(self) -> None:
        try:
            await self._rebase()
            while await self._take():
                pass
        except Exception as error:
            # Whatever it was: without this loop nobody posts.
            log.error("delivery.untaken error=%s", error, exc_info=_unexpected(error))
            await asyncio.sleep(PAUSE_S)

    async def _wait(self) -> None:
        """Wait to be woken, or a second: another process may have announced something."""
        # By a timer that wakes and not by a time limit: nothing but the end should ever cancel this task.
        timer = asyncio.get_running_loop().call_later(LOOK_S, self._woken.set)
        await self._woken.wait()
        timer.cancel()
        self._woken.clear()

    async def _take(self) -> bool:
        room = IN_FLIGHT - len(self._work) - len(self._settled)
        if room <= 0 or self._stopping:
            return False
        # A copy: the store looks at it in a thread of its own.
        by_lane = dict(self._by_lane)
        now, taken = 0.0, list[Delivery]()
        for places, shares in shares_of(room, by_lane):
            # From before the store is asked: whenever it counts from, the lease is not over earlier.
            now = asyncio.get_running_loop().time()
            taken = await self._tasks.store.outbox.take(
                places, self._lease_ms, per_lane=PER_LANE, busy=self._breaker.busy(now), shares=shares
            )
            if taken:
                break
        self.counts.lag_ms = max(0, self._clock() - min([one.due for one in taken])) if taken else 0
        for delivery in taken:
            if self._stopping:
                self._give_back(delivery)
            else:
                # Busy hosts were left out, so it does; but this is what tells a try from what was on its way.
                self._breaker.allows(delivery.lane, now)
                self._begin(delivery, now + self._lease_ms / 1000)
        return bool(taken)

    def _begin(self, delivery: Delivery, lease_end: float) -> None:
        self._by_lane[delivery.lane] += 1
        work = asyncio.get_running_loop().create_task(self._deliver(delivery, lease_end))
        self._work.add(work)
        work.add_done_callback(self._work.discard)

    def _give_back(self, delivery: Delivery) -> None:
        self._note(self._later(delivery, "the server stopped", 0))

    async def _deliver(self, delivery: Delivery, lease_end: float) -> None:
        try:
            settled = await self._attempt(delivery, lease_end)
        except CancelledError:
            # It may have arrived; whoever posts it next does so under the same id.
            self._give_back(delivery)
            raise
        except StoreError as error:
            log.error("delivery.unread task=%s error=%s", delivery.task_id, error)
            settled = self._schedule.unread(delivery, self._clock())
        except Misuse as error:
            # No time heals it; with the right key somebody may send it again.
            log.error("delivery.sealed task=%s id=%s fix=secret_key", delivery.task_id, delivery.id)
            settled = DeliveryResult(delivery.id, DeliveryOutcome.DEAD, note=str(error))
        except Exception as error:
            # A notification that cannot be written must not stop the others, nor be tried for ever.
            log.error("delivery.broke task=%s seq=%d", delivery.task_id, delivery.seq, exc_info=error)
            settled = self._schedule.settle(delivery, Attempt(trouble="broke"), self._clock(), 0.5)
        finally:
            self._free(delivery.lane)
        if asyncio.get_running_loop().time() < lease_end or settled.outcome is not DeliveryOutcome.RETRY:
            self._note(settled)
        else:
            # Somebody else may have it: making it due now would have it posted twice at once.
            log.warning("delivery.lease_lost task=%s id=%s", delivery.task_id, delivery.id)

    def _free(self, lane: str) -> None:
        self._by_lane[lane] -= 1
        if self._by_lane[lane] <= 0:
            del self._by_lane[lane]

    async def _attempt(self, delivery: Delivery, lease_end: float) -> DeliveryResult:
        if delivery.task_id in self._held:
            notification = await self._composer.write(delivery)
        else:
            # A few at a time, and looked at again: those that were read meanwhile may be large.
            async with self._reading:
                notification = await self._composer.write(delivery) if self._bytes < BYTES else None
            if self._bytes >= BYTES:
                return self._later(delivery, "too much is on its way")
        if notification is None:
            self._held.pop(delivery.task_id, None)
            log.info("delivery.dropped task=%s seq=%d", delivery.task_id, delivery.seq)
            return DeliveryResult(delivery.id, DeliveryOutcome.DROPPED, note="nobody wants it any more")
        if asyncio.get_running_loop().time() + self._limit_s > lease_end:
            # It took so long to be written that somebody else might post it before this is through.
            return self._later(delivery, "the lease was nearly over")
        with on_behalf_of(delivery.tenant, notification.feed.state.principal):
            attempt = await self._post(notification)
        if attempt.trouble == BUSY:
            # Our trouble, not theirs: it stays due, and nothing is counted against its target.
            return self._later(delivery, "too many names are being looked up")
        await self._learn(notification, attempt)
        settled = self._schedule.settle(delivery, attempt, self._clock(), random_bits(16) / 65535)
        if attempt.status == GONE:
            await self._disable(notification)
        elif notification.last and settled.outcome is not DeliveryOutcome.RETRY:
            self._held.pop(delivery.task_id, None)
        self._log(delivery, notification, attempt, settled)
        return settled

    def _later(self, delivery: Delivery, note: str, wait_ms: int = LATER_MS) -> DeliveryResult:
        due = self._clock() + wait_ms
        return DeliveryResult(delivery.id, DeliveryOutcome.RETRY, due, note=note, untried=True)

    async def _post(self, notification: OutgoingNotification) -> Attempt:
        self._bytes += len(notification.body)
        try:
            async with asyncio.timeout(self._limit_s):
                poster = self._poster_of(notification.feed.tenant)
                answer = await poster.post(notification.target.url, notification.body, notification.headers)
        except Unreachable as error:
            return Attempt(trouble=error.reason)
        except TimeoutError:
            return Attempt(trouble="timeout")
        finally:
            self._bytes -= len(notification.body)
        wait = patience_ms(answer.headers.get("retry-after", ""), self._clock())
        return Attempt(answer.status, retry_after_ms=wait)

    async def _learn(self, notification: OutgoingNotification, attempt: Attempt) -> None:
        """Note whether the other side is up; another host, if the target was replaced meanwhile.

        Of each principal by itself: nobody shall have the circuit of a host opened for others.
        """
        feed = notification.feed
        lane = lane_of(notification.target.url, feed.tenant, feed.state.principal)
        if attempt.alive:
            self._breaker.succeeded(lane)
        elif attempt.down and self._breaker.failed(lane, asyncio.get_running_loop().time()):
            await self._lane_down(lane)

    async def _disable(self, notification: OutgoingNotification) -> None:
        """It wants nothing more; but whoever replaced it meanwhile is somebody else."""
        target = notification.target
        gone = DeletePush(target.id, "", "the target answered 410 Gone", only=target)
        await self._tasks.change(notification.feed, gone)

    async def _lane_down(self, lane: str) -> None:
        host = host_of(lane)
        log.error("target.down host=%s", host)
        if self._breaker.down_s(lane, asyncio.get_running_loop().time()) * 1000 < DOWN_MS:
            # What is overdue waited for a process, or the clock was set; its target was not tried for long.
            return
        before = self._clock() - self._schedule.span_ms
        try:
            given_up = await self._tasks.store.outbox.expire(lane, before, "the target was down for too long")
        except StoreError as error:
            log.error("delivery.unexpired host=%s error=%s", host, error)
            return
        if given_up:
            self.counts.dead += given_up
            log.error("delivery.expired host=%s count=%d", host, given_up)

    def _log(
        self,
        delivery: Delivery,
        notification: OutgoingNotification,
        attempt: Attempt,
        settled: DeliveryResult,
    ) -> None:
        # No body, no token and no path of the url: they may be secrets.
        level = logging.INFO if settled.outcome is DeliveryOutcome.DONE else logging.WARNING
        level = logging.ERROR if settled.outcome is DeliveryOutcome.DEAD else level
        log.log(
            level,
            LOG_LINES[settled.outcome],
            delivery.task_id,
            notification.state,
            attempt.status or attempt.trouble,
            delivery.attempts + 1,
            host_of(delivery.lane),
            delivery.id,
        )

    def _note(self, settled: DeliveryResult) -> None:
        self._settled.append(settled)
        self._ended.set()

    async def _settle_all(self) -> None:
        while self._taking or self._work or self._settled:
            await self._ended.wait()
            self._ended.clear()
            if not self._settled:
                continue
            # What is not yet settled counts as under way: it stays in the list until it is.
            batch = self._settled[:]
            try:
                await self._tasks.store.outbox.settle(batch)
            except Exception as error:
                # The leases still hold; a row that is settled too late is posted again, under its id.
                fields = (len(batch), error)
                log.error("delivery.unsettled count=%d error=%s", *fields, exc_info=_unexpected(error))
                self._ended.set()
                await asyncio.sleep(PAUSE_S)
                continue
            del self._settled[: len(batch)]
            for settled in batch:
                self._count(settled)
            self._woken.set()
            if self._settled:
                self._ended.set()

    def _count(self, settled: DeliveryResult) -> None:
        counts = self.counts
        match settled.outcome:
            case DeliveryOutcome.DONE:
                counts.done += 1
            case DeliveryOutcome.RETRY:
                counts.retried += not settled.untried
                self._wake_at(settled.next_due)
            case DeliveryOutcome.DEAD:
                counts.dead += 1
            case DeliveryOutcome.DROPPED:
                counts.dropped += 1

    def _wake_at(self, due: int) -> None:
        delay = max(0.0, (due - self._clock()) / 1000)
        if delay < SOON_S:
            # A little late: by the store's clock it may be due some milliseconds after it is by ours.
            asyncio.get_running_loop().call_later(delay + LATE_S, self._woken.set)


def shares_of(room: int, by_lane: Mapping[str, int]) -> list[tuple[int, Shares]]:
    """How many to take, and of whom, by the places that are left; the next where one gives nothing."""
    little = Shares(by_lane, PER_HOST, LAST_PER_PRINCIPAL)
    if room > SPARE:
        return [(room - SPARE, Shares(by_lane, PER_HOST))]
    if room > LAST:
        # Those who have little on its way need not wait for hosts of which nobody wants anything.
        return [(room - LAST, Shares(by_lane, 1)), (room - LAST_OF_TENANTS, little)]
    if room > LAST_OF_TENANTS:
        return [(room - LAST_OF_TENANTS, little)]
    return [(room, Shares(by_lane, PER_HOST, LAST_PER_PRINCIPAL, LAST_PER_TENANT))]


def _unexpected(error: Exception) -> Exception | None:
    """What needs its traceback: a store that fails says all in a line."""
    return None if isinstance(error, StoreError) else error
