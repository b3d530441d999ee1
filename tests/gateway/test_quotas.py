"""Limits of tenants and keys, with a clock in the hand: who is let in, and what the others hear."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from typing import Any

import pytest

from tests.conformance.store.given import submitted
from tests.conformance.store.given import task as stored
from trunkline.clock import first_id
from trunkline.errors import TooManyRequests
from trunkline.fleet.routing.dispatcher import DispatchOrder
from trunkline.gateway.quotas import Quotas
from trunkline.gateway.spending import DaySpending
from trunkline.gateway.tenants import TenantQuota
from trunkline.store.sqlite.store import SqliteStore
from trunkline.wire.types import Message, Part, Role, TaskState

NOW = 1_800_000_000_000


class Till:
    """Quotas over a store in memory."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now = NOW
        self.day: dict[tuple[str, str], tuple[float, int]] = {}
        self.tenants: dict[str, TenantQuota] = {}
        self.keys: dict[tuple[str, str], TenantQuota] = {}
        self.quotas = Quotas(
            store.heads,
            DaySpending(self),
            of_tenant=lambda tenant: self.tenants.get(tenant, TenantQuota()),
            of_key=lambda tenant, name: self.keys.get((tenant, name), TenantQuota()),
            shared=True,
            now_ms=lambda: self.now,
        )

    def count_reads(self) -> list[str]:
        """The tenants whose tasks the store is asked for from now on."""
        asked, heads = list[str](), self.store.heads
        plain = heads.count

        async def counted(tenant: str, *given: Any, **more: Any) -> Any:
            asked.append(tenant)
            return await plain(tenant, *given, **more)

        heads.count = counted
        return asked

    def spent(self, tenant: str, principal: str = "") -> tuple[float, int]:
        return self.day.get((tenant, principal), (0.0, 0))

    async def read_spending(self) -> None:
        """Read nothing: the costs of the day stand as they are set."""

    async def fresh(self) -> None:
        """Read nothing either."""

    async def ask(self, tenant: str = "a", name: str = "ann", *, count: int = 1, **order: Any) -> str:
        """The limit that was met, with the seconds to wait; empty if there was none."""
        said = Message(message_id="m", role=Role.USER, parts=(Part(text="go"),))
        order = DispatchOrder(tenant=tenant, principal=name, message=said, **order)
        try:
            async with self.quotas.admitted(order, count) or nullcontext():
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
        till.keys["a", "ann"] = TenantQuota(requests_per_minute=2)
        assert [await till.ask() for _ in range(3)] == ["", "", "requests_per_minute 61"]
        till.now += 20_000
        # Another key of the tenant has what is left of it, another tenant all of its own.
        assert [await till.ask(name="bob") for _ in range(3)] == ["", "", "requests_per_minute 41"]
        assert [await till.ask("b") for _ in range(9)] == [""] * 9
        # What was refused has not been counted; after a minute there is place again.
        till.now += 41_000
        assert [await till.ask() for _ in range(3)] == ["", "", "requests_per_minute 20"]
        # The clock is nobody's caller; what it asks for counts. What was let in before is not counted again.
        assert [await till.ask("c") for _ in range(2)] == ["", ""]
        till.tenants["c"] = TenantQuota(requests_per_minute=2)
        assert [await till.ask("c", trigger="ceremony:standup") for _ in range(2)] == ["", ""]
        assert await till.ask("c") == "requests_per_minute 61"
        assert await till.ask("c", trigger="ceremony:standup") == ""
        assert await till.ask("c", trigger="ceremony:standup", charged=True) == ""
        till.now += 61_000
        assert [await till.ask("c", trigger="ceremony:standup", charged=True) for _ in range(3)] == [""] * 3
        assert await till.ask("c") == ""

    run(case)


def test_requests_at_other_replicas_and_before_a_restart_are_counted_as_the_store_has_them() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=3)
        till.keys["a", "ann"] = TenantQuota(requests_per_minute=2)
        for number, (ago_s, parent) in enumerate([(70, ""), (52, ""), (3, ""), (2, "01")]):
            born = NOW - ago_s * 1000
            await stored(till.store, f"{first_id(born)}-7{number:03}", tenant="a", parent=parent, at=NOW)
        # Of the minute are two that are no children; they are ann's.
        assert await till.ask() == "requests_per_minute 10"
        assert await till.ask(name="bob") == ""
        assert await till.ask(name="bob") == ""
        till.now += 10_000
        assert await till.ask() == ""

    run(case)


def test_many_at_once_are_not_more_than_the_limit() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=5)
        said = await asyncio.gather(*[till.ask() for _ in range(20)])
        assert said.count("") == 5

    run(case)


def test_so_many_tasks_at_once_of_a_tenant_and_of_a_key() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(concurrent_tasks=3)
        till.keys["a", "ann"] = TenantQuota(concurrent_tasks=2)
        await stored(till.store, "t1", tenant="a")
        await stored(till.store, "t2", tenant="a", state=TaskState.WORKING)
        await stored(till.store, "t3", tenant="a", state=TaskState.COMPLETED)
        await stored(till.store, "t4", tenant="b")
        owner = submitted().principal
        till.keys["a", owner] = TenantQuota(concurrent_tasks=2)
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
        async with till.quotas.admitted(order, 1) or nullcontext():
            assert await till.ask(count=2) == "concurrent_tasks 1"
            assert await asyncio.gather(till.ask(), till.ask()) == ["", "concurrent_tasks 1"]
        assert await till.ask(count=2) == ""

    run(case)


def test_what_a_day_may_cost() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(cost_per_day=2.5)
        till.keys["a", "ann"] = TenantQuota(tokens_per_day=1000)
        till.day = {("a", ""): (2.4, 5000), ("a", "ann"): (0.0, 999), ("b", ""): (99.0, 5000)}
        assert await till.ask() == ""
        till.day["a", "ann"] = (0.0, 1000)
        assert await till.ask() == "tokens_per_day 300"
        assert await till.ask(name="bob") == ""
        till.day["a", ""] = (2.5, 0)
        assert await till.ask(name="bob") == "cost_per_day 300"
        assert await till.ask("b") == ""

    run(case)


def test_in_an_hour_there_are_as_many_as_the_rate_has() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=7)
        count = 0
        for _ in range(3600 * 2):
            till.now += 500
            count += not await till.ask()
        assert 7 * 59 <= count <= 7 * 60 + 7

    run(case)


def test_who_has_nothing_left_is_refused_without_the_store_until_there_is_place() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=2)
        asked = till.count_reads()

        def known(name: str = "ann") -> str:
            try:
                till.quotas.check_known("a", name)
            except TooManyRequests as refused:
                return f"{refused.field} {refused.retry_after_s:g}"
            return ""

        # Nobody knows before somebody was refused.
        assert [known(), await till.ask(), await till.ask(), known()] == [""] * 4
        assert await till.ask() == "requests_per_minute 61"
        before = len(asked)
        assert [known(), known("bob"), await till.ask()] == ["requests_per_minute 60"] * 3
        till.now += 59_999
        assert known() == "requests_per_minute 1" and len(asked) == before
        # At the very moment at which the first goes out of the minute there is place again.
        till.now += 1
        assert [known(), await till.ask(), await till.ask()] == [""] * 3
        assert (await till.ask()).startswith("requests_per_minute")
        # What is known of one limit means nothing for another one.
        till.tenants["a"] = TenantQuota(requests_per_minute=3)
        assert [known(), await till.ask()] == ["", ""]
        till.tenants["a"] = TenantQuota(cost_per_day=1.0)
        till.day["a", ""] = 1.5, 0
        assert known() == "cost_per_day 300"

    run(case)


def test_a_clock_that_is_set_back_keeps_nobody_waiting_for_the_wrong_time() -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=2)
        assert [await till.ask() for _ in range(3)] == ["", "", "requests_per_minute 61"]
        till.now -= 3_600_000
        till.quotas.check_known("a", "ann")
        assert [await till.ask() for _ in range(3)] == ["", "", "requests_per_minute 61"]

    run(case)


def test_a_flood_of_refusals_is_a_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async def case(till: Till) -> None:
        till.tenants["a"] = TenantQuota(requests_per_minute=1)
        await till.ask()
        for _ in range(100):
            till.now += 100
            assert await till.ask()

    with caplog.at_level(logging.INFO, "trunkline.gateway"):
        run(case)
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == 10 and sum(int(one.rpartition("=")[2]) for one in told) == 91
