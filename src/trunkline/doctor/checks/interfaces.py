"""Checks of the addresses on the card: whether they lead to the agent, and who answers there."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from trunkline.clock import new_id
from trunkline.doctor.check import (
    ERROR,
    INFO,
    PASSED,
    RPC,
    WARNING,
    CheckVerdict,
    Family,
    failed,
    judge,
    refused_with,
    skipped,
    unknown,
)
from trunkline.doctor.json_access import members, objects, text
from trunkline.doctor.probe import NO_METHOD, NO_VERSION, NOT_FOUND, InterfaceProbe
from trunkline.doctor.subject import Subject, is_private, joined, same_origin
from trunkline.net.http import HttpRequest

interfaces = Family("interfaces")

_GIVE_CREDENTIALS = "give the doctor credentials by --key, --bearer or --header"


@interfaces.agent("card-url-not-private", ERROR, "AG-02, CARD-12")
async def not_private(subject: Subject) -> CheckVerdict:
    """An agent that is found at a public address does not name private ones.

    Means: The card sends callers to their own machine or into a private network; calls never arrive.
    Fix: Set the agent's public URL, and build the card's addresses from it instead of the bind address.
    """
    if is_private(subject.address.hostname or ""):
        return skipped("the agent itself was asked at a private address")
    odd = [url for url in _addresses(subject) if is_private(urlsplit(url).hostname or "")]
    return judge(not odd, f"the card names {', '.join(odd)}")


@interfaces.agent("card-url-same-host", WARNING, "AG-02")
async def same_host(subject: Subject) -> CheckVerdict:
    """The card's addresses are where the card is.

    Means: Clients that keep credentials to one host will not call there, and a typing error looks the same.
    Fix: Name the host under which the card is found, unless the endpoint really lives elsewhere.
    """
    odd = [url for url in _addresses(subject) if not _same_host(url, subject.address)]
    return judge(not odd, f"the card is at {subject.origin} and names {', '.join(odd)}")


@interfaces.agent("card-url-answers", ERROR, "§8.3.1, AG-02")
async def other_port(subject: Subject) -> CheckVerdict:
    """Somebody answers where the card names another port of its own host.

    Means: Whoever goes by the card calls where nobody is; only clients that correct cards get through.
    Fix: Name the port at which the agent is reached, not the one that it listens at behind a proxy.
    """
    near = [
        url
        for url in _addresses(subject)
        if urlsplit(url).hostname == subject.address.hostname and not _same_host(url, subject.address)
    ]
    if not near:
        return skipped("the card names no other port of its host")
    for url in near:
        seen = await subject.client.fetch(HttpRequest("GET", url), "card")
        if not seen.status:
            return failed(f"the card names {url}: {seen.trouble}", seen)
    return PASSED


@interfaces.agent("card-url-https", ERROR, "§7.1, SEC-09")
async def https(subject: Subject) -> CheckVerdict:
    """No address in the card leads from https to http, or over the network by http.

    Means: Calls and credentials go over the network in the clear.
    Fix: Name https addresses in the card; behind a proxy, take the scheme from its forwarded headers.
    """
    odd = [url for url in _addresses(subject) if urlsplit(url).scheme == "http"]
    if subject.address.scheme != "https":
        odd = [url for url in odd if not is_private(urlsplit(url).hostname or "")]
    return judge(not odd, f"the card names {', '.join(odd)}")


@interfaces.agent("interface-listed", ERROR, "§8.3.1, CARD-03")
async def listed(subject: Subject) -> CheckVerdict:
    """There is at least one interface that can be examined.

    Means: Nobody knows where to call.
    Fix: List at least one interface with its url.
    """
    if subject.probes:
        return PASSED
    if list(_addresses(subject)):
        return skipped(
            "the doctor speaks JSONRPC of 1.0 and 0.3 and HTTP+JSON of 1.0; none of them is listed"
        )
    return failed("the card lists no interface")


@interfaces.interface("interface-answers", ERROR, "§8.3.1, CARD-03, AG-02")
async def answers(probe: InterfaceProbe) -> CheckVerdict:
    """A read is answered in the interface's own binding, in time.

    Means: Nobody who follows the card reaches the agent this way.
    Fix: Serve this binding at the address in the card, or take the entry out.
    """
    answer = await probe.get_unknown()
    if probe.is_rpc:
        body = members(answer.exchange.json)
        good = "jsonrpc" in body or (answer.exchange.status == 200 and bool({"error", "result"} & set(body)))
    else:
        good = 0 < answer.exchange.status < 500 and answer.exchange.json is not None
    if answer.is_unauthorized:
        return unknown(f"{answer.summary()}; {_GIVE_CREDENTIALS}", answer.exchange)
    return judge(good, answer.exchange.summary(), answer.exchange)


@interfaces.interface("interface-speaks-version", ERROR, "§3.6, CARD-03")
async def speaks(probe: InterfaceProbe) -> CheckVerdict:
    """A read in the declared version is understood.

    Means: The card declares a version that is not spoken; every call of such a client fails.
    Fix: Declare the version that is spoken, or route the methods of the declared one.
    """
    answer = await probe.get_unknown()
    wrong = answer.is_code(NO_VERSION) or (probe.is_rpc and answer.is_code(NO_METHOD))
    return judge(not wrong, f"declared {probe.interface.declared}: {answer.summary()}", answer.exchange)


@interfaces.interface("unknown-task", ERROR, "§3.1.3, GET-02, AG-11")
async def unknown_task(probe: InterfaceProbe) -> CheckVerdict:
    """A task that never was is not found.

    Means: Clients cannot tell a task that is gone from a broken agent, and go on asking.
    Fix: Answer TaskNotFound (-32001; HTTP 404) for a task id that nobody knows.
    """
    answer = await probe.get_unknown()
    return refused_with(answer, NOT_FOUND)


@interfaces.interface("interface-trailing-slash", INFO, "RFC 3986 §6.2.3", bindings=RPC, first=True)
async def trailing_slash(probe: InterfaceProbe) -> CheckVerdict:
    """The endpoint answers with a slash at its end.

    Means: Some clients join addresses with a slash at the end, and are not answered.
    Fix: Route the endpoint with and without a trailing slash.
    """
    if probe.url.endswith("/"):
        return PASSED
    request = probe.request("get", {"id": new_id()})
    answer = await probe.ask(replace(request, url=f"{request.url}/"))
    return judge(answer.code or answer.result is not None, answer.exchange.summary(), answer.exchange)


def _addresses(subject: Subject) -> Iterator[str]:
    """Every address on the card, once."""
    card = subject.card
    found = [text(card.get("url"))]
    for name in ("supportedInterfaces", "additionalInterfaces"):
        found += [text(one.get("url")) for one in objects(card.get(name))]
    listed = objects(card.get("supportedInterfaces"))
    # What is an address to gRPC need not be a URL.
    grpc = {text(one.get("url")) for one in listed if one.get("protocolBinding") == "GRPC"}
    full = [joined(f"{subject.url}/", url) for url in found if url and url not in grpc]
    yield from dict.fromkeys(full)


def _same_host(url: str, address: SplitResult) -> bool:
    named = urlsplit(url)
    # Another scheme is another port too; that is for `card-url-https` to say.
    if named.scheme != address.scheme:
        return named.hostname == address.hostname
    return same_origin(named, address)
