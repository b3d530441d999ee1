"""The source tree as parsed modules, for the checks in this folder."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trunkline"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the package; `name` is dotted, `where` is what a failure message shows."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        """The module itself, which is the first of its nodes."""
        tree = self._nodes[0]
        assert isinstance(tree, ast.Module)
        return tree

    @cached_property
    def _nodes(self) -> tuple[ast.AST, ...]:
        """Read when first asked for, and walked once: every worker names the modules, few look into them."""
        nodes = tuple(ast.walk(ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))))
        # All of them are a million objects that stay: whoever looks for garbage in a later test would pass each.
        gc.freeze()
        return nodes

    @property
    def where(self) -> str:
        return self.path.relative_to(PACKAGE).as_posix()

    @property
    def room(self) -> str:
        """First folder or file below the package; empty for the package itself."""
        return self.name.split(".")[1] if "." in self.name else ""

    def walk(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in self._nodes if isinstance(node, kinds))

    def at(self, node: ast.AST) -> str:
        return f"{self.where}:{getattr(node, 'lineno', 0)}"


@dataclass(frozen=True)
class Import:
    """One imported module, and whether it happens when the importing module is loaded."""

    target: str
    names: tuple[str, ...]
    line: int
    function: str
    typing_only: bool


@cache
def modules() -> tuple[Module, ...]:
    found: list[Module] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path))
    return tuple(found)


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Every import of a module, with `from package import submodule` resolved to the submodule."""
    known = {each.name for each in modules()}
    found: list[Import] = []

    def visit(node: ast.AST, function: str, typing_only: bool) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.Import(names=names):
                    found.extend(Import(n.name, (), child.lineno, function, typing_only) for n in names)
                case ast.ImportFrom(module=str(origin), level=0, names=names):
                    rest = tuple(n.name for n in names if f"{origin}.{n.name}" not in known)
                    deeper = [f"{origin}.{n.name}" for n in names if f"{origin}.{n.name}" in known]
                    if rest:
                        found.append(Import(origin, rest, child.lineno, function, typing_only))
                    found.extend(Import(d, (), child.lineno, function, typing_only) for d in deeper)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    visit(child, function or name, typing_only)
                case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                    visit(child, function, True)
                case _:
                    visit(child, function, typing_only)

    visit(module.tree, "", False)
    return tuple(found)


def dotted(node: ast.AST) -> str:
    """`os.environ` for the attribute chain os.environ, else an empty string."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            front = dotted(value)
            return f"{front}.{attr}" if front else ""
        case _:
            return ""
