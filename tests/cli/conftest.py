"""The command line as a test runs it: in this process, in an empty folder, without a setting of the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trunkline.cli.main import main
from trunkline.config import Settings


@pytest.fixture
def trunkline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Run `trunkline` with these words: exit code, output, complaint."""
    for field in Settings.__struct_fields__:
        monkeypatch.delenv(f"TRUNKLINE_{field.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trunkline", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int | None)
        return ended.value.code or 0, said.out, said.err

    return run
