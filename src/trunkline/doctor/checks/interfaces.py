"""Checks of the addresses on the card, and of the versions and extensions that are spoken there."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from msgspec import json
from msgspec.structs import replace

from trunkline.clock import new_id
from trunkline.doctor.check import (
    ERROR,
    INFO,
    RPC,
    V1,
    WARNING,
    Family,
    assume,
    expect,
    expect_answer,
    expect_refusal,
)
from trunkline.doctor.exchange import Undecided, members, objects, text
from trunkline.doctor.probe import NO_EXTENSION, NO_METHOD, NO_VERSION, NOT_FOUND, InterfaceProbe, ProbeAnswer
from trunkline.doctor.subject import Subject, is_private, joined, same_origin
from trunkline.net.http import HttpRequest

interfaces = Family("interfaces")

_GIVE_CREDENTIALS = "give the doctor credentials by --key, --bearer or --header"


@interfaces.agent("card-url-not-private", ERROR, "AG-02, CARD-12")
async def not_private(subject: Subject) -> None:
    """An agent that is found at a public address does not name private ones.

    Means: The card sends callers to their own machine or into a private network; calls never arrive.
    Fix: Set the agent's public URL, and build the card's addresses from it instead of the bind address.
    """
    assume(not is_private(subject.address.hostname or ""), "the agent itself was asked at a private address")
    odd = [url for url in _addresses(subject) if is_private(urlsplit(url).hostname or "")]
    expect(not odd, f"the card names {', '.join(odd)}")


@interfaces.agent("card-url-same-host", WARNING, "AG-02")
async def same_host(subject: Subject) -> None:
    """The card's addresses are where the card is.

    Means: Clients that keep credentials to one host will not call there, and a typing error looks the same.
    Fix: Name the host under which the card is found, unless the endpoint really lives elsewhere.
    """
    odd = [url for url in _addresses(subject) if not _same_host(url, subject.address)]
    expect(not odd, f"the card is at {subject.origin} and names {', '.join(odd)}")


@interfaces.agent("card-url-answers", ERROR, "§8.3.1, AG-02")
async def other_port(subject: Subject) -> None:
    """Somebody answers where the card names another port of its own host.

    Means: Whoever goes by the card calls where nobody is; only clients that correct cards get through.
    Fix: Name the port at which the agent is reached, not the one that it listens at behind a proxy.
    """
    near = [
        url
        for url in _addresses(subject)
        if urlsplit(url).hostname == subject.address.hostname and not _same_host(url, subject.address)
    ]
    assume(near, "the card names no other port of its host")
    for url in near:
        seen = await subject.client.fetch(HttpRequest("GET", url), "card")
        expect(seen.status, f"the card names {url}: {seen.trouble}", seen)


@interfaces.agent("card-url-https", ERROR, "§7.1, SEC-09")
async def https(subject: Subject) -> None:
    """No address in the card leads from https to http, or over the network by http.

    Means: Calls and credentials go over the network in the clear.
    Fix: Name https addresses in the card; behind a proxy, take the scheme from its forwarded headers.
    """
    odd = [url for url in _addresses(subject) if urlsplit(url).scheme == "http"]
    if subject.address.scheme != "https":
        odd = [url for url in odd if not is_private(urlsplit(url).hostname or "")]
    expect(not odd, f"the card names {', '.join(odd)}")


@interfaces.agent("interface-listed", ERROR, "§8.3.1, CARD-03")
async def listed(subject: Subject) -> None:
    """There is at least one interface that can be examined.

    Means: Nobody knows where to call.
    Fix: List at least one interface with its url.
    """
    spoken = "the doctor speaks JSONRPC of 1.0 and 0.3 and HTTP+JSON of 1.0; none of them is listed"
    assume(subject.probes or not _addresses(subject), spoken)
    expect(subject.probes, "the card lists no interface")


@interfaces.interface("interface-answers", ERROR, "§8.3.1, CARD-03, AG-02")
async def answers(probe: InterfaceProbe) -> None:
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
        raise Undecided(f"{answer.summary()}; {_GIVE_CREDENTIALS}")
    expect(good, answer.exchange.summary(), answer)


@interfaces.interface("interface-speaks-version", ERROR, "§3.6, CARD-03")
async def speaks(probe: InterfaceProbe) -> None:
    """A read in the declared version is understood.

    Means: The card declares a version that is not spoken; every call of such a client fails.
    Fix: Declare the version that is spoken, or route the methods of the declared one.
    """
    answer = await probe.get_unknown()
    wrong = answer.is_code(NO_VERSION) or (probe.is_rpc and answer.is_code(NO_METHOD))
    expect(not wrong, f"declared {probe.interface.declared}: {answer.summary()}", answer)


@interfaces.interface("unknown-task", ERROR, "§3.1.3, GET-02, AG-11")
async def unknown_task(probe: InterfaceProbe) -> None:
    """A task that never was is not found.

    Means: Clients cannot tell a task that is gone from a broken agent, and go on asking.
    Fix: Answer TaskNotFound (-32001; HTTP 404) for a task id that nobody knows.
    """
    expect_refusal(await probe.get_unknown(), NOT_FOUND)


@interfaces.interface("interface-trailing-slash", INFO, "RFC 3986 §6.2.3", bindings=RPC, first=True)
async def trailing_slash(probe: InterfaceProbe) -> None:
    """The endpoint answers with a slash at its end.

    Means: Some clients join addresses with a slash at the end, and are not answered.
    Fix: Route the endpoint with and without a trailing slash.
    """
    if probe.url.endswith("/"):
        return
    request = probe.request("get", {"id": new_id()})
    answer = await probe.ask(replace(request, url=f"{request.url}/"))
    expect(answer.code or answer.result is not None, answer.exchange.summary(), answer)


def _addresses(subject: Subject) -> list[str]:
    """Every address on the card, once."""
    card = subject.card
    found = [text(card.get("url"))]
    for name in ("supportedInterfaces", "additionalInterfaces"):
        found += [text(one.get("url")) for one in objects(card.get(name))]
    listed = objects(card.get("supportedInterfaces"))
    # What is an address to gRPC need not be a URL.
    grpc = {text(one.get("url")) for one in listed if one.get("protocolBinding") == "GRPC"}
    return list(dict.fromkeys(joined(f"{subject.url}/", url) for url in found if url and url not in grpc))


def _same_host(url: str, address: SplitResult) -> bool:
    named = urlsplit(url)
    # Another scheme is another port too; that is for `card-url-https` to say.
    if named.scheme != address.scheme:
        return named.hostname == address.hostname
    return same_origin(named, address)


versions = Family("versions", versions=V1)
extensions = Family("extensions")


@versions.interface("version-unknown-refused", ERROR, "§3.6.2, VER-01")
async def unknown_refused(probe: InterfaceProbe) -> None:
    """Version 9.9 is refused.

    Means: A caller of a version to come is served in a dialect that it may misread.
    Fix: Refuse an A2A-Version that is not spoken with VersionNotSupported (-32009; HTTP 400).
    """
    expect_refusal(await probe.get_unknown(version="9.9"), NO_VERSION, request="A2A-Version: 9.9")


@versions.interface("version-minor-refused", ERROR, "§3.6.2, VER-04")
async def minor_refused(probe: InterfaceProbe) -> None:
    """Version 1.1 is refused where only 1.0 is on the card.

    Means: A caller of 1.1 is told that it is spoken, and hears 1.0.
    Fix: Compare Major.Minor with the versions on the card, not only the major one.
    """
    if any(one.interface.declared.startswith("1.1") for one in probe.subject.probes):
        return
    expect_refusal(await probe.get_unknown(version="1.1"), NO_VERSION, request="A2A-Version: 1.1")


@versions.interface("version-patch-ignored", ERROR, "§3.6, VER-03")
async def patch_ignored(probe: InterfaceProbe) -> None:
    """Version 1.0.7 is served as 1.0.

    Means: A caller that names a patch version is turned away.
    Fix: Ignore the patch number: 1.0.7 is 1.0.
    """
    expect_refusal(await probe.get_unknown(version="1.0.7"), NOT_FOUND, request="A2A-Version: 1.0.7")


@versions.interface("version-query-parameter", INFO, "§3.6.1, VER-05")
async def query_parameter(probe: InterfaceProbe) -> None:
    """The version may be a query parameter.

    Means: Callers that cannot set headers are turned away.
    Fix: Read A2A-Version from the query too when there is no header.
    """
    request = probe.request("get", {"id": new_id()}, version="")
    glue = "&" if "?" in request.url else "?"
    answer = await probe.ask(replace(request, url=f"{request.url}{glue}A2A-Version=1.0"))
    expect_refusal(answer, NOT_FOUND, request="?A2A-Version=1.0")


@versions.interface("version-absent-is-0.3", ERROR, "§3.6.2, VER-02", bindings=RPC)
async def absent(probe: InterfaceProbe) -> None:
    """A method of 0.3 without a version is served as 0.3, or refused as a version or a method.

    Means: A client of 0.3 sends no version, and hears a dialect that it does not know.
    Fix: Read a missing A2A-Version as 0.3: serve it, or refuse it with VersionNotSupported (-32009).
    """
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    expect_refusal(await probe.post(json.encode(body), version=""), NO_VERSION, NO_METHOD, NOT_FOUND)


@versions.interface("version-mixed-method", ERROR, "§3.6.2, §9.1", bindings=RPC)
async def mixed(probe: InterfaceProbe) -> None:
    """A method of 0.3 under version 1.0 is refused as such, or understood.

    Means: A caller that mixes versions gets an internal error and cannot tell what it did wrong.
    Fix: Answer a method that the asked version does not have with -32601 or -32009.
    """
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    answer = await probe.post(json.encode(body))
    good = answer.refused and answer.code in (NO_METHOD, NO_VERSION, NOT_FOUND)
    expect_answer(good, answer, "tasks/get under A2A-Version: 1.0")


_UNKNOWN = "https://doctor.example/ext/nobody-knows/v1"


@extensions.interface("extension-required", ERROR, "§3.3.4, §4.6.3, EXT-01", versions=V1)
async def required(probe: InterfaceProbe) -> None:
    """A send without a required extension is refused.

    Means: The card requires an extension, and callers without it are served as if they spoke it.
    Fix: Refuse callers that do not name it with ExtensionSupportRequired (-32008), or require it no more.
    """
    assume(probe.subject.extensions(required=True), "the card requires no extension")
    expect_refusal(await _naming(probe, "send", probe.fixtures.sending(), ""), NO_EXTENSION)


@extensions.interface("extension-unknown-ignored", WARNING, "§4.6.3, EXT-02")
async def unknown_ignored(probe: InterfaceProbe) -> None:
    """An extension that nobody knows does not matter.

    Means: Callers that speak more than the agent are turned away.
    Fix: Ignore extensions that are not known.
    """
    names = [*probe.subject.extensions(required=True), _UNKNOWN]
    expect_refusal(await _naming(probe, "get", {"id": new_id()}, ", ".join(names)), NOT_FOUND)


async def _naming(probe: InterfaceProbe, operation: str, given: dict[str, object], names: str) -> ProbeAnswer:
    """The answer to an operation under other extensions than those that the card requires."""
    request = probe.request(operation, given, headers=((probe.extensions_header, names),))
    return await probe.ask(request, operation, probe.subject.send_s)
