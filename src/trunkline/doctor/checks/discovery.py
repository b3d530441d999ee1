"""Checks of where the card is found and how it is served."""

from __future__ import annotations

from trunkline.doctor.check import ERROR, INFO, PASSED, WARNING, CheckVerdict, Family, failed, judge, skipped
from trunkline.doctor.subject import CARD, LEGACY, Subject, is_card
from trunkline.net.http import HttpRequest

discovery = Family("discovery")


@discovery.agent("card-found", ERROR, "§8.2, CARD-01, AG-01")
async def found(subject: Subject) -> CheckVerdict:
    """The card is at the well-known path of 0.3 and 1.0.

    Means: Clients look for the card at /.well-known/agent-card.json and find nothing, so they cannot call.
    Fix: Serve the card as JSON with status 200 at /.well-known/agent-card.json.
    """
    seen = subject.cards.get(CARD) or await subject.get_card(subject.base + CARD)
    return judge(is_card(seen), seen.summary(), seen)


@discovery.agent("card-legacy-path", WARNING, "0.2.6 §5.3, AG-01")
async def legacy(subject: Subject) -> CheckVerdict:
    """The card is at the older path too, and is the same.

    Means: Older clients look at /.well-known/agent.json; to them this agent does not exist.
    Fix: Serve the same card at /.well-known/agent.json too.
    """
    seen = subject.cards.get(LEGACY) or await subject.get_card(subject.base + LEGACY)
    if not is_card(seen):
        return failed(seen.summary(), seen)
    newer = subject.cards.get(CARD)
    if newer is None or newer.status != 200:
        return PASSED
    return judge(seen.json == newer.json, "the two paths serve different cards", newer, seen)


@discovery.agent("card-content-type", WARNING, "§8.2, CARD-01")
async def content_type(subject: Subject) -> CheckVerdict:
    """The card says that it is JSON.

    Means: Strict clients refuse a card that is not served as JSON.
    Fix: Send Content-Type: application/json with the card.
    """
    seen = subject.card_exchange
    good = seen.media_type == "application/json" or seen.media_type.endswith("+json")
    return judge(good, f"Content-Type is {seen.headers.get('content-type', 'missing')}", seen)


@discovery.agent("card-public", WARNING, "§8.2, AG-23")
async def public(subject: Subject) -> CheckVerdict:
    """The card needs no credentials.

    Means: Without the card nobody can learn which credentials the agent wants.
    Fix: Serve the public card without credentials; keep what is private for the extended card.
    """
    if not subject.credentials:
        return skipped("no credentials were given, and the card came")
    path = CARD if CARD in subject.cards and subject.cards[CARD].status == 200 else LEGACY
    seen = await subject.get_card(subject.base + path, known=False)
    return judge(seen.status == 200, seen.summary(), seen)


@discovery.agent("card-cache-control", WARNING, "§8.6.1, CARD-06")
async def cache_control(subject: Subject) -> CheckVerdict:
    """The card says how long it may be kept.

    Means: Clients do not know how long they may keep the card, and fetch it before every call.
    Fix: Send Cache-Control with max-age, for example max-age=300.
    """
    seen = subject.card_exchange
    value = seen.headers.get("cache-control", "")
    return judge("max-age" in value or "no-" in value, f"Cache-Control is {value or 'missing'}", seen)


@discovery.agent("card-etag", WARNING, "§8.6.1, CARD-07")
async def etag(subject: Subject) -> CheckVerdict:
    """The card has an ETag, and a client that knows it hears 304.

    Means: Clients cannot ask whether the card has changed, and load all of it each time.
    Fix: Send an ETag with the card and answer 304 to If-None-Match with the same one.
    """
    seen = subject.card_exchange
    tag = seen.headers.get("etag", "")
    if not tag:
        return failed("there is no ETag", seen)
    again = await subject.get_card(seen.request.url, headers=(("If-None-Match", tag),))
    return judge(again.status == 304, f"If-None-Match: {tag} gives HTTP {again.status}", again)


@discovery.agent("card-head", INFO, "RFC 9110 §9.1")
async def head(subject: Subject) -> CheckVerdict:
    """HEAD is answered.

    Means: Monitors and proxies that ask by HEAD see an agent that is not there.
    Fix: Answer HEAD like GET, without a body.
    """
    url = subject.card_exchange.request.url
    seen = await subject.client.fetch(HttpRequest("HEAD", url, subject.credentials), "card")
    return judge(200 <= seen.status < 300, seen.summary(), seen)
