"""Which appends share a statement."""

from __future__ import annotations

from trunkline.store.group_commit import Ack, Entry
from trunkline.store.postgres.append import choose
from trunkline.store.records import Dedup


def entry(task_id, expected=0, last=None, key=None, tenant="a"):
    keys = () if key is None else tuple(Dedup(each, b"", 1) for each in key)
    return Entry(Ack(), tenant, task_id, expected, last or expected + 1, b"[]", 1, None, (), keys)


def chosen(*entries):
    return choose(entries, range(len(entries)))


def test_tasks_come_sorted():
    assert chosen(entry("b"), entry("ä"), entry("a"), entry("B")) == [[3], [2], [0], [1]]


def test_what_goes_on_from_another_goes_with_it():
    assert chosen(entry("a", 0), entry("a", 1, 4), entry("a", 4)) == [[0, 1, 2]]


def test_a_rival_waits_and_so_does_what_follows_it():
    assert chosen(entry("a", 0), entry("a", 0), entry("a", 1), entry("b")) == [[0], [3]]


def test_a_key_follows_nobody():
    assert chosen(entry("a", 0, key="k"), entry("a", 1), entry("a", 2, key="l"), entry("a", 3)) == [[0, 1]]


def test_a_key_comes_once():
    first, second = entry("b", key="k"), entry("a", key="k")
    assert chosen(first, second, entry("a", 1)) == [[0]]
    assert chosen(first, entry("a", key="k", tenant="b")) == [[1], [0]]


def test_either_key_of_an_append_comes_once():
    assert chosen(entry("a", key="kc"), entry("b", key="lc"), entry("c", key="k")) == [[0]]


def test_another_tenant_does_not_go_on_from_it():
    assert chosen(entry("a", 0), entry("a", 1, tenant="b")) == [[0]]
