"""What tokens cost where the agent itself does not say it. Pure."""

from __future__ import annotations

from typing import cast

from trunkline.client.result import number
from trunkline.wire.types import Metadata

# Dollars for a million tokens, in and out, by what the name of a model contains; the first one that does.
PRICES = (
    ("opus", 15.0, 75.0),
    ("haiku", 0.25, 1.25),
    ("sonnet", 3.0, 15.0),
    ("mini", 0.15, 0.6),
    ("gpt-4o", 2.5, 10.0),
)
# Of a model that is not named, or not known.
DEFAULT = (3.0, 15.0)
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
# More tokens, and more dollars, than any run has: what is added up over many stays a number.
_MOST, _MOST_USD = 1e12, 1e9


def cost_of(report: Metadata) -> float | None:
    """What a run cost: as it says itself, else its tokens by the price of its model, else None."""
    told = number(report.get("costUsd"))
    if told is not None:
        return min(max(told, 0.0), _MOST_USD)
    used = tokens_of(report)
    if used == (0, 0):
        return None
    model = report.get("model")
    return price_of(model if isinstance(model, str) else "", *used)


def price_of(model: str, tokens_in: int, tokens_out: int) -> float:
    """The price of tokens of a model, in dollars."""
    name = model.lower()
    into, out = next(((into, out) for part, into, out in PRICES if part in name), DEFAULT)
    return (tokens_in * into + tokens_out * out) / 1e6


def tokens_of(report: Metadata) -> tuple[int, int]:
    """The tokens that a run took in and gave out."""
    if not report:
        return 0, 0
    told = report.get("usage")
    usage = cast("Metadata", told) if isinstance(told, dict) else {}
    return sum([_count(usage.get(name)) for name in _INPUT]), _count(usage.get("output_tokens"))


def _count(value: object) -> int:
    return int(min(max(number(value) or 0.0, 0.0), _MOST))
