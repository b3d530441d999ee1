"""docs/cli.md: its commands run, its tables are whole, and the tests that it names are there."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_send import fields
from tests.docs.pages import ROOT, blocks
from trunkline.cli.failure import EXITS
from trunkline.cli.options import OPTIONS

TEXT = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
TIERS = {
    "CARD_GET": 2, "SEND": 6, "TASK_GET": 1, "TASK_CANCEL": 1, "INTERACT": 5, "TASK_POLL": 4, "OUT": 7, "EXIT": 2,
    "AUTH": 7, "TX": 4, "DEFAULT": 1, "CONFIG": 2, "CLI": 2, "SKILL": 2, "TASK_LIST": 1, "TASK_SUBSCRIBE": 2,
    "DOWNLOAD": 1, "CONFORM": 1, "PUSH": 1,
}  # fmt: skip
# VER_002 is of tier 3.
WANTED = {f"A2ACLI_{area}_{n:03d}" for area, count in TIERS.items() for n in range(1, count + 1)} | {
    "A2ACLI_VER_001",
    "A2ACLI_VER_003",
}


def _rows() -> list[tuple[str, list[str], str]]:
    found = re.findall(r"^\| (A2ACLI_[A-Z_]+_\d{3}) \| (.*?) ?\| (.*?) ?\|$", TEXT, re.MULTILINE)
    return [(name, [test for test in tests.split(", ") if test], note) for name, tests, note in found]


def test_every_requirement_of_both_tiers_has_one_row() -> None:
    names = [name for name, _, _ in _rows()]
    assert len(names) == len(set(names)) == len(WANTED) == 54
    assert set(names) == WANTED


def test_every_row_names_tests_that_are_there_or_says_why_not() -> None:
    for name, tests, note in _rows():
        assert tests or note.startswith("does not apply"), name
        for test in tests:
            file, _, function = test.partition("::")
            path = Path(__file__).with_name(file)
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert function in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, test


def test_every_variable_and_code_is_on_the_page() -> None:
    shown = set(re.findall(r"^\| `(A2ACLI_\w+)` \|", TEXT, re.MULTILINE))
    assert shown == {option.variable for option in OPTIONS.values() if option.lasting}
    for option in OPTIONS.values():
        if option.lasting and option.default:
            row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{option.variable}` |"))
            assert row.endswith(f"| `{option.default}` |")
            assert f"`--{option.name}`" in row
    assert [code for code in EXITS if f"`{code}`" not in TEXT] == []


@pytest.mark.slow
def test_every_command_of_the_page_runs(trunkline: Run, demo_url: str) -> None:
    of_agents = [block for block in blocks("docs/cli.md", "sh") if "dispatch" not in block]
    assert len(of_agents) > 3
    run_lines(trunkline, "\n".join(of_agents), demo_url)


def run_lines(trunkline: Run, block: str, address: str) -> None:
    """Run the commands of a block at an address; each may use the IDs that the earlier ones printed."""
    known: dict[str, str] = {}
    for line in filter(None, block.splitlines()):
        for name, value in known.items():
            line = line.replace(f"${name.upper()}", value)
        line = line.replace("http://localhost:8000", address)
        words = shlex.split(line.replace("localhost:8000", address.removeprefix("http://")))
        code, out, _ = trunkline(*words[1:])
        assert code == 0, line
        shown = fields(out)
        known |= {name: shown[name] for name in ("Task", "Context") if name in shown}
