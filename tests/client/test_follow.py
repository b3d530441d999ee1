"""Where a stream goes on after a break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.client.follow import Step, Trail, cannot_stream, poll_pause_s
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
        (Step.STREAM, True, BROKE, "4", Step.RESUME),
        (Step.STREAM, True, BROKE, "", Step.SUBSCRIBE),
        (Step.RESUME, True, BROKE, "5", Step.RESUME),
        (Step.RESUME, False, BROKE, "5", Step.SUBSCRIBE),
        (Step.RESUME, False, REFUSED, "5", Step.SUBSCRIBE),
        (Step.RESUME, False, AWAY, "5", Step.RESUME),
        (Step.SUBSCRIBE, True, BROKE, "6", Step.RESUME),
        (Step.SUBSCRIBE, True, BROKE, "", Step.SUBSCRIBE),
        (Step.SUBSCRIBE, False, BROKE, "", Step.POLL),
        (Step.SUBSCRIBE, False, REFUSED, "", Step.POLL),
        (Step.SUBSCRIBE, False, AWAY, "", Step.SUBSCRIBE),
        (Step.SEND, False, None, "", Step.SUBSCRIBE),
        (Step.POLL, True, BROKE, "9", Step.POLL),
    ],
)
def test_the_next_step(
    step: Step, moved: bool, error: TrunklineError | None, last_id: str, then: Step
) -> None:
    trail = Trail(step, streams=True, retries=3)
    trail.moved = moved
    trail.broken(error, last_id)
    assert trail.step is then


def test_without_streams_there_are_only_polls() -> None:
    trail = Trail(Step.SEND, streams=False, retries=3)
    trail.broken(None, "")
    assert trail.step is Step.POLL


def test_who_is_away_for_too_long_is_polled_in_the_end() -> None:
    trail = Trail(Step.RESUME, streams=True, retries=2)
    steps: list[Step] = []
    for _ in range(5):
        trail.broken(AWAY, "3")
        steps.append(trail.step)
    assert steps == [Step.RESUME, Step.RESUME, Step.SUBSCRIBE, Step.POLL, Step.POLL]


@given(
    st.lists(
        st.tuples(st.sampled_from([BROKE, AWAY, REFUSED, None]), st.sampled_from(["", "7"])), max_size=40
    )
)
def test_without_anything_new_every_trail_ends_in_polls(
    breaks: list[tuple[TrunklineError | None, str]],
) -> None:
    trail = Trail(Step.STREAM, streams=True, retries=3)
    for error, last_id in breaks:
        trail.broken(error, last_id)
    for _ in range(6):
        trail.broken(BROKE, "7")
    assert trail.step is Step.POLL


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
