"""The health of all agents in memory, as the documents of the store have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from trunkline.fleet.health.outcome import COMPLETED, FAILED
from trunkline.fleet.health.periods import (
    KEPT_MS,
    PERIOD_MS,
    Calls,
    Cell,
    FailedRun,
    Period,
    newest_failures,
    read_period,
    start_of,
    summarize,
)
from trunkline.fleet.health.tally import Summary
from trunkline.store.documents import DocumentKind
from trunkline.store.mirror import Mirror
from trunkline.store.parts import Docs

KIND = "health"
HEALTH: DocumentKind[Period] = DocumentKind(KIND, read_period)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# The edge of a window moves on while nothing happens: what was computed holds for this long at most.
_HOLDS_MS = 5000


class AgentHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    """How an agent, or one of its skills, did in the window; None where nothing is known yet.

    `cost_usd` is what all its tasks cost. Tasks that were canceled or rejected count in the total, and are
    neither successes nor failures.
    """

    total: int = 0
    success_rate: float | None = None
    p50_ms: int | None = None
    p95_ms: int | None = None
    cost_usd: float = 0.0
    failure_rate_1h: float = field(default=0.0, name="failureRate1h")


_UNKNOWN = AgentHealth()
# By agent, then by skill.
Fleet = Mapping[str, Mapping[str, Summary]]


class _Computed(Struct):
    version: int
    at: int
    window: Fleet
    last_hour: Fleet
    healths: dict[Cell, AgentHealth]
    sureness: dict[Cell, tuple[int, float]]


class HealthRecords:
    """Every period that is kept, by tenant, and what follows from those of the window."""

    def __init__(self, docs: Docs, window_ms: int, now_ms: Callable[[], int]) -> None:
        self.window_ms = window_ms
        self.now_ms = now_ms
        self.mirror: Mirror[Period] = Mirror(docs, HEALTH, self._changed)
        self._periods: dict[str, dict[int, Period]] = {}
        # Of hours that are whole in a window, so that only its edges are counted row by row.
        self._hours: dict[tuple[str, int], dict[Cell, Summary]] = {}
        self._versions: dict[str, int] = {}
        self._spent: dict[str, tuple[int, int, dict[str, tuple[float, int]]]] = {}
        self._computed: dict[str, _Computed] = {}
        # The same few agents and skills are in hundreds of periods.
        self._cells: dict[Cell, Cell] = {}

    @property
    def tenants(self) -> list[str]:
        """The tenants of which something is known."""
        return list(self._periods)

    def of(self, tenant: str, agent: str, skill: str = "") -> AgentHealth:
        """The health of an agent, or of one of its skills; cheap enough to be asked for each task."""
        if tenant not in self._periods:
            return _UNKNOWN
        computed = self._now(tenant)
        found = computed.healths.get((agent, skill))
        if found is None:
            found = computed.healths[agent, skill] = health_of(
                merged(computed.window.get(agent), skill), merged(computed.last_hour.get(agent), skill)
            )
        return found

    def sureness(self, tenant: str, agent: str, skill: str = "") -> tuple[int, float]:
        """How many successes of an agent or a skill said how sure they were, and how sure on average."""
        if tenant not in self._periods:
            return 0, 0.0
        computed = self._now(tenant)
        found = computed.sureness.get((agent, skill))
        if found is None:
            count, total = merged(computed.window.get(agent), skill).tally.sure_completed
            found = computed.sureness[agent, skill] = (int(count), total / count if count else 0.0)
        return found

    def window(self, tenant: str) -> Fleet:
        """What ended in the window, by agent and skill."""
        return self._now(tenant).window

    def spent(self, tenant: str, principal: str = "") -> tuple[float, int]:
        """What the tasks of a tenant, or of one principal of it, cost in a day: in dollars, and in tokens.

        It falls when the oldest five minutes of the day are over.
        """
        now, version = start_of(self.now_ms()), self._versions.get(tenant, 0)
        known = self._spent.get(tenant)
        if known is None or known[:2] != (now, version):
            found = {"": (0.0, 0)}
            for start, period in self._periods.get(tenant, {}).items():
                if start + DAY_MS > now:
                    for name, (cost, tokens) in period.spent.items():
                        for payer in {"", name}:
                            before = found.get(payer, (0.0, 0))
                            found[payer] = before[0] + cost, before[1] + tokens
            known = self._spent[tenant] = now, version, found
        return known[2].get(principal, (0.0, 0))

    def last_hour(self, tenant: str) -> Fleet:
        """What ended in the last hour, by agent and skill."""
        return self._now(tenant).last_hour

    def hourly(self, tenant: str, skill: str = "") -> dict[str, list[int]]:
        """How many tasks of each agent ended in each of the last 24 hours of the clock, oldest first."""
        first = self.now_ms() // HOUR_MS - 23
        found: dict[str, list[int]] = {}
        for place in range(24):
            for (agent, of_skill), summary in self._hour(tenant, first + place).items():
                if skill in ("", of_skill):
                    found.setdefault(agent, [0] * 24)[place] += summary.tally.total
        return found

    def periods(self, tenant: str) -> list[tuple[int, Period]]:
        """The periods that reach into the window, oldest first, each with its start."""
        since = self.now_ms() - self.window_ms
        kept = self._periods.get(tenant, {})
        return [(start, kept[start]) for start in sorted(kept) if start + PERIOD_MS > since]

    def failures(self, tenant: str) -> list[FailedRun]:
        """The newest failures in the window, newest first: so many of each agent."""
        since = self.now_ms() - self.window_ms
        found = [one for _, period in self.periods(tenant) for one in period.failures if one.at >= since]
        return newest_failures(found)

    def calls(self, tenant: str) -> list[Calls]:
        """Who had work done by whom in the window, the most frequent first."""
        found: dict[tuple[str, str], Calls] = {}
        for _, period in self.periods(tenant):
            for one in period.calls:
                known = found.setdefault((one.caller, one.agent), Calls(one.caller, one.agent))
                known.total += one.total
                known.failed += one.failed
        return sorted(found.values(), key=lambda one: (-one.total, one.caller, one.agent))

    def outdated(self) -> list[tuple[str, int]]:
        """The periods that need not be kept any longer, by tenant and start."""
        before = self.now_ms() - KEPT_MS - PERIOD_MS
        damaged = [(tenant, int(one)) for tenant, one in self.mirror.damaged if one.isdecimal()]
        known = [(tenant, start) for tenant, kept in self._periods.items() for start in kept]
        return [(tenant, start) for tenant, start in [*known, *damaged] if start <= before]

    def _now(self, tenant: str) -> _Computed:
        now, version = self.now_ms(), self._versions.get(tenant, 0)
        found = self._computed.get(tenant)
        if found is None or found.version != version or not 0 <= now - found.at < _HOLDS_MS:
            window = self._since(tenant, now - self.window_ms)
            found = _Computed(version, now, window, self._since(tenant, now - HOUR_MS), {}, {})
            if tenant in self._periods:
                self._computed[tenant] = found
        return found

    def _since(self, tenant: str, since: int) -> Fleet:
        kept = self._periods.get(tenant, {})
        found: dict[Cell, Summary] = {}
        for hour in sorted({start // HOUR_MS for start in kept if start + PERIOD_MS > since}):
            if hour * HOUR_MS >= since:
                for cell, summary in self._hour(tenant, hour).items():
                    found.setdefault(cell, Summary()).plus(summary)
            else:
                for start in _starts(kept, hour):
                    summarize(kept[start], start, since, found)
        by_agent: dict[str, dict[str, Summary]] = {}
        for (agent, skill), summary in found.items():
            by_agent.setdefault(agent, {})[skill] = summary
        return by_agent

    def _hour(self, tenant: str, hour: int) -> Mapping[Cell, Summary]:
        known = self._hours.get((tenant, hour))
        if known is None:
            kept = self._periods.get(tenant, {})
            known = dict[Cell, Summary]()
            for start in _starts(kept, hour):
                summarize(kept[start], start, 0, known)
            if known:
                self._hours[tenant, hour] = known
        return known

    def _changed(self, tenant: str, doc_id: str, value: Period | None) -> None:
        if value is None and not doc_id.isdecimal():
            # It was damaged, so it was never counted.
            return
        start = int(doc_id)
        kept = self._periods.setdefault(tenant, {})
        if value is None:
            kept.pop(start, None)
        else:
            value.cells = [self._cells.setdefault(cell, cell) for cell in value.cells]
            kept[start] = value
        self._hours.pop((tenant, start // HOUR_MS), None)
        self._versions[tenant] = self._versions.get(tenant, 0) + 1
        if not kept:
            del self._periods[tenant]
            self._computed.pop(tenant, None)
            self._spent.pop(tenant, None)


def merged(skills: Mapping[str, Summary] | None, skill: str = "") -> Summary:
    """What is known of an agent by its skills, or of one of these alone."""
    if skill:
        return (skills or {}).get(skill) or Summary()
    whole = Summary()
    for summary in (skills or {}).values():
        whole.plus(summary)
    return whole


def health_of(window: Summary, last_hour: Summary) -> AgentHealth:
    """The figures of a window and of its last hour."""
    tally, recent = window.tally, last_hour.tally
    p50, p95 = window.percentiles((0.5, 0.95))
    return AgentHealth(
        total=tally.total,
        success_rate=tally.kinds[COMPLETED] / tally.total if tally.total else None,
        p50_ms=p50,
        p95_ms=p95,
        cost_usd=tally.cost,
        failure_rate_1h=recent.kinds[FAILED] / recent.total if recent.total else 0.0,
    )


def _starts(kept: Mapping[int, Period], hour: int) -> list[int]:
    first = hour * HOUR_MS
    return [start for start in range(first, first + HOUR_MS, PERIOD_MS) if start in kept]
