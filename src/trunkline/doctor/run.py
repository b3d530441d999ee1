"""An examination from the first question to the last: few tasks, a deadline for everything, no task left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec import Struct

from trunkline.doctor import (
    canceling,
    card,
    delivery,
    discovery,
    egress,
    extensions,
    hygiene,
    interfaces,
    jsonrpc,
    limits,
    messages,
    push,
    reading,
    rest,
    security,
    sending,
    shapes,
    streaming,
    subscribing,
    versions,
)
from trunkline.doctor.binding import ProbeBinding
from trunkline.doctor.finding import (
    CHECKS,
    Check,
    CheckOutcome,
    CheckVerdict,
    Finding,
    NotPossible,
    Severity,
    skipped,
    unknown,
)
from trunkline.doctor.fixtures import task_in
from trunkline.doctor.json_access import TERMINAL, text
from trunkline.doctor.subject import DoctorOptions, Subject, host_of
from trunkline.errors import Misuse
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient
from trunkline.net.http_client import SocketHttpClient

FAMILIES = tuple(
    module.__name__.rpartition(".")[2]
    for module in (
        discovery,
        card,
        interfaces,
        versions,
        jsonrpc,
        rest,
        sending,
        messages,
        reading,
        canceling,
        streaming,
        subscribing,
        push,
        delivery,
        egress,
        security,
        extensions,
        shapes,
        limits,
        hygiene,
    )
)
_ANSWERS, _SPEAKS = CHECKS["interface-answers"], CHECKS["interface-speaks-version"]
# The family that looks at the door itself, and can do so from outside.
_DOOR = "security"
# What is kept of the time for tidying up, and for the checks that look at everything.
_TIDY = 0.1
_LATE = 0.05
_TIDY_S = 2.0


class DoctorReport(Struct, frozen=True, kw_only=True):
    """What an examination found. `tasks` were made on the way, `left` of them could not be ended."""

    url: str
    agent: str = ""
    interfaces: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    tasks: int = 0
    left: int = 0
    requests: int = 0
    took_s: float = 0.0
    # Why there was nothing to examine; empty if there was.
    nothing: str = ""
    # Nothing was served without credentials, or with those that were given.
    locked: bool = False

    def failed(self, severity: Severity | None = None) -> list[Finding]:
        """The findings that failed, all or of one severity."""
        return [
            one
            for one in self.findings
            if one.outcome is CheckOutcome.FAILED and (severity is None or one.severity is severity)
        ]


async def examine(
    url: str, options: DoctorOptions | None = None, carrier: HttpClient | None = None
) -> DoctorReport:
    """Examine the agent at this address.

    Raises:
        Misuse: the address is none, or a check is named that does not exist.
    """
    options = options or DoctorOptions()
    _known((*options.only, *options.skip))
    own = carrier is None
    subject = Subject(url, carrier or _caller(url), options)
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        subject.line.until = began + options.timeout_s * (1 - _TIDY)
        found = await _look(subject, subject.line.until)
        subject.line.until = began + options.timeout_s
        left = await _tidy(subject)
    except asyncio.CancelledError:
        # Whoever interrupts an examination leaves tasks behind as little as one that ends.
        await _tidy(subject)
        raise
    finally:
        if own:
            await subject.line.close()
    nothing = "" if subject.card else _nothing(subject)
    return DoctorReport(
        url=subject.url,
        agent=text(subject.card.get("name")),
        interfaces=tuple(f"{way.name} at {way.url}" for way in subject.ways),
        findings=tuple(found),
        tasks=len(subject.made),
        left=left,
        requests=len(subject.line.journal),
        took_s=round(loop.time() - began, 3),
        nothing=nothing,
        locked=bool(subject.ways) and all(_is_locked(found, way) for way in subject.ways),
    )


def chosen(options: DoctorOptions) -> list[Check]:
    """The checks that the operator wants, in the order of their families."""
    listed = sorted(CHECKS.values(), key=lambda check: FAMILIES.index(check.family))
    only, skip = set(options.only), set(options.skip)
    return [
        check
        for check in listed
        if (not only or {check.name, check.family} & only) and not {check.name, check.family} & skip
    ]


def _known(names: tuple[str, ...]) -> None:
    strange = [name for name in names if name not in CHECKS and name not in FAMILIES]
    if strange:
        raise Misuse(f"there is no check or family {strange[0]!r}; see trunkline doctor --list")


def _caller(url: str) -> SocketHttpClient:
    # The operator has named this host; where its card leads is a stranger's word.
    return SocketHttpClient(Egress(hosts=(host_of(url),)))


def _nothing(subject: Subject) -> str:
    seen = next(iter(subject.found.values()), None)
    return f"no card at {subject.url}: {seen.told() if seen is not None else 'nobody answered'}"


async def _look(subject: Subject, until: float) -> list[Finding]:
    loop = asyncio.get_running_loop()
    findings: list[Finding] = []
    checks = chosen(subject.options)
    if not await subject.discover():
        for name in ("card-found", "card-legacy-path"):
            if CHECKS[name] in checks:
                findings.append(await _run(CHECKS[name], subject, None))
        return findings
    await subject.settle()
    shut = await _shut(subject)
    work = [(check, way) for check in checks for way in _ways(check, subject)]
    early = [(check, way) for check, way in work if not check.late]
    late = [(check, way) for check, way in work if check.late]
    for batch, share in ((early, _LATE), (late, 0.0)):
        limit_s = max(until - loop.time() - share * subject.options.timeout_s, 0.1)
        findings += await _all(batch, subject, shut, limit_s)
    order = {check.name: place for place, check in enumerate(checks)}
    return sorted(findings, key=lambda one: order[one.check])


def _ways(check: Check, subject: Subject) -> Iterator[ProbeBinding | None]:
    """Where a check is done: once, at each interface that it is for, or at the first of each version."""
    if check.of_agent is not None:
        yield None
        return
    had: set[str] = set()
    for way in subject.ways:
        fits = way.binding in check.bindings and way.version in check.versions
        if fits and not (check.first and way.version in had):
            had.add(way.version)
            yield way


async def _shut(subject: Subject) -> dict[str, Finding]:
    """The ways on which nothing is served: no answer, no version, no credentials. Little is asked there."""
    shut: dict[str, Finding] = {}
    for check in (_ANSWERS, _SPEAKS):
        ways = [way for way in subject.ways if way.name not in shut]
        found = await asyncio.gather(*(_run(check, subject, way) for way in ways))
        shut |= {one.where: one for one in found if one.outcome is not CheckOutcome.PASSED}
    return shut


def _is_locked(found: list[Finding], way: ProbeBinding) -> bool:
    return any(
        one.check == _ANSWERS.name and one.where == way.name and one.outcome is CheckOutcome.UNKNOWN
        for one in found
    )


async def _all(
    batch: list[tuple[Check, ProbeBinding | None]], subject: Subject, shut: dict[str, Finding], limit_s: float
) -> list[Finding]:
    findings: list[Finding] = []
    open_: list[tuple[Check, ProbeBinding | None]] = []
    for check, way in batch:
        closed = None if way is None else shut.get(way.name)
        if closed is None or (check.family == _DOOR and closed.outcome is CheckOutcome.UNKNOWN):
            open_.append((check, way))
        elif check.name == closed.check:
            findings.append(closed)
        else:
            verdict = skipped(f"nothing is served there; see {closed.check}")
            findings.append(_finding(check, way, verdict, subject))
    tasks = [asyncio.create_task(_run(check, subject, way)) for check, way in open_]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for (check, way), task in zip(open_, tasks, strict=True):
        if task.cancelled():
            verdict = unknown(
                f"there was no time left: the whole examination has {subject.options.timeout_s:g} s"
            )
            findings.append(_finding(check, way, verdict, subject))
        else:
            findings.append(task.result())
    return findings


async def _run(check: Check, subject: Subject, way: ProbeBinding | None) -> Finding:
    try:
        if check.of_way is not None and way is not None:
            verdict = await check.of_way(way)
        elif check.of_agent is not None:
            verdict = await check.of_agent(subject)
        else:
            verdict = skipped("there is no interface for it")
    except NotPossible as why:
        verdict = skipped(str(why))
    return _finding(check, way, verdict, subject)


def _finding(check: Check, way: ProbeBinding | None, verdict: CheckVerdict, subject: Subject) -> Finding:
    bad = verdict.outcome is CheckOutcome.FAILED
    shown = verdict.exchanges
    if not shown and check.of_agent is not None and subject.card:
        shown = (subject.card_seen,)
    return Finding(
        check=check.name,
        family=check.family,
        severity=check.severity,
        outcome=verdict.outcome,
        reference=check.reference,
        where="" if way is None else way.name,
        seen=subject.line.redacted(verdict.seen) if verdict.outcome is not CheckOutcome.PASSED else "",
        means=check.means if bad else "",
        fix=check.fix if bad else "",
        evidence=tuple(subject.line.evidence(one) for one in shown) if bad else (),
    )


async def _tidy(subject: Subject) -> int:
    """End what was begun; gives how many tasks could not be."""
    running = [(name, made) for name, made in subject.made.items() if made.state not in TERMINAL]

    async def end(name: str, way: ProbeBinding) -> bool:
        answer = await way.call("cancel", {"id": name}, timeout_s=_TIDY_S)
        if not answer.refused and answer.result is not None:
            return True
        after = await way.call("get", {"id": name}, timeout_s=_TIDY_S)
        return subject.made[name].state in TERMINAL or not task_in(after)

    ended = await asyncio.gather(*(end(name, made.way) for name, made in running))
    return ended.count(False)
