"""The loader of named SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trunkline.store
from trunkline.store.records import ASKING, Where
from trunkline.store.statements import filters, migrations, statements
from trunkline.wire.types import TaskState

# The time of a SQLite store is its process's; and PostgreSQL is not told which index to take.
LACKED = {
    "sqlite": {"now", "add_head", "heads_of_agents"},
    "postgres": {"by_lane", "by_num", "by_open", "by_born", "heads_of_all"},
}


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_name_is_used_and_every_use_has_a_name(dialect):
    named = statements(dialect)
    folder = Path(trunkline.store.__file__).parent
    files = [*folder.glob("*.py"), *(folder / dialect).glob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    given = r"(?:SQL|TEXTS)\[\"(\w+)\"\]|connection, \"(\w+)\"|connection,\s+\"(\w+)\"|name=\"(\w+)\""
    used = {name for names in re.findall(given, code) for name in names if name}
    used |= set(re.findall(r"\"(filter_\w+|append_\w+|add_\w+|put_\w+|drop_\w+|unless_\w+)\"", code))
    used |= set(re.findall(r"\b(?:rows\(|write\(|sql\.get\(|sql\[)\s*\"(\w+)\"", code))
    used |= set(re.findall(r"\"(heads\w*|count_heads|by_\w+)\"", code))
    for state in (TaskState.WORKING, TaskState.COMPLETED, ASKING):
        used |= {f"filter_{name}" for name in filters(Where("p", "c", state, 1, ("",), "t", "b"))}
    assert used == {*named, *LACKED[dialect]}


def test_no_statement_is_empty_or_carries_comments():
    for text in statements("sqlite").values():
        assert text
        assert "--" not in text


def test_migrations_come_in_order():
    assert migrations("sqlite")[0].version == 1
