"""Checks that the agent survives what is too much, and shows and breaks nothing inside in any exchange."""

from __future__ import annotations

import re

from trunkline.doctor.check import ERROR, PASSED, RPC, WARNING, CheckVerdict, Family, failed, judge
from trunkline.doctor.json_access import at, text
from trunkline.doctor.probe import INTERNAL, InterfaceProbe, ProbeAnswer
from trunkline.doctor.subject import Subject

limits = Family("limits", bindings=RPC, first=True)
hygiene = Family("hygiene", late=True)

_HUGE = 4 * 1024 * 1024
_DEEP = 20_000


@limits.interface("body-limit", WARNING, "§13.4, SEC-07")
async def body_limit(probe: InterfaceProbe) -> CheckVerdict:
    """A body of 4 MiB for a method that does not exist is refused, and the agent lives.

    Means: One large request breaks the agent or hangs.
    Fix: Limit the size of bodies and answer more with HTTP 413.
    """
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":{"x":"' + b"x" * _HUGE + b'"}}'
    return await _survived(probe, await probe.post(body), "a body of 4 MiB")


@limits.interface("deep-nesting", ERROR, "§3.3.2, SEC-06")
async def deep_nesting(probe: InterfaceProbe) -> CheckVerdict:
    """JSON nested twenty thousand deep is refused, and the agent lives.

    Means: One small request breaks the agent.
    Fix: Limit how deep JSON may be nested; answer more with -32700 or -32600.
    """
    inner = b"[" * _DEEP + b"]" * _DEEP
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":' + inner + b"}"
    return await _survived(probe, await probe.post(body), "JSON nested 20000 deep")


async def _survived(probe: InterfaceProbe, answer: ProbeAnswer, what: str) -> CheckVerdict:
    """Passed if the request was refused, and the next one is answered."""
    after = await probe.get_unknown()
    if not after.exchange.status:
        return failed(f"after {what}: {after.exchange.trouble}", answer.exchange, after.exchange)
    seen = answer.exchange
    # Whoever has read enough may hang up: that is a refusal too.
    refused = seen.trouble.startswith("the connection failed") or 0 < seen.status < 500
    return judge(refused, f"{what} gives {seen.summary()}", seen)


_INSIDES = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|\bat [\w.$<>]+ ?\([^)]*:\d+(:\d+)?\)"
    r"|(?<![\w.:/])/(?:home|usr|opt|app|srv|root|var|Users)/[\w./-]+\.\w+|[A-Z]:\\\\?[\w\\]+\.\w+"
    r"|panic: |goroutine \d+ \["
)


@hygiene.agent("errors-say-nothing-inside", WARNING, "§3.3.2, ERR-07, AG-25")
async def inside(subject: Subject) -> CheckVerdict:
    """No answer shows a stack trace or a path of the machine.

    Means: Strangers learn how the agent is built, which helps who wants to break it.
    Fix: Log stack traces, and send callers a short text without paths and class names.
    """
    errors = [answer.exchange for probe in subject.probes for answer in probe.refusals]
    errors += [exchange for exchange in subject.client.journal if exchange.status >= 400]
    for exchange in errors:
        if found := _INSIDES.search(exchange.body.decode(errors="replace")):
            return failed(f"an error says {found[0][:80]!r}", exchange)
    return PASSED


@hygiene.agent("no-internal-errors", ERROR, "§3.3.2, SEC-06")
async def internal(subject: Subject) -> CheckVerdict:
    """Nothing was answered with HTTP 500 or -32603.

    Means: A request that should be served or refused breaks something inside the agent.
    Fix: Find the request in the agent's log, and refuse it by its own error.
    """
    for exchange in subject.client.journal:
        code = at(exchange.json, "error", "code")
        if exchange.status in (500, 502, 504) or code == INTERNAL:
            message = text(at(exchange.json, "error", "message")) or exchange.summary()
            return failed(f"{exchange.label or exchange.request.method}: {message}", exchange)
    return PASSED
