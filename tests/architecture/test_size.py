"""Files and functions stay small enough to read in one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source import ROOT, Function, Module, modules

FILE_LIMIT = 700
FUNCTION_LIMIT = 50
POSITIONAL_LIMIT = 5


def test_file_size() -> None:
    long = [f"{m.where}: {n} lines" for m in modules() if (n := _lines(m.path)) > FILE_LIMIT]
    assert long == []


def test_bench_file_size() -> None:
    files = sorted((ROOT / "bench").rglob("*.py"))
    assert [f"{path.name}: {n} lines" for path in files if (n := _lines(path)) > FILE_LIMIT] == []


def test_function_size() -> None:
    long = [
        f"{m.at(f)} {f.name}: {_length(f)} lines"
        for m in modules()
        for f in _functions(m)
        if _length(f) > FUNCTION_LIMIT
    ]
    assert long == []


def test_positional_parameters() -> None:
    wide = [
        f"{m.at(f)} {f.name}"
        for m in modules()
        for f in _functions(m)
        if len([a for a in f.args.posonlyargs + f.args.args if a.arg not in {"self", "cls"}])
        > POSITIONAL_LIMIT
    ]
    assert wide == []


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _functions(module: Module) -> list[Function]:
    return [n for n in module.walk(ast.FunctionDef, ast.AsyncFunctionDef) if isinstance(n, Function)]


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1
