"""Lock files, dependencies and the linters themselves."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.conftest import refuse_processes

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = ["requirements.lock", "requirements-dev.lock", "tests/interop/js/package-lock.json"]
CORE_LIMIT = 13  # uvicorn's two accelerators are among them, and cronsim, which has no dependencies itself


def test_a_quick_test_starts_no_process() -> None:
    refuse_processes("open", ("file", "r", 0))
    refuse_processes("subprocess.Popen", ("uname", ["uname", "-p"], None, None))
    with pytest.raises(RuntimeError, match="mark it as slow"):
        refuse_processes("subprocess.Popen", (sys.executable, [sys.executable], None, None))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_no_path(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert re.findall(r"\w+://\S*|(?<![\w@.])/(?:home|opt|root|tmp|usr|work)/\S*|--\w*index\S*", text) == []


@pytest.mark.parametrize("lock", LOCKS[:2])
def test_a_lock_pins_and_hashes_everything(lock: str) -> None:
    entries = re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8").strip())
    assert [e for e in entries if not re.match(r"[\w.-]+==\S+[^\n]*\\\n +--hash=sha256:", e)] == []


def test_every_dependency_is_locked() -> None:
    core, dev = PROJECT["dependencies"], PROJECT["optional-dependencies"]["dev"]
    assert {_name(d) for d in core} <= _locked("requirements.lock")
    assert {_name(d) for d in core + dev} <= _locked("requirements-dev.lock")


def test_both_locks_agree() -> None:
    pins = [dict(re.findall(r"^([\w.-]+)==(\S+)", _read(lock), re.MULTILINE)) for lock in LOCKS[:2]]
    assert pins[0].items() <= pins[1].items()


def test_few_core_dependencies() -> None:
    assert len(PROJECT["dependencies"]) <= CORE_LIMIT


def test_changelog_knows_the_version_or_is_unreleased() -> None:
    text = _read("CHANGELOG.md")
    assert "## [Unreleased]" in text or f"## [{PROJECT['version']}]" in text


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["lint-imports", "--no-cache"]],
    ids=["ruff-check", "ruff-format", "import-linter"],
)
def test_lint(command: list[str]) -> None:
    _clean(command)


@pytest.mark.slow
def test_types() -> None:
    _clean(["basedpyright", "--pythonpath", sys.executable])


def _clean(command: list[str]) -> None:
    tool = Path(sys.executable).with_name(command[0])
    done = subprocess.run([tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _locked(lock: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", _read(lock), re.MULTILINE))


def _name(dependency: str) -> str:
    """The name as locks spell it."""
    return re.split(r"[\[<>=!;~ ]", dependency)[0].lower().replace(".", "-").replace("_", "-")
