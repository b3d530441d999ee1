"""`trunkline completion`: the scripts, and bash asked for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_flags_and_choices() -> None:
    asked = [("ta", 1), ("task s", 2), ("send --a", 2), ("send -o j", 3)]
    lines = ["source <(trunkline completion bash)"]
    for words, place in asked:
        lines.append(f"COMP_WORDS=(trunkline {words}); COMP_CWORD={place}; _trunkline_completion trunkline")
        lines.append('echo "${COMPREPLY[*]}" | tr "\\n" " "; echo')
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)],
        capture_output=True, text=True, env={"PATH": path}, timeout=120, check=True,
    )  # fmt: skip
    first, second, third, fourth = [set(line.split()) for line in done.stdout.splitlines()]
    assert first == {"task"}
    assert second == {"subscribe"}
    assert third == {"--agent-card", "--api-key", "--a2a-version", "--async"}
    assert fourth == {"json"}


@pytest.mark.parametrize(
    ("shell", "says"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete --command")]
)
def test_a_script_for_each_shell(trunkline: Run, shell: str, says: str) -> None:
    code, out, _ = trunkline("completion", shell)
    assert code == 0
    assert says in out and "trunkline" in out


def test_a_shell_that_has_none(trunkline: Run) -> None:
    code, _, err = trunkline("completion", "tcsh")
    assert code == 2
    assert "bash, zsh, fish" in err
