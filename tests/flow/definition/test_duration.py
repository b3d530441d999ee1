"""Durations as definitions write them."""

from __future__ import annotations

import pytest

from trunkline.flow.definition.duration import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500), ("30s", 30_000), ("5", 5), ("5 s", 5000), ("10S", 10_000), ("24h", 86_400_000),
        ("2m", 120_000), ("0", 0), ("3MS", 3),
    ],
)  # fmt: skip
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["1.5s", "", " ", "1d", "PT1S", "-1s", "s", "5  s", "1e3", "٣s", "9" * 99, "1s 2s"]
)
def test_no_durations(text: str) -> None:
    assert duration_ms(text) is None
