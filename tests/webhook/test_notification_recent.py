from __future__ import annotations

import threading
from time import process_time

import pytest

from trunkline.webhook.notification import Notification, RecentNotifications
from trunkline.wire.types import Message


def news(webhook_id: str, task_id: str = "t1") -> Notification:
    return Notification(task_id=task_id, context_id="", update=Message("m"), id=webhook_id)


def test_each_is_new_once() -> None:
    seen = RecentNotifications(600, lambda: 0)
    assert [seen.add(news(name)) for name in ("a", "b", "a")] == [True, True, False]
    assert news("a") in seen
    assert news("c") not in seen


def test_one_task_does_not_speak_for_another() -> None:
    seen = RecentNotifications(600, lambda: 0)
    assert seen.add(news("a", "t1"))
    assert seen.add(news("a", "t2"))


@pytest.mark.parametrize(
    ("one", "other"),
    [(("b c", "a"), ("c", "a b")), (("a", "\ud800"), ("a", "?")), (("2 a", "b"), ("a", "b"))],
)
def test_no_two_come_to_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    seen = RecentNotifications(600, lambda: 0)
    assert seen.add(news(*one))
    assert seen.add(news(*other))


def test_many_whose_time_is_over_are_forgotten_quickly() -> None:
    now = 0
    seen = RecentNotifications(600, lambda: now)
    for number in range(40_000):
        seen.add(news(str(number)))
    now = 600_000
    began = process_time()
    assert seen.add(news("new"))
    assert process_time() - began < 0.1, "one by one from the front, it takes the square of their number"


def test_without_an_id_everything_is_new() -> None:
    seen = RecentNotifications(600, lambda: 0)
    assert seen.add(news(""))
    assert seen.add(news(""))
    assert news("") not in seen


def test_they_are_forgotten_when_their_time_is_over() -> None:
    now = 0
    seen = RecentNotifications(600, lambda: now)
    seen.add(news("a"))
    now = 599_999
    assert news("a") in seen
    assert seen.add(news("b"))
    now = 600_000
    assert news("a") not in seen
    assert seen.add(news("a"))
    assert not seen.add(news("b"))


def test_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.webhook.notification._MOST", 3)
    seen = RecentNotifications(600, lambda: 0)
    for name in "abcd":
        assert seen.add(news(name))
    assert [news(name) in seen for name in "abcd"] == [False, True, True, True]


def test_one_can_be_forgotten() -> None:
    seen = RecentNotifications(600, lambda: 0)
    seen.add(news("a"))
    seen.discard(news("a"))
    seen.discard(news("a"))
    assert seen.add(news("a"))


def test_of_many_threads_one_is_first() -> None:
    seen = RecentNotifications(600, lambda: 0)
    first: list[bool] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait(60)
        first.extend([seen.add(news(str(number))) for number in range(200)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(first), sum(first)) == (1600, 200)
