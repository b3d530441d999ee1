"""`trunkline conformance` runs a checkout of the official kit; here a kit of two tests stands for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted
from tests.cli.test_send import fields

Make = Callable[..., Scripted]
CONFTEST = """
import pytest
def pytest_addoption(parser):
    parser.addoption("--sut-host")
    parser.addoption("--transport")
def pytest_configure(config):
    config.addinivalue_line("markers", "must: what an agent must do")
"""
TESTS = """
import urllib.request, pytest
@pytest.mark.must
def test_card(request):
    url = request.config.getoption("--sut-host") + "/.well-known/agent-card.json"
    assert b"scripted" in urllib.request.urlopen(url, timeout=60).read()
    assert request.config.getoption("--transport") == "jsonrpc"
@pytest.mark.must
def test_verdict():
    assert VERDICT
def test_not_a_must():
    raise AssertionError
"""


@pytest.fixture
def kit(tmp_path: Path) -> Callable[[bool], str]:
    def make(good: bool) -> str:
        folder = tmp_path / "kit/tests/compatibility"
        folder.mkdir(parents=True)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_kit.py").write_text(TESTS.replace("VERDICT", str(good)))
        return str(tmp_path / "kit")

    return make


def own_python(folder: Path, script: str) -> None:
    """A kit's own interpreter, as it would have one in its virtual environment."""
    (folder / ".venv/bin").mkdir(parents=True)
    python = folder / ".venv/bin/python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


@pytest.mark.slow
def test_an_agent_that_passes(
    trunkline: Run, scripted: Make, kit: Callable[[bool], str], tmp_path: Path
) -> None:
    folder = kit(True)
    report = "<testsuite><testcase name='a'/><testcase name='b'><skipped/></testcase></testsuite>"
    own_python(
        tmp_path / "kit",
        f'for word; do case $word in --junitxml=*) echo "{report}" > ${{word#*=}};; esac; done',
    )
    code, out, _ = trunkline("conformance", scripted().url, "--kit", folder)
    shown = fields(out)
    assert code == 0
    assert [shown[name] for name in ("Transport", "Passed", "Failed", "Skipped")] == [
        "JSONRPC",
        "1",
        "0",
        "1",
    ]


@pytest.mark.slow
def test_an_agent_that_fails(trunkline: Run, scripted: Make, kit: Callable[[bool], str]) -> None:
    code, out, err = trunkline("conformance", scripted().url, "--kit", kit(False), "-o", "json")
    (tally,) = json.loads(out)["transports"]
    assert code == 1
    assert (tally["passed"], tally["failed"]) == (1, ["test_verdict"])
    assert "1 tests of the kit failed" in err


@pytest.mark.parametrize(("words", "says"), [((), "git clone"), (("--kit", "."), "is not a checkout")])
def test_without_a_kit_it_says_where_to_get_one(
    trunkline: Run, scripted: Make, words: tuple[str, ...], says: str
) -> None:
    code, _, err = trunkline("conformance", scripted().url, *words)
    assert code == 2
    assert says in err


@pytest.mark.slow
def test_a_kit_that_cannot_run_is_said(
    trunkline: Run, scripted: Make, kit: Callable[[bool], str], tmp_path: Path
) -> None:
    folder = kit(True)
    own_python(tmp_path / "kit", "echo there is no pytest; exit 1")
    code, _, err = trunkline("conformance", scripted().url, "--kit", folder)
    assert code == 2
    assert "there is no pytest" in err and ".venv" in err
