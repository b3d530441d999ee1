"""The place of a subscriber as a text."""

from __future__ import annotations

import pytest

from trunkline.errors import InvalidParams
from trunkline.fleet.topics.place import FeedPlace, read_place
from trunkline.log.events import Claimed, Recorded
from trunkline.store.records import TailRecord


@pytest.mark.parametrize(
    ("place", "end", "text", "read"),
    [
        (FeedPlace("7"), "9", "7", FeedPlace("7")),
        (FeedPlace("7", "t.1", 3), "9", "7.3.t.1", FeedPlace("7", "t.1", 3)),
        (FeedPlace("7.2.of-another"), "9.0.", "7", FeedPlace("7.0.")),
        (FeedPlace("7.2.of-another", "t1", 3), "9.0.", "7.3.t1", FeedPlace("7.0.", "t1", 3)),
        (FeedPlace("6"), "9", "6", FeedPlace("6")),
        (FeedPlace("5"), "9", "5", FeedPlace("5", has_gap=True)),
        (FeedPlace("5", "t1", 3), "9.0.", "5.3.t1", FeedPlace("5.0.", "t1", 3, has_gap=True)),
        (FeedPlace("7"), "6", "7", FeedPlace("6", has_gap=True)),
        (FeedPlace("7", "t1", 3), "", "7.3.t1", FeedPlace("", has_gap=True)),
    ],
)
def test_it_comes_back_at_the_same_place_or_before(
    place: FeedPlace, end: str, text: str, read: FeedPlace
) -> None:
    assert str(place) == text
    assert read_place(text, end, 6, "after") == read


def test_nothing_is_missing_from_a_log_in_which_nothing_was() -> None:
    assert str(FeedPlace("")) == "0"
    assert not read_place("0", "", 0, "after").has_gap


@pytest.mark.parametrize(
    "text", ["x", "-1", "1.2", "1.2.", "1..t", "9" * 19, "1.2.a b", "1.2." + "t" * 129, "٣"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read_place(text, "9", 0, "Last-Event-ID")
    assert refused.value.field == "Last-Event-ID"


def test_what_was_told_is_not_told_again() -> None:
    page = [
        TailRecord(tenant, task_id, Recorded(seq, 0, Claimed("n")))
        for tenant, task_id, seq in (("south", "t1", 1), ("north", "t1", 1), ("north", "t1", 2))
    ]
    assert FeedPlace("0", "t1", 1).rest("north", page) == page[2:]
    assert FeedPlace("0", "gone", 1).rest("north", page) == page
    assert FeedPlace("0").rest("north", page) == page
