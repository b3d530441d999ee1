"""The agents of a catalogue as the choice sees them: their state, their breaker and their health."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trunkline.clock import now_ms
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.health.health_records import AgentHealth, HealthRecords
from trunkline.fleet.routing.choose import Standing
from trunkline.fleet.routing.ranking import TrackRecord

# How many agents and skills are kept in mind.
_MADE_LIMIT = 1024
# Health is counted every few seconds: what was said with it holds for this long, however much is dispatched.
_HOLDS_MS = 1000
_BREAKER = "its breaker is open after failures in a row"


class CatalogueFleet:
    """A catalogue, and the health of its agents where somebody keeps it."""

    def __init__(
        self,
        catalogue: Catalogue,
        healths: HealthRecords | None = None,
        *,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self._catalogue = catalogue
        self._healths = healths
        self._now = now
        # What was said last of an agent and a skill, when and of what: the same again while that is the same.
        self._made: dict[tuple[str, str, str], tuple[Listed, int, AgentHealth | None, Standing]] = {}

    def find(self, tenant: str, name: str, skill: str) -> Standing | None:
        """An agent by its name."""
        found = self._catalogue.find(tenant, name)
        return None if found is None else self._standing(tenant, found, skill)

    def with_skill(self, tenant: str, skill: str) -> Sequence[Standing]:
        """The agents that have a skill."""
        return [self._standing(tenant, one, skill) for one in self._catalogue.with_skill(tenant, skill)]

    @property
    def is_sound(self) -> bool:
        """Whether no agent has failed of late, so that no breaker counts."""
        return self._catalogue.is_sound

    @property
    def is_settled(self) -> bool:
        """Whether every agent has been heard of, or failed to be."""
        return self._catalogue.is_settled

    def is_discovering(self, tenant: str) -> bool:
        """Return whether an agent of a tenant has neither shown its card yet nor failed to."""
        return any([one.state == "discovering" for one in self._catalogue.listed(tenant)])

    def tell_try(self, tenant: str, name: str) -> None:
        """Work has gone to an agent: while its breaker is half open it is the only one for a while."""
        self._catalogue.take_try(tenant, name)

    def _standing(self, tenant: str, listed: Listed, skill: str) -> Standing:
        key, now = (tenant, listed.entry.name, skill), self._now()
        made = self._made.get(key)
        is_same = made is not None and made[0] is listed and listed.breaker == "closed"
        if made is not None and is_same and 0 <= now - made[1] < _HOLDS_MS:
            return made[3]
        known = None if self._healths is None else self._healths.of(tenant, listed.entry.name, skill)
        if made is not None and is_same and made[2] is known:
            standing = made[3]
        else:
            standing = self._compare(tenant, listed, skill, known)
        # A skill is any text that a caller names.
        if len(self._made) >= _MADE_LIMIT:
            self._made.clear()
        self._made[key] = listed, now, known, standing
        return standing

    def _compare(self, tenant: str, listed: Listed, skill: str, known: AgentHealth | None) -> Standing:
        entry, track = listed.entry, self._track(tenant, listed.entry.name, skill, known)
        rate = None if known is None else known.success_rate
        succeeded = 0.0 if known is None else known.total * (rate or 0.0)
        excluded = self._exclusion(tenant, listed)
        return Standing(
            agent=entry.name,
            skills=listed.known_skills,
            excluded=excluded,
            is_passing=excluded == _BREAKER,
            is_unreachable=listed.state == "unreachable",
            success_rate=rate,
            cost_usd=known.cost_usd / succeeded if known is not None and succeeded else None,
            latency_ms=None if known is None else known.p50_ms,
            track=track,
            effects=next((one.effects for one in listed.skills if one.id == skill), ()),
            concurrency=entry.concurrency,
            cooldown_s=entry.cooldown_s.get(skill, 0.0),
        )

    def _track(self, tenant: str, agent: str, skill: str, known: AgentHealth | None) -> TrackRecord:
        if self._healths is None or known is None:
            return TrackRecord()
        sure, confidence = self._healths.sureness(tenant, agent, skill)
        return TrackRecord(
            runs=known.total,
            success_rate=known.success_rate or 0.0,
            confidence_runs=sure,
            confidence=confidence,
            wall_ms=float(known.p50_ms or 0),
        )

    def _exclusion(self, tenant: str, listed: Listed) -> str:
        if listed.state in ("disabled", "invalid"):
            return f"it is {listed.state} ({listed.reason})" if listed.reason else f"it is {listed.state}"
        if listed.breaker != "closed" and not self._catalogue.admits(tenant, listed.entry.name):
            return _BREAKER
        return ""
