"""Commands, links and files that README and docs name exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from functools import cache

import pytest
from typer.testing import CliRunner

from tests.architecture.source import ROOT
from trunkline.cli.main import app

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^( *)```(?:sh|bash|shell|console)[^\n]*\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`((?:tests|src|bench|scripts|docs)/[\w./-]+)`")


def _commands() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            for line in block[2].replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
                if command.startswith(("trunkline ", "make ", "python", "curl ")):
                    found.append((page.relative_to(ROOT).as_posix(), command))
    return found


@pytest.mark.parametrize(("page", "command"), _commands())
def test_command(page: str, command: str) -> None:
    words = shlex.split(command, comments=True)
    words = words[: next((n for n, w in enumerate(words) if w in {"|", "&", "&&", ";", ">"}), len(words))]
    match words[0]:
        case "make":
            targets = {w for w in words[1:] if "=" not in w and not w.startswith("-")}
            assert targets <= _make_targets()
        case "trunkline":
            _check_trunkline(words[1:])
        case "curl":
            assert any(re.match(r"https?://", w) for w in words), "curl without a URL"
        case _:
            _check_python(words[1:])


def test_links() -> None:
    targets = [(page, t.split("#")[0]) for page, t in _found(LINK) if "://" not in t]
    strays = [(page, t) for page, t in targets if t and not (ROOT / page).parent.joinpath(t).exists()]
    assert [stray for stray in strays if not stray[1].startswith("mailto:")] == []


def test_files_that_are_named() -> None:
    assert [(page, file) for page, file in _found(FILE) if not (ROOT / file).exists()] == []


def _found(what: re.Pattern[str]) -> list[tuple[str, str]]:
    """Each match of the pattern with the page that has it."""
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
    return [(page, match) for page, text in texts.items() for match in what.findall(text)]


def _check_trunkline(words: list[str]) -> None:
    path: list[str] = []
    # Words in front of the first argument or flag name the command: `trunkline task list`.
    for word in words:
        if word.startswith("-") or not _help(*path, word):
            break
        path.append(word)
    assert path or words[0] in {"--help", "--version"}, f"no command trunkline {words[0]}"
    text = _help(*path)
    flags = {word.split("=")[0] for word in words if word.startswith("--")}
    assert {flag for flag in flags if flag not in text} == set()


def _check_python(words: list[str]) -> None:
    if words[:1] == ["-m"]:
        assert importlib.util.find_spec(words[1].split(".")[0]), f"no module {words[1]}"
    elif words and not words[0].startswith("-") and "/" in words[0]:
        assert (ROOT / words[0]).exists()


@cache
def _help(*path: str) -> str:
    """The help of a command without line breaks, or an empty string when there is none."""
    done = CliRunner().invoke(
        app, [*path, "--help"], prog_name="trunkline", env={"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
    )
    usage = re.search(r"Usage: (.*)", done.stdout)
    # An argument that happens to be followed by --help also succeeds; its usage line is the parent's.
    named = usage is not None and usage[1].split()[1 : 1 + len(path)] == list(path)
    return done.stdout if done.exit_code == 0 and named else ""


@cache
def _make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {
        name for line in re.findall(r"^([a-z][\w -]*):(?!=)", text, re.MULTILINE) for name in line.split()
    }
