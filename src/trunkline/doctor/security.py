"""Checks of who is let in: what the card asks for must be asked for at the door, and nothing else."""

from __future__ import annotations

from typing import Any

from trunkline.doctor.binding import ProbeAnswer, ProbeBinding
from trunkline.doctor.card import required_of
from trunkline.doctor.finding import (
    ERROR,
    PASSED,
    WARNING,
    CheckVerdict,
    NotPossible,
    failed,
    judge,
    of_way,
    skipped,
)
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import at, members, text
from trunkline.net.http import Headers, HttpRequest

_EXTENDED = ("extendedAgentCard", "supportsAuthenticatedExtendedCard")
_EVIL = "https://doctor.example"


@of_way(
    "auth-enforced",
    ERROR,
    "§7.4, SEC-01, AG-23",
    means="The card asks for credentials, and the door is open.",
    fix="Check credentials before anything else on every operation, and answer 401 without them.",
)
async def enforced(way: ProbeBinding) -> CheckVerdict:
    """Without credentials nothing is served."""
    _required(way)
    for operation in ("get", "send", "cancel", "stream"):
        answer = await _as(way, operation, ())
        if not answer.is_shut:
            return failed(f"{operation} without credentials gives {answer.told()}", answer.exchange)
    return PASSED


@of_way(
    "auth-wrong-refused",
    ERROR,
    "§7.4, SEC-01, AG-23",
    means="Any credentials open the door.",
    fix="Compare what is sent with what was given out; answer 401 to anything else.",
)
async def wrong(way: ProbeBinding) -> CheckVerdict:
    """Wrong credentials are refused."""
    _required(way)
    answer = await _as(way, "get", _made_up(way.subject.card))
    return judge(answer.is_shut, f"made-up credentials give {answer.told()}", answer.exchange)


@of_way(
    "auth-challenge",
    WARNING,
    "§7.4, SEC-02",
    means="Clients cannot learn from the refusal which credentials to bring.",
    fix="Send WWW-Authenticate with every 401.",
)
async def challenge(way: ProbeBinding) -> CheckVerdict:
    """A 401 says what is wanted."""
    answer = await _as(way, "get", ())
    if answer.exchange.status != 401:
        return skipped("nothing is refused with 401")
    return judge(
        answer.exchange.headers.get("www-authenticate"), "there is no WWW-Authenticate", answer.exchange
    )


@of_way(
    "auth-declared",
    ERROR,
    "§4.5, CARD-11, AG-23",
    means="The door wants credentials of which the card says nothing; clients cannot know which.",
    fix="Describe them under securitySchemes, and require them in the card.",
)
async def declared(way: ProbeBinding) -> CheckVerdict:
    """What the door asks for is on the card."""
    if required_of(way.subject.card):
        return skipped("the card requires credentials")
    answer = await _as(way, "get", ())
    return judge(not answer.is_shut, f"without credentials: {answer.told()}", answer.exchange)


@of_way(
    "extended-card",
    ERROR,
    "§3.1.11, EXC-01, EXC-03, EXC-04",
    means="What is for known callers only is open, or is declared and not there.",
    fix="Serve the extended card to known callers; without a declaration refuse it (-32004).",
)
async def extended(way: ProbeBinding) -> CheckVerdict:
    """The extended card is there for known callers if it is declared, and for nobody else."""
    answer = await way.call("extended-card", {})
    if not way.subject.flag(*_EXTENDED):
        return judge(answer.refused or answer.is_shut, "it is served, but not declared", answer.exchange)
    stranger = await _as(way, "extended-card", ())
    if required_of(way.subject.card) and not stranger.refused:
        return failed("it is served without credentials", stranger.exchange)
    if answer.is_shut and not way.subject.credentials:
        return skipped("no credentials were given")
    if answer.is_shut and (await way.call("get", {"id": new_id()})).is_shut:
        return skipped("the credentials that were given are not known here")
    good = text(at(answer.result, "name")) or answer.code == -32007
    return judge(good, answer.told(), answer.exchange)


@of_way(
    "cors-closed",
    ERROR,
    "§13.4",
    means="Any page that a user opens can call the agent with the user's own credentials.",
    fix="Name the origins that may call; never give back any Origin together with Allow-Credentials.",
    first=True,
)
async def cors(way: ProbeBinding) -> CheckVerdict:
    """A strange origin is not let in with credentials."""
    request = way.request("get", {"id": new_id()}, headers=(("Origin", _EVIL),))
    seen = await way.subject.line.fetch(request, "get")
    allowed = seen.headers.get("access-control-allow-origin", "")
    creds = seen.headers.get("access-control-allow-credentials", "").lower() == "true"
    return judge(not (allowed == _EVIL and creds), f"Origin {_EVIL} is let in with credentials", seen)


def _required(way: ProbeBinding) -> None:
    if not required_of(way.subject.card):
        raise NotPossible("the card requires no credentials")


async def _as(way: ProbeBinding, operation: str, credentials: Headers) -> ProbeAnswer:
    """A harmless request with other credentials than the operator's."""
    given: dict[str, Any] = {} if operation in ("send", "stream", "extended-card") else {"id": new_id()}
    request = way.request(operation, given)
    own = {name for name, _ in way.subject.credentials}
    headers = tuple((name, value) for name, value in request.headers if name not in own)
    asked = HttpRequest(request.method, request.url, (*headers, *credentials), request.body)
    return way.understood(await way.subject.line.fetch(asked, operation))


def _made_up(card: dict[str, Any]) -> Headers:
    """Credentials that nobody has given out, in the shape that the card asks for."""
    found: list[tuple[str, str]] = [("Authorization", "Bearer trunkline-doctor-made-this-up")]
    for one in members(card.get("securitySchemes")).values():
        scheme = members(members(one).get("apiKeySecurityScheme") or one)
        if text(scheme.get("location") or scheme.get("in")) == "header" and text(scheme.get("name")):
            found.append((text(scheme["name"]), "trunkline-doctor-made-this-up"))
    return tuple(found)
