"""What a module defines and which skills its agents offer, without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trunkline.hub.module_source import ModuleSource, find_module


@pytest.mark.parametrize(
    ("text", "names", "skills"),
    [
        ("raise SystemExit", set(), None),
        ("import a.b, c as d\nfrom e import f\nx = y, z = 1, 2\nn: int = 3", {*"adfxyzn"}, None),
        ("def f(): pass\nasync def g(): pass\nclass H: pass", {*"fgH"}, None),
        ("try:\n    import a\nexcept ImportError:\n    a = b = None\nif a:\n    c = 1\nelse:\n    d = 2", {*"abcd"}, None),
        ("from a import *", None, None),
        ("def __getattr__(name): return 1", None, None),
        ("@agent.skill\ndef f(): pass\n@agent.skill(id='g', tags=[])\nasync def h(): pass", {"f", "h"}, {"f", "g"}),
        ("@agent.skill(id=name)\ndef f(): pass", {"f"}, None),
        ("@agent.skill(**about)\ndef f(): pass", {"f"}, None),
        ("@agent.skill\ndef f(): pass\nagent.skill(g)", {"f"}, None),
    ],
)  # fmt: skip
def test_source_of_a_module(
    tmp_path: Path, text: str, names: set[str] | None, skills: set[str] | None
) -> None:
    (tmp_path / "of_source.py").write_text(text)
    found = find_module("of_source", [str(tmp_path)])
    frozen = [None if one is None else frozenset(one) for one in (names, skills)]
    assert found == ModuleSource(*frozen)
    assert "of_source" not in sys.modules


def test_module_is_found_in_a_package_and_without_source(tmp_path: Path) -> None:
    package = tmp_path / "source_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit")
    (package / "inner.py").write_text("x = 1")
    assert find_module("source_package.inner", [str(tmp_path)]) == ModuleSource(frozenset({"x"}))
    assert find_module("source_package.gone", [str(tmp_path)]) is None
    assert find_module("source_package.inner.x", [str(tmp_path)]) is None
    assert find_module("nowhere_at_all", [str(tmp_path)]) is None
    assert find_module("sys", []) == ModuleSource()
