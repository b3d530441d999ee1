"""The requests of every method in every dialect, and every way to spoil one member of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.hostile.sockets import post, request

SLOT = "@slot@"
V1 = b"A2A-Version: 1.0"


class Case(NamedTuple):
    """One spoiled request and how to speak of it."""

    name: str
    raw: bytes
    rpc: bool


class Form(NamedTuple):
    """A valid request: where it goes, and its body."""

    name: str
    target: str
    body: dict[str, Any]
    headers: tuple[bytes, ...] = ()

    @property
    def rpc(self) -> bool:
        return "jsonrpc" in self.body

    def encoded(self) -> bytes:
        return _dump(self.body)

    def case(self, name: str, body: bytes) -> Case:
        return Case(f"{self.name} {name}", post(self.target, body, *self.headers), self.rpc)


def _message(v1: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = (
        [{"text": "echo hi", "mediaType": "text/plain", "filename": "a.txt", "metadata": {"a": 1}}]
        if v1
        else [{"kind": "text", "text": "echo hi", "metadata": {"a": 1}}]
    )
    return {
        "messageId": "m-1",
        "role": "ROLE_USER" if v1 else "user",
        "parts": parts,
        "metadata": {"b": [True, None]},
        "extensions": ["https://example.org/x"],
        "referenceTaskIds": ["t-1"],
        **({} if v1 else {"kind": "message"}),
    }


def send_body(v1: bool) -> dict[str, Any]:
    """A message with everything in it."""
    flag = {"returnImmediately": False} if v1 else {"blocking": True}
    return {
        "message": _message(v1),
        "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 3, **flag},
        "metadata": {"c": {"d": "e"}},
    }


def _file_send(v1: bool) -> dict[str, Any]:
    made = send_body(v1)
    del made["configuration"]
    parts: list[dict[str, Any]] = (
        [{"text": "echo"}, {"raw": "aGk="}, {"url": "https://example.org/f"}, {"data": {"a": 1}}]
        if v1
        else [
            {"type": "text", "text": "echo"},
            {"kind": "file", "file": {"bytes": "aGk=", "name": "f", "mimeType": "text/plain"}},
            {"kind": "file", "file": {"uri": "https://example.org/f"}},
            {"kind": "data", "data": {"a": 1}},
        ]
    )
    made["message"] = {"messageId": "m-2", "role": made["message"]["role"], "parts": parts}
    return made


def _proto_send() -> dict[str, Any]:
    message = {
        "messageId": "m-3",
        "role": "ROLE_USER",
        "content": [{"text": "echo hi"}, {"data": {"data": {"a": 1}}}],
    }
    return {"request": message, "configuration": {"blocking": True, "historyLength": 1}}


def _config(task: str) -> dict[str, Any]:
    return {"taskId": task, "pushNotificationConfig": {"url": "https://192.0.2.7/hook", "token": "t"}}


def rpc_form(method: str, params: dict[str, Any], *headers: bytes) -> Form:
    """A JSON-RPC request."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return Form(f"rpc {method}", "/a2a", body, headers)


def forms(task: str) -> list[Form]:
    """Every method of both versions on every binding; `task` is a finished one."""
    query = {"id": task, "historyLength": 2, "tenant": "", "metadata": {}}
    page = {
        "contextId": "c", "status": "TASK_STATE_COMPLETED", "pageSize": 2, "pageToken": "", "historyLength": 0,
        "statusTimestampAfter": "2020-01-01T00:00:00Z", "includeArtifacts": True, "tenant": "",
    }  # fmt: skip
    pushes = {"taskId": task, "id": "c-1"}
    made = [
        rpc_form("SendMessage", send_body(True), V1),
        rpc_form("SendMessage", _file_send(True), V1),
        rpc_form("SendStreamingMessage", send_body(True), V1),
        rpc_form("message/send", send_body(False)),
        rpc_form("message/send", _file_send(False)),
        rpc_form("message/stream", send_body(False)),
        rpc_form("message/sendStream", send_body(False)),
        Form("rest 1.0 send", "/message:send", send_body(True), (V1,)),
        Form("rest 1.0 stream", "/message:stream", send_body(True), (V1,)),
        Form("rest 0.3 send", "/v1/message:send", _proto_send()),
        Form("rest 0.3 stream", "/v1/message:stream", _proto_send()),
        Form("alias send", "/message:send", send_body(False)),
        Form("alias stream", "/message:stream", send_body(False)),
        Form(
            "delegate",
            "/delegate/tasks",
            {"agent_id": "demo", "correlation_id": "c-1", "input": {"text": "echo hi"}},
        ),
    ]
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        made.append(rpc_form(method, query, V1))
    for method in ("tasks/get", "tasks/cancel", "tasks/resubscribe", "tasks/subscribe"):
        made.append(rpc_form(method, query))
    made += [rpc_form("ListTasks", page, V1), rpc_form("tasks/list", page)]
    for method in ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig",
                   "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"):  # fmt: skip
        made.append(rpc_form(method, pushes, V1))
    for verb in ("set", "get", "list", "delete"):
        made.append(rpc_form(f"tasks/pushNotificationConfig/{verb}", _config(task)))
    made += [
        rpc_form("tasks/pushNotification/set", _config(task)),
        rpc_form("tasks/pushNotification/get", pushes),
    ]
    made += [
        rpc_form("GetExtendedAgentCard", {"tenant": ""}, V1),
        rpc_form("agent/getAuthenticatedExtendedCard", {}),
    ]
    for path in (f"/tasks/{task}:cancel", f"/v1/tasks/{task}:cancel", f"/tasks/{task}:subscribe"):
        made.append(Form(f"rest {path.replace(task, 'T')}", path, {"metadata": {}}))
    for path in (f"/tasks/{task}/pushNotificationConfigs", f"/v1/tasks/{task}/pushNotificationConfigs"):
        made.append(Form(f"rest {path.replace(task, 'T')}", path, _config(task)))
    return made


# Raw JSON, or what some parsers take for it, by the name that a failure prints.
ODD: dict[str, bytes] = {
    "null": b"null", "true": b"true", "false": b"false", "zero": b"0", "negative": b"-1", "fraction": b"1.5",
    "large": b"1e308", "minus zero": b"-0", "int53": b"9007199254740993", "int63": b"9223372036854775808",
    "int64": b"18446744073709551616", "under": b"-9223372036854775809", "digits 4300": b"9" * 4300,
    "digits 4301": b"9" * 4301, "digits 60000": b"9" * 60000, "1e400": b"1e400", "-1e400": b"-1e400", "1e-400": b"1e-400",
    "NaN": b"NaN", "Infinity": b"Infinity", "leading zero": b"01", "plus": b"+1", "bare dot": b".5", "hex": b"0x10",
    "empty text": b'""', "text": b'"x"', "number text": b'"12"', "true text": b'"true"', "long text": b'"%b"' % (b"x" * 300),
    "10 KB text": b'"%b"' % (b"y" * 10_000), "single quotes": b"'x'", "lone surrogate": b'"\\ud800"',
    "reversed pair": b'"\\udc00\\ud800"', "NUL": b'"a\\u0000b"', "raw NUL": b'"a\x00b"', "raw newline": b'"a\nb"',
    "line ends": b'"a\\r\\nb\\nc\\rd"', "U+2028": '"a\u2028b\u2029c"'.encode(), "bidi": '"\u202eabc\u2066"'.encode(),
    "emoji": '"\U0001f600"'.encode(), "BOM": '"\ufeff"'.encode(), "bad UTF-8": b'"\xff\xfe"', "cut UTF-8": b'"\xe2\x82"',
    "overlong": b'"\xc0\xaf"', "encoded surrogate": b'"\xed\xa0\x80"', "bad escape": b'"\\x41"', "climb": b'"../../etc/passwd"',
    "resource": b'"tasks/../x"', "empty list": b"[]", "empty object": b"{}", "nested": b"[[[]]]", "list of null": b"[null]",
    "list of numbers": b"[1,2]", "list of objects": b"[{}]", "empty key": b'{"":null}', "tree": b'{"a":{"b":[1,{"c":null}]}}',
    "mixed": b'[1,"a",null,{}]', "depth 50": b"[" * 50 + b"]" * 50, "depth 101": b"[" * 101 + b"]" * 101,
    "objects 2000": b'{"a":' * 2000 + b"1" + b"}" * 2000, "unclosed": b"[" * 3000, "twice": b'{"a":1,"a":2}', "nothing": b"",
    "undefined": b"undefined", "comment": b"/* x */ 1", "trailing comma": b"[1,]", "two": b"1 2",
}  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every member of a document, outer ones first."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        yield from places(member, (*at, key))


def spoil(form: Form) -> Iterator[Case]:
    """Each member replaced by each odd value, left out, doubled, joined by a stranger, renamed."""
    for at in places(form.body):
        where = ".".join(map(str, at))
        slotted = _dump(changed(form.body, at, SLOT))
        for name, odd in ODD.items():
            yield form.case(f"{where} = {name}", slotted.replace(b'"%b"' % SLOT.encode(), odd))
        yield form.case(f"{where} missing", _dump(without(form.body, at)))
        if isinstance(at[-1], str):
            yield form.case(
                f"{where} with a stranger", _dump(changed(form.body, (*at[:-1], "x-stranger"), {"y": [1]}))
            )
            renamed = changed(without(form.body, at), (*at[:-1], at[-1].upper()), member(form.body, at))
            yield form.case(f"{where} in capitals", _dump(renamed))
            both = b"%b:1,%b:" % (_dump(at[-1]), _dump(at[-1]))
            yield form.case(f"{where} twice", _dump(form.body).replace(_dump(at[-1]) + b":", both, 1))


def doubly(form_list: list[Form], count: int, seed: int) -> Iterator[Case]:
    """Two members spoiled at once, at random."""
    chance = random.Random(seed)
    names = list(ODD)
    for number in range(count):
        form = chance.choice(form_list)
        body: Any = form.body
        found = list(places(form.body))
        chosen = chance.sample(found, min(2, len(found)))
        raws = [chance.choice(names) for _ in chosen]
        for turn, at in enumerate(sorted(chosen, key=len, reverse=True)):
            body = changed(body, at, f"{SLOT}{turn}")
        dumped = _dump(body)
        for turn, name in enumerate(raws):
            dumped = dumped.replace(b'"%b%d"' % (SLOT.encode(), turn), ODD[name])
        yield form.case(f"#{number} two of {chosen} = {raws}", dumped)


def torn(form_list: list[Form], count: int, seed: int) -> Iterator[Case]:
    """Bytes of valid bodies cut, flipped, doubled, moved, at random."""
    chance = random.Random(seed)
    for number in range(count):
        form = chance.choice(form_list)
        body = bytearray(_dump(form.body))
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(body) or 1)
            match chance.randrange(5):
                case 0:
                    del body[place:]
                case 1:
                    body[place : place + 1] = bytes([chance.randrange(256)])
                case 2:
                    body[place:place] = body[: chance.randrange(40)]
                case 3:
                    del body[place : place + chance.randrange(20)]
                case _:
                    body[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(6)))
        yield form.case(f"#{number} torn {bytes(body)[:120]!r}", bytes(body))


def queries(task: str) -> Iterator[Case]:
    """Every query parameter of the REST routes with every odd value, and strange query strings."""
    names = ("historyLength", "pageSize", "pageToken", "status", "contextId", "statusTimestampAfter",
             "includeArtifacts", "tenant", "A2A-Version", "history_length", "unknown")  # fmt: skip
    for path in (f"/tasks/{task}", "/tasks", f"/v1/tasks/{task}", "/v1/tasks"):
        for name in names:
            for said, odd in ODD.items():
                if len(odd) < 20_000:
                    value = "".join(f"%{byte:02x}" for byte in odd.strip(b'"'))
                    raw = request("GET", f"{path}?{name}={value}")
                    yield Case(f"{path.replace(task, 'T')} {name} = {said}", raw, rpc=False)
        for strange in (b"?", b"&&&", b"a&b&c", b"=", b"pageSize", b"%", b"%zz", b"%ff=%ff", b"a=%00", b"&" * 100,
                        b";".join([b"a=1"] * 70), b"&".join([b"a=1"] * 70), b"pageSize=1&pageSize=x"):  # fmt: skip
            yield Case(
                f"{path.replace(task, 'T')}?{strange[:40]!r}",
                request("GET", path.encode() + b"?" + strange),
                rpc=False,
            )


def member(document: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        document = document[key]
    return document


def changed(document: Any, at: tuple[Any, ...], value: Any) -> Any:
    """A copy with one member set; a place inside something replaced before stays as it is."""
    made = copy.deepcopy(document)
    try:
        holder = member(made, at[:-1])
        holder[at[-1]] = value
    except (TypeError, KeyError, IndexError):
        pass
    return made


def without(document: Any, at: tuple[Any, ...]) -> Any:
    made = copy.deepcopy(document)
    del member(made, at[:-1])[at[-1]]
    return made


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
