"""How much a tenant and a key may have done: how often, how much at once, and what it may cost in a day.

Only what asks for work is counted, never who reads or follows it. It is read from the store, so that it holds
over replicas and restarts; what this process is just opening is counted beside it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from math import ceil

from trunkline.clock import first_id, now_ms
from trunkline.errors import InvalidParams, TooManyRequests
from trunkline.fleet.routing.dispatcher import DispatchOrder
from trunkline.gateway.spending import DaySpending
from trunkline.gateway.tenants import NO_QUOTA, TenantQuota
from trunkline.run.spending import ModelSpending
from trunkline.store.parts import Heads
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

log = logging.getLogger("trunkline.gateway")
# Tenant, and the name of a key; "" for all of a tenant.
Payer = tuple[str, str]
_SECOND_MS, _MINUTE_MS = 1000, 60_000
_IN_WORK = (TaskState.SUBMITTED, TaskState.WORKING)
_SCHEDULED = "ceremony:"
_ROOM = 4096
# For how long a count of the store holds, where other processes write to it too.
_HOLDS_MS = 250
# Where the wait is looked for by the store: so many seconds from now.
_WAITS_S = (1, 2, 5, 10, 20, 30, 45)
# What a day cost falls when the oldest five minutes of it are over.
_DAY_RETRY_S = 300


class _Minute:
    """What one payer was let in for by this process, by the second, and what the store last said of it."""

    __slots__ = ("by_second", "known", "known_at", "met", "met_until", "own_then")

    def __init__(self) -> None:
        self.by_second: Counter[int] = Counter()
        self.known = 0
        self.known_at = 0
        self.own_then = 0
        # Until when there is no place under this limit.
        self.met = self.met_until = 0

    def own(self, now: int) -> int:
        # What lies further ahead was counted before the clock was set back.
        first, last = (now - _MINUTE_MS) // _SECOND_MS, (now + _MINUTE_MS) // _SECOND_MS
        for second in [one for one in self.by_second if not first < one <= last]:
            del self.by_second[second]
        return self.by_second.total()

    def wait_s(self, now: int, limit: int) -> int:
        """How many seconds until there is place again, by what this process knows; that is remembered."""
        left = self.own(now)
        for second in sorted(self.by_second):
            left -= self.by_second[second]
            if left < limit:
                self.met, self.met_until = limit, second * _SECOND_MS + _MINUTE_MS
                return max(1, second + 61 - now // _SECOND_MS)
        return 1


class MinuteCounts:
    """How many tasks each payer has asked for in the last minute."""

    def __init__(self, heads: Heads, now_ms: Callable[[], int], *, shared: bool) -> None:
        """Take whether other processes write to the store too."""
        self._heads = heads
        self._now = now_ms
        self._shared = shared
        self._began = now_ms()
        self._minutes: dict[Payer, _Minute] = {}

    async def enter(self, payer: Payer, limit: int, count: int) -> int:
        """Count tasks that a payer asks for; gives 0, or after how many seconds it may ask again.

        Then nothing was counted. Whoever has place for one has place for all of one request.
        """
        if wait_s := self.known_wait_s(payer, limit):
            return wait_s
        now = self._now()
        minute = self._minutes.get(payer) or self._new(payer, now)
        own = minute.own(now)
        if own >= limit:
            return minute.wait_s(now, limit)
        # Counted before the store is asked: others ask meanwhile.
        self.count(payer, count)
        # What this process let in is all there is, once it is old enough to have seen the whole minute.
        self._began = min(self._began, now)
        if self._shared or now - self._began < _MINUTE_MS:
            wait_s = await self._wait_s(payer, minute, now, own, limit)
            if wait_s:
                minute.by_second[now // _SECOND_MS] -= count
                minute.met, minute.met_until = limit, now + wait_s * _SECOND_MS
            return wait_s
        return 0

    def known_wait_s(self, payer: Payer, limit: int) -> int:
        """After how many seconds a payer may ask again that was refused before; 0 if nobody knows."""
        minute = self._minutes.get(payer)
        if minute is None or limit != minute.met:
            return 0
        left_ms = minute.met_until - self._now()
        return ceil(left_ms / _SECOND_MS) if 0 < left_ms <= 2 * _MINUTE_MS else 0

    def count(self, payer: Payer, count: int) -> None:
        """Count tasks of a payer, or with a number below 0 such as were not opened."""
        now = self._now()
        minute = self._minutes.get(payer) or self._new(payer, now)
        minute.by_second[now // _SECOND_MS] += count
        if count < 0:
            minute.met_until = 0

    async def _wait_s(self, payer: Payer, minute: _Minute, now: int, own: int, limit: int) -> int:
        if limit < _ROOM or not 0 <= now - minute.known_at < _HOLDS_MS:
            known = await self._stored(payer, now, 0)
            minute.known, minute.known_at, minute.own_then = known, now, own
        if minute.known + own - minute.own_then < limit:
            return 0
        for wait_s in _WAITS_S:
            if await self._stored(payer, now, wait_s) < limit:
                return wait_s
        return _MINUTE_MS // _SECOND_MS

    def _new(self, payer: Payer, now: int) -> _Minute:
        if len(self._minutes) >= _ROOM:
            self._minutes = {one: minute for one, minute in self._minutes.items() if minute.own(now)}
        made = self._minutes[payer] = _Minute()
        return made

    async def _stored(self, payer: Payer, now: int, later_s: int) -> int:
        tenant, name = payer
        since = now - _MINUTE_MS + later_s * _SECOND_MS
        where = Where(principal=name or None, status_from=since, born_from=first_id(since))
        return await self._heads.count(tenant, where)


class Quotas:
    """Lets work of tenants in, as far as their limits and those of their keys go."""

    def __init__(
        self,
        heads: Heads,
        spending: DaySpending,
        *,
        of_tenant: Callable[[str], TenantQuota],
        of_key: Callable[[str, str], TenantQuota],
        is_closed: Callable[[str], bool] = lambda tenant: False,
        shared: bool = False,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self._is_closed = is_closed
        self._heads = heads
        self._spending = spending
        self._of_tenant = of_tenant
        self._of_key = of_key
        self._minutes = MinuteCounts(heads, now_ms, shared=shared)
        self._said_at, self._unsaid = 0, 0
        self._now = now_ms
        # Tasks that are being opened, which the store does not know yet.
        self._opening: Counter[Payer] = Counter()

    def admitted(self, order: DispatchOrder, count: int) -> AbstractAsyncContextManager[None] | None:
        """Let so many tasks of an order be opened, and count them; None where there is no limit.

        Raises:
            TooManyRequests: a limit is met; its name is the field, and nothing is counted.
        """
        is_due = order.trigger.startswith(_SCHEDULED)
        return self.let_in(order.tenant, order.principal, count, charged=order.charged, is_due=is_due)

    def let_in(
        self, tenant: str, principal: str, count: int = 1, *, charged: bool = False, is_due: bool = False
    ) -> AbstractAsyncContextManager[None] | None:
        """The same for work that a principal asks for otherwise: charged before, or due by the clock.

        Raises:
            InvalidParams: the tenant is disabled; its own keys open nothing, so an operator asks.
        """
        if self._is_closed(tenant):
            raise InvalidParams(
                f"the tenant {tenant!r} is disabled", field="tenant", conflict="TENANT_DISABLED"
            )
        own, key = self._of_tenant(tenant), self._of_key(tenant, principal)
        if own is NO_QUOTA is key or (own == NO_QUOTA and key == NO_QUOTA):
            return None
        limits = [((tenant, ""), own), ((tenant, principal), key)]
        return self._counted(limits, count, charged=charged, is_due=is_due)

    def check_known(self, tenant: str, principal: str) -> None:
        """Refuse who is known to have nothing left without asking the store; who passes may be refused later.

        Raises:
            TooManyRequests: a limit is met; its name is the field.
        """
        limits = (
            ((tenant, ""), self._of_tenant(tenant)),
            ((tenant, principal), self._of_key(tenant, principal)),
        )
        for payer, quota in limits:
            if quota is NO_QUOTA:
                continue
            self._check_day(payer, quota)
            limit = quota.requests_per_minute
            if limit is not None and (wait_s := self._minutes.known_wait_s(payer, limit)):
                raise self._refusal("requests_per_minute", limit, payer, wait_s)

    def check_spent(self, tenant: str, principal: str) -> None:
        """Check that the daily limits of a tenant and a principal are not spent.

        Raises:
            TooManyRequests: a limit is spent; its name is the field.
        """
        self._check_day((tenant, ""), self._of_tenant(tenant))
        self._check_day((tenant, principal), self._of_key(tenant, principal))

    def counting(self, tenant: str, principal: str, spent: ModelSpending) -> AbstractContextManager[None]:
        """Count a model call of a running task from its end on; see `Meter`."""
        has_limit = any(
            [_has_day_limit(self._of_tenant(tenant)), _has_day_limit(self._of_key(tenant, principal))]
        )
        return self._spending.counting(tenant, principal, spent) if has_limit else nullcontext()

    @asynccontextmanager
    async def _counted(
        self, limits: list[tuple[Payer, TenantQuota]], count: int, *, charged: bool, is_due: bool
    ) -> AsyncGenerator[None]:
        if any([_has_day_limit(quota) for _, quota in limits]):
            # Invariant: what ended before a request counts, so a limit is exceeded only by work in progress.
            await self._spending.refresh()
        for payer, quota in limits:
            self._check_day(payer, quota)
        taken: list[Payer] = []
        try:
            for payer, quota in limits:
                if quota.concurrent_tasks is not None:
                    before = self._opening[payer]
                    self._opening[payer] += count
                    taken.append(payer)
                    # Counted twice for a moment, a task may keep another one out; never let one too many in.
                    if before + count + await self._in_work(payer) > quota.concurrent_tasks:
                        raise self._refusal("concurrent_tasks", quota.concurrent_tasks, payer, 1)
            if not charged:
                await self._enter(limits, count, is_due=is_due)
            yield
        finally:
            for payer in taken:
                self._opening[payer] -= count
                if not self._opening[payer]:
                    del self._opening[payer]

    def _check_day(self, payer: Payer, quota: TenantQuota) -> None:
        if not _has_day_limit(quota):
            return
        cost, tokens = self._spending.spent(*payer)
        if quota.cost_per_day is not None and cost >= quota.cost_per_day:
            raise self._refusal("cost_per_day", quota.cost_per_day, payer, _DAY_RETRY_S)
        if quota.tokens_per_day is not None and tokens >= quota.tokens_per_day:
            raise self._refusal("tokens_per_day", quota.tokens_per_day, payer, _DAY_RETRY_S)

    async def _enter(self, limits: list[tuple[Payer, TenantQuota]], count: int, *, is_due: bool) -> None:
        entered: list[Payer] = []
        for payer, quota in limits:
            limit = quota.requests_per_minute
            if limit is None:
                continue
            if is_due:
                # What the clock asks for is held back by nobody's haste, and counts all the same.
                self._minutes.count(payer, count)
                continue
            if wait_s := await self._minutes.enter(payer, limit, count):
                for one in entered:
                    self._minutes.count(one, -count)
                raise self._refusal("requests_per_minute", limit, payer, wait_s)
            entered.append(payer)

    async def _in_work(self, payer: Payer) -> int:
        tenant, name = payer
        wheres = [Where(principal=name or None, state=state) for state in _IN_WORK]
        return sum([await self._heads.count(tenant, where) for where in wheres])

    def _refusal(self, name: str, limit: float, payer: Payer, wait_s: int) -> TooManyRequests:
        self._unsaid += 1
        if not 0 <= self._now() - self._said_at < _SECOND_MS:
            # A flood of requests is not to become a flood of lines.
            log.info("quota.met tenant=%s limit=%s refused=%d", payer[0], name, self._unsaid)
            self._said_at, self._unsaid = self._now(), 0
        whose = "this key" if payer[1] else "this tenant"
        return TooManyRequests(
            f"the limit {name} of {whose} is met: {limit:.15g}; try again in {wait_s} s",
            retry_after_s=wait_s,
            field=name,
        )


def _has_day_limit(quota: TenantQuota) -> bool:
    return quota.cost_per_day is not None or quota.tokens_per_day is not None
