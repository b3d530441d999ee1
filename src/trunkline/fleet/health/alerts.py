"""What an operator should be told of a fleet without having asked."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from trunkline.config import seconds
from trunkline.errors import Conflict
from trunkline.fleet.call import ApiStruct
from trunkline.store.documents import DocumentKind
from trunkline.store.parts import Docs

log = logging.getLogger("trunkline.fleet")
KIND = "fleet-alert"
# When an alert of a kind was raised last, in milliseconds.
FLEET_ALERTS: DocumentKind[int] = DocumentKind(KIND, lambda _, body: int(body))
AlertKind = Literal["failure-rate", "daily-cost", "orphaned-skills"]


FailureRate = Annotated[float, Meta(ge=0, le=1)]
DailyCost = Annotated[float, Meta(ge=0, le=1e12)]
SkillCount = Annotated[int, Meta(ge=0, le=10**9)]


class AlertLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a figure may be before somebody is told, and how long nothing is said twice."""

    failure_rate_1h: FailureRate = 0.5
    daily_cost_usd: DailyCost = 50.0
    orphaned_skills: SkillCount = 0
    cooldown: float | str = "15m"

    def __post_init__(self) -> None:
        check_cooldown(self.cooldown)

    @property
    def cooldown_ms(self) -> int:
        """For how many milliseconds nothing is said twice."""
        return round(seconds(self.cooldown) * 1000)


def check_cooldown(cooldown: float | str) -> None:
    """Let a duration pass.

    Raises:
        ValueError: it is none.
    """
    try:
        seconds(cooldown)
    except ValueError as error:
        raise ValueError(f"cooldown: {error}") from None


# The limits of a tenant, as they are now.
LimitsOf = Callable[[str], AlertLimits]


class FleetAlert(ApiStruct, frozen=True, kw_only=True):
    """A figure that is above its limit now."""

    kind: AlertKind
    value: float
    limit: float


class AlertFigures(Struct, frozen=True, kw_only=True):
    """The figures of a tenant that are watched."""

    max_failure_rate_1h: float
    daily_cost_usd: float
    orphaned_skills: int


# Takes a tenant, the alert, its number among those of its kind, and the moment.
RaiseAlert = Callable[[str, FleetAlert, int, int], Awaitable[None]]


def alerts_of(found: AlertFigures, limits: AlertLimits) -> list[FleetAlert]:
    """The figures that are above their limits."""
    watched: list[tuple[AlertKind, float, float]] = [
        ("failure-rate", found.max_failure_rate_1h, limits.failure_rate_1h),
        ("daily-cost", found.daily_cost_usd, limits.daily_cost_usd),
        ("orphaned-skills", found.orphaned_skills, limits.orphaned_skills),
    ]
    return [
        FleetAlert(kind=kind, value=value, limit=limit) for kind, value, limit in watched if value > limit
    ]


class AlertLog:
    """Says each alert once per cooldown, whichever of the processes that share a store sees it first.

    `raised` is told before, perhaps more than once: of the alerts of a kind each has another number.
    """

    def __init__(self, docs: Docs, limits: LimitsOf, raised: RaiseAlert | None = None) -> None:
        self._limits = limits
        self._raised = raised
        self._docs = docs

    async def tell(self, tenant: str, found: AlertFigures, now: int) -> list[FleetAlert]:
        """Log what is above its limit and was not said lately; gives what was said."""
        said: list[FleetAlert] = []
        limits = self._limits(tenant)
        for alert in alerts_of(found, limits):
            doc = await self._docs.get(tenant, KIND, alert.kind)
            told_at = None if doc is None else FLEET_ALERTS.read_or_set_aside(tenant, doc)
            if told_at is not None and abs(now - told_at) < limits.cooldown_ms:
                continue
            rev = 0 if doc is None else doc.rev
            if self._raised is not None:
                # First: whoever dies in between raises the same one again.
                await self._raised(tenant, alert, rev + 1, now)
            try:
                await self._docs.put(tenant, KIND, alert.kind, b"%d" % now, rev)
            except Conflict:
                # Another process has just said it.
                continue
            log.warning(
                "fleet.alert tenant=%s kind=%s value=%.4g limit=%.4g",
                tenant,
                alert.kind,
                alert.value,
                alert.limit,
            )
            said.append(alert)
        return said
