"""What the operator's API answers about the health of a fleet, made from its records. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypedDict

from msgspec import Struct, field
from msgspec.structs import replace

from trunkline.fleet.call import ApiStruct
from trunkline.fleet.health.alerts import AlertFigures, AlertLimits, FleetAlert, alerts_of
from trunkline.fleet.health.health_records import Fleet, HealthRecords, health_of, merged
from trunkline.fleet.health.outcome import ASKED, CLASSES, COMPLETED, FAILED
from trunkline.fleet.health.periods import PERIOD_MS, Cell, FailedRun, start_of, summarize
from trunkline.fleet.health.tally import Summary, Tally
from trunkline.wire.spellings import timestamp

Metric = Literal[
    "total", "completed", "failed", "canceled", "rejected", "inputRequired", "successRate", "p50Ms", "p95Ms",
    "costUsd", "confidence",
]  # fmt: skip


class FailureItem(ApiStruct, frozen=True, kw_only=True):
    """A task that failed."""

    timestamp: str
    skill: str
    task_id: str
    correlation_id: str
    failure_reason: str


class OutcomeFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures of an agent or of one of its skills; null where nothing is known."""

    total_outcomes: int
    success_rate: float | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    total_cost_usd: float
    cost_per_successful_outcome: float
    failure_rate_1h: float = field(name="failureRate1h")
    classes: dict[str, int]


class SkillFigures(OutcomeFigures, frozen=True, kw_only=True):
    """The figures of one skill of an agent."""

    skill: str


class AgentFigures(OutcomeFigures, frozen=True, kw_only=True):
    """The figures of an agent; `hourly` is how many of its tasks ended in each of the last 24 hours."""

    agent: str
    recent_failures: list[FailureItem]
    hourly: list[int]
    skills: list[SkillFigures]


class SkillOf(ApiStruct, frozen=True, kw_only=True):
    """A skill of an agent."""

    agent: str
    skill: str


class SystemActor(ApiStruct, frozen=True, kw_only=True):
    """Who did work and is no agent of the fleet now: the hub itself, or an agent that has gone."""

    system_actor: str
    total_outcomes: int
    success_count: int
    failure_count: int


class FleetSnapshot(Struct, frozen=True, kw_only=True, rename="camel"):
    """The health of a fleet over the window."""

    agents: list[AgentFigures]
    window_hours: float
    max_failure_rate_1h: float = field(name="maxFailureRate1h")
    total_cost_usd_1d: float = field(name="totalCostUsd1d")
    orphaned_skill_count: int
    orphaned_skills: list[SkillOf]
    system_actors: list[SystemActor]
    alerts: list[FleetAlert]
    collected_at: str
    # The name that the following page of agents begins behind.
    next: str | None = None

    def cut(self, limit: int, after: str) -> FleetSnapshot:
        """The same with one page of its agents, by name; the figures are of all of them."""
        left = [one for one in self.agents if one.agent > after]
        page = left[:limit]
        return replace(self, agents=page, next=page[-1].agent if len(left) > len(page) else None)


class SeriesPoint(Struct, frozen=True):
    """The value of a metric in the five minutes that began `at`; null where there is none."""

    at: str
    value: float | None


class CostItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the tasks of a skill of an agent cost; the averages are over those that said it."""

    agent: str
    skill: str
    samples: int
    total_cost_usd: float
    avg_cost_usd: float
    avg_input_tokens: float
    avg_output_tokens: float
    avg_wall_ms: float
    success_rate: float


class ConfidenceItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """How sure a skill of an agent was; `highConfFailures` failed although it was."""

    agent: str
    skill: str
    samples: int
    avg_confidence: float
    avg_confidence_on_success: float | None
    avg_confidence_on_failure: float | None
    high_conf_failures: int


def snapshot(
    records: HealthRecords,
    tenant: str,
    registered: Collection[str],
    limits: AlertLimits,
    *,
    agent: str = "",
    skill: str = "",
    reader: str | None = None,
) -> FleetSnapshot:
    """Return the health of a fleet, or of one of its agents or skills.

    Alerts always cover the whole fleet. `reader` is the principal whose tasks show why they failed; None
    shows the reason of every failed task.
    """
    window, recent = records.window(tenant), records.last_hour(tenant)
    figures, orphaned = watched(records, tenant, registered)
    hourly = records.hourly(tenant, skill)
    failures: dict[str, list[FailedRun]] = {}
    for one in records.failures(tenant):
        if skill in ("", one.skill):
            failures.setdefault(one.agent, []).append(one)
    return FleetSnapshot(
        agents=[
            _agent(
                of,
                _narrowed(window.get(of), skill),
                _narrowed(recent.get(of), skill),
                [_failure(one, reader) for one in failures.get(of, [])],
                hourly.get(of, [0] * 24),
            )
            for of in sorted(registered)
            if agent in ("", of) and (not skill or skill in window.get(of, ()))
        ],
        window_hours=records.window_ms / 3_600_000,
        max_failure_rate_1h=figures.max_failure_rate_1h,
        total_cost_usd_1d=figures.daily_cost_usd,
        orphaned_skill_count=len(orphaned),
        orphaned_skills=[SkillOf(agent=of, skill=named) for of, named in orphaned],
        system_actors=[_actor(of, window[of]) for of in sorted(window) if of not in registered],
        alerts=alerts_of(figures, limits),
        collected_at=timestamp(records.now_ms()),
    )


def watched(
    records: HealthRecords, tenant: str, registered: Collection[str]
) -> tuple[AlertFigures, list[Cell]]:
    """The figures that alerts are about, and the skills that were tried in the window and never succeeded."""
    window, recent = records.window(tenant), records.last_hour(tenant)
    of_agents = [merged(skills).tally for skills in recent.values()]
    rates = [tally.kinds[FAILED] / tally.total for tally in of_agents if tally.total]
    orphaned = sorted(
        (agent, skill)
        for agent, skills in window.items()
        if agent in registered
        for skill, summary in skills.items()
        if summary.tally.total and not summary.tally.kinds[COMPLETED]
    )
    cost = sum([summary.tally.cost for skills in window.values() for summary in skills.values()])
    figures = AlertFigures(
        max_failure_rate_1h=max(rates, default=0.0), daily_cost_usd=cost, orphaned_skills=len(orphaned)
    )
    return figures, orphaned


def series(
    records: HealthRecords, tenant: str, agent: str, skill: str, metric: Metric
) -> Iterator[SeriesPoint]:
    """A metric over the window, a point for every five minutes, oldest first."""
    now = records.now_ms()
    since = now - records.window_ms
    kept = dict(records.periods(tenant))
    for start in range(start_of(since), now + 1, PERIOD_MS):
        found: dict[Cell, Summary] = {}
        if start in kept:
            summarize(
                kept[start],
                start,
                since,
                found,
                lambda cell: agent in ("", cell[0]) and skill in ("", cell[1]),
            )
        whole = Summary()
        for summary in found.values():
            whole.plus(summary)
        yield SeriesPoint(timestamp(start), _value(whole, metric))


def cost_items(window: Fleet, min_samples: int) -> list[CostItem]:
    """What the skills of each agent cost, by agent and skill."""
    return [
        CostItem(
            agent=agent,
            skill=skill,
            samples=tally.costed,
            total_cost_usd=tally.cost,
            avg_cost_usd=tally.cost / tally.costed,
            avg_input_tokens=tally.tokens_in / tally.costed,
            avg_output_tokens=tally.tokens_out / tally.costed,
            avg_wall_ms=tally.wall_ms / tally.total,
            success_rate=tally.kinds[COMPLETED] / tally.total,
        )
        for (agent, skill), tally in _tallies(window)
        if tally.costed >= max(min_samples, 1)
    ]


def confidence_items(window: Fleet) -> list[ConfidenceItem]:
    """How sure the skills of each agent were, by agent and skill."""
    return [
        ConfidenceItem(
            agent=agent,
            skill=skill,
            samples=round(tally.sure[0]),
            avg_confidence=tally.sure[1] / tally.sure[0],
            avg_confidence_on_success=_average(tally.sure_completed),
            avg_confidence_on_failure=_average(tally.sure_failed),
            high_conf_failures=tally.sure_and_failed,
        )
        for (agent, skill), tally in _tallies(window)
        if tally.sure[0]
    ]


def _tallies(window: Fleet) -> list[tuple[Cell, Tally]]:
    found = [((agent, skill), one.tally) for agent, skills in window.items() for skill, one in skills.items()]
    return sorted(found, key=lambda one: one[0])


def _narrowed(skills: Mapping[str, Summary] | None, skill: str) -> Mapping[str, Summary]:
    return {named: summary for named, summary in (skills or {}).items() if skill in ("", named)}


def _average(counted: list[float]) -> float | None:
    return counted[1] / counted[0] if counted[0] else None


def _agent(
    agent: str,
    skills: Mapping[str, Summary],
    recent: Mapping[str, Summary],
    failures: list[FailureItem],
    hourly: list[int],
) -> AgentFigures:
    return AgentFigures(
        agent=agent,
        **_figures(merged(skills), merged(recent)),
        recent_failures=failures,
        hourly=hourly,
        skills=[
            SkillFigures(skill=named, **_figures(skills[named], recent.get(named) or Summary()))
            for named in sorted(skills)
        ],
    )


def _failure(one: FailedRun, reader: str | None) -> FailureItem:
    # A reason is text of the task, which only its owner and admins may read.
    reason = one.reason if reader in (None, one.principal) else ""
    return FailureItem(
        timestamp=timestamp(one.at),
        skill=one.skill,
        task_id=one.task,
        correlation_id=one.correlation,
        failure_reason=reason or CLASSES[FAILED],
    )


class _Figures(TypedDict):
    total_outcomes: int
    success_rate: float | None
    p50_latency_ms: int | None
    p95_latency_ms: int | None
    total_cost_usd: float
    cost_per_successful_outcome: float
    failure_rate_1h: float
    classes: dict[str, int]


def _figures(window: Summary, recent: Summary) -> _Figures:
    tally, health = window.tally, health_of(window, recent)
    good = tally.kinds[COMPLETED]
    return {
        "total_outcomes": health.total,
        "success_rate": health.success_rate,
        "p50_latency_ms": health.p50_ms,
        "p95_latency_ms": health.p95_ms,
        "total_cost_usd": health.cost_usd,
        "cost_per_successful_outcome": tally.cost / good if good else 0.0,
        "failure_rate_1h": health.failure_rate_1h,
        "classes": dict(zip(CLASSES, tally.kinds, strict=True)),
    }


def _actor(actor: str, skills: Mapping[str, Summary]) -> SystemActor:
    tally = merged(skills).tally
    return SystemActor(
        system_actor=actor,
        total_outcomes=tally.total,
        success_count=tally.kinds[COMPLETED],
        failure_count=tally.kinds[FAILED],
    )


def _value(found: Summary, metric: Metric) -> float | None:
    tally = found.tally
    match metric:
        case "total":
            return tally.total
        case "successRate":
            return tally.kinds[COMPLETED] / tally.total if tally.total else None
        case "p50Ms":
            return found.percentiles([0.5])[0]
        case "p95Ms":
            return found.percentiles([0.95])[0]
        case "costUsd":
            return tally.cost
        case "confidence":
            return _average(tally.sure)
        case "inputRequired":
            return tally.kinds[ASKED]
        case _:
            return tally.kinds[CLASSES.index(metric)]
