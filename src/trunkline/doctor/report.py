"""A report as people and machines read it: a table, plain lines, JSON, JUnit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trunkline.doctor.check import Check, CheckOutcome, Finding, Severity
from trunkline.doctor.run import DoctorReport

HEALTHY, SICK, USAGE, UNREACHABLE, LOCKED = 0, 1, 2, 3, 4
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def exit_code(report: DoctorReport) -> int:
    """0 healthy, 1 errors were found, 3 nobody or no card there, 4 the credentials do not open it."""
    if report.nothing:
        return UNREACHABLE
    if report.failed(Severity.ERROR):
        return SICK
    return LOCKED if report.locked else HEALTHY


def as_json(report: DoctorReport) -> bytes:
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
