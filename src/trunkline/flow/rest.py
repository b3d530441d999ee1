"""Workflows over REST: definitions that are registered, and their runs. ASGI, behind the host's door."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from trunkline.auth.principal import Principal, tenant_of
from trunkline.auth.principal import Scope as AuthScope
from trunkline.clock import Ids
from trunkline.errors import FlowRefused
from trunkline.flow.codes import FAILED_STATUS, JSON, details_of, error_body, status_of, write_refusal
from trunkline.flow.control import Control
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.definitions import Loaded
from trunkline.flow.engine.rows import VERSION
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.forms import LIMIT_BYTES, StartForm, read_form, read_json
from trunkline.flow.port import FlowCaller, FlowPort
from trunkline.flow.results import moment_text
from trunkline.flow.scopes import owner_known
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.mounts import App, Mount, Route
from trunkline.wire.service_parameters import read_correlation

log = logging.getLogger("trunkline.flow")
WORKFLOWS, EXECUTIONS = "/v1/workflows", "/v1/executions"
_START, _HISTORY = AuthScope.START.value, AuthScope.HISTORY.value
# The acts on a run, each with the scope that it needs.
_VERBS = {
    "resume": AuthScope.RESUME.value,
    "submit_activity": AuthScope.SUBMIT.value,
    "signal": AuthScope.SUBMIT.value,
    "cancel": _START,
}
_SLUG = re.compile(r"[^a-z0-9]+")
_ID_LIMIT = 64
_encode = msgspec.json.Encoder().encode
Answer = tuple[int, dict[str, Any]]
Resolve = Callable[[str, str], Awaitable[Loaded]]


class EventsForm(Struct, frozen=True, kw_only=True):
    """Which rows of a run are asked for."""

    from_seq: Annotated[int, Meta(ge=1)] = 1
    to_seq: Annotated[int, Meta(ge=1)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Annotated[int, Meta(ge=1)] | None = None


class RegisterForm(Struct, frozen=True, kw_only=True):
    """A definition that is to be registered."""

    definition: dict[str, Any]


class FlowCall(Struct, frozen=True):
    """One request: who sends it, which route takes it, and what it holds; `below` is the path behind that."""

    caller: FlowCaller
    control: Control
    pattern: str
    below: str
    query: dict[str, str]
    body: bytes


class FlowApi:
    """The application; `port` gives what the host has at the moment."""

    def __init__(
        self, port: Callable[[], FlowPort], signatures: SignaturePolicy, resolve: Resolve | None = None
    ) -> None:
        """Take what there is; `resolve` finds workflows by their ids where not all are registered."""
        self._port = port
        self._resolve: Resolve = resolve or self._registered
        self._signatures = signatures
        self._ids = Ids()

    def _registered(self, tenant: str, workflow_id: str) -> Awaitable[Loaded]:
        return self._port().definitions.registered(tenant, workflow_id)

    def mounts(self) -> list[Mount]:
        """Return the mounts of the API, each route with its scope and its body limit."""
        app: App = self.__call__
        return [
            Mount(
                WORKFLOWS,
                app,
                [
                    Route("POST /", _START, LIMIT_BYTES),
                    Route("GET /{id}", _HISTORY, 0),
                    Route("POST /{id}/executions", _START, LIMIT_BYTES),
                ],
                write_refusal,
            ),
            Mount(
                EXECUTIONS,
                app,
                [
                    Route("GET /", _HISTORY, 0),
                    Route("POST /", _START, LIMIT_BYTES),
                    Route("GET /{id...}/events", _HISTORY, 0),
                    Route("GET /{id...}/checkpoint", _HISTORY, 0),
                    Route("GET /{id...}", _HISTORY, 0),
                    *[Route(f"POST /{{id...}}:{verb}", scope, LIMIT_BYTES) for verb, scope in _VERBS.items()],
                    Route("POST /{id...}", _START, LIMIT_BYTES),
                ],
                write_refusal,
            ),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI: the door has found the route and read the body."""
        body = (await receive())["body"]
        try:
            status, told = await self._answer(scope, body)
        except FlowRefused as refused:
            status = status_of(refused.code)
            told = error_body(refused.code, refused.message, details_of(refused))
        content = _encode(told)
        headers = [(b"content-type", JSON), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else content})

    async def _answer(self, scope: Scope, body: bytes) -> Answer:
        principal: Principal = scope["trunkline.principal"]
        pattern: str = scope["trunkline.route"]
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        tenant = tenant_of(principal, query.pop("tenant", ""))
        caller = FlowCaller(
            tenant,
            principal.name,
            owner_known(principal),
            tenant != principal.tenant,
            read_correlation(dict(scope["headers"])),
        )
        control = Control(self._port(), caller, self._signatures)
        root: str = scope["root_path"]
        below: str = scope["path"].removeprefix(root).removeprefix("/")
        call = FlowCall(caller, control, pattern, below, query, body)
        return await (self._of_workflow(call) if root.endswith(WORKFLOWS) else self._of_run(call))

    # Definitions.

    async def _of_workflow(self, call: FlowCall) -> Answer:
        definitions, tenant = self._port().definitions, call.caller.tenant
        if call.pattern == "POST /":
            document = read_form(read_json(call.body), RegisterForm).definition
            await call.control.check(document)
            loaded = replace(await definitions.load(document), by_operator=call.caller.by_operator)
            workflow_id = slug(loaded.definition.name) or self._ids.new()
            await definitions.register(tenant, workflow_id, loaded)
            return 201, {"wf_id": workflow_id, "definition": loaded.definition.document}
        workflow_id = call.below.removesuffix("/executions")
        loaded = await self._resolve(tenant, workflow_id)
        if call.pattern == "GET /{id}":
            return 200, {"wf_id": workflow_id, "definition": loaded.definition.document}
        form = read_form(read_json(call.body), StartForm)
        return _result(await call.control.start(form, loaded))

    # Runs.

    async def _of_run(self, call: FlowCall) -> Answer:
        below, control, query = call.below, call.control, call.query
        match call.pattern:
            case "GET /":
                return 200, await control.call("list", {name: one for name, one in query.items() if one})
            case "POST /":
                return _result(await control.call("start", read_json(call.body)))
            case "GET /{id...}":
                return 200, await control.call("status", {"execution_id": below})
            case "GET /{id...}/events":
                return 200, await self._events(call.caller, below.removesuffix("/events"), query)
            case "GET /{id...}/checkpoint":
                return 200, await self._checkpoint(call.caller, below.removesuffix("/checkpoint"))
            case "POST /{id...}":
                verbs = ", ".join([f":{verb}" for verb in _VERBS])
                raise FlowRefused("NOT_FOUND", f"no operation of a run has this path; end it with {verbs}")
            case _:
                execution_id, _, verb = below.rpartition(":")
                given = {**read_json(call.body), "execution_id": execution_id}
                return _result(await control.call(verb, given))

    async def _events(self, caller: FlowCaller, execution_id: str, query: dict[str, str]) -> dict[str, Any]:
        form = read_form(query, EventsForm, strict=False)
        first = form.from_seq if form.cursor is None else form.cursor
        rows, following = await self._port().page(caller, execution_id, first, form.to_seq, form.limit)
        told: dict[str, Any] = {"execution_id": execution_id, "events": [shown_row(row) for row in rows]}
        if following:
            told["next_cursor"] = str(following)
        return told

    async def _checkpoint(self, caller: FlowCaller, execution_id: str) -> dict[str, Any]:
        found = await self._port().checkpoint(caller, execution_id)
        if found is None:
            raise FlowRefused("NOT_FOUND", f"run {execution_id!r} has no checkpoint")
        return {
            "execution_id": execution_id,
            "checkpoint": found.payload,
            "seq": found.seq,
            "created_at": moment_text(found.at),
        }


def shown_row(row: ShownRow) -> dict[str, Any]:
    """A row as callers are shown it."""
    return {
        "seq": row.seq,
        "kind": row.kind,
        "name": row.name,
        "payload": row.payload,
        "created_at": moment_text(row.at),
        "record_schema_version": VERSION,
    }


def slug(name: str) -> str:
    """The id of a workflow by its name."""
    return _SLUG.sub("-", name.lower()).strip("-")[:_ID_LIMIT].strip("-")


def _result(found: dict[str, Any]) -> Answer:
    """A run as HTTP tells it: one that failed is an error with its own code."""
    if found.get("status") != "failed":
        return 200, found
    details = {name: found[name] for name in ("execution_id", "final_state") if name in found}
    code = found.get("code") or "ENGINE_FAILURE"
    return FAILED_STATUS, error_body(code, found.get("error") or "the run failed", details)
