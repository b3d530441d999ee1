"""`trunkline doctor`: examines an agent and says what is wrong with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from rich.console import Console

from trunkline.cli.screen import document
from trunkline.config import Secret, environment
from trunkline.doctor.report import as_json, as_junit, exit_code, show, show_checks
from trunkline.doctor.run import DoctorReport, chosen, examine
from trunkline.doctor.subject import TEXT, DoctorOptions
from trunkline.errors import Misuse


class DoctorArguments(Struct, frozen=True, kw_only=True):
    """What the flags say."""

    credentials: tuple[tuple[str, Secret], ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    skill: str = ""
    text: str = ""
    sends: bool = True
    receiver: str = "127.0.0.1"
    timeout_s: float = 15.0
    as_json: bool = False
    junit: str = ""


def doctor(url: str, asked: DoctorArguments) -> int:
    """Examine, print, and give the exit code.

    Raises:
        Misuse: the address or a flag is wrong.
    """
    report = asyncio.run(examine(url, options_of(asked)))
    if asked.junit:
        _write(asked.junit, report)
    if asked.as_json:
        document(as_json(report), compact=False)
    else:
        show(report, Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty()))
    return exit_code(report)


def list_checks(asked: DoctorArguments) -> None:
    """Print the checks that the flags choose."""
    show_checks(chosen(options_of(asked)), Console(file=sys.stdout, highlight=False, soft_wrap=True))


def options_of(asked: DoctorArguments) -> DoctorOptions:
    """The flags as the doctor takes them.

    Raises:
        Misuse: a number makes no sense.
    """
    if not asked.timeout_s > 0:
        raise Misuse("--timeout is a number of seconds above 0")
    return DoctorOptions(
        credentials=asked.credentials,
        only=asked.only,
        skip=asked.skip,
        skill=asked.skill,
        text=asked.text or TEXT,
        sends=asked.sends,
        receiver=asked.receiver,
        timeout_s=asked.timeout_s,
    )


def credentials(key: str, bearer: str, headers: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """What is sent along. A key or a bearer token given as `env:NAME` is taken from the environment.

    Raises:
        Misuse: a header has no colon, or the environment has no such name.
    """
    found: list[tuple[str, Secret]] = []
    if key:
        found.append(("X-API-Key", Secret(_meant(key))))
    if bearer:
        found.append(("Authorization", Secret(f"Bearer {_meant(bearer)}")))
    for one in headers:
        name, colon, value = one.partition(":")
        if not colon or not name.strip():
            raise Misuse("a header is written as 'Name: value'")
        found.append((name.strip(), Secret(value.strip())))
    return tuple(found)


def _meant(word: str) -> str:
    name = word.removeprefix("env:")
    if name == word:
        return word
    value = environment(name).get(name, "")
    if not value:
        raise Misuse(f"the environment has no {name}; set it, or name another")
    return value


def _write(path: str, report: DoctorReport) -> None:
    try:
        Path(path).write_bytes(as_junit(report))
    except OSError as error:
        raise Misuse(f"{path} cannot be written: {error.strerror}; name another file") from None
