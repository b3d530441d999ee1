"""Plain numbers: what is counted, and the shape of a histogram."""

from __future__ import annotations

from trunkline.errors import Conflict, Duplicate, StoreError
from trunkline.telemetry.counts import Counts, Histogram


def test_a_histogram_counts_up_to_each_bound() -> None:
    seen = Histogram((1, 2.5, 4))
    for value in (0, 1, 1.5, 2.5, 4.01, 100):
        seen.add(value)
    assert seen.cumulative() == [("1", 2), ("2.5", 4), ("4", 4), ("+Inf", 6)]
    assert seen.total == 109.01


def test_a_group_is_counted_by_what_became_of_its_appends() -> None:
    counts = Counts(())
    counts.group([1, Conflict(3), 7, StoreError("full"), Duplicate("t", 1, b"")], 0.002)
    assert counts.appends == {"written": 2, "conflict": 1, "duplicate": 1, "failed": 1}
    assert counts.commit_seconds.total == 0.002
    assert counts.commit_appends.total == 5


def test_refusals_are_requests_that_were_not_answered() -> None:
    counts = Counts(())
    for operation, outcome in (
        ("GetTask", "OK"),
        ("GetTask", "NO"),
        ("SendMessage", "NO"),
        ("GetTask", "OK"),
    ):
        counts.request(operation, outcome)
    assert counts.requests == {("GetTask", "OK"): 2, ("GetTask", "NO"): 1, ("SendMessage", "NO"): 1}
    assert counts.refusals() == {"NO": 2}
