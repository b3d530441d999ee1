"""What hostile requests reach beyond tasks: push configs, chains, extensions, keys, pages of others, operators."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.hostile.shapes import V1, Case, Form, doubly, rpc_form, send_body, spoil, torn
from tests.hostile.sockets import request

# Nobody listens there; a server with --dev lets it pass.
HOOK = "http://127.0.0.1:9/hook"


def config(v1: bool) -> dict[str, Any]:
    """A push config with everything in it."""
    return {
        "id": "c-1",
        "url": HOOK,
        "token": "a-token",
        "authentication": {"scheme": "Bearer", "credentials": "a-word"}
        if v1
        else {"schemes": ["Bearer"], "credentials": "a-word"},
    }


def _with_config(v1: bool, name: str) -> dict[str, Any]:
    made = send_body(v1)
    made["configuration"] = {**made["configuration"], name: config(v1)}
    return made


def _with_chain(v1: bool) -> dict[str, Any]:
    made = send_body(v1)
    chain = {"root": "r-1", "hops": 1, "budget": 3, "deadline": 32503680000000}
    made["message"]["metadata"] = {"trunkline.chain": chain}
    made["metadata"] = {"trunkline.chain": chain}
    return made


def forms(task: str) -> list[Form]:
    """Requests with push configs and chains, in every dialect."""
    configs = f"tasks/{task}/pushNotificationConfigs"
    nested = {"taskId": task, "pushNotificationConfig": config(False)}
    made = [
        rpc_form("CreateTaskPushNotificationConfig", {"taskId": task, **config(True)}, V1),
        rpc_form("tasks/pushNotificationConfig/set", nested),
        rpc_form("tasks/pushNotificationConfig/get", {"id": task, "pushNotificationConfigId": "c-1"}),
        rpc_form("tasks/pushNotificationConfig/list", {"id": task, "metadata": {}}),
        rpc_form("tasks/pushNotificationConfig/delete", {"id": task, "pushNotificationConfigId": "c-1"}),
        rpc_form("GetTaskPushNotificationConfig", {"taskId": task, "id": "c-1", "tenant": ""}, V1),
        rpc_form("ListTaskPushNotificationConfigs", {"taskId": task, "pageSize": 1, "pageToken": ""}, V1),
        rpc_form("SendMessage", _with_config(True, "taskPushNotificationConfig"), V1),
        rpc_form("message/send", _with_config(False, "pushNotificationConfig")),
        rpc_form("message/stream", _with_config(False, "pushNotification")),
        rpc_form("SendMessage", _with_chain(True), V1),
        rpc_form("message/send", _with_chain(False)),
        Form("rest 1.0 config", f"/{configs}", {"taskId": task, **config(True)}, (V1,)),
        Form("alias config", f"/{configs}", nested),
        Form(
            "rest 0.3 config",
            f"/v1/{configs}",
            {"parent": f"tasks/{task}", "configId": "c-1", "config": {"name": f"{configs}/c-1", "pushNotificationConfig": config(False)}},
        ),
        Form("rest 1.0 send with config", "/message:send", _with_config(True, "taskPushNotificationConfig"), (V1,)),
        Form("rest 1.0 send in a chain", "/message:send", _with_chain(True), (V1,)),
    ]  # fmt: skip
    return made


def operator_forms(token: bytes) -> list[Form]:
    """What operators do, by somebody who may; nothing that would end the server's own keys for others."""
    key = (b"X-API-Key: " + token,)
    # Scopes that nobody has, and a life of no length: whatever comes through opens nothing and nobody needs it.
    new = {"owner": "", "tenant": "t", "scopes": ["tasks:none"], "lasts_ms": 1}
    return [
        Form("admin keys", "/admin/keys", new, key),
        Form("admin revoke", "/admin/keys/nobodys:revoke", {"x": 1}, key),
        Form("admin rotate", "/admin/keys/nobodys:rotate", {"grace_ms": 5}, key),
        Form("admin replay", "/admin/deliveries/x:replay", {"x": 1}, key),
        Form("admin replay all", "/admin/deliveries:replay?tenant=nobody", {"x": 1}, key),
        Form("admin prune", "/admin/store:prune", {"older_than_ms": 99_999_999_999, "x": 1}, key),
    ]


ODD_HEADERS: dict[str, bytes] = {
    "empty": b"", "space": b" \t ", "word": b"x", "number": b"7", "negative": b"-1", "long": b"x" * 300, "8 KB": b"y" * 8_000,
    "commas": b"," * 200, "many": b",".join(b"urn:%d" % place for place in range(40)), "quotes": b'"a\\"b', "latin": b"\xe9\xff\x80",
    "UTF-8": "\u00e4\u2028\U0001f600".encode(), "Bearer": b"Bearer", "Bearer x": b"Bearer x", "bearer of nothing": b"bearer  ",
    "Basic": b"Basic YTpi", "none": b"Bearer eyJhbGciOiJub25lIn0.e30.", "dots": b"Bearer ...", "jwt": b"Bearer " + b"e30." * 2000 + b"x",
    "key": b"tl_aaaaaaaaaaaa_" + b"x" * 43, "half a key": b"tl__", "star": b"*", "null": b"null", "origin": b"https://evil.example",
    "own origin": b"https://app.example", "brackets": b"http://[::1", "path": b"../../x", "uri": b"https://example.org/ext/a",
    "percent": b"%0d%0aX: 1", "json": b'{"a":[1]}', "traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tab inside": b"a\tb", "many digits": b"9" * 400, "semicolons": b";;;q=;=", "html": b"<script>",
}  # fmt: skip
HEADERS = (
    b"A2A-Extensions", b"X-A2A-Extensions", b"Authorization", b"X-API-Key", b"Origin", b"A2A-Version", b"Idempotency-Key",
    b"Last-Event-ID", b"Traceparent", b"Tracestate", b"Accept", b"If-None-Match", b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto",
    b"Forwarded", b"Access-Control-Request-Method", b"Access-Control-Request-Headers", b"X-A2A-Notification-Token", b"Webhook-Signature",
)  # fmt: skip


def header_cases(task: str) -> Iterator[Case]:
    """Every header that anything here reads, with every odd value, on every kind of route."""
    plain = [
        ("GET", f"/tasks/{task}"), ("GET", f"/v1/tasks/{task}/pushNotificationConfigs"), ("GET", f"/tasks/{task}:subscribe"),
        ("GET", "/.well-known/agent-card.json"), ("GET", "/.well-known/jwks.json"), ("GET", "/metrics"), ("GET", "/admin/keys"),
        ("OPTIONS", "/a2a"), ("GET", "/extendedAgentCard"), ("GET", "/delegate/tasks/x"), ("POST", f"/tasks/{task}:cancel"),
    ]  # fmt: skip
    sends = [
        Form("send", "/message:send", send_body(True), (V1,)),
        rpc_form("message/send", send_body(False)),
        rpc_form("SendStreamingMessage", send_body(True), V1),
    ]
    for header in HEADERS:
        for name, odd in ODD_HEADERS.items():
            line = header + b": " + odd
            for verb, path in plain:
                raw = request(verb, path, None, line)
                yield Case(f"{verb} {path.replace(task, 'T')} {header.decode()} = {name}", raw, rpc=False)
            for form in sends:
                headers = tuple(one for one in form.headers if not one.startswith(header))
                yield form._replace(headers=(*headers, line)).case(
                    f"{header.decode()} = {name}", form.encoded()
                )


def preflights() -> Iterator[Case]:
    """What browsers ask before they send, by pages that may and pages that may not."""
    origins = (
        b"https://app.example",
        b"https://evil.example",
        b"null",
        b"",
        b"https://app.example:443",
        b"x" * 3000,
    )
    for path in (
        "/a2a",
        "/message:send",
        "/v1/tasks/x",
        "/.well-known/jwks.json",
        "/admin/keys",
        "/nowhere",
        "/healthz",
        "*",
    ):
        for origin in origins:
            for method in (b"POST", b"DELETE", b"", b"TRACE", b"x" * 3000, b"\xff"):
                for asked in (b"content-type", b"*", b"," * 1000, b"\xff"):
                    lines = (
                        b"Origin: " + origin,
                        b"Access-Control-Request-Method: " + method,
                        b"Access-Control-Request-Headers: " + asked,
                    )
                    yield Case(f"preflight {path} {origin[:30]!r} {method[:20]!r} {asked[:20]!r}", request("OPTIONS", path, None, *lines), rpc=False)  # fmt: skip


def operator_paths(token: bytes) -> Iterator[Case]:
    """Paths below /admin that almost exist."""
    key = b"X-API-Key: " + token
    names = ("keys", "keys/", "keys/x", "keys/x:revoke", "keys/:revoke", "keys/x:y", "keys:revoke", "keys/a/b:rotate", "signing", "signing/x:rotate",
             "deliveries", "deliveries/", "deliveries/x:replay", "deliveries/%2e%2e:replay", "store", "store:compact", "store/x:prune", "", ":", "::", "a:b:c",
             "%2f", "keys%2fx:revoke", "keys/%00:revoke", "keys/%ff:revoke", "keys/" + "x" * 5_000 + ":revoke")  # fmt: skip
    for name in names:
        for verb in ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"):
            body = b"{}" if verb == "POST" else None
            yield Case(f"{verb} /admin/{name[:40]}", request(verb, f"/admin/{name}", body, key, b"Content-Type: application/json"), rpc=False)  # fmt: skip
    odd = ("-1", "0", "1001", "1e3", "%ff", "%00", "x", "9" * 30, "\u00b2".encode().hex(), "", "a" * 3_000)
    for query in ("limit", "state", "tenant", "task", "after", "unknown"):
        for value in odd:
            yield Case(f"deliveries {query}={value[:20]}", request("GET", f"/admin/deliveries?{query}={value}", None, key), rpc=False)  # fmt: skip


def everything(task: str, token: bytes) -> list[Case]:
    """All of it."""
    known = [*forms(task), *operator_forms(token)]
    made = [case for form in known for case in spoil(form)]
    return [*made, *header_cases(task), *preflights(), *operator_paths(token)]


def share(cases: list[Case], count: int, seed: int) -> list[Case]:
    """So many of them, at random."""
    return random.Random(seed).sample(cases, min(count, len(cases)))


def at_random(task: str, token: bytes, count: int, seed: int) -> Iterator[Case]:
    """New and old forms, two members spoiled or bytes torn."""
    known = [*forms(task), *operator_forms(token)]
    yield from doubly(known, count // 2, seed)
    yield from torn(known, count - count // 2, seed)
