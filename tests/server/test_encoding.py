"""The cache answers nobody else, and never grows beyond its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.server.encoding import ENTRY_BYTES, AnswerCache

NOW, UNTIL = 1_000, 2_000


def test_the_owner_is_part_of_the_entry() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"mine", UNTIL)
    assert cache.get(("t", "x", "json"), "me", NOW) == b"mine"
    for tenant, owner, task_id, dialect in [
        ("u", "me", "x", "json"), ("t", "you", "x", "json"), ("t", "me", "y", "json"), ("t", "me", "x", "rest"),
    ]:  # fmt: skip
        assert cache.get((tenant, task_id, dialect), owner, NOW) is None


def test_the_first_body_stays() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"first", UNTIL)
    cache.put(("t", "x", "json"), "me", b"second", UNTIL)
    assert cache.get(("t", "x", "json"), "me", NOW) == b"first"


def test_what_is_too_large_is_not_kept() -> None:
    cache = AnswerCache()
    cache.put(("t", "x", "json"), "me", b"x" * (ENTRY_BYTES + 1), UNTIL)
    cache.put(("t", "y", "json"), "me", b"x" * ENTRY_BYTES, UNTIL)
    assert cache.get(("t", "x", "json"), "me", NOW) is None
    assert cache.get(("t", "y", "json"), "me", NOW) is not None


def test_the_least_recently_read_goes_first() -> None:
    cache = AnswerCache(limit=30)
    for task_id in "abc":
        cache.put(("t", task_id, "json"), "me", b"x" * 10, UNTIL)
    assert cache.get(("t", "a", "json"), "me", NOW)
    cache.put(("t", "d", "json"), "me", b"x" * 10, UNTIL)
    assert [task_id for task_id in "abcd" if cache.get(("t", task_id, "json"), "me", NOW)] == ["a", "c", "d"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_bytes_are_bounded(puts: list[tuple[int, int]]) -> None:
    cache = AnswerCache(limit=100)
    for number, size in puts:
        cache.put(("t", str(number), "json"), "me", b"x" * size, UNTIL)
        held = sum(len(cache.get(("t", str(n), "json"), "me", NOW) or b"") for n in range(21))
        assert held == cache._size <= 100


def test_what_the_store_no_longer_keeps_is_gone() -> None:
    cache = AnswerCache(limit=30)
    cache.put(("t", "x", "json"), "me", b"x" * 20, UNTIL)
    assert cache.get(("t", "x", "json"), "me", UNTIL - 1) is not None
    assert cache.get(("t", "x", "json"), "me", UNTIL) is None
    # Its room is free again.
    cache.put(("t", "y", "json"), "me", b"y" * 30, UNTIL)
    assert cache.get(("t", "y", "json"), "me", NOW) is not None
