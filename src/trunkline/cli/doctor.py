"""`trunkline doctor`: examines an agent and says what is wrong with it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from trunkline.cli.console import print_json
from trunkline.config import Secret, secret_text
from trunkline.doctor.report import as_json, as_junit, exit_code, show, show_checks
from trunkline.doctor.run import DoctorReport, chosen, examine
from trunkline.doctor.subject import DoctorOptions
from trunkline.errors import Misuse


def doctor(url: str, options: DoctorOptions, *, json: bool, junit: str) -> int:
    """Examine an agent, print the report, and give the exit code.

    Raises:
        Misuse: the address or a flag is wrong.
    """
    report = asyncio.run(examine(url, options))
    if junit:
        _write(junit, report)
    if json:
        print_json(as_json(report), compact=False)
    else:
        show(report, Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty()))
    return exit_code(report)


def list_checks(options: DoctorOptions) -> None:
    """Print the checks that the flags choose."""
    show_checks(chosen(options), Console(file=sys.stdout, highlight=False, soft_wrap=True))


def credentials(key: str, bearer: str, headers: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """The headers to send along. `env:NAME` is taken from the environment.

    Raises:
        Misuse: a header has no colon, or the environment has no such name.
    """
    found: list[tuple[str, Secret]] = []
    if key:
        found.append(("X-API-Key", Secret(secret_text(key))))
    if bearer:
        found.append(("Authorization", Secret(f"Bearer {secret_text(bearer)}")))
    for one in headers:
        name, colon, value = one.partition(":")
        if not colon or not name.strip():
            raise Misuse("a header is written as 'Name: value'")
        found.append((name.strip(), Secret(secret_text(value.strip()))))
    return tuple(found)


def _write(path: str, report: DoctorReport) -> None:
    try:
        Path(path).write_bytes(as_junit(report))
    except OSError as error:
        raise Misuse(f"{path} cannot be written: {error.strerror}; name another file") from None
