"""The order of candidates equals section 10.1 of the reference, case by case."""

from __future__ import annotations

import pytest

from trunkline.fleet.routing.ranking import TrackRecord, ranked, score

TABLE = [
    (TrackRecord(), 0.0),
    (TrackRecord(declared=0.7), 0.7),
    (TrackRecord(runs=4, success_rate=1.0, declared=0.2), 0.2),
    (TrackRecord(runs=5, success_rate=1.0, declared=0.2), 2.0),
    (TrackRecord(runs=5, success_rate=0.0, declared=0.9), 0.0),
    (TrackRecord(runs=10, success_rate=0.5, confidence_runs=4, confidence=1.0), 1.0),
    (TrackRecord(runs=10, success_rate=0.5, confidence_runs=5, confidence=1.0), 1.5),
    (TrackRecord(runs=10, success_rate=0.5, confidence_runs=9, confidence=0.4), 1.2),
    (TrackRecord(runs=10, success_rate=1.0, wall_ms=30_000), 1.85),
    (TrackRecord(runs=10, success_rate=1.0, wall_ms=120_000), 1.4),
    (TrackRecord(runs=10, success_rate=1.0, wall_ms=900_000), 1.4),
    (TrackRecord(runs=10, success_rate=1.0, wall_ms=-1), 2.0),
    (TrackRecord(runs=10, success_rate=0.9, confidence_runs=10, confidence=0.8, wall_ms=6_000), 2.17),
]


@pytest.mark.parametrize(("track", "value"), TABLE)
def test_hb31_the_score_of_a_track(track: TrackRecord, value: float) -> None:
    made = score(track)
    assert made.value == pytest.approx(value)
    assert sum(made.parts.values()) == pytest.approx(value)


def test_hb31_the_best_comes_first_and_equals_by_what_they_declare() -> None:
    tracks = {
        "slow": TrackRecord(runs=9, success_rate=1.0, wall_ms=60_000),
        "humble": TrackRecord(runs=9, success_rate=1.0, declared=0.1),
        "proud": TrackRecord(runs=9, success_rate=1.0, declared=0.9),
        "new": TrackRecord(declared=0.8),
        "also": TrackRecord(declared=0.8),
    }
    assert [name for name, _ in ranked(tracks.items())] == ["proud", "humble", "slow", "also", "new"]
