"""A report in each of its forms."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace
from rich.console import Console

from trunkline.cli import doctor as reports
from trunkline.doctor.check import ERROR, INFO, WARNING, CheckOutcome, Finding, Severity
from trunkline.doctor.exchange import Evidence
from trunkline.doctor.run import DoctorReport

NASTY = "it said \x1b[31m]]> & <b> \x00 [bold]"


def _finding(name: str, severity: Severity, outcome: CheckOutcome = CheckOutcome.FAILED) -> Finding:
    return Finding(
        check=name,
        family="card",
        severity=severity,
        outcome=outcome,
        reference="§1",
        where="JSONRPC 1.0",
        seen=NASTY,
        means="It breaks.",
        fix="Mend it.",
        evidence=(Evidence("GET /x", "HTTP 500"),) if outcome is CheckOutcome.FAILED else (),
    )


def _report(*findings: Finding, **more: object) -> DoctorReport:
    return DoctorReport(url="http://a.example", agent="A", findings=findings, tasks=2, requests=9, **more)  # type: ignore[arg-type]


BAD = _finding("one-check", ERROR)
REPORT = _report(
    BAD,
    _finding("two-check", WARNING),
    _finding("three-check", INFO),
    _finding("four", ERROR, CheckOutcome.SKIPPED),
)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (_report(), 0),
        (_report(_finding("two-check", WARNING)), 0),
        (_report(BAD), 1),
        (_report(nothing="no card"), 3),
        (_report(locked=True), 4),
        (_report(BAD, locked=True), 1),
    ],
)
def test_exit_codes(report: DoctorReport, code: int) -> None:
    assert reports.exit_code(report) == code


def test_json() -> None:
    document = json.loads(reports.json_of(REPORT))
    assert document["summary"] == {
        "passed": 0, "failed": 3, "skipped": 1, "unknown": 0,
        "errors": 1, "warnings": 1, "infos": 1, "checks": 4, "exitCode": 1,
    }  # fmt: skip
    first = document["findings"][0]
    assert (first["check"], first["severity"], first["outcome"]) == ("one-check", "error", "failed")
    assert first["evidence"] == [{"request": "GET /x", "response": "HTTP 500"}]


def test_junit() -> None:
    root = ElementTree.fromstring(reports.as_junit(REPORT))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "]]> & <b>" in str(failure.get("message"))
    assert "Mend it." in str(failure.text)


@pytest.mark.parametrize("terminal", [True, False])
def test_people_read_it_and_no_agent_writes_to_their_terminal(terminal: bool) -> None:
    out = io.StringIO()
    reports.show(
        REPORT, Console(file=out, force_terminal=terminal, width=120, no_color=True, highlight=False)
    )
    text = out.getvalue()
    for word in ("one-check", "JSONRPC 1.0", "It breaks.", "Mend it.", "GET /x", "[bold]", "made 2 tasks"):
        assert word in text
    assert "\\x1b[31m" in text
    assert "\x1b[31m" not in text
    assert ("severity" in text) is terminal


def test_a_check_that_fails_in_two_places_is_explained_once() -> None:
    out = io.StringIO()
    reports.show(_report(BAD, replace(BAD, where="HTTP+JSON 1.0")), Console(file=out, width=200))
    text = out.getvalue()
    assert text.count("Mend it.") == 1
    assert "one-check [JSONRPC 1.0, HTTP+JSON 1.0]" in text
    assert text.count("error one-check") == 2


def test_errors_come_first() -> None:
    out = io.StringIO()
    later_first = _report(_finding("b-info", INFO), _finding("a-warning", WARNING), BAD)
    reports.show(later_first, Console(file=out, width=200))
    lines = [line.partition(":")[0] for line in out.getvalue().splitlines()[:3]]
    assert [line.split()[0] for line in lines] == ["error", "warning", "info"]
