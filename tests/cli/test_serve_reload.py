"""`trunkline serve --reload`: what counts as a change, and what a change does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.cli.serve import changed_at, supervise


class FakeChild:
    """A process that runs until it is ended, or has failed at once."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.code = 0

    def wait(self) -> int:
        assert self.code is not None
        return self.code


def test_files_of_python_are_looked_at(tmp_path: Path) -> None:
    for name in ("agent.py", "notes.txt", ".hidden/a.py", "__pycache__/b.py", "env/c.py", "inner/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    before = changed_at(tmp_path)
    assert set(before) == {"agent.py", "inner/d.py"}
    (tmp_path / "agent.py").unlink()
    assert changed_at(tmp_path) != before


@pytest.mark.parametrize("first", [None, 2], ids=["it runs", "it has failed"])
def test_a_change_begins_the_server_anew(first: int | None, capsys: pytest.CaptureFixture[str]) -> None:
    children = [FakeChild(first), FakeChild()]
    begun: list[FakeChild] = []
    looks: Iterator[dict[str, int]] = iter([{"a.py": 1}, {"a.py": 1}, {"a.py": 2}, {"a.py": 2}])

    def start() -> FakeChild:
        begun.append(children[len(begun)])
        return begun[-1]

    def look() -> dict[str, int]:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    assert supervise(start, look, lambda: None) == 0
    assert begun == children
    assert all(child.code is not None for child in begun)
    assert capsys.readouterr().err == "Reloading: a.py\n"
