"""The cache answers nobody else, and never grows beyond its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trunkline.run.cache import ENTRY_BYTES, Cache


def test_the_owner_is_part_of_the_entry() -> None:
    cache = Cache()
    cache.put("t", "me", "x", "json", b"mine")
    assert cache.get("t", "me", "x", "json") == b"mine"
    for tenant, owner, task_id, dialect in [
        ("u", "me", "x", "json"), ("t", "you", "x", "json"), ("t", "me", "y", "json"), ("t", "me", "x", "rest"),
    ]:  # fmt: skip
        assert cache.get(tenant, owner, task_id, dialect) is None


def test_the_first_body_stays() -> None:
    cache = Cache()
    cache.put("t", "me", "x", "json", b"first")
    cache.put("t", "me", "x", "json", b"second")
    assert cache.get("t", "me", "x", "json") == b"first"


def test_what_is_too_large_is_not_kept() -> None:
    cache = Cache()
    cache.put("t", "me", "x", "json", b"x" * (ENTRY_BYTES + 1))
    cache.put("t", "me", "y", "json", b"x" * ENTRY_BYTES)
    assert cache.get("t", "me", "x", "json") is None
    assert cache.get("t", "me", "y", "json") is not None


def test_the_least_recently_read_goes_first() -> None:
    cache = Cache(limit=30)
    for task_id in "abc":
        cache.put("t", "me", task_id, "json", b"x" * 10)
    assert cache.get("t", "me", "a", "json")
    cache.put("t", "me", "d", "json", b"x" * 10)
    assert [task_id for task_id in "abcd" if cache.get("t", "me", task_id, "json")] == ["a", "c", "d"]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), max_size=60))
def test_bytes_are_bounded(puts: list[tuple[int, int]]) -> None:
    cache = Cache(limit=100)
    for number, size in puts:
        cache.put("t", "me", str(number), "json", b"x" * size)
        held = sum(len(cache.get("t", "me", str(n), "json") or b"") for n in range(21))
        assert held == cache._size <= 100
