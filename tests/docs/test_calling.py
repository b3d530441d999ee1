"""The table of calls in docs/evidence/conformance.md is whole, and names tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

ROW = re.compile(r"^\| ((?:row|PromptKit|Arbiter) \d+|D-\d\d) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
ID = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROWS = (7, 10, *range(54, 61), *range(63, 69))
PROMPTKIT = (1, 2, 5, 10, 11, 12)
ARBITER = (1, 6, 8, 11, 13)
FLEET = (2, 5, 6, 7, 13, 14, 15, 16)


@cache
def _tests(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_line_is_there_once_with_tests_that_exist() -> None:
    rows = ROW.findall((ROOT / "docs" / "evidence" / "conformance.md").read_text(encoding="utf-8"))
    assert [name for name, _ in rows] == [
        *[f"row {number}" for number in ROWS],
        *[f"PromptKit {number}" for number in PROMPTKIT],
        *[f"Arbiter {number}" for number in ARBITER],
        *[f"D-{number:02d}" for number in FLEET],
    ]
    named = [ID.findall(tests) for _, tests in rows]
    assert all(named)
    assert [(path, test) for ids in named for path, test in ids if test not in _tests(path)] == []
