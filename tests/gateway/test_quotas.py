"""Limits of tenants and keys, with a clock in the hand: who is let in, and what the others hear."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.conformance.store.given import submitted
from tests.conformance.store.given import task as stored
from trunkline.errors import TooManyRequests
from trunkline.fleet.routing.dispatcher import DispatchOrder
from trunkline.gateway.quotas import MinuteRates, Quotas
from trunkline.gateway.tenants import KeyQuota, TenantQuota
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import Message, Part, Role, TaskState


class Till:
    """Quotas over a store in memory."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now = 0.0
        self.cost: dict[str, float] = {}
        self.tenants: dict[str, TenantQuota] = {}
        self.keys: dict[tuple[str, str], KeyQuota] = {}
        self.quotas = Quotas(
            store.heads,
            self,
            of_tenant=lambda tenant: self.tenants.get(tenant, TenantQuota()),
            of_key=lambda tenant, name: self.keys.get((tenant, name), KeyQuota()),
            clock=lambda: self.now,
        )

    def cost_of(self, tenant: str) -> float:
        return self.cost.get(tenant, 0.0)

    async def ask(self, tenant: str = "a", name: str = "ann", *, count: int = 1, trigger: str = "api") -> str:
        """The limit that was met, with the seconds to wait; empty if there was none."""
        said = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
        order = DispatchOrder(tenant=tenant, principal=name, message=said, trigger=trigger)
        try:
            async with self.quotas.admitted(order, count):
                return ""
        except TooManyRequests as refused:
            assert refused.field in refused.message
            return f"{refused.field} {refused.retry_after_s:g}"


def run(case: Callable[[Till], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        store = SqliteStore(None, now_ms=lambda: 1)
        await store.open()
        try:
            await case(Till(store))
        finally:
            await store.close()

    asyncio.run(whole())


def test_so_many_requests_a_minute_of_a_tenant_and_of_a_key() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=4)
        till.keys["a", "ann"] = KeyQuota(requests_per_minute=2)
        assert [await till.ask() for _ in range(3)] == ["", "", "requests_per_minute 30"]
        # Another key of the tenant has what is left of it, another tenant all of its own.
        assert [await till.ask(name="bob") for _ in range(3)] == ["", "", "requests_per_minute 15"]
        assert [await till.ask("b") for _ in range(9)] == [""] * 9
        # What was refused has not been counted.
        till.now += 30
        assert [await till.ask() for _ in range(2)] == ["", "requests_per_minute 30"]
        # The clock is nobody's caller.
        assert await till.ask(trigger="ceremony:standup") == ""

    run(case)


def test_so_many_tasks_at_once_of_a_tenant_and_of_a_key() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(concurrent_tasks=3)
        till.keys["a", "ann"] = KeyQuota(concurrent_tasks=2)
        await stored(till.store, "t1", tenant="a")
        await stored(till.store, "t2", tenant="a", state=TaskState.WORKING)
        await stored(till.store, "t3", tenant="a", state=TaskState.COMPLETED)
        await stored(till.store, "t4", tenant="b")
        owner = submitted().principal
        till.keys["a", owner] = KeyQuota(concurrent_tasks=2)
        assert await till.ask(name="bob") == ""
        assert await till.ask(name="bob", count=2) == "concurrent_tasks 1"
        assert await till.ask(name=owner) == "concurrent_tasks 1"
        assert await till.ask("b") == ""

    run(case)


def test_tasks_that_are_being_opened_count_too() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(concurrent_tasks=2)
        said = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
        order = DispatchOrder(tenant="a", principal="ann", message=said)
        async with till.quotas.admitted(order, 1):
            assert await till.ask(count=2) == "concurrent_tasks 1"
            assert await asyncio.gather(till.ask(), till.ask()) == ["", "concurrent_tasks 1"]
        assert await till.ask(count=2) == ""

    run(case)


def test_what_a_day_may_cost() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(cost_per_day=2.5)
        till.cost = {"a": 2.4, "b": 99.0}
        assert await till.ask() == ""
        till.cost["a"] = 2.5
        assert await till.ask() == "cost_per_day 300"
        assert await till.ask("b") == ""

    run(case)


@pytest.mark.parametrize("per_minute", [0.5, 1, 7, 600])
def test_in_an_hour_there_are_as_many_as_the_rate_has(per_minute: float) -> None:
    now = 0.0
    rates = MinuteRates(lambda: now)
    count = 0
    for second in range(3600 * 2):
        now = second / 2
        while not rates.wait_s(("a", ""), per_minute):
            rates.take(("a", ""), per_minute)
            count += 1
    # At first a bucket is full.
    assert per_minute * 60 <= count <= per_minute * 61 + 1
