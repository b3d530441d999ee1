"""The doctor's page: every command runs, and the list of checks is the list of checks."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, demo_url, trunkline
from tests.docs.pages import ROOT, blocks
from trunkline.doctor.check import FAMILIES
from trunkline.doctor.checks import CHECKS

__all__ = ["demo_url", "trunkline"]

PAGE = "docs/doctor.md"
COMMANDS = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
ROW = re.compile(r"^\| `([a-z0-9.-]+)` \| (\w+) \| (.+) \| (.+) \|$", re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run(command: str, trunkline: Run, demo_url: str) -> None:
    words = shlex.split(command.replace("http://127.0.0.1:8000", demo_url))[1:]
    code, out, err = trunkline(*[word for word in words if word not in (">", "doctor.json")])
    assert (code, err) == (0, "")
    if "--json" in words:
        assert json.loads(out)["summary"]["failed"] == 0
        assert Path("doctor.xml").stat().st_size


def test_every_check_is_listed_as_it_is() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    listed = {name: (severity, about, reference) for name, severity, about, reference in ROW.findall(text)}
    assert listed == {
        check.name: (check.severity.value, _within(check.about.rstrip(".")), check.reference)
        for check in CHECKS.values()
    }
    assert re.findall(r"^### `(\w+)`$", text, re.MULTILINE) == list(FAMILIES)


def _within(sentence: str) -> str:
    """A sentence as it goes on after others: with a small letter, unless its first word is a name."""
    first = sentence.split()[0]
    return sentence if first[1:] != first[1:].lower() else sentence[0].lower() + sentence[1:]


def test_its_python_runs(demo_url: str) -> None:
    space: dict[str, Any] = {}
    exec(compile(blocks(PAGE, "python")[0], PAGE, "exec"), space)
    assert asyncio.run(space["healthy"](demo_url)) is True
