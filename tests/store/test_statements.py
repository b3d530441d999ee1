"""The loader of named SQL."""

from __future__ import annotations

import re
from pathlib import Path

import trunkline.store
from trunkline.store.statements import RowsStatement, migrations, statements


def test_a_row_is_repeated():
    statement = RowsStatement("INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT (a) DO NOTHING")
    assert statement.width == 2
    assert statement.rows(2) == "INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT (a) DO NOTHING"
    assert statement.rows(2) is statement.rows(2)


def test_every_name_is_used_and_every_use_has_a_name():
    plain, over_rows = statements("sqlite")
    code = "".join(
        path.read_text(encoding="utf-8") for path in Path(trunkline.store.__file__).parent.glob("*.py")
    )
    used = set(re.findall(r"_(?:SQL|PLAIN|ROWS)\[\"(\w+)\"\]", code)) | set(
        re.findall(r"\"(filter_\w+)\"", code)
    )
    assert used == {*plain, *over_rows}


def test_no_statement_is_empty_or_carries_comments():
    plain, over_rows = statements("sqlite")
    for text in (*plain.values(), *(statement.rows(1) for statement in over_rows.values())):
        assert text
        assert "--" not in text


def test_migrations_come_in_order():
    assert migrations("sqlite")[0].version == 1
