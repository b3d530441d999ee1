"""What a Python module defines, read from its source: a check must not import what it checks."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

_BLOCKS = (ast.If, ast.Try, ast.With)


class ModuleSource(Struct, frozen=True):
    """The names that a module defines and the skills that its agents offer; None if they are computed."""

    names: frozenset[str] | None = None
    skills: frozenset[str] | None = None


def find_module(name: str, folders: Sequence[str]) -> ModuleSource | None:
    """Return what a module defines, or None if there is no such module; none is imported."""
    spec = _find_spec(name, folders)
    if spec is None:
        return None
    file = Path(spec.origin or "")
    if file.suffix != ".py":
        return ModuleSource()
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ModuleSource()
    return ModuleSource(_names(tree), _skills(tree))


def _find_spec(name: str, folders: Sequence[str]) -> ModuleSpec | None:
    first, *rest = name.split(".")
    known = sys.modules.get(first)
    spec = PathFinder.find_spec(first, folders) or (find_spec(first) if known is None else known.__spec__)
    found = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        found = f"{found}.{part}"
        spec = PathFinder.find_spec(found, list(spec.submodule_search_locations))
    return spec


def _names(tree: ast.Module) -> frozenset[str] | None:
    found = frozenset(_defined(tree.body))
    return None if found & {"*", "__getattr__"} else found


def _defined(body: Sequence[ast.stmt]) -> Iterator[str]:
    for one in body:
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield one.name
            case ast.Import() | ast.ImportFrom():
                yield from [alias.asname or alias.name.partition(".")[0] for alias in one.names]
            case _ if isinstance(one, _BLOCKS):
                for inner in ast.iter_child_nodes(one):
                    blocks = [inner] if isinstance(inner, ast.stmt) else getattr(inner, "body", [])
                    yield from _defined([each for each in blocks if isinstance(each, ast.stmt)])
            case _:
                stored = [node for node in ast.walk(one) if isinstance(node, ast.Name)]
                yield from [node.id for node in stored if isinstance(node.ctx, ast.Store)]


def _skills(tree: ast.Module) -> frozenset[str] | None:
    """Return the IDs of the functions that `@agent.skill` offers; None if some are offered in another way."""
    uses = sum(isinstance(node, ast.Attribute) and node.attr == "skill" for node in ast.walk(tree))
    found = [
        _skill_id(node.name, decorator)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if _is_skill(decorator.func if isinstance(decorator, ast.Call) else decorator)
    ]
    known = frozenset([one for one in found if one])
    return known if known and len(found) == uses and "" not in found else None


def _is_skill(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Attribute) and decorator.attr == "skill"


def _skill_id(name: str, decorator: ast.expr) -> str:
    """Return the ID of a skill, or an empty text if only running the module tells it."""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    for one in keywords:
        if one.arg in ("id", None):
            return str(one.value.value) if isinstance(one.value, ast.Constant) else ""
    return name
