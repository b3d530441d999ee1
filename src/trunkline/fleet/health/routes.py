"""The routes of the operator's API about the health of a fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.principal import Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.fleet.call import ApiCall, ApiPage, ApiQuery, Limit, PageQuery, read_form, tenant_of
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.health.health_records import HealthRecords
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
from trunkline.fleet.route import ApiRoute
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


def health_routes(health: FleetHealth) -> list[ApiRoute]:
    """The routes over the health of one fleet."""
    return [
        _route("fleet/health", "How the agents did.", _fleet(health), FleetSnapshot, FleetPageQuery),
        _route("series", "A metric in steps of five minutes.", _series(health), SeriesPage, SeriesQuery),
        _route(
            "cost-summaries",
            "What the skills of each agent cost.",
            _page(
                health,
                lambda records, call, query: cost_items(records.window(call.tenant), query.min_samples),
            ),
            ApiPage,
            SummaryQuery,
        ),
        _route(
            "confidence-summaries",
            "How sure the skills of each agent were, and how rightly.",
            _page(
                health,
                lambda records, call, query: [
                    one
                    for one in confidence_items(records.window(call.tenant))
                    if one.samples >= query.min_samples
                ],
            ),
            ApiPage,
            SummaryQuery,
        ),
        _route("calls", "Which agent had work done by which.", _calls(health), ApiPage, PageQuery),
    ]


Act = Callable[[ApiCall, Any, Any], Awaitable[object]]


def _route(path: str, summary: str, act: Act, answer: Any, query: type[ApiQuery]) -> ApiRoute:
    return ApiRoute(
        pattern=f"GET /{path}", scope=AuthScope.READ, summary=summary, act=act, answer=answer, query=query
    )


def _fleet(health: FleetHealth) -> Act:
    async def act(call: ApiCall, query: FleetPageQuery, _form: None) -> FleetSnapshot:
        records = await health.fresh()
        registered = health.registered(call.tenant)
        found = snapshot(
            records, call.tenant, registered, health.limits, agent=query.agent, skill=query.skill
        )
        return found.cut(query.limit, query.after)

    return act


def _series(health: FleetHealth) -> Act:
    async def act(call: ApiCall, query: SeriesQuery, _form: None) -> SeriesPage:
        points: list[SeriesPoint] = []
        for point in series(await health.fresh(), call.tenant, query.agent, query.skill, query.metric):
            points.append(point)
            # Many outcomes take a while to sum up: others come in between.
            await asyncio.sleep(0)
        return SeriesPage(query.metric, PERIOD_MS // 1000, points)

    return act


def _page(health: FleetHealth, items: Callable[[HealthRecords, ApiCall, SummaryQuery], Sequence[Any]]) -> Act:
    async def act(call: ApiCall, query: SummaryQuery, _form: None) -> ApiPage:
        found = [
            one
            for one in items(await health.fresh(), call, query)
            if query.agent in ("", one.agent) and query.skill in ("", one.skill)
        ]
        return _cut(found, query, lambda one: f"{one.agent} {one.skill}")

    return act


def _calls(health: FleetHealth) -> Act:
    async def act(call: ApiCall, query: PageQuery, _form: None) -> ApiPage:
        records = await health.fresh()
        found = [CallItem(one.caller, one.agent, one.total, one.failed) for one in records.calls(call.tenant)]
        return _cut(
            sorted(found, key=lambda one: (one.caller, one.agent)),
            query,
            lambda one: f"{one.caller} {one.agent}",
        )

    return act


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
