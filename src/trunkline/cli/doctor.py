"""`trunkline doctor`, which says what is wrong with an agent, and `trunkline demo`, which shows one.

A report of the doctor is read by people and machines: as a table, plain lines, JSON and JUnit.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trunkline.cli.console import print_json
from trunkline.cli.parsing import Commands, Several
from trunkline.config import Secret, secret_text
from trunkline.demo.tour import run as run_tour
from trunkline.doctor.check import Check, CheckOutcome, Finding, Severity
from trunkline.doctor.run import DoctorReport, chosen, examine
from trunkline.doctor.subject import TEXT, DoctorOptions
from trunkline.errors import Misuse
from trunkline.http.host_check import is_loopback

commands = Commands()
HEALTHY, SICK, USAGE, UNREACHABLE, LOCKED = 0, 1, 2, 3, 4
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


@commands.local("doctor")
def doctor(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="URL of the agent, its card or its endpoint.")
    ] = "",
    *,
    key: Annotated[
        str,
        typer.Option("--key", "--api-key", help="Key for X-API-Key, or env:NAME for a variable."),
    ] = "",
    bearer: Annotated[str, typer.Option(help="Bearer token, or env:NAME for a variable.")] = "",
    header: Annotated[Several, typer.Option(help="Header to send, as 'Name: value'; repeatable.")] = None,
    as_json: bool,
    junit: Annotated[
        str, typer.Option(metavar="FILE", help="File to which a JUnit XML report is written.")
    ] = "",
    only: Annotated[Several, typer.Option(help="Family or check; repeatable.")] = None,
    skip: Annotated[Several, typer.Option(help="Family or check; repeatable.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the checks and exit.")] = False,
    timeout: Annotated[float, typer.Option(help="Total time limit, in seconds.")] = 15.0,
    skill: Annotated[str, typer.Option(metavar="ID", help="Skill to request.")] = "",
    text: Annotated[str, typer.Option(help="Text to send; choose something harmless and quick.")] = "",
    no_send: Annotated[bool, typer.Option("--no-send", help="Create no tasks.")] = False,
    local_receiver: Annotated[
        str,
        typer.Option(metavar="HOST", help="Address of this machine as the agent reaches it, for webhooks."),
    ] = "127.0.0.1",
) -> None:
    """Examine an agent; exit code 1 if a finding breaks callers."""
    if not timeout > 0:
        raise Misuse("--timeout is a number of seconds above 0", hint="--timeout 60")
    options = DoctorOptions(
        credentials=_credentials(key, bearer, header or ()),
        only=tuple(only or ()),
        skip=tuple(skip or ()),
        skill=skill,
        text=text or TEXT,
        sends=not no_send,
        receiver=local_receiver,
        timeout_s=timeout,
    )
    if listing:
        show_checks(chosen(options), Console(file=sys.stdout, highlight=False, soft_wrap=True))
    elif url:
        _print(asyncio.run(examine(url, options)), url, junit, as_json=as_json)
    else:
        raise Misuse("no agent is named: give its URL", hint="trunkline doctor http://HOST:PORT")


def _print(report: DoctorReport, url: str, junit: str, *, as_json: bool) -> None:
    if junit:
        try:
            Path(junit).write_bytes(as_junit(report))
        except OSError as error:
            raise Misuse(f"{junit} cannot be written: {error.strerror}; name another file") from None
    if as_json:
        print_json(json_of(report))
    else:
        show(report, Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty()))
        if hint := _hint(report, url):
            print(f"Hint: {hint}", file=sys.stderr)
    raise typer.Exit(exit_code(report))


def _hint(report: DoctorReport, url: str) -> str:
    """Return the command to run after an examination that could not begin, or an empty text."""
    parts = urlsplit(url)
    match exit_code(report):
        case 3 if is_loopback(parts.hostname or "") and "the connection failed" in report.nothing:
            return f"trunkline serve MODULE:AGENT --port {parts.port or 80}"
        case 3:
            return shlex.join(["trunkline", "card", "get", "-a", f"{parts.scheme}://{parts.netloc}"])
        case 4:
            return shlex.join(["trunkline", "doctor", url, "--key", "env:NAME"])
        case _:
            return ""


def _credentials(key: str, bearer: str, headers: Sequence[str]) -> tuple[tuple[str, Secret], ...]:
    """The headers to send along. `env:NAME` is taken from the environment."""
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


@commands.local("demo")
def demo(
    *,
    once: Annotated[bool, typer.Option(help="Exit after the tour.")] = False,
    port: Annotated[
        int, typer.Option(help="Port of the demo server; the next free one if it is in use.")
    ] = 8000,
) -> None:
    """Start the demo agent and show what it can do, alone and in a fleet."""
    raise typer.Exit(run_tour(once=once, port=port))


def exit_code(report: DoctorReport) -> int:
    """0 healthy, 1 errors were found, 3 nobody or no card there, 4 the credentials do not open it."""
    if report.nothing:
        return UNREACHABLE
    if report.failed(Severity.ERROR):
        return SICK
    return LOCKED if report.locked else HEALTHY


def json_of(report: DoctorReport) -> bytes:
    """One JSON document."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    document["tookSeconds"] = document.pop("took_s")
    document["summary"] = {**_counted(report), "exitCode": exit_code(report)}
    return msgspec.json.encode(document)


def as_junit(report: DoctorReport) -> bytes:
    """JUnit XML: a suite per family, a case per check and interface."""
    suites = Element("testsuites", name="trunkline doctor", time=f"{report.took_s:.3f}")
    for family, findings in groupby(report.findings, key=lambda one: one.family):
        suite = SubElement(suites, "testsuite", name=family)
        for one in findings:
            _add_case(suite, one)
        for name, path in (("tests", ""), ("failures", "/failure"), ("skipped", "/skipped")):
            suite.set(name, str(len(suite.findall(f"testcase{path}"))))
    indent(suites)
    return tostring(suites, encoding="utf-8", xml_declaration=True)


def _add_case(suite: Element, one: Finding) -> None:
    case = SubElement(suite, "testcase", classname=f"doctor.{one.family}", name=_title(one))
    shown = [f"means: {one.means}", f"fix: {one.fix}", f"reference: {one.reference}"]
    shown += [f"{each.request}\n{each.response}" for each in one.evidence]
    if one.outcome is CheckOutcome.FAILED and one.severity is Severity.ERROR:
        failure = SubElement(case, "failure", message=_clean(one.seen), type=one.severity.value)
        failure.text = _clean("\n".join(shown))
    elif one.outcome is CheckOutcome.FAILED:
        said = [f"{one.severity.value}: {one.seen}", *shown]
        SubElement(case, "system-out").text = _clean("\n".join(said))
    elif one.outcome is not CheckOutcome.PASSED:
        SubElement(case, "skipped", message=_clean(one.seen))


def show(report: DoctorReport, console: Console) -> None:
    """Print it: a table on a terminal, plain lines in a pipe."""
    bad = sorted(report.failed(), key=lambda one: list(Severity).index(one.severity))
    unknown = [one for one in report.findings if one.outcome is CheckOutcome.UNKNOWN]
    if console.is_terminal and bad:
        _table(bad, console)
    else:
        for one in bad:
            console.print(_plain(f"{one.severity.value} {_title(one)}: {one.seen}"))
    alike: dict[str, list[Finding]] = {}
    for one in bad:
        alike.setdefault(one.check, []).append(one)
    for found in alike.values():
        console.print()
        _explain(found, console)
    for one in unknown[:5]:
        console.print(_plain(f"unknown {_title(one)}: {one.seen}"))
    for line in _summary(report):
        console.print(_plain(line))


def show_checks(checks: list[Check], console: Console) -> None:
    """Print the list of checks."""
    for check in checks:
        console.print(_plain(f"{check.name} ({check.severity.value}; {check.reference}): {check.about}"))


def _table(bad: list[Finding], console: Console) -> None:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("severity", "check", "where", "seen"):
        table.add_column(name, overflow="fold")
    for one in bad:
        word = Text(one.severity.value, style=_COLOURS[one.severity])
        table.add_row(word, _plain(one.check), _plain(one.where), _plain(one.seen[:200]))
    console.print(table)


def _explain(alike: list[Finding], console: Console) -> None:
    """Print the findings of one check; the first place is shown whole."""
    first = alike[0]
    places = ", ".join(one.where for one in alike if one.where)
    name = f"{first.check} [{places}]" if places else first.check
    head = _plain(f"{name} ({first.severity.value}; {first.reference})")
    head.stylize(f"bold {_COLOURS[first.severity]}")
    console.print(head)
    for label, text in (("seen", first.seen), ("means", first.means), ("fix", first.fix)):
        console.print(_plain(f"  {label}: {text}"))
    for each in first.evidence:
        for mark, text in (("  > ", each.request), ("  < ", each.response)):
            console.print(_plain("\n".join(mark + line for line in text.splitlines())))


def _summary(report: DoctorReport) -> Iterator[str]:
    if report.nothing:
        yield report.nothing
        return
    counted = _counted(report)
    name = f"{report.agent or 'an agent without a name'} at {report.url}"
    yield f"{name}: {', '.join(report.interfaces) or 'no interface to examine'}"
    words = [f"{counted[key]} {key}" for key in ("passed", "failed", "skipped", "unknown")]
    found = [f"{counted[key]} {key}" for key in ("errors", "warnings", "infos")]
    yield f"{', '.join(words)} ({', '.join(found)})"
    made = "made no tasks" if not report.tasks else f"made {report.tasks} tasks"
    left = f", {report.left} of them could not be ended" if report.left else ""
    yield f"{made}{left}; {report.requests} requests in {report.took_s:.1f} s"
    if report.locked:
        yield "nothing could be examined; see interface-answers. Credentials: --key, --bearer or --header"


def _counted(report: DoctorReport) -> dict[str, int]:
    outcomes = Counter(one.outcome.value for one in report.findings)
    severities = Counter(one.severity.value for one in report.failed())
    return {
        **{one.value: outcomes[one.value] for one in CheckOutcome},
        **{f"{one.value}s": severities[one.value] for one in Severity},
        "checks": len({one.check for one in report.findings}),
    }


def _title(one: Finding) -> str:
    return f"{one.check} [{one.where}]" if one.where else one.check


def _plain(text: str) -> Text:
    """Text that no agent can colour, move or style a terminal with."""
    return Text("".join(one if one.isprintable() or one == "\n" else ascii(one)[1:-1] for one in text))


def _clean(text: str) -> str:
    """Text without what XML cannot hold."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
