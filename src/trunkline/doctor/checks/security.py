"""Checks of authentication, and that the agent survives what is too much and shows nothing of its inside."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from trunkline.clock import new_id
from trunkline.doctor.check import ERROR, RPC, WARNING, CheckFailed, Family, assume, expect, expect_answer
from trunkline.doctor.checks.card import required_schemes
from trunkline.doctor.exchange import at, members, text
from trunkline.doctor.probe import INTERNAL, InterfaceProbe, ProbeAnswer
from trunkline.doctor.subject import Subject
from trunkline.net.http import Headers

security = Family("security")

_EXTENDED = ("extendedAgentCard", "supportsAuthenticatedExtendedCard")
_FOREIGN_ORIGIN = "https://doctor.example"


@security.interface("auth-enforced", ERROR, "§7.4, SEC-01, AG-23")
async def enforced(probe: InterfaceProbe) -> None:
    """Without credentials nothing is served.

    Means: The card asks for credentials, and the door is open.
    Fix: Check credentials before anything else on every operation, and answer 401 without them.
    """
    _required(probe)
    for operation in ("get", "send", "cancel", "stream"):
        answer = await _as(probe, operation, ())
        expect_answer(answer.is_unauthorized, answer, f"{operation} without credentials")


@security.interface("auth-wrong-refused", ERROR, "§7.4, SEC-01, AG-23")
async def wrong(probe: InterfaceProbe) -> None:
    """Wrong credentials are refused.

    Means: Any credentials open the door.
    Fix: Compare what is sent with what was given out; answer 401 to anything else.
    """
    _required(probe)
    answer = await _as(probe, "get", _made_up(probe.subject.card))
    expect(answer.is_unauthorized, f"made-up credentials give {answer.summary()}", answer)


@security.interface("auth-challenge", WARNING, "§7.4, SEC-02")
async def challenge(probe: InterfaceProbe) -> None:
    """A 401 says what is wanted.

    Means: Clients cannot learn from the refusal which credentials to bring.
    Fix: Send WWW-Authenticate with every 401.
    """
    answer = await _as(probe, "get", ())
    assume(answer.exchange.status == 401, "nothing is refused with 401")
    expect(answer.exchange.headers.get("www-authenticate"), "there is no WWW-Authenticate", answer)


@security.interface("auth-declared", ERROR, "§4.5, CARD-11, AG-23")
async def declared(probe: InterfaceProbe) -> None:
    """What the door asks for is on the card.

    Means: The door wants credentials of which the card says nothing; clients cannot know which.
    Fix: Describe them under securitySchemes, and require them in the card.
    """
    assume(not required_schemes(probe.subject.card), "the card requires credentials")
    answer = await _as(probe, "get", ())
    expect(not answer.is_unauthorized, f"without credentials: {answer.summary()}", answer)


@security.interface("extended-card", ERROR, "§3.1.11, EXC-01, EXC-03, EXC-04")
async def extended(probe: InterfaceProbe) -> None:
    """The extended card is there for known callers if it is declared, and for nobody else.

    Means: What is for known callers only is open, or is declared and not there.
    Fix: Serve the extended card to known callers; without a declaration refuse it (-32004).
    """
    answer = await probe.call("extended-card", {})
    if not probe.subject.flag(*_EXTENDED):
        expect(answer.refused or answer.is_unauthorized, "it is served, but not declared", answer)
        return
    stranger = await _as(probe, "extended-card", ())
    closed = stranger.refused or not required_schemes(probe.subject.card)
    expect(closed, "it is served without credentials", stranger)
    if answer.is_unauthorized:
        assume(probe.subject.credentials, "no credentials were given")
        known = not (await probe.get_unknown()).is_unauthorized
        assume(known, "the credentials that were given are not known here")
    expect_answer(text(at(answer.result, "name")) or answer.code == -32007, answer)


@security.interface("cors-closed", ERROR, "§13.4", first=True)
async def cors(probe: InterfaceProbe) -> None:
    """A strange origin is not let in with credentials.

    Means: Any page that a user opens can call the agent with the user's own credentials.
    Fix: Name the origins that may call; never give back any Origin together with Allow-Credentials.
    """
    request = probe.request("get", {"id": new_id()}, headers=(("Origin", _FOREIGN_ORIGIN),))
    seen = await probe.client.fetch(request, "get")
    allowed = seen.headers.get("access-control-allow-origin", "")
    credentials = seen.headers.get("access-control-allow-credentials", "").lower() == "true"
    closed = allowed != _FOREIGN_ORIGIN or not credentials
    expect(closed, f"Origin {_FOREIGN_ORIGIN} is let in with credentials", seen)


def _required(probe: InterfaceProbe) -> None:
    assume(required_schemes(probe.subject.card), "the card requires no credentials")


async def _as(probe: InterfaceProbe, operation: str, credentials: Headers) -> ProbeAnswer:
    """A harmless request with other credentials than the operator's."""
    given: dict[str, Any] = {} if operation in ("send", "stream", "extended-card") else {"id": new_id()}
    request = probe.request(operation, given)
    own = {name for name, _ in probe.subject.credentials}
    headers = tuple((name, value) for name, value in request.headers if name not in own)
    return await probe.ask(replace(request, headers=(*headers, *credentials)), operation)


def _made_up(card: dict[str, Any]) -> Headers:
    """Credentials that nobody has given out, in the shape that the card asks for."""
    found: list[tuple[str, str]] = [("Authorization", "Bearer trunkline-doctor-made-this-up")]
    for one in members(card.get("securitySchemes")).values():
        scheme = members(members(one).get("apiKeySecurityScheme") or one)
        if text(scheme.get("location") or scheme.get("in")) == "header" and text(scheme.get("name")):
            found.append((text(scheme["name"]), "trunkline-doctor-made-this-up"))
    return tuple(found)


limits = Family("limits", bindings=RPC, first=True)
hygiene = Family("hygiene", late=True)

_HUGE = 4 * 1024 * 1024
_DEEP = 20_000


@limits.interface("body-limit", WARNING, "§13.4, SEC-07")
async def body_limit(probe: InterfaceProbe) -> None:
    """A body of 4 MiB for a method that does not exist is refused, and the agent lives.

    Means: One large request breaks the agent or hangs.
    Fix: Limit the size of bodies and answer more with HTTP 413.
    """
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":{"x":"' + b"x" * _HUGE + b'"}}'
    await _expect_survived(probe, body, "a body of 4 MiB")


@limits.interface("deep-nesting", ERROR, "§3.3.2, SEC-06")
async def deep_nesting(probe: InterfaceProbe) -> None:
    """JSON nested twenty thousand deep is refused, and the agent lives.

    Means: One small request breaks the agent.
    Fix: Limit how deep JSON may be nested; answer more with -32700 or -32600.
    """
    inner = b"[" * _DEEP + b"]" * _DEEP
    body = b'{"jsonrpc":"2.0","id":1,"method":"trunkline/doctor","params":' + inner + b"}"
    await _expect_survived(probe, body, "JSON nested 20000 deep")


async def _expect_survived(probe: InterfaceProbe, body: bytes, what: str) -> None:
    """Go on if a request is refused, and the next one is answered."""
    answer = await probe.post(body)
    after = await probe.get_unknown()
    expect(after.exchange.status, f"after {what}: {after.exchange.trouble}", answer, after)
    seen = answer.exchange
    # Whoever has read enough may hang up: that is a refusal too.
    refused = seen.trouble.startswith("the connection failed") or 0 < seen.status < 500
    expect(refused, f"{what} gives {seen.summary()}", seen)


_INSIDES = re.compile(
    r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|\bat [\w.$<>]+ ?\([^)]*:\d+(:\d+)?\)"
    r"|(?<![\w.:/])/(?:home|usr|opt|app|srv|root|var|Users)/[\w./-]+\.\w+|[A-Z]:\\\\?[\w\\]+\.\w+"
    r"|panic: |goroutine \d+ \["
)


@hygiene.agent("errors-say-nothing-inside", WARNING, "§3.3.2, ERR-07, AG-25")
async def inside(subject: Subject) -> None:
    """No answer shows a stack trace or a path of the machine.

    Means: Strangers learn how the agent is built, which helps who wants to break it.
    Fix: Log stack traces, and send callers a short text without paths and class names.
    """
    errors = [answer.exchange for probe in subject.probes for answer in probe.refusals]
    errors += [exchange for exchange in subject.client.journal if exchange.status >= 400]
    for exchange in errors:
        if found := _INSIDES.search(exchange.body.decode(errors="replace")):
            raise CheckFailed(f"an error says {found[0][:80]!r}", exchange)


@hygiene.agent("no-internal-errors", ERROR, "§3.3.2, SEC-06")
async def internal(subject: Subject) -> None:
    """Nothing was answered with HTTP 500 or -32603.

    Means: A request that should be served or refused breaks something inside the agent.
    Fix: Find the request in the agent's log, and refuse it by its own error.
    """
    for exchange in subject.client.journal:
        code = at(exchange.json, "error", "code")
        if exchange.status in (500, 502, 504) or code == INTERNAL:
            message = text(at(exchange.json, "error", "message")) or exchange.summary()
            raise CheckFailed(f"{exchange.label or exchange.request.method}: {message}", exchange)
