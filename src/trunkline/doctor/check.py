"""A check, the verdicts that it may give, and the registry of all checks by family."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from trunkline.doctor.exchange import Evidence, ProbeExchange

if TYPE_CHECKING:
    from trunkline.doctor.probe import InterfaceProbe, ProbeAnswer
    from trunkline.doctor.subject import Subject

    AgentCheck = Callable[[Subject], Awaitable["CheckVerdict"]]
    InterfaceCheck = Callable[[InterfaceProbe], Awaitable["CheckVerdict"]]


class Severity(Enum):
    """How bad a failed check is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class CheckOutcome(Enum):
    """How a check ended."""

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
    """The verdict that the agent does it wrong."""
    return CheckVerdict(CheckOutcome.FAILED, seen, exchanges)


def skipped(why: str) -> CheckVerdict:
    """The verdict that the check does not apply to this agent."""
    return CheckVerdict(CheckOutcome.SKIPPED, why)


def unknown(why: str, *exchanges: ProbeExchange) -> CheckVerdict:
    """The verdict that it could not be found out."""
    return CheckVerdict(CheckOutcome.UNKNOWN, why, exchanges)


def judge(good: object, seen: str, *exchanges: ProbeExchange) -> CheckVerdict:
    """Passed if it is good, else failed with what was seen."""
    return PASSED if good else failed(seen, *exchanges)


def judge_answer(good: object, answer: ProbeAnswer, request: str = "") -> CheckVerdict:
    """Passed if it is good, else failed with a summary of the answer, after the request that led to it."""
    summary = answer.summary()
    return judge(good, f"{request} gives {summary}" if request else summary, answer.exchange)


def refused_with(answer: ProbeAnswer, *codes: int, request: str = "") -> CheckVerdict:
    """Passed if the answer is a refusal with one of these codes."""
    return judge_answer(any(answer.is_code(code) for code in codes), answer, request)


class Check(Struct, frozen=True, kw_only=True):
    """One check. Its name never changes its meaning: reports and command lines rely on it."""

    name: str
    family: str
    severity: Severity
    # The specification's section and the id in the list of testable statements.
    reference: str
    # What holds when it passes, what it means when it fails, and what to do then.
    about: str
    means: str
    fix: str
    # For which bindings and versions it is done; none where it is of the agent as a whole.
    bindings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    # Once for each version, in the first binding that speaks it.
    first: bool = False
    # Comes when the others have ended: looks at what they have seen, or needs quiet.
    late: bool = False
    # Makes tasks.
    sends: bool = False
    # What the card must declare for it to be done.
    needs: str = ""
    of_agent: AgentCheck | None = None
    of_interface: InterfaceCheck | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """The finding of one check, at one interface or of the agent as a whole."""

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
BOTH, V1, V03 = ("1.0", "0.3"), ("1.0",), ("0.3",)
RPC, REST, ANY = ("JSONRPC",), ("HTTP+JSON",), ("JSONRPC", "HTTP+JSON")

# In the order of reports. Operators choose by these names.
FAMILIES = (
    *("discovery", "card", "interfaces", "versions", "jsonrpc", "rest", "sending", "messages", "reading"),
    *("canceling", "streaming", "subscribing", "push", "delivery", "egress", "security", "extensions"),
    *("shapes", "limits", "hygiene"),
)
CHECKS: dict[str, Check] = {}


class CheckScope(TypedDict, total=False):
    """Where and when a check is done; the fields are those of `Check`."""

    bindings: tuple[str, ...]
    versions: tuple[str, ...]
    first: bool
    late: bool
    sends: bool
    needs: str


_AgentCheck = TypeVar("_AgentCheck", bound="AgentCheck")
_InterfaceCheck = TypeVar("_InterfaceCheck", bound="InterfaceCheck")


class Family:
    """A family of checks: registers them with the scope that they share.

    The docstring of a check is what users read: one line of what holds when it passes (`--list` and the docs
    show it), then `Means:` and `Fix:`, which a finding shows when it fails.
    """

    def __init__(self, name: str, **scope: Unpack[CheckScope]) -> None:
        if name not in FAMILIES:
            raise ValueError(f"reports have no place for the family {name}; list it in FAMILIES")
        self.name = name
        self._scope = scope

    def agent(self, name: str, severity: Severity, reference: str) -> Callable[[_AgentCheck], _AgentCheck]:
        """Register a check of the agent as a whole."""

        def register(run: _AgentCheck) -> _AgentCheck:
            check = self._described(name, severity, reference, run)
            _add(replace(check, of_agent=run, late=self._scope.get("late", False)))
            return run

        return register

    def interface(
        self, name: str, severity: Severity, reference: str, **scope: Unpack[CheckScope]
    ) -> Callable[[_InterfaceCheck], _InterfaceCheck]:
        """Register a check of each interface; a scope that is given here stands before the family's."""

        def register(run: _InterfaceCheck) -> _InterfaceCheck:
            check = self._described(name, severity, reference, run)
            where = CheckScope(bindings=ANY, versions=BOTH) | self._scope | scope
            _add(replace(check, of_interface=run, **where))
            return run

        return register

    def _described(self, name: str, severity: Severity, reference: str, run: object) -> Check:
        about, _, rest = (inspect.getdoc(run) or "").partition("\n\nMeans: ")
        means, fix = (" ".join(part.split()) for part in rest.partition("\nFix: ")[::2])
        return Check(
            name=name,
            family=self.name,
            severity=severity,
            reference=reference,
            about=about,
            means=means,
            fix=fix,
        )


def _add(check: Check) -> None:
    if check.name in CHECKS:
        raise ValueError(f"two checks are called {check.name}")
    CHECKS[check.name] = check
