"""The routes of the operator's API about the health of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.principal import Principal, tenant_of
from trunkline.auth.principal import Scope as AuthScope
from trunkline.fleet.call import ApiCall, ApiPage, ApiQuery, Limit, PageQuery, read_form
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.health.periods import PERIOD_MS
from trunkline.fleet.health.snapshot import (
    FleetSnapshot,
    Metric,
    SeriesPoint,
    confidence_items,
    cost_items,
    series,
    snapshot,
)
from trunkline.fleet.route import api_route
from trunkline.store.base import Store

Item = TypeVar("Item")


class FleetQuery(ApiQuery, frozen=True, kw_only=True):
    """Which agent and which skill are meant; what is empty does not narrow."""

    agent: str = ""
    skill: str = ""


class FleetPageQuery(FleetQuery, frozen=True, kw_only=True):
    """A query of a page of agents: how many, and behind which name."""

    limit: Limit = 200
    after: str = ""


class SeriesQuery(FleetQuery, frozen=True, kw_only=True):
    """Which metric of them."""

    metric: Metric = "total"


class SummaryQuery(PageQuery, frozen=True, kw_only=True):
    """Which agent and which skill are meant, and how many samples there must be."""

    agent: str = ""
    skill: str = ""
    min_samples: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0


class SeriesPage(Struct, frozen=True, rename="camel"):
    """A metric over the window, oldest first."""

    metric: str
    step_seconds: int
    items: list[SeriesPoint]
    next: str | None = None


class CallItem(Struct, frozen=True, rename="camel"):
    """How often tasks of an agent had tasks of another done, and how many of these failed."""

    caller: str
    agent: str
    total: int
    failed: int


class HealthApi:
    """The operations of the API on the health of one fleet."""

    def __init__(self, health: FleetHealth) -> None:
        self._health = health

    @api_route("GET /fleet/health", AuthScope.READ)
    async def fleet(self, call: ApiCall, asked: FleetPageQuery) -> FleetSnapshot:
        """How the agents did."""
        health, records = self._health, await self._health.fresh()
        registered, limits = health.registered(call.tenant), health.limits(call.tenant)
        reader = None if call.sees_all else call.principal.name
        found = snapshot(
            records, call.tenant, registered, limits, agent=asked.agent, skill=asked.skill, reader=reader
        )
        return found.cut(asked.limit, asked.after)

    @api_route("GET /series", AuthScope.READ)
    async def series(self, call: ApiCall, asked: SeriesQuery) -> SeriesPage:
        """A metric in steps of five minutes."""
        points: list[SeriesPoint] = []
        records = await self._health.fresh()
        for point in series(records, call.tenant, asked.agent, asked.skill, asked.metric):
            points.append(point)
            # Many outcomes take a while to sum up: others come in between.
            await asyncio.sleep(0)
        return SeriesPage(asked.metric, PERIOD_MS // 1000, points)

    @api_route("GET /cost-summaries", AuthScope.READ)
    async def costs(self, call: ApiCall, asked: SummaryQuery) -> ApiPage:
        """What the skills of each agent cost."""
        records = await self._health.fresh()
        return _summaries(cost_items(records.window(call.tenant), asked.min_samples), asked)

    @api_route("GET /confidence-summaries", AuthScope.READ)
    async def confidences(self, call: ApiCall, asked: SummaryQuery) -> ApiPage:
        """How sure the skills of each agent were, and how rightly."""
        found = confidence_items((await self._health.fresh()).window(call.tenant))
        return _summaries([one for one in found if one.samples >= asked.min_samples], asked)

    @api_route("GET /calls", AuthScope.READ)
    async def calls(self, call: ApiCall, asked: PageQuery) -> ApiPage:
        """Which agent had work done by which."""
        records = await self._health.fresh()
        found = [CallItem(one.caller, one.agent, one.total, one.failed) for one in records.calls(call.tenant)]
        found.sort(key=lambda one: (one.caller, one.agent))
        return _cut(found, asked, lambda one: f"{one.caller} {one.agent}")


def _summaries(found: Sequence[Any], asked: SummaryQuery) -> ApiPage:
    fitting = [one for one in found if asked.agent in ("", one.agent) and asked.skill in ("", one.skill)]
    return _cut(fitting, asked, lambda one: f"{one.agent} {one.skill}")


def _cut(found: list[Item], query: PageQuery, name: Callable[[Item], str]) -> ApiPage:
    """The items behind the one that `after` names, in the order of their names."""
    left = [one for one in found if tuple(name(one).split(" ", 1)) > tuple(query.after.split(" ", 1))]
    page = left[: query.limit]
    return ApiPage(page, name(page[-1]) if len(left) > len(page) else None)


async def health_on_store(
    store: Store, query: Mapping[str, str], window_s: float, *, principal: Principal
) -> bytes:
    """The answer of `GET /api/fleet/health` by a store that no server has open.

    What nobody has counted yet is counted here; every agent that did something is one of the fleet.

    Raises:
        Refused: it cannot be done as asked.
        StoreError: the store does not answer.
    """
    asked = read_form(query, FleetPageQuery)
    tenant = tenant_of(principal, asked.tenant)
    health = FleetHealth(store, origin="", window_s=window_s, registered=lambda _: ())
    records = await health.caught_up()
    agents = list(records.window(tenant))
    found = snapshot(records, tenant, agents, AlertLimits(), agent=asked.agent, skill=asked.skill)
    return msgspec.json.encode(found.cut(asked.limit, asked.after))
