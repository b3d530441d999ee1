"""Cost is what the agent reports, else tokens by a price."""

from __future__ import annotations

import pytest

from trunkline.fleet.health.prices import cost_of, tokens_of

USAGE = {"input_tokens": 1_000_000, "output_tokens": 100_000}


@pytest.mark.parametrize(
    ("report", "cost"),
    [
        ({}, None),
        ({"usage": {}}, None),
        ({"usage": "many"}, None),
        ({"usage": {"input_tokens": "7", "output_tokens": -3}}, None),
        ({"costUsd": 0.5, "usage": USAGE}, 0.5),
        ({"costUsd": 0, "usage": USAGE}, 0.0),
        ({"costUsd": -4}, 0.0),
        # Two of them would be no number any more.
        ({"costUsd": 1e308}, 1e9),
        # What no log holds: here it would cost more than the same read back from the file.
        ({"costUsd": float("inf")}, None),
        ({"costUsd": float("nan")}, None),
        ({"usage": USAGE}, 4.5),
        ({"usage": USAGE, "model": "nobody-knows"}, 4.5),
        ({"usage": USAGE, "model": "claude-opus-4"}, 22.5),
        ({"usage": USAGE, "model": "Claude-Haiku"}, 0.375),
        ({"usage": USAGE, "model": "gpt-4o"}, 3.5),
        ({"usage": USAGE, "model": "gpt-4o-mini"}, 0.21),
    ],
)
def test_cost(report: dict[str, object], cost: float | None) -> None:
    assert cost_of(report) == (None if cost is None else pytest.approx(cost))


def test_cached_tokens_were_taken_in_too() -> None:
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 2.0,
        "cache_read_input_tokens": 4,
        "output_tokens": 8,
    }
    assert tokens_of({"usage": usage}) == (7, 8)
    assert tokens_of({"usage": {"input_tokens": 1e300, "output_tokens": float("inf")}}) == (10**12, 0)
