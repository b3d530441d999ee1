"""Files and functions stay small enough to read in one sitting."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, Module, modules

FILE_LIMIT = 500
SQL_FILE_LIMIT = 600  # one file per database engine
SQL_FILES = {"store/sqlite.py", "store/postgres.py"}
FUNCTION_LIMIT = 50
POSITIONAL_LIMIT = 5


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.where)
def test_file_size(module: Module) -> None:
    lines = len(module.path.read_text(encoding="utf-8").splitlines())
    assert lines <= (SQL_FILE_LIMIT if module.where in SQL_FILES else FILE_LIMIT)


@pytest.mark.parametrize("path", sorted((ROOT / "bench").rglob("*.py")), ids=lambda p: p.name)
def test_bench_file_size(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LIMIT


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.where)
def test_function_size(module: Module) -> None:
    long = [
        f"{module.at(f)} {f.name}: {_length(f)} lines"
        for f in _functions(module)
        if _length(f) > FUNCTION_LIMIT
    ]
    assert long == []


@pytest.mark.parametrize("module", modules(), ids=lambda m: m.where)
def test_positional_parameters(module: Module) -> None:
    wide = [
        f"{module.at(f)} {f.name}"
        for f in _functions(module)
        if len([a for a in f.args.posonlyargs + f.args.args if a.arg not in {"self", "cls"}])
        > POSITIONAL_LIMIT
    ]
    assert wide == []


def test_medians() -> None:
    lengths = [_length(f) for m in modules() for f in _functions(m)]
    sizes = [n for m in modules() if (n := len(m.path.read_text(encoding="utf-8").splitlines())) > 1]
    assert statistics.median(lengths) <= 8
    assert statistics.median(sizes) <= 150


def _functions(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1
