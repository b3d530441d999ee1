"""Checks of the addresses on the card: whether they lead to the agent, and who answers there."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from trunkline.doctor.binding import NO_METHOD, NO_VERSION, NOT_FOUND, ProbeBinding
from trunkline.doctor.finding import (
    ERROR,
    INFO,
    PASSED,
    RPC,
    WARNING,
    CheckVerdict,
    failed,
    judge,
    of_agent,
    of_way,
    skipped,
    unknown,
)
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import items, members, text
from trunkline.doctor.subject import Subject, is_private, joined, same_origin
from trunkline.net.http import HttpRequest

_BRING = "give the doctor credentials by --key, --bearer or --header"


@of_agent(
    "card-url-not-private",
    ERROR,
    "AG-02, CARD-12",
    means="The card sends callers to their own machine or into a private network; calls never arrive.",
    fix="Set the agent's public URL, and build the card's addresses from it instead of the bind address.",
)
async def not_private(subject: Subject) -> CheckVerdict:
    """An agent that is found at a public address does not name private ones."""
    if is_private(subject.place.hostname or ""):
        return skipped("the agent itself was asked at a private address")
    odd = [url for url in _addresses(subject) if is_private(urlsplit(url).hostname or "")]
    return judge(not odd, f"the card names {', '.join(odd)}")


@of_agent(
    "card-url-same-host",
    WARNING,
    "AG-02",
    means="Clients that keep credentials to one host will not call there, and a typing error looks the same.",
    fix="Name the host under which the card is found, unless the endpoint really lives elsewhere.",
)
async def same_host(subject: Subject) -> CheckVerdict:
    """The card's addresses are where the card is."""
    odd = [url for url in _addresses(subject) if not _same_host(url, subject.place)]
    return judge(not odd, f"the card is at {subject.origin} and names {', '.join(odd)}")


@of_agent(
    "card-url-answers",
    ERROR,
    "§8.3.1, AG-02",
    means="Whoever goes by the card calls where nobody is; only clients that correct cards get through.",
    fix="Name the port at which the agent is reached, not the one that it listens at behind a proxy.",
)
async def somebody_there(subject: Subject) -> CheckVerdict:
    """Somebody answers where the card names another port of its own host."""
    near = [
        url
        for url in _addresses(subject)
        if urlsplit(url).hostname == subject.place.hostname and not _same_host(url, subject.place)
    ]
    if not near:
        return skipped("the card names no other port of its host")
    for url in near:
        seen = await subject.line.fetch(HttpRequest("GET", url), "card")
        if not seen.status:
            return failed(f"the card names {url}: {seen.trouble}", seen)
    return PASSED


@of_agent(
    "card-url-https",
    ERROR,
    "§7.1, SEC-09",
    means="Calls and credentials go over the network in the clear.",
    fix="Name https addresses in the card; behind a proxy, take the scheme from its forwarded headers.",
)
async def https(subject: Subject) -> CheckVerdict:
    """No address in the card leads from https to http, or over the network by http."""
    odd = [
        url
        for url in _addresses(subject)
        if urlsplit(url).scheme == "http" and not is_private(urlsplit(url).hostname or "")
    ]
    if subject.place.scheme == "https":
        odd = [url for url in _addresses(subject) if urlsplit(url).scheme == "http"]
    return judge(not odd, f"the card names {', '.join(odd)}")


@of_agent(
    "interface-listed",
    ERROR,
    "§8.3.1, CARD-03",
    means="Nobody knows where to call.",
    fix="List at least one interface with its url.",
)
async def listed(subject: Subject) -> CheckVerdict:
    """There is at least one interface that can be examined."""
    if subject.ways:
        return PASSED
    if list(_addresses(subject)):
        return skipped(
            "the doctor speaks JSONRPC of 1.0 and 0.3 and HTTP+JSON of 1.0; none of them is listed"
        )
    return failed("the card lists no interface")


@of_way(
    "interface-answers",
    ERROR,
    "§8.3.1, CARD-03, AG-02",
    means="Nobody who follows the card reaches the agent this way.",
    fix="Serve this binding at the address in the card, or take the entry out.",
)
async def answers(way: ProbeBinding) -> CheckVerdict:
    """A read is answered in the interface's own binding, in time."""
    answer = await way.call("get", {"id": new_id()})
    if way.is_rpc:
        body = members(answer.exchange.json)
        good = "jsonrpc" in body or (answer.exchange.status == 200 and bool({"error", "result"} & set(body)))
    else:
        good = 0 < answer.exchange.status < 500 and answer.exchange.json is not None
    if answer.is_shut:
        return unknown(f"{answer.told()}; {_BRING}", answer.exchange)
    return judge(good, answer.exchange.told(), answer.exchange)


@of_way(
    "interface-speaks-version",
    ERROR,
    "§3.6, CARD-03",
    means="The card declares a version that is not spoken; every call of such a client fails.",
    fix="Declare the version that is spoken, or route the methods of the declared one.",
)
async def speaks(way: ProbeBinding) -> CheckVerdict:
    """A read in the declared version is understood."""
    answer = await way.call("get", {"id": new_id()})
    wrong = answer.is_code(NO_VERSION) or (way.is_rpc and answer.is_code(NO_METHOD))
    return judge(not wrong, f"declared {way.interface.declared}: {answer.told()}", answer.exchange)


@of_way(
    "unknown-task",
    ERROR,
    "§3.1.3, GET-02, AG-11",
    means="Clients cannot tell a task that is gone from a broken agent, and go on asking.",
    fix="Answer TaskNotFound (-32001; HTTP 404) for a task id that nobody knows.",
)
async def unknown_task(way: ProbeBinding) -> CheckVerdict:
    """A task that never was is not found."""
    answer = await way.call("get", {"id": new_id()})
    return judge(answer.is_code(NOT_FOUND), answer.told(), answer.exchange)


@of_way(
    "interface-trailing-slash",
    INFO,
    "RFC 3986 §6.2.3",
    means="Some clients join addresses with a slash at the end, and are not answered.",
    fix="Route the endpoint with and without a trailing slash.",
    bindings=RPC,
    first=True,
)
async def trailing_slash(way: ProbeBinding) -> CheckVerdict:
    """The endpoint answers with a slash at its end."""
    if way.url.endswith("/"):
        return PASSED
    request = way.request("get", {"id": new_id()})
    moved = HttpRequest(request.method, f"{request.url}/", request.headers, request.body)
    answer = way.understood(await way.subject.line.fetch(moved))
    return judge(answer.code or answer.result is not None, answer.exchange.told(), answer.exchange)


def _addresses(subject: Subject) -> Iterator[str]:
    """Every address on the card, once."""
    card = subject.card
    found = [text(card.get("url"))]
    for name in ("supportedInterfaces", "additionalInterfaces"):
        found += [text(members(one).get("url")) for one in items(card.get(name))]
    grpc = {
        text(members(one).get("url"))
        for one in items(card.get("supportedInterfaces"))
        if members(one).get("protocolBinding") == "GRPC"
    }
    full = [joined(f"{subject.url}/", url) for url in found if url and url not in grpc]
    yield from dict.fromkeys(full)


def _same_host(url: str, here: SplitResult) -> bool:
    there = urlsplit(url)
    # Another scheme is another port too; that is for `card-url-https` to say.
    if there.scheme != here.scheme:
        return there.hostname == here.hostname
    return same_origin(there, here)
