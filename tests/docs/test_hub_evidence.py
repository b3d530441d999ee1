"""The tables in docs/evidence/hub.md are whole, and name tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.architecture.source import ROOT

PAGE = (ROOT / "docs" / "evidence" / "hub.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ((?:HB|D)-\d\d) \| .+ \| `(tests/\S+\.py)::(\w+)` \|$", PAGE, re.MULTILINE)
WANTED = [
    *(f"HB-{number:02}" for number in range(1, 39)),
    *(f"D-{number:02}" for number in [*range(1, 18), 23]),
]


def test_every_statement_has_a_row() -> None:
    assert [row[0] for row in ROWS] == WANTED
    assert "D-24" in PAGE


@pytest.mark.parametrize(("statement", "path", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_a_test(statement: str, path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    if statement.startswith("HB"):
        number = int(statement[3:])
        told = [int(one) for one in re.findall(r"hb_?(\d+)", name.lower())]
        spans = range(told[0], told[-1] + 1) if "_to_" in name else told
        assert number in spans, f"{name} does not say {statement}"
