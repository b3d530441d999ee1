"""The loader of named SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trunkline.store
from trunkline.store.columns import filters
from trunkline.store.records import Where
from trunkline.store.statements import RowsStatement, migrations, statements
from trunkline.wire.types import TaskState


def test_a_row_is_repeated():
    statement = RowsStatement("INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT (a) DO NOTHING")
    assert statement.steps([1, 2, 3, 4]) == [
        ("INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT (a) DO NOTHING", [1, 2, 3, 4])
    ]


def test_a_row_may_hold_constants():
    statement = RowsStatement("INSERT INTO t (a, b) VALUES (?, '')")
    assert statement.steps([1, 2]) == [("INSERT INTO t (a, b) VALUES (?, ''), (?, '')", [1, 2])]


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 63, 64, 65, 127, 128, 500])
def test_rows_travel_in_powers_of_two_and_none_is_lost(rows):
    statement = RowsStatement("VALUES (?, ?)")
    values = list(range(2 * rows))
    steps = statement.steps(values)
    sizes = [text.count("(") for text, _ in steps]
    assert [value for _, part in steps for value in part] == values
    assert [len(part) for _, part in steps] == [2 * size for size in sizes]
    assert all(size in (1, 2, 4, 8, 16, 32, 64) for size in sizes)
    assert len(steps) <= 6 + rows // 64


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_name_is_used_and_every_use_has_a_name(dialect):
    plain, over_rows = statements(dialect)
    folder = Path(trunkline.store.__file__).parent
    files = [folder / "columns.py", *(folder / dialect).glob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    given = (
        r"(?:SQL|PLAIN|ROWS|TEXTS)\[\"(\w+)\"\]|connection, \"(\w+)\"|connection,\s+\"(\w+)\"|name=\"(\w+)\""
    )
    used = {name for names in re.findall(given, code) for name in names if name}
    used |= set(re.findall(r"\"(filter_\w+|append_\w+|add_head|put_head|drop_\w+|unless_\w+)\"", code))
    used |= set(re.findall(r"self\._(?:rows|change)\(\"(\w+)\"", code))
    used |= {f"filter_{name}" for name in filters(Where("p", "c", TaskState.WORKING, 1, ("",), "t"))}
    assert used == {*plain, *over_rows}


def test_no_statement_is_empty_or_carries_comments():
    plain, over_rows = statements("sqlite")
    for text in (*plain.values(), *(statement.one for statement in over_rows.values())):
        assert text
        assert "--" not in text


def test_migrations_come_in_order():
    assert migrations("sqlite")[0].version == 1
