"""The cache answers nobody else, and never grows beyond its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.server.encoding import ENTRY_BYTES, AnswerCache

ENDED, SINCE = 1_000, 1_000


def test_the_owner_is_part_of_the_entry() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"mine", ENDED)
    assert cache.get(("t", "x", "json"), "me", SINCE) == b"mine"
    for tenant, owner, task_id, dialect in [
        ("u", "me", "x", "json"), ("t", "you", "x", "json"), ("t", "me", "y", "json"), ("t", "me", "x", "rest"),
    ]:  # fmt: skip
        assert cache.get((tenant, task_id, dialect), owner, SINCE) is None


def test_the_first_body_stays() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"first", ENDED)
    cache.put(("t", "x", "json"), "me", b"second", ENDED)
    assert cache.get(("t", "x", "json"), "me", SINCE) == b"first"


def test_what_is_too_large_is_not_kept() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"x" * (ENTRY_BYTES + 1), ENDED)
    cache.put(("t", "y", "json"), "me", b"x" * ENTRY_BYTES, ENDED)
    assert cache.get(("t", "x", "json"), "me", SINCE) is None
    assert cache.get(("t", "y", "json"), "me", SINCE) is not None


def test_the_least_recently_read_goes_first() -> None:
    cache = AnswerCache(limit=30)
    for task_id in "abc":
        cache.put(("t", task_id, "json"), "me", b"x" * 10, ENDED)
    assert cache.get(("t", "a", "json"), "me", SINCE)
    cache.put(("t", "d", "json"), "me", b"x" * 10, ENDED)
    assert [task_id for task_id in "abcd" if cache.get(("t", task_id, "json"), "me", SINCE)] == [
        "a",
        "c",
        "d",
    ]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_bytes_are_bounded(puts: list[tuple[int, int]]) -> None:
    cache = AnswerCache(limit=100)
    for number, size in puts:
        cache.put(("t", str(number), "json"), "me", b"x" * size, ENDED)
        held = sum(len(cache.get(("t", str(n), "json"), "me", SINCE) or b"") for n in range(21))
        assert held == cache._size <= 100


def test_what_the_store_no_longer_keeps_is_gone() -> None:
    cache = AnswerCache(limit=30)
    cache.put(("t", "x", "json"), "me", b"x" * 20, ENDED)
    assert cache.get(("t", "x", "json"), "me", ENDED) is not None
    assert cache.get(("t", "x", "json"), "me", ENDED + 1) is None
    # Its room is free again.
    cache.put(("t", "y", "json"), "me", b"y" * 30, ENDED)
    assert cache.get(("t", "y", "json"), "me", SINCE) is not None
