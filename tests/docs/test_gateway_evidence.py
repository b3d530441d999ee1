"""The table in docs/evidence/gateway.md is in order, and names tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source import ROOT

PAGE = (ROOT / "docs" / "evidence" / "gateway.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (G[WP]-\d\d) \| .+ \| `(tests/\S+\.py)::(\w+)` \|$", PAGE, re.MULTILINE)

# The capabilities of the table that the list began with, and its pains: none is left out.
CAPABILITIES, PAINS = 72, 13


def test_every_statement_has_a_row() -> None:
    wanted = [*range(1, CAPABILITIES + 1)], [*range(1, PAINS + 1)]
    found = [sorted({int(row[0][3:]) for row in ROWS if row[0][1] == kind}) for kind in "WP"]
    assert (found[0], found[1]) == wanted


def test_rows_are_in_order_and_well_written() -> None:
    ids = [row[0] for row in ROWS]
    assert ids == [
        *sorted([one for one in ids if one[1] == "W"]),
        *sorted([one for one in ids if one[1] == "P"]),
    ]
    assert len(set(ROWS)) == len(ids) == len(re.findall(r"^\| G", PAGE, re.MULTILINE))


@pytest.mark.parametrize(("path", "name"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_row_names_a_test(path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
