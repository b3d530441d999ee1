"""Measure the size of the package: code lines, files, comments, repeated class names.

    python scripts/measure.py [DIR] [--names]

DIR is the root of a checkout; without it, the one that this script lives in. A *code line* carries code that
somebody has to read: blank lines, comments, docstrings, import statements and lines of nothing but brackets
(what the formatter adds when it breaks a call) are left out. Comments are counted as lines that hold nothing
else, as a share of all lines. A class name is *repeated* if two classes of the package bear it, a leading
underscore aside: a reader who searches for `Page` finds `_Page` too.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

_BRACKETS = re.compile(r"[()\[\]{},:]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _left_out(tree: ast.Module) -> Iterator[range]:
    """The line numbers of every docstring and every import."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield range(node.lineno, (node.end_lineno or 0) + 1)


def code_lines(text: str) -> int:
    """How many lines of a module are code, by the definition above."""
    skipped = {number for lines in _left_out(ast.parse(text)) for number in lines}
    return sum(
        1
        for number, line in enumerate(map(str.strip, text.splitlines()), 1)
        if line and number not in skipped and not line.startswith("#") and not _BRACKETS.fullmatch(line)
    )


def class_names(root: Path) -> dict[str, list[str]]:
    """Every class name of the package, without its underscore, and the files that define such a class."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(root)))
    return found


def main() -> None:
    """Print the figures of one checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument(
        "--names", action="store_true", help="list the repeated class names and where they are"
    )
    options = parser.parse_args()
    root = options.checkout / "src" / "trunkline"
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    lengths: list[int] = []
    comments = 0
    for path in sorted(root.rglob("*.py")):
        text = path.read_text("utf-8")
        parts = path.relative_to(root).parts
        room = parts[0] if len(parts) > 1 else "(top)"
        lines[room] += code_lines(text)
        files[room] += 1
        lengths.append(len(text.splitlines()))
        comments += sum(line.lstrip().startswith("#") for line in text.splitlines())
    repeated = {name: where for name, where in class_names(root).items() if len(where) > 1}
    print(f"{'code lines':22}{lines.total():>7}")
    print(f"{'files':22}{files.total():>7}")
    print(f"{'all lines':22}{sum(lengths):>7}")
    print(f"{'median, longest file':22}{statistics.median(lengths):>7g}{max(lengths):>7}")
    print(f"{'comments':22}{comments:>7}{100 * comments / sum(lengths):>7.1f} %")
    print(f"{'repeated class names':22}{len(repeated):>7}")
    print(f"\n{'room':14}{'code':>7}{'files':>7}")
    for room, count in lines.most_common():
        print(f"{room:14}{count:>7}{files[room]:>7}")
    if options.names:
        print()
        for name, where in sorted(repeated.items()):
            print(f"{name:20} {' '.join(where)}")


if __name__ == "__main__":
    main()
