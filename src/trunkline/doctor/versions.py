"""Checks of version negotiation."""

from __future__ import annotations

from trunkline.doctor.binding import NO_METHOD, NO_VERSION, NOT_FOUND, ProbeAnswer, ProbeBinding
from trunkline.doctor.exchange import encoded
from trunkline.doctor.finding import ERROR, INFO, PASSED, RPC, CheckVerdict, failed, judge, of_way
from trunkline.doctor.fixtures import new_id
from trunkline.net.http import HttpRequest


@of_way(
    "version-unknown-refused",
    ERROR,
    "§3.6.2, VER-01",
    means="A caller of a version to come is served in a dialect that it may misread.",
    fix="Refuse an A2A-Version that is not spoken with VersionNotSupported (-32009; HTTP 400).",
    versions=("1.0",),
)
async def unknown_refused(way: ProbeBinding) -> CheckVerdict:
    """Version 9.9 is refused."""
    answer = await _read(way, "9.9")
    return judge(answer.is_code(NO_VERSION), f"A2A-Version: 9.9 gives {answer.told()}", answer.exchange)


@of_way(
    "version-minor-refused",
    ERROR,
    "§3.6.2, VER-04",
    means="A caller of 1.1 is told that it is spoken, and hears 1.0.",
    fix="Compare Major.Minor with the versions on the card, not only the major one.",
    versions=("1.0",),
)
async def minor_refused(way: ProbeBinding) -> CheckVerdict:
    """Version 1.1 is refused where only 1.0 is on the card."""
    if any(one.interface.declared.startswith("1.1") for one in way.subject.ways):
        return PASSED
    answer = await _read(way, "1.1")
    return judge(answer.is_code(NO_VERSION), f"A2A-Version: 1.1 gives {answer.told()}", answer.exchange)


@of_way(
    "version-patch-ignored",
    ERROR,
    "§3.6, VER-03",
    means="A caller that names a patch version is turned away.",
    fix="Ignore the patch number: 1.0.7 is 1.0.",
    versions=("1.0",),
)
async def patch_ignored(way: ProbeBinding) -> CheckVerdict:
    """Version 1.0.7 is served as 1.0."""
    answer = await _read(way, "1.0.7")
    return judge(answer.is_code(NOT_FOUND), f"A2A-Version: 1.0.7 gives {answer.told()}", answer.exchange)


@of_way(
    "version-query-parameter",
    INFO,
    "§3.6.1, VER-05",
    means="Callers that cannot set headers are turned away.",
    fix="Read A2A-Version from the query too when there is no header.",
    versions=("1.0",),
)
async def query_parameter(way: ProbeBinding) -> CheckVerdict:
    """The version may be a query parameter."""
    request = way.request("get", {"id": new_id()}, version="")
    glue = "&" if "?" in request.url else "?"
    asked = HttpRequest(request.method, f"{request.url}{glue}A2A-Version=1.0", request.headers, request.body)
    answer = way.understood(await way.subject.line.fetch(asked))
    return judge(answer.is_code(NOT_FOUND), f"?A2A-Version=1.0 gives {answer.told()}", answer.exchange)


@of_way(
    "version-absent-is-0.3",
    ERROR,
    "§3.6.2, VER-02",
    means="A client of 0.3 sends no version, and hears a dialect that it does not know.",
    fix="Read a missing A2A-Version as 0.3: serve it, or refuse it with VersionNotSupported (-32009).",
    bindings=RPC,
    versions=("1.0",),
)
async def absent(way: ProbeBinding) -> CheckVerdict:
    """A method of 0.3 without a version is served as 0.3, or refused as a version or a method."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    answer = await way.post(encoded(body), version="")
    allowed = (NO_VERSION, NO_METHOD, NOT_FOUND)
    return judge(any(answer.is_code(one) for one in allowed), answer.told(), answer.exchange)


@of_way(
    "version-mixed-method",
    ERROR,
    "§3.6.2, §9.1",
    means="A caller that mixes versions gets an internal error and cannot tell what it did wrong.",
    fix="Answer a method that the asked version does not have with -32601 or -32009.",
    bindings=RPC,
    versions=("1.0",),
)
async def mixed(way: ProbeBinding) -> CheckVerdict:
    """A method of 0.3 under version 1.0 is refused as such, or understood."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": new_id()}}
    answer = await way.post(encoded(body))
    if answer.refused and answer.code in (NO_METHOD, NO_VERSION, NOT_FOUND):
        return PASSED
    return failed(f"tasks/get under A2A-Version: 1.0 gives {answer.told()}", answer.exchange)


async def _read(way: ProbeBinding, version: str) -> ProbeAnswer:
    """A read that is right in all but its version."""
    return await way.call("get", {"id": new_id()}, version=version)
