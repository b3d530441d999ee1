"""Checks of HTTP+JSON: routes, statuses and error bodies."""

from __future__ import annotations

from trunkline.doctor.binding import NOT_FOUND, ProbeBinding
from trunkline.doctor.finding import (
    ERROR,
    PASSED,
    REST,
    WARNING,
    CheckVerdict,
    failed,
    judge,
    of_way,
    skipped,
)
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import at, items, members, text
from trunkline.doctor.spelling import route
from trunkline.net.http import HttpRequest

_V1 = ("1.0",)
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


@of_way(
    "rest-error-body",
    ERROR,
    "§11.6, ERR-04",
    means="Clients cannot read the error.",
    fix="Answer {error: {code, status, message, details}}; code is the HTTP status.",
    bindings=REST,
    versions=_V1,
)
async def error_body(way: ProbeBinding) -> CheckVerdict:
    """An error is a google.rpc.Status as JSON."""
    answer = await way.call("get", {"id": new_id()})
    error = members(at(answer.exchange.json, "error"))
    if not error:
        return failed(answer.exchange.told(), answer.exchange)
    if error.get("code") != answer.exchange.status:
        return failed(f"error.code is {error.get('code')!r}, HTTP {answer.exchange.status}", answer.exchange)
    return judge(text(error.get("message")), "error.message is missing", answer.exchange)


@of_way(
    "rest-error-details",
    ERROR,
    "§11.6, ERR-03",
    means="Several errors share an HTTP status; without ErrorInfo clients cannot tell them apart.",
    fix="Put an ErrorInfo with reason and domain into error.details.",
    bindings=REST,
    versions=_V1,
)
async def error_details(way: ProbeBinding) -> CheckVerdict:
    """An error has an ErrorInfo."""
    answer = await way.call("get", {"id": new_id()})
    details = items(at(answer.exchange.json, "error", "details"))
    infos = [one for one in details if at(one, "@type") == _INFO]
    whole = infos and text(at(infos[0], "reason")) and text(at(infos[0], "domain"))
    return judge(whole, "there is no ErrorInfo with reason and domain", answer.exchange)


@of_way(
    "rest-unknown-route",
    ERROR,
    "§11.6, RST-04",
    means="Clients that read errors as JSON cannot read this one.",
    fix="Answer a path that does not exist with 404 and a JSON body.",
    bindings=REST,
    versions=_V1,
)
async def unknown_route(way: ProbeBinding) -> CheckVerdict:
    """A path that does not exist is 404 with JSON."""
    seen = await way.subject.line.fetch(
        HttpRequest("GET", f"{way.url}/trunkline-doctor/nowhere", way.headers())
    )
    return judge(seen.status == 404 and members(seen.json), seen.told(), seen)


@of_way(
    "rest-wrong-verb",
    ERROR,
    "§11.6, RST-04",
    means="A wrong verb is taken for something else, or the answer cannot be read.",
    fix="Answer a verb that a path does not take with 405, Allow and a JSON body.",
    bindings=REST,
    versions=_V1,
)
async def wrong_verb(way: ProbeBinding) -> CheckVerdict:
    """A verb that does not fit is 405 with JSON."""
    seen = await way.subject.line.fetch(HttpRequest("DELETE", f"{way.url}/message:send", way.headers()))
    return judge(seen.status in (404, 405) and members(seen.json), seen.told(), seen)


@of_way(
    "rest-bad-json",
    ERROR,
    "§11.6, ERR-02",
    means="A caller cannot tell its own mistake from the agent's.",
    fix="Answer a body that is no JSON with 400 and an error body.",
    bindings=REST,
    versions=_V1,
)
async def bad_json(way: ProbeBinding) -> CheckVerdict:
    """Broken JSON is 400."""
    headers = way.headers(("Content-Type", "application/json"))
    seen = await way.subject.line.fetch(
        HttpRequest("POST", f"{way.url}/message:send", headers, b'{"message": ')
    )
    return judge(seen.status in (400, 422), seen.told(), seen)


@of_way(
    "rest-media-type",
    WARNING,
    "§11.1, RST-03",
    means="Clients that send application/a2a+json are turned away.",
    fix="Take bodies of application/a2a+json like application/json.",
    bindings=REST,
    versions=_V1,
)
async def media_type(way: ProbeBinding) -> CheckVerdict:
    """The protocol's own media type is taken, and answers are JSON."""
    headers = way.headers(("Content-Type", "application/a2a+json"))
    seen = await way.subject.line.fetch(HttpRequest("POST", f"{way.url}/message:send", headers, b"{}"))
    if seen.status == 415:
        return failed("application/a2a+json is refused with 415", seen)
    return judge(seen.media_type.endswith("json"), f"the answer is {seen.media_type or 'untyped'}", seen)


@of_way(
    "rest-subscribe-verbs",
    ERROR,
    "§11.3, RST-05",
    means="Clients subscribe by GET or by POST, as text and proto differ; one half is turned away.",
    fix="Serve :subscribe by GET and by POST.",
    bindings=REST,
    versions=_V1,
)
async def subscribe_verbs(way: ProbeBinding) -> CheckVerdict:
    """Subscriptions are taken by GET and by POST."""
    if not way.subject.flag("streaming"):
        return skipped("the card does not declare streaming")
    where = way.url + route("subscribe", {"id": new_id()}).path
    for verb in ("GET", "POST"):
        answer = way.understood(await way.subject.line.fetch(HttpRequest(verb, where, way.headers())))
        if not answer.is_code(NOT_FOUND) or not members(answer.exchange.json):
            return failed(f"{verb} :subscribe gives {answer.told()}", answer.exchange)
    return PASSED


@of_way(
    "bindings-share-tasks",
    ERROR,
    "§5.1, EQV-02",
    means="A task that was made one way cannot be found another way.",
    fix="Let all bindings use the same tasks.",
    bindings=REST,
    versions=_V1,
    sends=True,
)
async def share_tasks(way: ProbeBinding) -> CheckVerdict:
    """A task made over JSON-RPC is there over HTTP+JSON."""
    other = next((one for one in way.subject.ways if one.is_rpc and one.version == way.version), None)
    if other is None:
        return skipped("there is no second binding")
    task = await way.subject.trials(other).task()
    answer = await way.call("get", {"id": task["id"]})
    return judge(not answer.refused, answer.told(), answer.exchange)
