"""Whether and when a request is made again."""

from __future__ import annotations

import pytest

from trunkline.client.retry import Budget, Fate, asked_s, fate_of, is_peer_failure, pause_s
from trunkline.errors import (
    InvalidParams,
    Misuse,
    PeerError,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unavailable,
    Uncertain,
    Unreachable,
    Unreadable,
)


@pytest.mark.parametrize(
    ("error", "fate", "down"),
    [
        (TooManyRequests("slow down"), Fate.UNTAKEN, False),
        (Unavailable("later"), Fate.UNTAKEN, True),
        (PeerError("bad gateway", code=502), Fate.UNKNOWN, True),
        (PeerError("gateway timeout", code=504), Fate.UNKNOWN, True),
        (PeerError("teapot", code=418), Fate.ANSWERED, False),
        (InvalidParams("no"), Fate.ANSWERED, False),
        (Unreadable("garbage"), Fate.UNKNOWN, True),
        (Unreachable("no name", reason="name"), Fate.UNTAKEN, True),
        (Unreachable("nobody", reason="connect"), Fate.UNTAKEN, True),
        (TimedOut("slow", reason="connect"), Fate.UNTAKEN, True),
        (TimedOut("silent", reason="idle"), Fate.UNKNOWN, True),
        (TimedOut("over", reason="total"), Fate.ANSWERED, False),
        (Unreachable("broke off", reason="sent"), Fate.UNKNOWN, True),
        (Unreachable("half", reason="protocol"), Fate.UNKNOWN, True),
        (Unreachable("ours", reason="refused"), Fate.ANSWERED, False),
        (Unreachable("bad certificate", reason="tls"), Fate.ANSWERED, False),
        (Unreachable("too much", reason="size"), Fate.ANSWERED, False),
        (Uncertain("lost", reason="sent", message_id="m"), Fate.ANSWERED, False),
        (Misuse("wrong"), Fate.ANSWERED, False),
    ],
)
def test_what_an_error_says_of_its_request(error: TrunklineError, fate: Fate, down: bool) -> None:
    assert fate_of(error) is fate
    assert is_peer_failure(error) is down


def test_pauses_double_are_spread_and_end_somewhere() -> None:
    error = Unreachable("nobody", reason="connect")
    assert [pause_s(error, attempt, 1.0) for attempt in (1, 2, 3)] == [0.2, 0.4, 0.8]
    assert pause_s(error, 40, 1.0) == 10.0
    assert pause_s(error, 3, 0.0) == 0.0


def test_the_agents_own_word_is_the_least() -> None:
    assert pause_s(TooManyRequests("slow", retry_after_s=7), 1, 1.0) == 7
    assert asked_s(Unavailable("later", retryAfter="2")) == 2
    assert asked_s(Unavailable("later", retryAfter="soon")) == 0
    assert asked_s(Unreadable("garbage")) == 0


def test_a_budget_lets_a_fifth_more_calls_out() -> None:
    budget = Budget()
    while budget.spend():
        pass
    more = 0
    for _ in range(100):
        budget.earn()
        more += budget.spend()
    assert 19 <= more <= 20


def test_a_budget_does_not_grow_for_ever() -> None:
    budget = Budget()
    for _ in range(1000):
        budget.earn()
    spent = 0
    while budget.spend():
        spent += 1
    assert spent == 10
