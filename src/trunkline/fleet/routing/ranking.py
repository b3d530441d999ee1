"""The order in which agents that could do a piece of work are shown. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

# Fewer runs than these say nothing about an agent.
WARM = 5
_MINUTE_MS = 60_000


class TrackRecord(Struct, frozen=True, kw_only=True):
    """An agent's runs of a skill.

    `declared` is the agent's confidence in itself, `effect` that in the effect which a request names,
    `confidence` is the mean that it reported with its successes, `wall_ms` how long a run takes.
    """

    runs: int = 0
    success_rate: float = 0.0
    confidence_runs: int = 0
    confidence: float = 0.0
    wall_ms: float = 0.0
    declared: float = 0.0
    effect: float = 0.0


class Score(Struct, frozen=True):
    """A score and what it is the sum of."""

    value: float
    parts: dict[str, float]


def score(track: TrackRecord) -> Score:
    """Score an agent by its runs and by the effect it declares; with few runs, by the latter alone."""
    if track.runs < WARM:
        parts = {"declared": track.declared}
        return _sum(parts, track)
    parts = {
        "success": 2.0 * track.success_rate,
        "confidence": 0.5 * track.confidence if track.confidence_runs >= WARM else 0.0,
        "latency": -0.3 * min(max(track.wall_ms / _MINUTE_MS, 0.0), 2.0),
    }
    return _sum(parts, track)


def _sum(parts: dict[str, float], track: TrackRecord) -> Score:
    if track.effect:
        parts = {**parts, "effect": track.effect}
    return Score(sum(parts.values()), parts)


def ranked(tracks: Iterable[tuple[str, TrackRecord]]) -> list[tuple[str, Score]]:
    """Agents with their scores, the best first; of equals the one that is surer of itself, then by name."""
    scored = [(name, track.declared, score(track)) for name, track in tracks]
    scored.sort(key=lambda one: (-one[2].value, -one[1], one[0]))
    return [(name, made) for name, _, made in scored]
