"""What a check is, what it finds, and the list in which every check is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trunkline.doctor.exchange import Evidence, ProbeExchange

if TYPE_CHECKING:
    from trunkline.doctor.binding import ProbeBinding
    from trunkline.doctor.subject import Subject

    OfAgent = Callable[[Subject], Awaitable["CheckVerdict"]]
    OfWay = Callable[[ProbeBinding], Awaitable["CheckVerdict"]]


class Severity(Enum):
    """How bad a failed check is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class CheckOutcome(Enum):
    """What came of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class CheckVerdict(Struct, frozen=True):
    """The outcome of one run of a check, what was seen, and the exchanges that show it."""

    outcome: CheckOutcome
    seen: str = ""
    exchanges: tuple[ProbeExchange, ...] = ()


PASSED = CheckVerdict(CheckOutcome.PASSED)


def failed(seen: str, *exchanges: ProbeExchange) -> CheckVerdict:
    """The agent does it wrong."""
    return CheckVerdict(CheckOutcome.FAILED, seen, exchanges)


def skipped(why: str) -> CheckVerdict:
    """Nothing to judge here."""
    return CheckVerdict(CheckOutcome.SKIPPED, why)


def unknown(why: str, *exchanges: ProbeExchange) -> CheckVerdict:
    """It could not be found out."""
    return CheckVerdict(CheckOutcome.UNKNOWN, why, exchanges)


def judge(good: object, seen: str, *exchanges: ProbeExchange) -> CheckVerdict:
    """Passed if it is good, else failed with what was seen."""
    return PASSED if good else failed(seen, *exchanges)


class NotPossible(Exception):  # noqa: N818 - it is no error: what a check needs is not there
    """A check cannot be done; the text says why. It becomes a skipped one."""


class Check(Struct, frozen=True, kw_only=True):
    """One thing that is looked at. Its name never changes its meaning."""

    name: str
    # The module it stands in, and what holds when it passes: the first line of its docstring.
    family: str = ""
    about: str = ""
    severity: Severity
    # The specification's section and the id in the list of testable statements.
    reference: str
    means: str
    fix: str
    # For which bindings and versions it is done; of the agent as a whole if there are none.
    bindings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    # Once for each version, in the first binding that speaks it.
    first: bool = False
    # Comes when the others have ended: looks at what they have seen, or needs quiet.
    late: bool = False
    sends: bool = False
    of_agent: OfAgent | None = None
    of_way: OfWay | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """What one check found, at one interface or of the agent as a whole."""

    check: str
    family: str
    severity: Severity
    outcome: CheckOutcome
    reference: str
    where: str = ""
    seen: str = ""
    means: str = ""
    fix: str = ""
    evidence: tuple[Evidence, ...] = ()


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
BOTH = ("1.0", "0.3")
RPC = ("JSONRPC",)
REST = ("HTTP+JSON",)
ANY = ("JSONRPC", "HTTP+JSON")

CHECKS: dict[str, Check] = {}
_Run = TypeVar("_Run", bound=Callable[..., Awaitable[CheckVerdict]])


def of_agent(
    name: str, severity: Severity, reference: str, *, means: str, fix: str, late: bool = False
) -> Callable[[_Run], _Run]:
    """Write down a check of the agent as a whole."""
    check = Check(name=name, severity=severity, reference=reference, means=means, fix=fix, late=late)
    return lambda run: _add(check, run, "of_agent")


def of_way(
    name: str,
    severity: Severity,
    reference: str,
    *,
    means: str,
    fix: str,
    bindings: tuple[str, ...] = ANY,
    versions: tuple[str, ...] = BOTH,
    first: bool = False,
    late: bool = False,
    sends: bool = False,
) -> Callable[[_Run], _Run]:
    """Write down a check of one interface; `sends` says that it makes tasks."""
    check = Check(
        name=name,
        severity=severity,
        reference=reference,
        means=means,
        fix=fix,
        bindings=bindings,
        versions=versions,
        first=first,
        late=late,
        sends=sends,
    )
    return lambda run: _add(check, run, "of_way")


def _add(check: Check, run: _Run, place: str) -> _Run:
    if check.name in CHECKS:
        raise ValueError(f"two checks are called {check.name}")
    family, about = run.__module__.rpartition(".")[2], (run.__doc__ or "").strip()
    CHECKS[check.name] = replace(check, family=family, about=about, **{place: run})
    return run
