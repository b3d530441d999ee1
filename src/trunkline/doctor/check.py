"""A check, the verdicts that it may give, and the registry of all checks by family."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec import Struct

from trunkline.doctor.exchange import Evidence, NotPossible, ProbeExchange

if TYPE_CHECKING:
    from trunkline.doctor.probe import InterfaceProbe, ProbeAnswer
    from trunkline.doctor.subject import Subject

    AgentCheck = Callable[[Subject], Awaitable[None]]
    InterfaceCheck = Callable[[InterfaceProbe], Awaitable[None]]
    Shown = ProbeExchange | ProbeAnswer

AnyCheck = Callable[[Any], Awaitable[None]]


class Severity(Enum):
    """How bad a failed check is; the worst first, as reports show them."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class CheckOutcome(Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class CheckFailed(Exception):  # noqa: N818 - it is no error: the agent does something wrong
    """A check has failed; it holds what was seen, and the exchanges that show it."""

    def __init__(self, seen: str, *shown: Shown) -> None:
        super().__init__(seen)
        self.exchanges = tuple(one if isinstance(one, ProbeExchange) else one.exchange for one in shown)


# A check passes if it comes to its end. On the way these say what must hold for that.
def expect(good: object, seen: str, *shown: Shown) -> None:
    """Go on if it is good; what was seen is shown with its exchanges.

    Raises:
        CheckFailed: it is not.
    """
    if not good:
        raise CheckFailed(seen, *shown)


def expect_answer(good: object, answer: Shown, request: str = "") -> None:
    """The same with a summary of the answer as what was seen, after the request that led to it."""
    summary = answer.summary()
    expect(good, f"{request} gives {summary}" if request else summary, answer)


def expect_refusal(answer: ProbeAnswer, *codes: int, request: str = "") -> None:
    """Go on if the answer is a refusal with one of these codes."""
    expect_answer(any(answer.is_code(code) for code in codes), answer, request)


def assume(holds: object, otherwise: str) -> None:
    """Go on if this holds, without which the check does not apply to this agent.

    Raises:
        NotPossible: it does not.
    """
    if not holds:
        raise NotPossible(otherwise)


class Check(Struct, frozen=True):
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
    # Of the agent as a whole it is given the subject, else the probe of an interface.
    run: AnyCheck
    # For which bindings and versions it is done; none where it is of the agent as a whole.
    bindings: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    # Once for each version, in the first binding that speaks it.
    first: bool = False
    # Comes when the others have ended: looks at what they have seen, or needs quiet.
    late: bool = False
    # What the card must declare for it to be done.
    needs: str = ""


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
    needs: str


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

    def agent(self, name: str, severity: Severity, reference: str) -> Callable[[AgentCheck], AgentCheck]:
        """Register a check of the agent as a whole."""
        return partial(self._register, name, severity, reference, self._scope)

    def interface(
        self, name: str, severity: Severity, reference: str, **scope: Unpack[CheckScope]
    ) -> Callable[[InterfaceCheck], InterfaceCheck]:
        """Register a check of each interface; a scope that is given here stands before the family's."""
        where = CheckScope(bindings=ANY, versions=BOTH) | self._scope | scope
        return partial(self._register, name, severity, reference, where)

    def _register(
        self, name: str, severity: Severity, reference: str, scope: CheckScope, run: AnyCheck
    ) -> AnyCheck:
        if name in CHECKS:
            raise ValueError(f"two checks are called {name}")
        about, _, rest = (inspect.getdoc(run) or "").partition("\n\nMeans: ")
        means, fix = (" ".join(part.split()) for part in rest.partition("\nFix: ")[::2])
        CHECKS[name] = Check(name, self.name, severity, reference, about, means, fix, run, **scope)
        return run
