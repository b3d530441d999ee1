"""Checks of HTTP+JSON: routes, statuses and error bodies."""

from __future__ import annotations

from trunkline.clock import new_id
from trunkline.doctor.check import (
    ERROR,
    PASSED,
    REST,
    V1,
    WARNING,
    CheckVerdict,
    Family,
    failed,
    judge,
    judge_answer,
    skipped,
)
from trunkline.doctor.exchange import ProbeExchange
from trunkline.doctor.json_access import at, members, text
from trunkline.doctor.probe import NOT_FOUND, InterfaceProbe, route
from trunkline.net.http import HttpRequest

rest = Family("rest", bindings=REST, versions=V1)


async def _fetch(
    probe: InterfaceProbe,
    verb: str,
    path: str,
    body: bytes | None = None,
    media_type: str = "application/json",
) -> ProbeExchange:
    headers = probe.headers() if body is None else probe.headers(("Content-Type", media_type))
    return await probe.client.fetch(HttpRequest(verb, probe.url + path, headers, body))


@rest.interface("rest-error-body", ERROR, "§11.6, ERR-04")
async def error_body(probe: InterfaceProbe) -> CheckVerdict:
    """An error is a google.rpc.Status as JSON.

    Means: Clients cannot read the error.
    Fix: Answer {error: {code, status, message, details}}; code is the HTTP status.
    """
    answer = await probe.get_unknown()
    error = members(at(answer.exchange.json, "error"))
    if not error:
        return failed(answer.exchange.summary(), answer.exchange)
    if error.get("code") != answer.exchange.status:
        return failed(f"error.code is {error.get('code')!r}, HTTP {answer.exchange.status}", answer.exchange)
    return judge(text(error.get("message")), "error.message is missing", answer.exchange)


@rest.interface("rest-error-details", ERROR, "§11.6, ERR-03")
async def error_details(probe: InterfaceProbe) -> CheckVerdict:
    """An error has an ErrorInfo.

    Means: Several errors share an HTTP status; without ErrorInfo clients cannot tell them apart.
    Fix: Put an ErrorInfo with reason and domain into error.details.
    """
    answer = await probe.get_unknown()
    infos = answer.error_infos if at(answer.exchange.json, "error") else []
    whole = infos and text(infos[0].get("reason")) and text(infos[0].get("domain"))
    return judge(whole, "there is no ErrorInfo with reason and domain", answer.exchange)


@rest.interface("rest-unknown-route", ERROR, "§11.6, RST-04")
async def unknown_route(probe: InterfaceProbe) -> CheckVerdict:
    """A path that does not exist is 404 with JSON.

    Means: Clients that read errors as JSON cannot read this one.
    Fix: Answer a path that does not exist with 404 and a JSON body.
    """
    seen = await _fetch(probe, "GET", "/trunkline-doctor/nowhere")
    return judge(seen.status == 404 and members(seen.json), seen.summary(), seen)


@rest.interface("rest-wrong-verb", ERROR, "§11.6, RST-04")
async def wrong_verb(probe: InterfaceProbe) -> CheckVerdict:
    """A verb that does not fit is 405 with JSON.

    Means: A wrong verb is taken for something else, or the answer cannot be read.
    Fix: Answer a verb that a path does not take with 405, Allow and a JSON body.
    """
    seen = await _fetch(probe, "DELETE", "/message:send")
    return judge(seen.status in (404, 405) and members(seen.json), seen.summary(), seen)


@rest.interface("rest-bad-json", ERROR, "§11.6, ERR-02")
async def bad_json(probe: InterfaceProbe) -> CheckVerdict:
    """Broken JSON is 400.

    Means: A caller cannot tell its own mistake from the agent's.
    Fix: Answer a body that is no JSON with 400 and an error body.
    """
    seen = await _fetch(probe, "POST", "/message:send", b'{"message": ')
    return judge(seen.status in (400, 422), seen.summary(), seen)


@rest.interface("rest-media-type", WARNING, "§11.1, RST-03")
async def media_type(probe: InterfaceProbe) -> CheckVerdict:
    """The protocol's own media type is taken, and answers are JSON.

    Means: Clients that send application/a2a+json are turned away.
    Fix: Take bodies of application/a2a+json like application/json.
    """
    seen = await _fetch(probe, "POST", "/message:send", b"{}", "application/a2a+json")
    if seen.status == 415:
        return failed("application/a2a+json is refused with 415", seen)
    return judge(seen.media_type.endswith("json"), f"the answer is {seen.media_type or 'untyped'}", seen)


@rest.interface("rest-subscribe-verbs", ERROR, "§11.3, RST-05")
async def subscribe_verbs(probe: InterfaceProbe) -> CheckVerdict:
    """Subscriptions are taken by GET and by POST.

    Means: Clients subscribe by GET or by POST, as text and proto differ; one half is turned away.
    Fix: Serve :subscribe by GET and by POST.
    """
    probe.subject.needs("streaming")
    where = probe.url + route("subscribe", {"id": new_id()}).path
    for verb in ("GET", "POST"):
        answer = await probe.ask(HttpRequest(verb, where, probe.headers()))
        if not answer.is_code(NOT_FOUND) or not members(answer.exchange.json):
            return failed(f"{verb} :subscribe gives {answer.summary()}", answer.exchange)
    return PASSED


@rest.interface("bindings-share-tasks", ERROR, "§5.1, EQV-02", sends=True)
async def share_tasks(probe: InterfaceProbe) -> CheckVerdict:
    """A task made over JSON-RPC is there over HTTP+JSON.

    Means: A task that was made one way cannot be found another way.
    Fix: Let all bindings use the same tasks.
    """
    other = next((one for one in probe.subject.probes if one.is_rpc and one.version == probe.version), None)
    if other is None:
        return skipped("there is no second binding")
    task = await other.fixtures.task()
    answer = await probe.call("get", {"id": task["id"]})
    return judge_answer(not answer.refused, answer)
