"""Checks of the bindings: the envelope of JSON-RPC and its errors, and HTTP+JSON."""

from __future__ import annotations

from msgspec import json
from msgspec.structs import replace

from trunkline.clock import new_id
from trunkline.doctor.check import ANY, ERROR, REST, RPC, V1, WARNING, Family, assume, expect, expect_answer
from trunkline.doctor.exchange import ProbeExchange, Undecided, at, items, members, parsed, text
from trunkline.doctor.probe import (
    BAD_PARAMS,
    INVALID,
    NO_METHOD,
    NOT_FOUND,
    OPERATIONS,
    PARSE,
    InterfaceProbe,
    method,
    route,
)
from trunkline.net.http import HttpRequest

jsonrpc = Family("jsonrpc", bindings=RPC)

_JSON = "application/json"
_NEEDED = ("send", "get", "cancel")
_BAD_ERROR = "an error without jsonrpc 2.0, or beside a result"
_BAD_RESULT = "a result without jsonrpc 2.0, or beside an error"


@jsonrpc.interface("rpc-parse-error", ERROR, "§9.5, JRP-02, AG-08")
async def parse_error(probe: InterfaceProbe) -> None:
    """Broken JSON is -32700, with id null.

    Means: A client that sends broken JSON gets something that it cannot read as an answer.
    Fix: Answer a body that is no JSON with a JSON-RPC error -32700 and id null.
    """
    answer = await probe.post(b'{"jsonrpc": "2.0", "id": 1, "method": ')
    expect_answer(answer.code == PARSE, answer)
    expect(at(answer.exchange.json, "id") is None, "the error's id is not null", answer)


@jsonrpc.interface("rpc-invalid-request", ERROR, "§9.5, JRP-02, AG-09")
async def invalid_request(probe: InterfaceProbe) -> None:
    """JSON without jsonrpc and method is -32600.

    Means: A request that is none is taken for one, or breaks the agent.
    Fix: Answer JSON that is no JSON-RPC 2.0 request with -32600.
    """
    answer = await probe.post(json.encode({"id": 1, "hello": "world"}))
    expect_answer(answer.code == INVALID, answer)


@jsonrpc.interface("rpc-unknown-method", ERROR, "§9.5, JRP-02, AG-07")
async def unknown_method(probe: InterfaceProbe) -> None:
    """A method that does not exist is -32601.

    Means: Clients learn from -32601 which methods an agent has; without it they give up or retry.
    Fix: Answer a method that does not exist with -32601, as application/json with HTTP 200.
    """
    answer = await probe.post(b'{"jsonrpc":"2.0","id":7,"method":"trunkline/doctor","params":{}}')
    expect_answer(answer.code == NO_METHOD, answer)


@jsonrpc.interface("rpc-invalid-params", ERROR, "§9.5, JRP-02, SND-21")
async def invalid_params(probe: InterfaceProbe) -> None:
    """A send without a message is -32602.

    Means: A client cannot tell its own mistake from the agent's.
    Fix: Answer parameters that do not fit with -32602, and name the member.
    """
    answer = await probe.call("send", {"configuration": {}})
    expect_answer(answer.code == BAD_PARAMS, answer)


@jsonrpc.interface("rpc-id-echoed", ERROR, "§9.3, JRP-01")
async def id_echoed(probe: InterfaceProbe) -> None:
    """Ids come back as they were sent, texts and numbers.

    Means: Clients match answers to requests by id and type; they wait for this one for ever.
    Fix: Give back the id as it came: a text as the same text, a number as the same number.
    """
    request = probe.request("get", {"id": new_id()})
    for sent in ("doctor-id", 4711):
        body = {**members(parsed(request.body or b"")), "id": sent}
        answer = await probe.ask(replace(request, body=json.encode(body)), "get")
        back = at(answer.exchange.json, "id")
        expect(back == sent and type(back) is type(sent), f"sent id {sent!r}, got {back!r}", answer)


@jsonrpc.interface("rpc-envelope", ERROR, "§9.3, JRP-01", late=True)
async def envelope(probe: InterfaceProbe) -> None:
    """Every answer is a JSON-RPC 2.0 answer.

    Means: JSON-RPC clients refuse an answer that is none.
    Fix: Send "jsonrpc": "2.0", and exactly one of result and error.
    """
    seen = [(one.exchange, "result", _BAD_ERROR) for one in probe.refusals if one.exchange.status == 200]
    seen += [(exchange, "error", _BAD_RESULT) for _, exchange in probe.received if not exchange.events]
    seen = [one for one in seen if members(one[0].json)]
    for exchange, other, wrong in seen:
        expect(at(exchange.json, "jsonrpc") == "2.0" and at(exchange.json, other) is None, wrong, exchange)
    if not seen:
        raise Undecided("there was no answer to look at")


@jsonrpc.interface("rpc-content-type", ERROR, "§9.1, JRP-03")
async def content_type(probe: InterfaceProbe) -> None:
    """Answers are application/json.

    Means: Clients refuse an answer that does not say that it is JSON.
    Fix: Send Content-Type: application/json with every JSON-RPC answer.
    """
    seen = (await probe.get_unknown()).exchange
    if not seen.status:
        raise Undecided(seen.trouble)
    given = seen.media_type
    expect(given == _JSON, f"Content-Type is {given or 'missing'}", seen)


@jsonrpc.interface("rpc-batch", WARNING, "JSON-RPC 2.0 §6, JRP-05", first=True)
async def batch(probe: InterfaceProbe) -> None:
    """A batch is served or refused, and nothing breaks.

    Means: One request brings the agent into trouble.
    Fix: Serve a batch, or answer it with one error -32600.
    """
    one = {"jsonrpc": "2.0", "id": 1, "method": method("get", probe.version), "params": {"id": new_id()}}
    answer = await probe.post(json.encode([one, {**one, "id": 2}]))
    expect_answer(answer.code == INVALID or len(items(answer.exchange.json)) == 2, answer)


@jsonrpc.interface("rpc-notification", WARNING, "JSON-RPC 2.0 §4.1, JRP-06", first=True)
async def notification(probe: InterfaceProbe) -> None:
    """A request without an id has no result.

    Means: A caller that wants no answer gets one, and may take it for another's.
    Fix: Do not answer a request without an id with a result; HTTP 204 is enough.
    """
    body = {"jsonrpc": "2.0", "method": method("get", probe.version), "params": {"id": new_id()}}
    answer = await probe.post(json.encode(body))
    seen = answer.exchange
    good = 0 < seen.status < 500 and at(seen.json, "result") is None and at(seen.json, "id") is None
    expect_answer(good, answer)


@jsonrpc.interface("rpc-methods-routed", ERROR, "§9.1, JRP-04, AG-06")
async def routed(probe: InterfaceProbe) -> None:
    """No method of the version is unknown; those that are not offered are refused otherwise.

    Means: Clients that rely on the specification call these methods and hear that there are none.
    Fix: Route all methods of the version; refuse those that are not offered by their own error.
    """
    operations = _expected(probe)
    answers = [await probe.call(one, {} if one == "send" else {"id": new_id()}) for one in operations]
    known = [answer.code != NO_METHOD for answer in answers]
    lacking = [method(one, probe.version) for one, good in zip(operations, known, strict=True) if not good]
    expect(not lacking, f"unknown here: {', '.join(lacking)}", answers[-1])


def _expected(probe: InterfaceProbe) -> list[str]:
    """The operations that a client may rely on: all in 1.0, in 0.3 what is needed and what is declared."""
    if probe.is_v1:
        return [one for one in OPERATIONS if one not in ("stream", "subscribe", "extended-card")]
    push = [one for one in OPERATIONS if one.startswith("push-")]
    return [*_NEEDED, *(push if probe.subject.flag("pushNotifications") else ())]


@jsonrpc.interface("rpc-error-data", WARNING, "§9.5, ERR-03", versions=V1)
async def error_data(probe: InterfaceProbe) -> None:
    """A2A errors carry an ErrorInfo.

    Means: Clients that read ErrorInfo find no reason, and can only go by the code.
    Fix: Make error.data an array of objects with @type; one ErrorInfo with reason and domain.
    """
    answer = await probe.get_unknown()
    assume(answer.refused, "there was no error to look at")
    untyped = any(not text(one.get("@type")) for one in answer.details)
    infos = answer.error_infos
    expect(not untyped and infos, "error.data is no array with an ErrorInfo in it", answer)
    whole = text(infos[0].get("reason")) and text(infos[0].get("domain"))
    expect(whole, "the ErrorInfo lacks reason or domain", answer)


@jsonrpc.interface("error-metadata-texts", ERROR, "§9.5, ERR-08", bindings=ANY, versions=V1, late=True)
async def metadata_texts(probe: InterfaceProbe) -> None:
    """The metadata of an ErrorInfo are texts.

    Means: Clients that read ErrorInfo by its definition cannot read this one.
    Fix: Put only texts into ErrorInfo.metadata.
    """
    for answer in probe.refusals:
        for info in answer.error_infos:
            for name, value in members(info.get("metadata")).items():
                expect(isinstance(value, str), f"metadata.{name} is no text", answer)


@jsonrpc.interface("rpc-text-plain", WARNING, "§9.1", first=True)
async def text_plain(probe: InterfaceProbe) -> None:
    """A request that does not say that it is JSON is refused.

    Means: A page in a browser can send text/plain anywhere without asking; it could start tasks here.
    Fix: Refuse bodies that are not application/json with HTTP 415.
    """
    request = probe.request("get", {"id": new_id()})
    answer = await probe.post(request.body or b"", ("Content-Type", "text/plain"))
    good = 400 <= answer.exchange.status < 500 or answer.code in (INVALID, PARSE, -32005)
    expect_answer(good, answer, "Content-Type: text/plain")


@jsonrpc.interface("rpc-get-refused", WARNING, "§9.1", first=True)
async def get_refused(probe: InterfaceProbe) -> None:
    """GET at the endpoint is answered, and not by a broken server.

    Means: A page that is opened by mistake shows an error of the server, and monitors raise an alarm.
    Fix: Answer GET at the JSON-RPC endpoint with 405 and Allow: POST.
    """
    seen = await probe.client.fetch(HttpRequest("GET", probe.url, probe.headers()), "get")
    expect_answer(0 < seen.status < 500, seen)


rest = Family("rest", bindings=REST, versions=V1)


async def _fetch(
    probe: InterfaceProbe, verb: str, path: str, body: bytes | None = None, media_type: str = _JSON
) -> ProbeExchange:
    headers = probe.headers() if body is None else probe.headers(("Content-Type", media_type))
    return await probe.client.fetch(HttpRequest(verb, probe.url + path, headers, body))


@rest.interface("rest-error-body", ERROR, "§11.6, ERR-04")
async def error_body(probe: InterfaceProbe) -> None:
    """An error is a google.rpc.Status as JSON.

    Means: Clients cannot read the error.
    Fix: Answer {error: {code, status, message, details}}; code is the HTTP status.
    """
    answer = await probe.get_unknown()
    error = members(at(answer.exchange.json, "error"))
    expect(error, answer.exchange.summary(), answer)
    code, status = error.get("code"), answer.exchange.status
    expect(code == status, f"error.code is {code!r}, HTTP {status}", answer)
    expect(text(error.get("message")), "error.message is missing", answer)


@rest.interface("rest-error-details", ERROR, "§11.6, ERR-03")
async def error_details(probe: InterfaceProbe) -> None:
    """An error has an ErrorInfo.

    Means: Several errors share an HTTP status; without ErrorInfo clients cannot tell them apart.
    Fix: Put an ErrorInfo with reason and domain into error.details.
    """
    answer = await probe.get_unknown()
    infos = answer.error_infos if at(answer.exchange.json, "error") else []
    whole = infos and text(infos[0].get("reason")) and text(infos[0].get("domain"))
    expect(whole, "there is no ErrorInfo with reason and domain", answer)


@rest.interface("rest-unknown-route", ERROR, "§11.6, RST-04")
async def unknown_route(probe: InterfaceProbe) -> None:
    """A path that does not exist is 404 with JSON.

    Means: Clients that read errors as JSON cannot read this one.
    Fix: Answer a path that does not exist with 404 and a JSON body.
    """
    seen = await _fetch(probe, "GET", "/trunkline-doctor/nowhere")
    expect_answer(seen.status == 404 and members(seen.json), seen)


@rest.interface("rest-wrong-verb", ERROR, "§11.6, RST-04")
async def wrong_verb(probe: InterfaceProbe) -> None:
    """A verb that does not fit is 405 with JSON.

    Means: A wrong verb is taken for something else, or the answer cannot be read.
    Fix: Answer a verb that a path does not take with 405, Allow and a JSON body.
    """
    seen = await _fetch(probe, "DELETE", "/message:send")
    expect_answer(seen.status in (404, 405) and members(seen.json), seen)


@rest.interface("rest-bad-json", ERROR, "§11.6, ERR-02")
async def bad_json(probe: InterfaceProbe) -> None:
    """Broken JSON is 400.

    Means: A caller cannot tell its own mistake from the agent's.
    Fix: Answer a body that is no JSON with 400 and an error body.
    """
    seen = await _fetch(probe, "POST", "/message:send", b'{"message": ')
    expect_answer(seen.status in (400, 422), seen)


@rest.interface("rest-media-type", WARNING, "§11.1, RST-03")
async def media_type(probe: InterfaceProbe) -> None:
    """The protocol's own media type is taken, and answers are JSON.

    Means: Clients that send application/a2a+json are turned away.
    Fix: Take bodies of application/a2a+json like application/json.
    """
    seen = await _fetch(probe, "POST", "/message:send", b"{}", "application/a2a+json")
    expect(seen.status != 415, "application/a2a+json is refused with 415", seen)
    expect(seen.media_type.endswith("json"), f"the answer is {seen.media_type or 'untyped'}", seen)


@rest.interface("rest-subscribe-verbs", ERROR, "§11.3, RST-05", needs="streaming")
async def subscribe_verbs(probe: InterfaceProbe) -> None:
    """Subscriptions are taken by GET and by POST.

    Means: Clients subscribe by GET or by POST, as text and proto differ; one half is turned away.
    Fix: Serve :subscribe by GET and by POST.
    """
    where = probe.url + route("subscribe", {"id": new_id()}).path
    for verb in ("GET", "POST"):
        answer = await probe.ask(HttpRequest(verb, where, probe.headers()))
        good = answer.is_code(NOT_FOUND) and members(answer.exchange.json)
        expect_answer(good, answer, f"{verb} :subscribe")


@rest.interface("bindings-share-tasks", ERROR, "§5.1, EQV-02")
async def share_tasks(probe: InterfaceProbe) -> None:
    """A task made over JSON-RPC is there over HTTP+JSON.

    Means: A task that was made one way cannot be found another way.
    Fix: Let all bindings use the same tasks.
    """
    others = [one for one in probe.subject.probes if one.is_rpc and one.version == probe.version]
    assume(others, "there is no second binding")
    task = await others[0].fixtures.task()
    answer = await probe.call("get", {"id": task["id"]})
    expect_answer(not answer.refused, answer)
