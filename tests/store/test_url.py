"""Which store a URL means."""

from __future__ import annotations

import pytest

from trunkline.errors import Misuse
from trunkline.store.url import shown, store_from_url


def test_relative(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = store_from_url("sqlite:///some.db")
    run(store.open())
    run(store.close())
    assert (tmp_path / "some.db").is_file()


def test_absolute(run, tmp_path):
    store = store_from_url(f"sqlite:///{tmp_path}/a b#%.db")
    run(store.open())
    assert run(store.log.read("a", "t")) == []
    run(store.close())
    assert (tmp_path / "a b#%.db").is_file()


def test_memory(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = store_from_url("memory:")
    run(store.open())
    run(store.close())
    assert list(tmp_path.iterdir()) == []


def test_time_is_the_wall_clock(run):
    assert run(store_from_url("memory:").clock.now()) > 1_700_000_000_000


@pytest.mark.parametrize(
    "url",
    ["", "memory", "memory:x", "sqlite:", "sqlite://", "sqlite:///", "sqlite://host/x.db", "x.db",
     "postgresql:", "postgresql:/x", "mysql://localhost/x", "postgresql://a\0b", "sqlite:///x.db?mode=ro", "sqlite:///a\0b"],
)  # fmt: skip
def test_anything_else_is_a_mistake_that_names_what_is_accepted(url):
    with pytest.raises(
        Misuse, match=r"sqlite:///relative\.db, sqlite:////absolute\.db, memory: or postgresql://"
    ):
        store_from_url(url)


def test_a_database(run, postgres_url):
    store = store_from_url(postgres_url)
    run(store.open())
    assert run(store.log.read("a", "t")) == []
    run(store.close())
    assert store.shared


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:planted@host/x", "postgresql://ann:planted@host/x?schema=y", "postgresql://host/x?password=planted",
     "postgres://ann:pl@planted@host/x", "postgresql://ann:p?planted@host/x"],
)  # fmt: skip
def test_what_is_shown_holds_no_login(url):
    assert "planted" not in shown(url)
    assert "host/x" in shown(url)
