"""Row 43: every regular expression of ours takes linear time, by its shape and by the clock."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import re
import time
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

import pytest

import trunkline
from tests.architecture.source import PACKAGE

SIZE = 50_000
# What grows with the square of the length would take seconds; a slow machine takes a few times what ours does.
LIMIT_S = 0.5
SEEDS = (
    "0",
    "1.0.",
    "0.3.a+-",
    "-",
    "a",
    " ",
    "`",
    "`a",
    " - at `$.",
    "\r",
    "\n",
    "\r\n",
    "(?",
    "(,",
    "2026-01-31T12:00:00.0",
    "0123abcd-",
    "-- name: x",
    "?,",
    "\0",
    "\u2028",
    "Z+00:00",
    "_",
    "~",
)


def _patterns() -> dict[str, re.Pattern[Any]]:
    found: dict[str, re.Pattern[Any]] = {}
    for module in pkgutil.walk_packages(trunkline.__path__, "trunkline."):
        if module.name.endswith("__main__"):
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:
            # Of an extra whose library is not here, or too old; where it is, this finds it.
            continue
        for name, value in vars(loaded).items():
            if isinstance(value, re.Pattern):
                found[f"{module.name}.{name}"] = value
    return found


PATTERNS = _patterns()


def test_there_are_patterns_to_look_at() -> None:
    assert len(PATTERNS) >= 8


@pytest.mark.parametrize("name", PATTERNS)
def test_no_repeat_within_a_repeat(name: str) -> None:
    parsed = sre.parse(
        PATTERNS[name].pattern,
        PATTERNS[name].flags & ~re.UNICODE
        if isinstance(PATTERNS[name].pattern, bytes)
        else PATTERNS[name].flags,
    )
    assert not _nested(parsed, inside=False)


def _nested(parsed: Any, *, inside: bool) -> bool:
    for operation, argument in parsed:
        if operation in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            _, most, body = argument
            if inside and most > 1:
                return True
            if _nested(body, inside=inside or most > 1):
                return True
        elif operation is sre.SUBPATTERN and _nested(argument[-1], inside=inside):
            return True
        elif operation is sre.BRANCH and any(_nested(one, inside=inside) for one in argument[1]):
            return True
    return False


@pytest.mark.parametrize("name", PATTERNS)
def test_long_strings_take_no_time(name: str) -> None:
    pattern = PATTERNS[name]
    for use in _uses(name):
        for seed in SEEDS:
            full = seed * (SIZE // len(seed))
            for text in (full, full + "!", "1.0" + full + "\0"):
                subject: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
                assert _taken_s(pattern, use, subject) <= LIMIT_S, (use, text[:40])


def _taken_s(pattern: re.Pattern[Any], use: str, subject: Any) -> float:
    # Whatever else this process holds may be collected while many matches are made.
    gc.disable()
    try:
        began = time.thread_time()
        pattern.sub(subject[:0], subject) if use == "sub" else getattr(pattern, use)(subject)
        return time.thread_time() - began
    finally:
        gc.enable()


def _uses(name: str) -> set[str]:
    """How our code asks this pattern: an anchored one need not be quick to search."""
    module, _, short = name.rpartition(".")
    own = inspect.getsource(importlib.import_module(module))
    others = [each.read_text(encoding="utf-8") for each in PACKAGE.rglob("*.py")]
    texts = [
        own,
        *(each for each in others if re.search(rf"^from {module} import .*\b{short}\b", each, re.M)),
    ]
    uses = {use for text in texts for use in re.findall(rf"\b{short}\.([a-z]+)\b", text)}
    assert uses, f"{name} is used by nobody"
    return uses - {"format"}
