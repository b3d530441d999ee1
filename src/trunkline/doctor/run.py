"""An examination from the first request to the last: few tasks, a deadline for everything, no task left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from trunkline.doctor.check import FAMILIES, Check, CheckFailed, CheckOutcome, Finding, Severity, assume
from trunkline.doctor.checks import CHECKS
from trunkline.doctor.exchange import TERMINAL, NotPossible, Undecided, text
from trunkline.doctor.probe import InterfaceProbe
from trunkline.doctor.subject import DoctorOptions, Subject, agent_address, is_loopback
from trunkline.errors import Misuse
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient
from trunkline.net.http_client import SocketHttpClient

_ANSWERS, _SPEAKS = CHECKS["interface-answers"], CHECKS["interface-speaks-version"]
# The family that examines who is let in, which it can do without being let in.
_WITHOUT_CREDENTIALS = "security"
# Shares of the time: for ending the tasks, and for the late checks, which look at all exchanges.
_CLEANUP_SHARE = 0.1
_LATE_SHARE = 0.05
_CLEANUP_S = 2.0

_OUTCOMES = {
    type(None): CheckOutcome.PASSED,
    CheckFailed: CheckOutcome.FAILED,
    NotPossible: CheckOutcome.SKIPPED,
    Undecided: CheckOutcome.UNKNOWN,
}
_Work = tuple[Check, InterfaceProbe | None]


class DoctorReport(Struct, frozen=True, kw_only=True):
    """The result of an examination. `tasks` were made by it, `left` of them could not be ended."""

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
        bad = (one for one in self.findings if one.outcome is CheckOutcome.FAILED)
        return [one for one in bad if severity in (None, one.severity)]


async def examine(
    url: str, options: DoctorOptions | None = None, http_client: HttpClient | None = None
) -> DoctorReport:
    """Examine the agent at this address.

    Raises:
        Misuse: the address is none, or a check is named that does not exist.
    """
    options = options or DoctorOptions()
    for name in (*options.only, *options.skip):
        if name not in CHECKS and name not in FAMILIES:
            text = f"there is no check or family {name!r}; see trunkline doctor --list"
            raise Misuse(text, hint="trunkline doctor --list")
    # The operator has named this host, by one of its names; where its card leads is a stranger's word.
    host = agent_address(url).hostname or ""
    own = SocketHttpClient(Egress(hosts=(host,), loopback=is_loopback(host)))
    subject = Subject(url, http_client or own, options)
    client, began = subject.client, asyncio.get_running_loop().time()
    try:
        client.deadline = began + options.timeout_s * (1 - _CLEANUP_SHARE)
        findings = await _findings(subject)
        client.deadline = began + options.timeout_s
        left = await _end_tasks(subject)
    except asyncio.CancelledError:
        # Whoever interrupts an examination leaves tasks behind as little as one that ends.
        await _end_tasks(subject)
        raise
    finally:
        await own.close()
    return _report(subject, findings, left, round(asyncio.get_running_loop().time() - began, 3))


def _report(subject: Subject, findings: list[Finding], left: int, took_s: float) -> DoctorReport:
    nothing = ""
    if not subject.card:
        tried = next(iter(subject.cards.values()), None)
        why = subject.wrong_card or ("nobody answered" if tried is None else tried.summary())
        nothing = f"no card at {subject.url}: {why}"
    unknown = (one for one in findings if one.outcome is CheckOutcome.UNKNOWN)
    unanswered = {one.where for one in unknown if one.check == _ANSWERS.name}
    return DoctorReport(
        url=subject.url,
        agent=text(subject.card.get("name")),
        interfaces=tuple(f"{probe.name} at {probe.url}" for probe in subject.probes),
        findings=tuple(findings),
        tasks=len(subject.tasks),
        left=left,
        requests=len(subject.client.journal),
        took_s=took_s,
        nothing=nothing,
        locked=bool(subject.probes) and {probe.name for probe in subject.probes} <= unanswered,
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


async def _findings(subject: Subject) -> list[Finding]:
    checks = chosen(subject.options)
    if not await subject.discover():
        missing = [check for check in checks if check.name in ("card-found", "card-legacy-path")]
        return [await _run(check, subject, None, {}) for check in missing]
    await subject.choose_interfaces()
    closed = await _closed_interfaces(subject)
    work = [(check, probe) for check in checks for probe in _probes(check, subject)]
    findings: list[Finding] = []
    for late, reserve in ((False, _LATE_SHARE), (True, 0.0)):
        batch = [(check, probe) for check, probe in work if check.late is late]
        findings += await _run_all(batch, subject, closed, reserve * subject.options.timeout_s)
    order = {check.name: index for index, check in enumerate(checks)}
    return sorted(findings, key=lambda one: order[one.check])


def _probes(check: Check, subject: Subject) -> Iterator[InterfaceProbe | None]:
    """Where a check is done: once, at each interface that it is for, or at the first of each version."""
    if not check.bindings:
        yield None
    versions: set[str] = set()
    for probe in subject.probes:
        fits = probe.binding in check.bindings and probe.version in check.versions
        if fits and not (check.first and probe.version in versions):
            versions.add(probe.version)
            yield probe


async def _closed_interfaces(subject: Subject) -> dict[str, Finding]:
    """Interfaces at which nothing is served, each with the finding that says why: no answer, no such version,
    no credentials. Little is asked there.
    """
    closed: dict[str, Finding] = {}
    for check in (_ANSWERS, _SPEAKS):
        probes = [probe for probe in subject.probes if probe.name not in closed]
        found = await asyncio.gather(*(_run(check, subject, probe, closed) for probe in probes))
        closed |= {one.where: one for one in found if one.outcome is not CheckOutcome.PASSED}
    return closed


async def _run_all(
    batch: list[_Work], subject: Subject, closed: dict[str, Finding], reserve_s: float
) -> list[Finding]:
    tasks = [asyncio.create_task(_run(check, subject, probe, closed)) for check, probe in batch]
    limit_s = subject.client.deadline - asyncio.get_running_loop().time() - reserve_s
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=max(limit_s, 0.1))
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    late = Undecided(f"there was no time left: the whole examination has {subject.options.timeout_s:g} s")
    return [
        _finding(check, probe, subject, late) if task.cancelled() else task.result()
        for (check, probe), task in zip(batch, tasks, strict=True)
    ]


async def _run(
    check: Check, subject: Subject, probe: InterfaceProbe | None, closed: dict[str, Finding]
) -> Finding:
    """The finding of a check; at a closed interface it is not done."""
    why = None if probe is None else closed.get(probe.name)
    if why is not None and check.name == why.check:
        return why
    try:
        if why is not None:
            without = check.family == _WITHOUT_CREDENTIALS and why.outcome is CheckOutcome.UNKNOWN
            assume(without, f"nothing is examined there; see {why.check}")
        assume(not check.needs or subject.flag(check.needs), f"the card does not declare {check.needs}")
        await check.run(probe or subject)
    except (CheckFailed, NotPossible) as end:
        return _finding(check, probe, subject, end)
    return _finding(check, probe, subject, None)


def _finding(
    check: Check, probe: InterfaceProbe | None, subject: Subject, end: CheckFailed | NotPossible | None
) -> Finding:
    """What a check found: nothing if it came to its end, else what ended it before."""
    found = Finding(
        check=check.name,
        family=check.family,
        severity=check.severity,
        outcome=_OUTCOMES[type(end)],
        reference=check.reference,
        where="" if probe is None else probe.name,
        seen="" if end is None else subject.client.redacted(str(end)),
    )
    if not isinstance(end, CheckFailed):
        return found
    shown = end.exchanges
    if not shown and probe is None and subject.card:
        shown = (subject.card_exchange,)
    evidence = tuple(map(subject.client.evidence, shown))
    return replace(found, means=check.means, fix=check.fix, evidence=evidence)


async def _end_tasks(subject: Subject) -> int:
    """Cancel what the examination began and is still running; gives how many tasks could not be ended."""

    async def end(task_id: str, probe: InterfaceProbe) -> bool:
        answer = await probe.call("cancel", {"id": task_id}, _CLEANUP_S)
        if not answer.refused and answer.result is not None:
            return True
        # It may have ended by itself; the read records its state.
        after = await probe.call("get", {"id": task_id}, _CLEANUP_S)
        return subject.tasks[task_id].state in TERMINAL or not after.task

    running = [(task_id, made.probe) for task_id, made in subject.tasks.items() if made.state not in TERMINAL]
    return (await asyncio.gather(*(end(*one) for one in running))).count(False)
