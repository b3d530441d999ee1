"""Every route of the server with every id that a caller can name on it, as bytes to send.

Nothing is listed here that the server does not list itself: methods, REST paths, paths of its own. What
it lists and this module does not know fails in `test_matrix.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from trunkline.server.site import DELEGATE_ROUTES
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation, routes

HOOK = "http://127.0.0.1:9/hook"
DEADLINE_S = 60.0
_V1 = (b"a2a-version", b"1.0")
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RETRY = re.compile(rb"retry: \d+")
_GOING = re.compile(rb'"status":"(?:submitted|working)"')
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")


class Ids(NamedTuple):
    """Everything that somebody owns and a caller can name; `own_task` is the caller's, to combine it with.

    `row` is the key or the delivery that an operator names.
    """

    task: str
    context: str
    config: str
    message: str
    key: str
    token: str
    event: str
    tenant: str
    own_task: str
    row: str


class Ask(NamedTuple):
    """A request."""

    name: str
    verb: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Answer(NamedTuple):
    """Its answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Probe(NamedTuple):
    """What a caller says on an operation, whatever the binding."""

    task: str = ""
    config: str = ""
    message: dict[str, Any] | None = None
    query: dict[str, Any] = {}
    headers: tuple[tuple[str, str], ...] = ()


def _said(ids: Ids, text: str = "echo ours", **members: Any) -> dict[str, Any]:
    # Written by hand, so that it is no repeat of another probe's message.
    return {"messageId": "by-hand", "role": "user", "parts": [{"kind": "text", "text": text}], **members}


def _sends() -> dict[str, Callable[[Ids], Probe]]:
    return {
        "task": lambda ids: Probe(message=_said(ids, taskId=ids.task)),
        "task and context": lambda ids: Probe(message=_said(ids, taskId=ids.task, contextId=ids.context)),
        "context": lambda ids: Probe(message=_said(ids, contextId=ids.context)),
        "reference": lambda ids: Probe(message=_said(ids, referenceTaskIds=[ids.task])),
        "message": lambda ids: Probe(message=_said(ids, "echo theirs", messageId=ids.message)),
        "key": lambda ids: Probe(message=_said(ids), headers=(("idempotency-key", ids.key),)),
        "config": lambda ids: Probe(message=_said(ids), config=ids.config),
        "config on the task": lambda ids: Probe(message=_said(ids, taskId=ids.task), config=ids.config),
        "event": lambda ids: Probe(
            message=_said(ids, taskId=ids.task), headers=(("last-event-id", ids.event),)
        ),
        "tenant": lambda ids: Probe(message=_said(ids), query={"tenant": ids.tenant}),
    }


def _reads() -> dict[str, Callable[[Ids], Probe]]:
    return {
        "task": lambda ids: Probe(task=ids.task),
        "history": lambda ids: Probe(task=ids.task, query={"historyLength": 1}),
        "tenant": lambda ids: Probe(task=ids.task, query={"tenant": ids.tenant}),
    }


PROBES: dict[Operation, dict[str, Callable[[Ids], Probe]]] = {
    Operation.SEND: _sends(),
    Operation.STREAM: _sends(),
    Operation.GET: _reads(),
    Operation.CANCEL: _reads(),
    Operation.SUBSCRIBE: {
        **_reads(),
        "event": lambda ids: Probe(task=ids.task, headers=(("last-event-id", ids.event),)),
        "beginning": lambda ids: Probe(task=ids.task, headers=(("last-event-id", "0"),)),
    },
    Operation.LIST: {
        "token": lambda ids: Probe(query={"pageToken": ids.token, "pageSize": 1}),
        "context": lambda ids: Probe(query={"contextId": ids.context}),
        "tenant": lambda ids: Probe(query={"contextId": ids.context, "tenant": ids.tenant}),
    },
    Operation.PUSH_SET: {
        "task": lambda ids: Probe(task=ids.task, config="fresh"),
        "task and config": lambda ids: Probe(task=ids.task, config=ids.config),
        "config": lambda ids: Probe(task=ids.own_task, config=ids.config),
    },
    Operation.PUSH_GET: {
        "task and config": lambda ids: Probe(task=ids.task, config=ids.config),
        "config": lambda ids: Probe(task=ids.own_task, config=ids.config),
    },
    Operation.PUSH_LIST: {"task": lambda ids: Probe(task=ids.task)},
    Operation.PUSH_DELETE: {
        "task and config": lambda ids: Probe(task=ids.task, config=ids.config),
        "config": lambda ids: Probe(task=ids.own_task, config=ids.config),
    },
    Operation.EXTENDED_CARD: {"tenant": lambda ids: Probe(query={"tenant": ids.tenant})},
}

# Paths of the server's own: who may ask without a key, and from any Host.
OPEN, PUBLIC, KEYED = "open", "public", "keyed"
OWN: dict[str, tuple[str, str]] = {
    "/healthz": ("GET", OPEN),
    "/readyz": ("GET", OPEN),
    "/": ("POST", KEYED),
    "/a2a": ("POST", KEYED),
    "/a2a/": ("POST", KEYED),
    "/.well-known/agent-card.json": ("GET", PUBLIC),
    "/.well-known/agent.json": ("GET", PUBLIC),
    "/a2a/agent-card.json": ("GET", PUBLIC),
    "/.well-known/jwks.json": ("GET", PUBLIC),
    "/metrics": ("GET", KEYED),
    "/delegate/*": ("POST", KEYED),
    "/admin/*": ("GET", KEYED),
    "/agents/*": ("POST", KEYED),
    "/api/*": ("GET", KEYED),
    "/mcp/*": ("GET", KEYED),
    "/ui/sign-in": ("GET", PUBLIC),
}
# The operator's API: each route with the queries and the bodies in which ids are named.
API: dict[str, list[tuple[str, str]]] = {
    "GET /tasks": [
        ("?contextId={context}", ""),
        ("?contextId={context}&tenant={tenant}", ""),
        ("?after={token}", ""),
    ],
    "GET /tasks/{id}": [("", ""), ("?tenant={tenant}", "")],
    "GET /tasks/{id}/log": [("", ""), ("?after={event}", "")],
    "GET /tasks/{id}/events": [("", "")],
    "POST /tasks/{id}/cancel": [("", "")],
    "POST /tasks:cancel": [("", '{{"ids":["{task}"]}}')],
    "GET /conversations": [("?after={token}", ""), ("?after={token}&tenant={tenant}", "")],
    "GET /conversations/{id}/messages": [("", ""), ("?tenant={tenant}", "")],
    "DELETE /conversations/{id}": [("", ""), ("?tenant={tenant}", "")],
    "GET /inbox": [("?state=open", ""), ("?state=closed&tenant={tenant}", "")],
    "POST /inbox/{id}": [("", '{{"decision":"respond","text":"ours"}}')],
    "GET /deliveries": [("?task={task}", ""), ("?tenant={tenant}", "")],
    "GET /settings": [("", "")],
    "GET /nodes": [("", "")],
    "GET /fleet/health": [("?agent=nobody&tenant={tenant}", "")],
    "GET /series": [("?agent=nobody&tenant={tenant}", "")],
    "GET /cost-summaries": [("?after={token}&tenant={tenant}", "")],
    "GET /confidence-summaries": [("?after={token}&tenant={tenant}", "")],
    "GET /calls": [("?after={token}&tenant={tenant}", "")],
    "GET /bus/subscribe": [("?after={event}&tenant={tenant}", "")],
    "GET /bus/history": [("?correlationId={task}", ""), ("?correlationId={key}&tenant={tenant}", "")],
    "GET /openapi.json": [("", "")],
    "POST /a2a/callback/{id}": [("", "{{}}")],
}
# The routes of that API that only a hub has, each with the scope that it needs.
HUB_API: dict[str, str] = {
    "POST /dispatch": "tasks:write",
    "GET /route": "tasks:read",
    "GET /tasks/{id}/route": "tasks:read",
    "POST /a2a/chat": "tasks:write",
    "GET /a2a/task/{id}": "tasks:read",
    "POST /a2a/delegate": "tasks:write",
    "GET /ceremonies": "tasks:read",
    "POST /ceremonies/create": "tasks:write",
    "POST /ceremonies/{id}/update": "tasks:write",
    "POST /ceremonies/{id}/delete": "tasks:write",
    "POST /ceremonies/{id}/run": "tasks:write",
    "GET /ceremonies/{id}/runs": "tasks:read",
    "GET /agents": "tasks:read",
    "POST /agents": "admin",
    "GET /agents/{name}": "tasks:read",
    "PUT /agents/{name}": "admin",
    "DELETE /agents/{name}": "admin",
    "POST /agents/{name}/refresh": "admin",
    "POST /agents/{name}/enable": "admin",
    "POST /agents/{name}/disable": "admin",
    "POST /agents/{name}/drain": "admin",
    "PUT /announce/{name}": "announce",
    "POST /a2a/probe": "tasks:write",
    "GET /roster": "tasks:read",
}
# What operators do: verb, path, body.
ACTS = {
    ("GET", "keys", ""): b"",
    ("POST", "keys", ""): b'{"owner":"me"}',
    ("POST", "keys/{id}", "revoke"): b"",
    ("POST", "keys/{id}", "rotate"): b"{}",
    ("POST", "signing", "rotate"): b"",
    ("GET", "deliveries", ""): b"",
    ("POST", "deliveries", "replay"): b"",
    ("POST", "deliveries/{id}", "replay"): b"",
    ("GET", "tasks", ""): b"",
    ("POST", "tasks/{id}", "cancel"): b"",
    ("POST", "store", "prune"): b'{"older_than_ms":100000000000}',
    ("GET", "documents", ""): b"",
    ("POST", "documents", "repair"): b'{"tenant":"default","kind":"nothing","id":"nothing"}',
}


def _parameters(operation: Operation, probe: Probe, *, v1: bool) -> dict[str, Any]:
    """The params of a JSON-RPC call."""
    query = dict(probe.query)
    if probe.message is not None:
        config = {"id": probe.config, "url": HOOK} if probe.config else None
        name = "taskPushNotificationConfig" if v1 else "pushNotificationConfig"
        configuration = {"blocking": True, **({name: config} if config else {})}
        return {"message": probe.message, "configuration": configuration, **query}
    if operation in (Operation.LIST, Operation.EXTENDED_CARD):
        return query
    if operation is Operation.PUSH_SET:
        config = {"id": probe.config, "url": HOOK}
        named = {"taskId": probe.task, **query}
        return {**named, **config} if v1 else {**named, "pushNotificationConfig": config}
    if operation in (Operation.PUSH_GET, Operation.PUSH_DELETE):
        if v1:
            return {"taskId": probe.task, "id": probe.config, **query}
        return {"id": probe.task, "pushNotificationConfigId": probe.config, **query}
    if operation is Operation.PUSH_LIST and v1:
        return {"taskId": probe.task, **query}
    return {"id": probe.task, **query}


def _encoded(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode(), value.encode()) for name, value in headers)


def rpc(method: str, probe: Probe, name: str = "", path: str = "/a2a") -> Ask:
    """A method of either version."""
    v1 = method in METHODS_V1
    operation = METHODS_V1[method] if v1 else METHODS_V03[method]
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": _parameters(operation, probe, v1=v1),
    }
    version = (_V1,) if v1 else ()
    return Ask(
        f"{method} {name}", "POST", path, json.dumps(body).encode(), (*version, *_encoded(probe.headers))
    )


# How a REST path can be asked: what stands before it, and whether 1.0 is named.
PREFIXES = {
    "1.0": ("", True),
    "0.3 short": ("", False),
    "0.3 /v1": ("/v1", False),
    "1.0 tenant": ("/{tenant}", True),
}


def rest(verb: str, path: str, operation: Operation, probe: Probe, prefix: str, tenant: str) -> Ask:
    """A REST route."""
    before, v1 = PREFIXES[prefix]
    where = (before + path).format(task=probe.task, config=probe.config, tenant=tenant)
    body = b""
    query = probe.query
    if probe.message is not None or operation is Operation.PUSH_SET:
        body = json.dumps(_parameters(operation, probe, v1=v1)).encode()
    elif query:
        where += "?" + urlencode(query)
    version = (_V1,) if v1 else ()
    return Ask(f"{verb} {before}{path} {prefix}", verb, where, body, (*version, *_encoded(probe.headers)))


def every(ids: Ids) -> Iterator[tuple[Operation | None, Ask]]:
    """Every route with every id that can be named there."""
    for table in (METHODS_V1, METHODS_V03):
        for method, operation in table.items():
            for name, probe in PROBES[operation].items():
                yield operation, rpc(method, probe(ids), name)
    yield Operation.GET, rpc("GetTask", Probe(task=ids.task), "at the other path", "/a2a/")
    for verb, path, operation in routes():
        for prefix in PREFIXES:
            for name, probe in PROBES[operation].items():
                made = rest(verb, path, operation, probe(ids), prefix, ids.tenant)
                yield operation, made._replace(name=f"{made.name} {name}")
    for path, verb in DELEGATE_ROUTES.items():
        # Nobody waits for it, so that it must not get further than its first word.
        work = {"agent_id": "echo", "correlation_id": ids.key, "input": {"text": "hold ours"}}
        body = json.dumps(work).encode() if verb == "POST" else b""
        yield None, Ask(f"{verb} {path} key", verb, path.format(task=ids.task), body)
    for (verb, place, act), body in ACTS.items():
        path = f"/admin/{place}{':' if act else ''}{act}"
        yield None, Ask(f"{verb} {path} row", verb, path.format(id=ids.row), body)
    for pattern, named in API.items():
        verb, path = pattern.split()
        for query, form in named:
            about = ids.context if path.startswith("/conversations") else ids.task
            where = f"/api{path}{query}".format(id=about, **ids._asdict())
            yield None, Ask(f"{verb} /api{path} {query}", verb, where, form.format(**ids._asdict()).encode())


async def ask(application: Any, asked: Ask, *headers: tuple[bytes, bytes]) -> Answer:
    """Put a request to an application and read the whole answer."""
    path, _, query = asked.path.partition("?")
    kind = ((b"content-type", b"application/json"),) if asked.body else ()
    length = ((b"content-length", b"%d" % len(asked.body)),) if asked.body else ()
    given = dict(((b"host", b"localhost"), *kind, *length, *asked.headers, *headers))
    scope = {
        "type": "http", "method": asked.verb, "path": path, "raw_path": path.encode(),
        "query_string": query.encode(), "headers": list(given.items()), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    bodies = iter([{"type": "http.request", "body": asked.body, "more_body": False}])
    left = asyncio.Event()
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if (body := next(bodies, None)) is not None:
            return body
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    try:
        async with asyncio.timeout(DEADLINE_S):
            await application(scope, receive, send)
    finally:
        left.set()
    return Answer(said[0]["status"], list(said[0]["headers"]), b"".join(one["body"] for one in said[1:]))


def plain(answer: Answer, ids: Ids) -> Answer:
    """The answer with every id, and what is fresh in each answer, replaced by its place."""
    seen: dict[bytes, bytes] = {}

    def numbered(found: re.Match[bytes]) -> bytes:
        return seen.setdefault(found[0], b"<id %d>" % len(seen))

    def clean(text: bytes) -> bytes:
        for name, value in ids._asdict().items():
            # Short ones, such as the place of an event, are too likely to be something else.
            if len(value) > 4:
                text = text.replace(value.encode(), b"<%b>" % name.encode())
        return _RETRY.sub(b"retry: <some>", _TIME.sub(b"<time>", _UUID.sub(numbered, text)))

    body, going = _GOING.subn(b'"status":"<going>"', clean(answer.body))
    headers = [
        (name, clean(value)) for name, value in answer.headers if not going or name != b"content-length"
    ]
    return Answer(answer.status, headers, body)
