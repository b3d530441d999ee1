"""Where a stream goes on after a break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.client.resume import ResumePoint, ResumeStep, cannot_stream, poll_pause_s
from trunkline.errors import (
    InvalidParams,
    MethodNotFound,
    RouteNotFound,
    TrunklineError,
    Unavailable,
    Unreachable,
    UnsupportedOperation,
)

BROKE = Unreachable("broke", reason="protocol")
AWAY = Unavailable("away")
REFUSED = UnsupportedOperation("no")


@pytest.mark.parametrize(
    ("step", "moved", "error", "last_id", "then"),
    [
        (ResumeStep.STREAM, True, BROKE, "4", ResumeStep.RESUME),
        (ResumeStep.STREAM, True, BROKE, "", ResumeStep.SUBSCRIBE),
        (ResumeStep.RESUME, True, BROKE, "5", ResumeStep.RESUME),
        (ResumeStep.RESUME, False, BROKE, "5", ResumeStep.SUBSCRIBE),
        (ResumeStep.RESUME, False, REFUSED, "5", ResumeStep.SUBSCRIBE),
        (ResumeStep.RESUME, False, AWAY, "5", ResumeStep.RESUME),
        (ResumeStep.SUBSCRIBE, True, BROKE, "6", ResumeStep.RESUME),
        (ResumeStep.SUBSCRIBE, True, BROKE, "", ResumeStep.SUBSCRIBE),
        (ResumeStep.SUBSCRIBE, False, BROKE, "", ResumeStep.POLL),
        (ResumeStep.SUBSCRIBE, False, REFUSED, "", ResumeStep.POLL),
        (ResumeStep.SUBSCRIBE, False, AWAY, "", ResumeStep.SUBSCRIBE),
        (ResumeStep.SEND, False, None, "", ResumeStep.SUBSCRIBE),
        (ResumeStep.POLL, True, BROKE, "9", ResumeStep.POLL),
    ],
)
def test_the_next_step(
    step: ResumeStep, moved: bool, error: TrunklineError | None, last_id: str, then: ResumeStep
) -> None:
    trail = ResumePoint(step, streams=True, retries=3)
    trail.moved = moved
    trail.broken(error, last_id)
    assert trail.step is then


def test_without_streams_there_are_only_polls() -> None:
    trail = ResumePoint(ResumeStep.SEND, streams=False, retries=3)
    trail.broken(None, "")
    assert trail.step is ResumeStep.POLL


def test_who_is_away_for_too_long_is_polled_in_the_end() -> None:
    trail = ResumePoint(ResumeStep.RESUME, streams=True, retries=2)
    steps: list[ResumeStep] = []
    for _ in range(5):
        trail.broken(AWAY, "3")
        steps.append(trail.step)
    assert steps == [
        ResumeStep.RESUME,
        ResumeStep.RESUME,
        ResumeStep.SUBSCRIBE,
        ResumeStep.POLL,
        ResumeStep.POLL,
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from([BROKE, AWAY, REFUSED, None]), st.sampled_from(["", "7"])), max_size=40
    )
)
def test_without_anything_new_every_trail_ends_in_polls(
    breaks: list[tuple[TrunklineError | None, str]],
) -> None:
    trail = ResumePoint(ResumeStep.STREAM, streams=True, retries=3)
    for error, last_id in breaks:
        trail.broken(error, last_id)
    for _ in range(6):
        trail.broken(BROKE, "7")
    assert trail.step is ResumeStep.POLL


def test_who_has_no_streams() -> None:
    assert all(
        cannot_stream(error) for error in (MethodNotFound(""), RouteNotFound(""), UnsupportedOperation(""))
    )
    assert not cannot_stream(InvalidParams(""))
    assert not cannot_stream(BROKE)


def test_polls_slow_down_to_a_tenth() -> None:
    assert poll_pause_s(2, 0) == 2
    assert poll_pause_s(2, 1) == 3
    assert poll_pause_s(2, 10_000) == 20
