"""Checks over everything that was said: what a stranger must not see, and what must not break."""

from __future__ import annotations

import re

from trunkline.doctor.binding import INTERNAL
from trunkline.doctor.finding import ERROR, PASSED, WARNING, CheckVerdict, failed, of_agent
from trunkline.doctor.json_access import at, text
from trunkline.doctor.subject import Subject

_INSIDES = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|\bat [\w.$<>]+ ?\([^)]*:\d+(:\d+)?\)"
    r"|(?<![\w.:/])/(?:home|usr|opt|app|srv|root|var|Users)/[\w./-]+\.\w+|[A-Z]:\\\\?[\w\\]+\.\w+"
    r"|panic: |goroutine \d+ \["
)


@of_agent(
    "errors-say-nothing-inside",
    WARNING,
    "§3.3.2, ERR-07, AG-25",
    means="Strangers learn how the agent is built, which helps who wants to break it.",
    fix="Log stack traces, and send callers a short text without paths and class names.",
    late=True,
)
async def inside(subject: Subject) -> CheckVerdict:
    """No answer shows a stack trace or a path of the machine."""
    for way in subject.ways:
        for answer in way.refusals:
            found = _INSIDES.search(answer.exchange.body.decode(errors="replace"))
            if found:
                return failed(f"an error says {found[0][:80]!r}", answer.exchange)
    for seen in subject.line.journal:
        found = _INSIDES.search(seen.body.decode(errors="replace")) if seen.status >= 400 else None
        if found:
            return failed(f"an error says {found[0][:80]!r}", seen)
    return PASSED


@of_agent(
    "no-internal-errors",
    ERROR,
    "§3.3.2, SEC-06",
    means="A request that should be served or refused breaks something inside the agent.",
    fix="Find the request in the agent's log, and refuse it by its own error.",
    late=True,
)
async def internal(subject: Subject) -> CheckVerdict:
    """Nothing was answered with HTTP 500 or -32603."""
    for seen in subject.line.journal:
        code = at(seen.json, "error", "code")
        if seen.status in (500, 502, 504) or code == INTERNAL:
            said = text(at(seen.json, "error", "message"))
            return failed(f"{seen.label or seen.request.method}: {said or seen.told()}", seen)
    return PASSED
