from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams
from trunkline.wire.times import milliseconds, timestamp


def test_DAT_03_timestamps_end_in_z_with_milliseconds() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1_769_860_800_007) == "2026-01-31T12:00:00.007Z"
    assert timestamp(1_769_860_800_999) == "2026-01-31T12:00:00.999Z"


@given(st.integers(0, 253_402_300_799_999))
def test_round_trip(ms: int) -> None:
    assert milliseconds(timestamp(ms), "t") == ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00.0001Z", 1),
        ("1969-12-31T23:59:59.9995Z", 0),
        ("1970-01-01T00:00:00.123456789Z", 124),
    ],
)
def test_any_rfc_3339_time(text: str, expected: int) -> None:
    assert milliseconds(text, "t") == expected


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "2026-01-31T12:00:00", "2026-W05-6T12:00:00Z", "2026-13-01T00:00:00Z", "1e9"],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        milliseconds(text, "since")
    assert caught.value.field == "since"
