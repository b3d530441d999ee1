"""Checks of the JSON-RPC envelope and its errors."""

from __future__ import annotations

from trunkline.doctor.binding import BAD_PARAMS, INVALID, NO_METHOD, PARSE, ProbeAnswer, ProbeBinding
from trunkline.doctor.exchange import encoded
from trunkline.doctor.finding import (
    ERROR,
    PASSED,
    RPC,
    WARNING,
    CheckVerdict,
    failed,
    judge,
    of_way,
    skipped,
    unknown,
)
from trunkline.doctor.fixtures import new_id
from trunkline.doctor.json_access import at, items, members, text
from trunkline.doctor.spelling import METHODS, method
from trunkline.net.http import HttpRequest

_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_NEEDED = ("send", "get", "cancel")


@of_way(
    "rpc-parse-error",
    ERROR,
    "§9.5, JRP-02, AG-08",
    means="A client that sends broken JSON gets something that it cannot read as an answer.",
    fix="Answer a body that is no JSON with a JSON-RPC error -32700 and id null.",
    bindings=RPC,
)
async def parse_error(way: ProbeBinding) -> CheckVerdict:
    """Broken JSON is -32700, with id null."""
    answer = await way.post(b'{"jsonrpc": "2.0", "id": 1, "method": ')
    if answer.code != PARSE:
        return failed(answer.told(), answer.exchange)
    return judge(at(answer.exchange.json, "id") is None, "the error's id is not null", answer.exchange)


@of_way(
    "rpc-invalid-request",
    ERROR,
    "§9.5, JRP-02, AG-09",
    means="A request that is none is taken for one, or breaks the agent.",
    fix="Answer JSON that is no JSON-RPC 2.0 request with -32600.",
    bindings=RPC,
)
async def invalid_request(way: ProbeBinding) -> CheckVerdict:
    """JSON without jsonrpc and method is -32600."""
    answer = await way.post(encoded({"id": 1, "hello": "world"}))
    return judge(answer.code == INVALID, answer.told(), answer.exchange)


@of_way(
    "rpc-unknown-method",
    ERROR,
    "§9.5, JRP-02, AG-07",
    means="Clients learn from -32601 which methods an agent has; without it they give up or retry.",
    fix="Answer a method that does not exist with -32601, as application/json with HTTP 200.",
    bindings=RPC,
)
async def unknown_method(way: ProbeBinding) -> CheckVerdict:
    """A method that does not exist is -32601."""
    answer = await way.post(b'{"jsonrpc":"2.0","id":7,"method":"trunkline/doctor","params":{}}')
    return judge(answer.code == NO_METHOD, answer.told(), answer.exchange)


@of_way(
    "rpc-invalid-params",
    ERROR,
    "§9.5, JRP-02, SND-21",
    means="A client cannot tell its own mistake from the agent's.",
    fix="Answer parameters that do not fit with -32602, and name the member.",
    bindings=RPC,
)
async def invalid_params(way: ProbeBinding) -> CheckVerdict:
    """A send without a message is -32602."""
    answer = await way.call("send", {"configuration": {}})
    return judge(answer.code == BAD_PARAMS, answer.told(), answer.exchange)


@of_way(
    "rpc-id-echoed",
    ERROR,
    "§9.3, JRP-01",
    means="Clients match answers to requests by id and type; they wait for this one for ever.",
    fix="Give back the id as it came: a text as the same text, a number as the same number.",
    bindings=RPC,
)
async def id_echoed(way: ProbeBinding) -> CheckVerdict:
    """Ids come back as they were sent, texts and numbers."""
    for sent in ("doctor-id", 4711):
        answer = await way.call("get", {"id": new_id()}, request_id=sent)
        back = at(answer.exchange.json, "id")
        if back != sent or type(back) is not type(sent):
            return failed(f"sent id {sent!r}, got {back!r}", answer.exchange)
    return PASSED


@of_way(
    "rpc-envelope",
    ERROR,
    "§9.3, JRP-01",
    means="JSON-RPC clients refuse an answer that is none.",
    fix='Send "jsonrpc": "2.0", and exactly one of result and error.',
    bindings=RPC,
    late=True,
)
async def envelope(way: ProbeBinding) -> CheckVerdict:
    """Every answer is a JSON-RPC 2.0 answer."""
    seen = 0
    for answer in [*way.refusals]:
        body = members(answer.exchange.json)
        if answer.exchange.status != 200 or not body:
            continue
        seen += 1
        if body.get("jsonrpc") != "2.0" or ("result" in body and body["result"] is not None):
            return failed("an error without jsonrpc 2.0, or beside a result", answer.exchange)
    for _, exchange in way.heard:
        body = members(exchange.json)
        if exchange.events or not body:
            continue
        seen += 1
        if body.get("jsonrpc") != "2.0" or body.get("error") is not None:
            return failed("a result without jsonrpc 2.0, or beside an error", exchange)
    return PASSED if seen else unknown("there was no answer to look at")


@of_way(
    "rpc-content-type",
    ERROR,
    "§9.1, JRP-03",
    means="Clients refuse an answer that does not say that it is JSON.",
    fix="Send Content-Type: application/json with every JSON-RPC answer.",
    bindings=RPC,
)
async def content_type(way: ProbeBinding) -> CheckVerdict:
    """Answers are application/json."""
    answer = await way.call("get", {"id": new_id()})
    seen = answer.exchange
    if not seen.status:
        return unknown(seen.trouble)
    return judge(
        seen.media_type == "application/json", f"Content-Type is {seen.media_type or 'missing'}", seen
    )


@of_way(
    "rpc-batch",
    WARNING,
    "JSON-RPC 2.0 §6, JRP-05",
    means="One request brings the agent into trouble.",
    fix="Serve a batch, or answer it with one error -32600.",
    bindings=RPC,
    first=True,
)
async def batch(way: ProbeBinding) -> CheckVerdict:
    """A batch is served or refused, and nothing breaks."""
    one = {"jsonrpc": "2.0", "id": 1, "method": method("get", way.version), "params": {"id": new_id()}}
    answer = await way.post(encoded([one, {**one, "id": 2}]))
    body = answer.exchange.json
    return judge(answer.code == INVALID or len(items(body)) == 2, answer.told(), answer.exchange)


@of_way(
    "rpc-notification",
    WARNING,
    "JSON-RPC 2.0 §4.1, JRP-06",
    means="A caller that wants no answer gets one, and may take it for another's.",
    fix="Do not answer a request without an id with a result; HTTP 204 is enough.",
    bindings=RPC,
    first=True,
)
async def notification(way: ProbeBinding) -> CheckVerdict:
    """A request without an id has no result."""
    body = {"jsonrpc": "2.0", "method": method("get", way.version), "params": {"id": new_id()}}
    answer = await way.post(encoded(body))
    seen = answer.exchange
    good = 0 < seen.status < 500 and at(seen.json, "result") is None and at(seen.json, "id") is None
    return judge(good, answer.told(), seen)


@of_way(
    "rpc-methods-routed",
    ERROR,
    "§9.1, JRP-04, AG-06",
    means="Clients that rely on the specification call these methods and hear that there are none.",
    fix="Route all methods of the version; refuse those that are not offered by their own error.",
    bindings=RPC,
)
async def routed(way: ProbeBinding) -> CheckVerdict:
    """No method of the version is unknown; those that are not offered are refused otherwise."""
    lacking: list[str] = []
    answer: ProbeAnswer | None = None
    for operation in _expected(way):
        answer = await way.call(operation, {"id": new_id()} if operation != "send" else {})
        if answer.code == NO_METHOD:
            lacking.append(method(operation, way.version))
    exchanges = () if answer is None else (answer.exchange,)
    return judge(not lacking, f"unknown here: {', '.join(lacking)}", *exchanges)


def _expected(way: ProbeBinding) -> list[str]:
    """What a client may rely on: all in 1.0, in 0.3 what is needed and what is declared."""
    if way.version == "1.0":
        return [one for one in METHODS if one not in ("stream", "subscribe", "extended-card")]
    push = [one for one in METHODS if one.startswith("push-")]
    return [*_NEEDED, *(push if way.subject.flag("pushNotifications") else ())]


@of_way(
    "rpc-error-data",
    WARNING,
    "§9.5, ERR-03",
    means="Clients that read ErrorInfo find no reason, and can only go by the code.",
    fix="Make error.data an array of objects with @type; one ErrorInfo with reason and domain.",
    bindings=RPC,
    versions=("1.0",),
)
async def error_data(way: ProbeBinding) -> CheckVerdict:
    """A2A errors carry an ErrorInfo."""
    answer = await way.call("get", {"id": new_id()})
    if not answer.refused:
        return skipped("there was no error to look at")
    details = items(at(answer.error, "data"))
    infos = [one for one in details if at(one, "@type") == _INFO]
    if any(not text(at(one, "@type")) for one in details) or not infos:
        return failed("error.data is no array with an ErrorInfo in it", answer.exchange)
    whole = text(at(infos[0], "reason")) and text(at(infos[0], "domain"))
    return judge(whole, "the ErrorInfo lacks reason or domain", answer.exchange)


@of_way(
    "error-metadata-texts",
    ERROR,
    "§9.5, ERR-08",
    means="Clients that read ErrorInfo by its definition cannot read this one.",
    fix="Put only texts into ErrorInfo.metadata.",
    versions=("1.0",),
    late=True,
)
async def metadata_texts(way: ProbeBinding) -> CheckVerdict:
    """The metadata of an ErrorInfo are texts."""
    for answer in way.refusals:
        for one in items(at(answer.error, "data" if way.is_rpc else "details")):
            if at(one, "@type") != _INFO:
                continue
            odd = [name for name, value in members(at(one, "metadata")).items() if not isinstance(value, str)]
            if odd:
                return failed(f"metadata.{odd[0]} is no text", answer.exchange)
    return PASSED


@of_way(
    "rpc-text-plain",
    WARNING,
    "§9.1",
    means="A page in a browser can send text/plain anywhere without asking; it could start tasks here.",
    fix="Refuse bodies that are not application/json with HTTP 415.",
    bindings=RPC,
    first=True,
)
async def text_plain(way: ProbeBinding) -> CheckVerdict:
    """A request that does not say that it is JSON is refused."""
    request = way.request("get", {"id": new_id()})
    answer = await way.post(request.body or b"", ("Content-Type", "text/plain"))
    seen = answer.exchange
    good = 400 <= seen.status < 500 or answer.code in (INVALID, PARSE, -32005)
    return judge(good, f"Content-Type: text/plain gives {answer.told()}", seen)


@of_way(
    "rpc-get-refused",
    WARNING,
    "§9.1",
    means="A page that is opened by mistake shows an error of the server, and monitors raise an alarm.",
    fix="Answer GET at the JSON-RPC endpoint with 405 and Allow: POST.",
    bindings=RPC,
    first=True,
)
async def get_refused(way: ProbeBinding) -> CheckVerdict:
    """GET at the endpoint is answered, and not by a broken server."""
    seen = await way.subject.line.fetch(HttpRequest("GET", way.url, way.headers()), "get")
    return judge(0 < seen.status < 500, seen.told(), seen)
