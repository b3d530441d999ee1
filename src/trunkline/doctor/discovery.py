"""Checks of where the card is found and how it is served."""

from __future__ import annotations

from trunkline.doctor.finding import (
    ERROR,
    INFO,
    PASSED,
    WARNING,
    CheckVerdict,
    failed,
    judge,
    of_agent,
    skipped,
)
from trunkline.doctor.json_access import members
from trunkline.doctor.subject import CARD, LEGACY, Subject
from trunkline.net.http import HttpRequest


@of_agent(
    "card-found",
    ERROR,
    "§8.2, CARD-01, AG-01",
    means="Clients look for the card at /.well-known/agent-card.json and find nothing, so they cannot call.",
    fix="Serve the card as JSON with status 200 at /.well-known/agent-card.json.",
)
async def found(subject: Subject) -> CheckVerdict:
    """The card is at the well-known path of 0.3 and 1.0."""
    seen = subject.found.get(CARD) or await subject.look_up(subject.base + CARD)
    return judge(seen.status == 200 and members(seen.json), seen.told(), seen)


@of_agent(
    "card-legacy-path",
    WARNING,
    "0.2.6 §5.3, AG-01",
    means="Older clients look at /.well-known/agent.json; to them this agent does not exist.",
    fix="Serve the same card at /.well-known/agent.json too.",
)
async def legacy(subject: Subject) -> CheckVerdict:
    """The card is at the older path too, and is the same."""
    seen = subject.found.get(LEGACY) or await subject.look_up(subject.base + LEGACY)
    if seen.status != 200 or not members(seen.json):
        return failed(seen.told(), seen)
    newer = subject.found.get(CARD)
    if newer is None or newer.status != 200:
        return PASSED
    return judge(seen.json == newer.json, "the two paths serve different cards", newer, seen)


@of_agent(
    "card-content-type",
    WARNING,
    "§8.2, CARD-01",
    means="Strict clients refuse a card that is not served as JSON.",
    fix="Send Content-Type: application/json with the card.",
)
async def content_type(subject: Subject) -> CheckVerdict:
    """The card says that it is JSON."""
    seen = subject.card_seen
    good = seen.media_type == "application/json" or seen.media_type.endswith("+json")
    return judge(good, f"Content-Type is {seen.headers.get('content-type', 'missing')}", seen)


@of_agent(
    "card-public",
    WARNING,
    "§8.2, AG-23",
    means="Without the card nobody can learn which credentials the agent wants.",
    fix="Serve the public card without credentials; keep what is private for the extended card.",
)
async def public(subject: Subject) -> CheckVerdict:
    """The card needs no credentials."""
    if not subject.credentials:
        return skipped("no credentials were given, and the card came")
    path = CARD if CARD in subject.found and subject.found[CARD].status == 200 else LEGACY
    seen = await subject.look_up(subject.base + path, known=False)
    return judge(seen.status == 200, seen.told(), seen)


@of_agent(
    "card-cache-control",
    WARNING,
    "§8.6.1, CARD-06",
    means="Clients do not know how long they may keep the card, and fetch it before every call.",
    fix="Send Cache-Control with max-age, for example max-age=300.",
)
async def cache_control(subject: Subject) -> CheckVerdict:
    """The card says how long it may be kept."""
    seen = subject.card_seen
    said = seen.headers.get("cache-control", "")
    return judge("max-age" in said or "no-" in said, f"Cache-Control is {said or 'missing'}", seen)


@of_agent(
    "card-etag",
    WARNING,
    "§8.6.1, CARD-07",
    means="Clients cannot ask whether the card has changed, and load all of it each time.",
    fix="Send an ETag with the card and answer 304 to If-None-Match with the same one.",
)
async def etag(subject: Subject) -> CheckVerdict:
    """The card has an ETag, and a client that knows it hears 304."""
    seen = subject.card_seen
    tag = seen.headers.get("etag", "")
    if not tag:
        return failed("there is no ETag", seen)
    again = await subject.look_up(seen.request.url, headers=(("If-None-Match", tag),))
    return judge(again.status == 304, f"If-None-Match: {tag} gives HTTP {again.status}", again)


@of_agent(
    "card-head",
    INFO,
    "RFC 9110 §9.1",
    means="Monitors and proxies that ask by HEAD see an agent that is not there.",
    fix="Answer HEAD like GET, without a body.",
)
async def head(subject: Subject) -> CheckVerdict:
    """HEAD is answered."""
    url = subject.card_seen.request.url
    seen = await subject.line.fetch(HttpRequest("HEAD", url, subject.credentials), "card")
    return judge(200 <= seen.status < 300, seen.told(), seen)
