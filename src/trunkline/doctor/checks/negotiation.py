"""Checks of version negotiation, and of extensions that are required or unknown."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.clock import new_id
from trunkline.doctor.check import (
    ERROR,
    INFO,
    PASSED,
    RPC,
    V1,
    WARNING,
    CheckVerdict,
    Family,
    judge_answer,
    refused_with,
)
from trunkline.doctor.exchange import NotPossible, encoded
from trunkline.doctor.probe import NO_EXTENSION, NO_METHOD, NO_VERSION, NOT_FOUND, InterfaceProbe, ProbeAnswer

versions = Family("versions", versions=V1)
extensions = Family("extensions")


@versions.interface("version-unknown-refused", ERROR, "§3.6.2, VER-01")
async def unknown_refused(probe: InterfaceProbe) -> CheckVerdict:
    """Version 9.9 is refused.

    Means: A caller of a version to come is served in a dialect that it may misread.
    Fix: Refuse an A2A-Version that is not spoken with VersionNotSupported (-32009; HTTP 400).
    """
    answer = await probe.get_unknown(version="9.9")
    return refused_with(answer, NO_VERSION, request="A2A-Version: 9.9")


@versions.interface("version-minor-refused", ERROR, "§3.6.2, VER-04")
async def minor_refused(probe: InterfaceProbe) -> CheckVerdict:
    """Version 1.1 is refused where only 1.0 is on the card.

    Means: A caller of 1.1 is told that it is spoken, and hears 1.0.
    Fix: Compare Major.Minor with the versions on the card, not only the major one.
    """
    if any(one.interface.declared.startswith("1.1") for one in probe.subject.probes):
        return PASSED
    answer = await probe.get_unknown(version="1.1")
    return refused_with(answer, NO_VERSION, request="A2A-Version: 1.1")


@versions.interface("version-patch-ignored", ERROR, "§3.6, VER-03")
async def patch_ignored(probe: InterfaceProbe) -> CheckVerdict:
    """Version 1.0.7 is served as 1.0.

    Means: A caller that names a patch version is turned away.
    Fix: Ignore the patch number: 1.0.7 is 1.0.
    """
    answer = await probe.get_unknown(version="1.0.7")
    return refused_with(answer, NOT_FOUND, request="A2A-Version: 1.0.7")


@versions.interface("version-query-parameter", INFO, "§3.6.1, VER-05")
async def query_parameter(probe: InterfaceProbe) -> CheckVerdict:
    """The version may be a query parameter.

    Means: Callers that cannot set headers are turned away.
    Fix: Read A2A-Version from the query too when there is no header.
    """
    request = probe.request("get", {"id": new_id()}, version="")
    glue = "&" if "?" in request.url else "?"
    answer = await probe.ask(replace(request, url=f"{request.url}{glue}A2A-Version=1.0"))
    return refused_with(answer, NOT_FOUND, request="?A2A-Version=1.0")


@versions.interface("version-absent-is-0.3", ERROR, "§3.6.2, VER-02", bindings=RPC)
async def absent(probe: InterfaceProbe) -> CheckVerdict:
    """A method of 0.3 without a version is served as 0.3, or refused as a version or a method.

    Means: A client of 0.3 sends no version, and hears a dialect that it does not know.
    Fix: Read a missing A2A-Version as 0.3: serve it, or refuse it with VersionNotSupported (-32009).
    """
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    answer = await probe.post(encoded(body), version="")
    return refused_with(answer, NO_VERSION, NO_METHOD, NOT_FOUND)


@versions.interface("version-mixed-method", ERROR, "§3.6.2, §9.1", bindings=RPC)
async def mixed(probe: InterfaceProbe) -> CheckVerdict:
    """A method of 0.3 under version 1.0 is refused as such, or understood.

    Means: A caller that mixes versions gets an internal error and cannot tell what it did wrong.
    Fix: Answer a method that the asked version does not have with -32601 or -32009.
    """
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    answer = await probe.post(encoded(body))
    good = answer.refused and answer.code in (NO_METHOD, NO_VERSION, NOT_FOUND)
    return judge_answer(good, answer, "tasks/get under A2A-Version: 1.0")


_UNKNOWN = "https://doctor.example/ext/nobody-knows/v1"


@extensions.interface("extension-required", ERROR, "§3.3.4, §4.6.3, EXT-01", versions=V1, sends=True)
async def required(probe: InterfaceProbe) -> CheckVerdict:
    """A send without a required extension is refused.

    Means: The card requires an extension, and callers without it are served as if they spoke it.
    Fix: Refuse callers that do not name it with ExtensionSupportRequired (-32008), or require it no more.
    """
    if not probe.subject.extensions(required=True):
        raise NotPossible("the card requires no extension")
    answer = await _naming(probe, "send", probe.fixtures.sending(), "")
    return refused_with(answer, NO_EXTENSION)


@extensions.interface("extension-unknown-ignored", WARNING, "§4.6.3, EXT-02")
async def unknown_ignored(probe: InterfaceProbe) -> CheckVerdict:
    """An extension that nobody knows does not matter.

    Means: Callers that speak more than the agent are turned away.
    Fix: Ignore extensions that are not known.
    """
    names = [*probe.subject.extensions(required=True), _UNKNOWN]
    answer = await _naming(probe, "get", {"id": new_id()}, ", ".join(names))
    return refused_with(answer, NOT_FOUND)


async def _naming(probe: InterfaceProbe, operation: str, given: dict[str, object], names: str) -> ProbeAnswer:
    """The answer to an operation under other extensions than those that the card requires."""
    request = probe.request(operation, given, headers=((probe.extensions_header, names),))
    return await probe.ask(request, operation, probe.subject.send_s)
