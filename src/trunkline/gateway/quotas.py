"""How much a tenant and a key may have done: how often, how much at once, and what it may cost in a day.

Only what asks for work is counted, never who reads or follows it. How often is counted by each process for
itself; what is in work and what it cost the store knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from math import ceil
from time import monotonic
from typing import Protocol

from trunkline.errors import TooManyRequests
from trunkline.fleet.routing.dispatcher import DispatchOrder
from trunkline.gateway.tenants import KeyQuota, TenantQuota
from trunkline.store.base import Heads
from trunkline.store.records import Where
from trunkline.wire.types import TaskState

# Tenant, and the name of a key; "" for all of a tenant.
Payer = tuple[str, str]
_MINUTE_S = 60.0
_IN_WORK = (TaskState.SUBMITTED, TaskState.WORKING)
_SCHEDULED = "ceremony:"
_FREE_TENANT, _FREE_KEY = TenantQuota(), KeyQuota()
_ROOM = 4096
# A day's cost falls when the oldest five minutes of it are over.
_COST_RETRY_S = 300.0


class Costs(Protocol):
    """The costs of the tasks of tenants in the last day."""

    def cost_of(self, tenant: str) -> float:
        """The cost of the tasks of one tenant, in dollars."""
        ...


class MinuteRates:
    """How often each payer has asked: a bucket that holds a minute's requests and fills evenly."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # The moment at which a bucket will be full again: an idle one is like one never seen.
        self._full_at: dict[Payer, float] = {}

    def wait_s(self, payer: Payer, per_minute: float) -> float:
        """How long until a payer may ask again; 0 if it may now."""
        now = self._clock()
        full_at = max(self._full_at.get(payer, now), now) + _MINUTE_S / per_minute
        # A bucket holds one request at least, however few a minute has.
        return max(0.0, full_at - now - max(_MINUTE_S, _MINUTE_S / per_minute))

    def take(self, payer: Payer, per_minute: float) -> None:
        """Count a request."""
        now = self._clock()
        self._full_at[payer] = max(self._full_at.get(payer, now), now) + _MINUTE_S / per_minute
        if len(self._full_at) > _ROOM:
            self._full_at = {one: full_at for one, full_at in self._full_at.items() if full_at > now}


class Quotas:
    """Lets work of tenants in, as far as their limits and those of their keys go."""

    def __init__(
        self,
        heads: Heads,
        costs: Costs,
        *,
        of_tenant: Callable[[str], TenantQuota],
        of_key: Callable[[str, str], KeyQuota],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._heads = heads
        self._costs = costs
        self._of_tenant = of_tenant
        self._of_key = of_key
        self._rates = MinuteRates(clock)
        # Tasks that are being opened, which the store does not know yet.
        self._opening: Counter[Payer] = Counter()

    def admitted(self, order: DispatchOrder, count: int) -> AbstractAsyncContextManager[None]:
        """Let so many tasks of an order be opened, and count them.

        Raises:
            TooManyRequests: a limit is met; its name is the field, and nothing is counted.
        """
        tenant, key = self._of_tenant(order.tenant), self._of_key(order.tenant, order.principal)
        if tenant == _FREE_TENANT and key == _FREE_KEY:
            return nullcontext()
        return self._counted(order, count, tenant, key)

    @asynccontextmanager
    async def _counted(
        self, order: DispatchOrder, count: int, tenant: TenantQuota, key: KeyQuota
    ) -> AsyncGenerator[None]:
        limits: list[tuple[Payer, KeyQuota]] = [
            ((order.tenant, ""), tenant),
            ((order.tenant, order.principal), key),
        ]
        self._check_cost(order.tenant, tenant.cost_per_day)
        # What the clock asks for is no request of anybody's.
        rates = [] if order.trigger.startswith(_SCHEDULED) else _rates(limits)
        for payer, per_minute in rates:
            if (wait_s := self._rates.wait_s(payer, per_minute)) > 0:
                raise _refusal("requests_per_minute", per_minute, payer, wait_s)
        taken: list[Payer] = []
        try:
            for payer, quota in limits:
                if quota.concurrent_tasks is not None:
                    before = self._opening[payer]
                    self._opening[payer] += count
                    taken.append(payer)
                    # Counted twice for a moment, a task may keep another one out; never let one too many in.
                    if before + count + await self._in_work(payer) > quota.concurrent_tasks:
                        raise _refusal("concurrent_tasks", quota.concurrent_tasks, payer, 1.0)
            for payer, per_minute in rates:
                self._rates.take(payer, per_minute)
            yield
        finally:
            for payer in taken:
                self._opening[payer] -= count
                if not self._opening[payer]:
                    del self._opening[payer]

    def _check_cost(self, tenant: str, limit: float | None) -> None:
        if limit is not None and self._costs.cost_of(tenant) >= limit:
            raise _refusal("cost_per_day", limit, (tenant, ""), _COST_RETRY_S)

    async def _in_work(self, payer: Payer) -> int:
        tenant, name = payer
        pages = [
            await self._heads.list(tenant, Where(principal=name or None, state=state), size=1)
            for state in _IN_WORK
        ]
        return sum([page.total for page in pages])


def _rates(limits: list[tuple[Payer, KeyQuota]]) -> list[tuple[Payer, float]]:
    return [
        (payer, quota.requests_per_minute) for payer, quota in limits if quota.requests_per_minute is not None
    ]


def _refusal(name: str, limit: float, payer: Payer, wait_s: float) -> TooManyRequests:
    whose = "this key" if payer[1] else "this tenant"
    seconds = max(1, ceil(wait_s))
    return TooManyRequests(
        f"the limit {name} of {whose} is met: {limit:g}; try again in {seconds} s",
        retry_after_s=seconds,
        field=name,
    )
