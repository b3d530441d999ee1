"""The plain words of the field; no names that mean nothing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT, modules

EMPTY_WORDS = {"util", "helper", "common"}
ALLOWED_FILES = {"store/base.py", "flow/activities/base.py"}  # the seam files: protocols only
# Words that two rooms have in common with the field; a new class takes a name that no other one has.
REPEATED_CLASSES = {"Body", "CallFailed", "Entry", "Identity", "Node", "Notice", "Skill"}
# Suites that follow no source file.
SUITES = {
    "architecture",
    "chaos",
    "conformance",
    "corpus",
    "docs",
    "examples",
    "hostile",
    "interop",
    "load",
    "model",
    "process",
}


def test_file_names() -> None:
    paths = [p.relative_to(PACKAGE) for p in PACKAGE.rglob("*") if "__pycache__" not in p.parts]
    bad = [
        p.as_posix() for p in paths if p.as_posix() not in ALLOWED_FILES and _meaningless(p.stem.split("_"))
    ]
    assert bad == []


def test_class_names() -> None:
    bad = [
        f"{m.at(c)} {c.name}"
        for m in modules()
        for c in m.walk(ast.ClassDef)
        if isinstance(c, ast.ClassDef)
        and _meaningless(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", c.name))
    ]
    assert bad == []


def test_class_names_mean_one_thing() -> None:
    """A reader who searches for a class finds one; `scripts/measure.py --names` lists those that occur twice."""
    places = defaultdict[str, list[str]](list)
    for module in modules():
        for one in module.walk(ast.ClassDef):
            if isinstance(one, ast.ClassDef):
                places[one.name.lstrip("_")].append(module.at(one))
    assert {name for name, found in places.items() if len(found) > 1} <= REPEATED_CLASSES


@pytest.mark.parametrize("name", ["BaseStore", "HandlerV2", "NewTask", "Helpers", "TaskUtil"])
def test_the_check_sees_banned_classes(name: str) -> None:
    assert _meaningless(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


@pytest.mark.parametrize("stem", ["utils", "string_helpers", "base_store", "queue_v2", "new_queue", "base"])
def test_the_check_sees_banned_files(stem: str) -> None:
    assert _meaningless(stem.split("_"))


@pytest.mark.parametrize("stem", ["owner", "news", "database", "v03", "feed"])
def test_the_check_lets_plain_nouns_pass(stem: str) -> None:
    assert not _meaningless(stem.split("_"))


def test_tests_mirror_the_source() -> None:
    sources = {m.path.relative_to(PACKAGE).with_suffix("").as_posix() for m in modules()}
    strays = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "node_modules" not in path.parts
        if not _belongs(path.relative_to(ROOT / "tests"), sources)
    ]
    assert strays == [], "a test sits beside its module (tests/run/test_feed.py) or in a known suite"


def _belongs(path: Path, sources: set[str]) -> bool:
    """`run/test_feed.py` and `run/test_feed_resume.py` both belong to `run/feed.py`."""
    if path.parts[0] in SUITES:
        return True
    words = path.stem.removeprefix("test_").split("_")
    stems = {"_".join(words[: n + 1]) for n in range(len(words))}
    return any((path.parent / stem).as_posix() in sources for stem in stems)


def _meaningless(words: list[str]) -> bool:
    low = [word.lower() for word in words if word]
    return bool(
        {word.rstrip("s") for word in low} & EMPTY_WORDS
        or (low and low[0] in {"base", "new"})
        or (
            len(low) > 1 and re.fullmatch(r"v?[2-9]", low[-1]) and (low[-1].startswith("v") or low[-2] == "v")
        )
    )
