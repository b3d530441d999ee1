"""`trunkline new`: what it writes runs, and it writes over nothing."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.harness import ServerProcess
from trunkline.client.sync import SyncClient


def test_a_project_that_runs(trunkline: Run, tmp_path: Path) -> None:
    code, out, err = trunkline("new", "word-desk")
    assert (code, err) == (0, "")
    assert "Next: cd word-desk && trunkline serve agent:agent\n" in out
    project = tmp_path / "word-desk"
    written = {path.relative_to(tmp_path).as_posix() for path in project.rglob("*") if path.is_file()}
    assert written == set(out.partition("\n\n")[0].splitlines())
    # Its tests take the agent of the folder, not one that a host has loaded.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    with ServerProcess(project, "agent:agent", store="memory:") as server, SyncClient(server.base) as client:
        assert client.card().name == "word-desk"
        assert client.send("count these four words").text == "4 words"


def test_the_container_copies_and_starts_what_is_there(trunkline: Run, tmp_path: Path) -> None:
    trunkline("new", "Word_Desk")
    project = tmp_path / "Word_Desk"
    lines = (project / "Dockerfile").read_text().splitlines()
    copied = next(line for line in lines if line.startswith("COPY")).split()[1:-1]
    assert all((project / name).exists() for name in copied)
    assert lines[-1] == 'CMD ["trunkline", "serve", "agent:agent", "--host", "0.0.0.0"]'
    about = tomllib.loads((project / "pyproject.toml").read_text())
    assert about["project"]["dependencies"] == ["trunkline"]
    assert [f"{name}.py" for name in about["tool"]["setuptools"]["py-modules"]] == ["agent.py"]
    readme = (project / "README.md").read_text()
    assert "docker build -t word-desk ." in readme
    for line in readme.splitlines():
        if line.startswith("trunkline "):
            assert trunkline(shlex.split(line)[1], "--help")[0] == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../up", "is not a valid project name"),
        ("a/b", "is not a valid project name"),
        ("", "is not a valid project name"),
        ("1st", "is not a valid project name"),
        ("tail-", "is not a valid project name"),
        ("a.b", "is not a valid project name"),
        ("a\nb", "is not a valid project name"),
        ("n" * 65, "is not a valid project name"),
        ("Trunkline", "choose another"),
    ],
)
def test_a_name_that_is_none(trunkline: Run, tmp_path: Path, name: str, says: str) -> None:
    code, out, err = trunkline("new", name)
    assert (code, out) == (2, "")
    assert says in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["directory", "file", "dangling link"])
def test_what_exists_is_left_alone(trunkline: Run, tmp_path: Path, kind: str) -> None:
    there = tmp_path / "desk"
    if kind == "directory":
        there.mkdir()
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(tmp_path / "nowhere")
    code, out, err = trunkline("new", "desk")
    assert (code, out) == (2, "")
    assert "desk already exists; choose another name, or remove it" in err
    assert [one.name for one in tmp_path.iterdir()] == ["desk"]
    assert kind != "directory" or list(there.iterdir()) == []
