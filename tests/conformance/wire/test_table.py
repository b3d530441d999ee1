"""docs/evidence/conformance.md says of every check what is true: which test shows it, or why there is none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "evidence" / "conformance.md"
COUNTS = {
    "CARD": 13, "SIG": 4, "SND": 24, "STR": 14, "SUB": 6, "GET": 3, "HIS": 6, "LST": 10, "CAN": 6, "PSH": 9,
    "PDL": 8, "EXC": 4, "EXT": 4, "VER": 7, "ERR": 8, "JRP": 6, "RST": 6, "GRP": 3, "DAT": 8, "EQV": 3,
    "SEC": 11, "ITA": 4, "TEN": 3, "CLI": 10,
}  # fmt: skip
KNOWN = [f"{area}-{number:02d}" for area, count in COUNTS.items() for number in range(1, count + 1)]
ROW = re.compile(r"^\| ([A-Z]{3,4}-\d\d) \| ([^|]+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)


def _tested() -> set[tuple[str, str]]:
    """Each check with each file that has a test of its name."""
    found: set[tuple[str, str]] = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                checks = re.findall(r"_([A-Z]{3,4})_(\d\d)(?=_)", node.name)
                found |= {(f"{area}-{number}", path.name) for area, number in checks}
    return found


def _rows() -> list[tuple[str, list[str], str]]:
    text = PAGE.read_text(encoding="utf-8")
    return [
        (check, re.findall(r"`(test_\w+\.py)`", tests), status)
        for check, _, tests, status in ROW.findall(text)
    ]


def test_every_known_check_has_one_row() -> None:
    assert sorted(check for check, _, _ in _rows()) == sorted(KNOWN)
    assert len(KNOWN) == 180


def test_the_tests_that_are_named_exist_and_none_is_left_out() -> None:
    claimed = {(check, file) for check, files, _ in _rows() for file in files}
    assert claimed == _tested()


def test_a_check_holds_by_a_test_or_says_why_not() -> None:
    assert [check for check, files, status in _rows() if (status == "holds") is not bool(files)] == []
