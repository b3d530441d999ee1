"""What the package shows: names at the top, docstrings, the tree of errors."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from types import ModuleType

import trunkline
from tests.architecture.source import modules
from trunkline import errors

NAME_LIMIT = 40
ERROR_LIMIT = 35  # below the one root; two of them are those of workflows, which have codes of their own
DOCSTRING_LIMIT = 10
# Raised to leave, not to tell: each is caught in its own room and never reaches a caller.
SIGNALS = {
    "agent/turn.py VerdictGiven",
    "demo/tour_process.py Gone",
    "demo/tour_process.py StepFailed",
    "fleet/routing/dispatcher.py _CooldownBegan",
    "flow/jq/pool.py FilterFailed",
    "flow/engine/replay.py StrayError",
    "flow/engine/walk.py NodeFailed",
    "doctor/exchange.py NotPossible",
    "doctor/check.py CheckFailed",
    "http/exchange.py Disconnected",
}


def test_all_is_what_is_visible() -> None:
    listed = trunkline.__all__
    # The calling half is there once it is asked for.
    for name in listed:
        getattr(trunkline, name)
    visible = {
        name
        for name, value in vars(trunkline).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    } - {"Any", "TYPE_CHECKING", "import_module"}
    assert set(listed) - {"__version__"} == visible
    assert len(listed) == len(set(listed)) <= NAME_LIMIT


def test_an_agent_that_calls_nobody_loads_no_client() -> None:
    code = "import sys, trunkline; print([m for m in sys.modules if m.startswith(('trunkline.client', 'httpx2'))])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_listed_name_is_documented() -> None:
    bare = [
        name
        for name in trunkline.__all__
        if isinstance(value := getattr(trunkline, name), type) and not value.__doc__
    ]
    assert bare == []


def test_module_docstrings() -> None:
    told = {
        m.where: ast.get_docstring(m.tree) or ""
        for m in modules()
        if m.tree.body or m.path.name != "__init__.py"
    }
    assert [where for where, text in told.items() if not text] == [], "say in one line what this file is for"
    # errors.py holds the tree of errors.
    long = [where for where, text in told.items() if len(text.splitlines()) > DOCSTRING_LIMIT]
    assert [where for where in long if where != "errors.py"] == []


def test_one_root_of_errors() -> None:
    assert len(_errors()) - 1 <= ERROR_LIMIT
    assert all(issubclass(each, errors.TrunklineError) for each in _errors())


def test_the_drawn_tree_lists_every_error() -> None:
    drawn = set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)*\b", _drawing()))
    assert {each.__name__ for each in _errors()} == drawn


def test_the_drawn_tree_has_the_right_parents() -> None:
    parents = {each.__name__: each.__base__.__name__ for each in _errors() if each.__base__}
    root, *lines = _drawing().splitlines()
    branch = root
    for line in lines:
        names = re.findall(r"[A-Z]\w+", line)
        if not line.startswith(("│", " ")):
            assert parents[names[0]] == root
            branch = names[0]
        else:
            assert {parents[name] for name in names} == {branch}, line


def test_errors_live_in_one_file() -> None:
    bases = {each.__name__ for each in _errors()} | {
        "Exception",
        "BaseException",
        "ValueError",
        "RuntimeError",
    }
    strays = [
        name
        for module in modules()
        if module.where != "errors.py"
        for node in module.walk(ast.ClassDef)
        if isinstance(node, ast.ClassDef)
        and bases & {b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in node.bases}
        if (name := f"{module.where} {node.name}") not in SIGNALS
    ]
    assert strays == []


def _errors() -> list[type]:
    return [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, BaseException)]


def _drawing() -> str:
    """The lines of the tree, with the words beside it cut off at the first lower-case word."""
    text = errors.__doc__ or ""
    lines = text[text.index("TrunklineError") :].splitlines()
    return "\n".join(re.split(r"\s{2,}(?=[a-z])", line)[0] for line in lines if line.strip())
