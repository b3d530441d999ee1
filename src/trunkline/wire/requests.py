"""Writes requests exactly as each version has them: params of JSON-RPC, paths and bodies of REST."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw, Struct, to_builtins
from msgspec.structs import replace

from trunkline.errors import InvalidParams
from trunkline.wire.operations import Operation
from trunkline.wire.push import inline_struct, write_push_request
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import (
    ListQuery,
    Metadata,
    PushQuery,
    PushRequest,
    Role,
    SendRequest,
    TaskQuery,
    WireStruct,
)
from trunkline.wire.writer import WRITERS, Dialect

_encode = msgspec.json.Encoder().encode
_CONFIGS = "/pushNotificationConfigs"
_NAMED = ("skillHint", "correlationId", "parentId")


class _Configuration(WireStruct, frozen=True):
    accepted_output_modes: tuple[str, ...] = ()
    history_length: int | None = None
    blocking: bool | None = None
    return_immediately: bool | None = None
    task_push_notification_config: Struct | None = None
    push_notification_config: Struct | None = None
    push_notification: Struct | None = None


class _Send(WireStruct, frozen=True):
    message: Raw
    tenant: str = ""
    configuration: _Configuration | None = None
    metadata: Metadata | None = None
    context_id: str = ""
    task_id: str = ""


_NONE = _Configuration()


def send_params(request: SendRequest, dialect: Dialect) -> bytes:
    """Params of `send` and `stream`, which are also the body of REST."""
    message, metadata = request.message, request.metadata
    if message.role is None:
        message = replace(message, role=Role.USER)
    if dialect is not Dialect.V1 and (named := _named_work(request)):
        # Some agents of 0.3 read only the metadata of the params, others only those of the message.
        metadata = {**named, **(metadata or {})}
        message = replace(message, metadata={**named, **(message.metadata or {})})
    wanted = _configuration(request, dialect)
    return _encode(
        _Send(
            Raw(WRITERS[dialect].message(message)),
            request.tenant if dialect is Dialect.V1 else "",
            None if wanted == _NONE else wanted,
            metadata,
            # Some agents of 0.3 read the IDs only here. Readers of ProtoJSON refuse unknown members.
            *((message.context_id, message.task_id) if dialect is Dialect.V03 else ()),
        )
    )


def _named_work(request: SendRequest) -> Metadata:
    """Return the skill that a request names and the work that it belongs to, as metadata of 0.3."""
    given = {**(request.metadata or {}), **(request.message.metadata or {})}
    named: Metadata = {name: given[name] for name in _NAMED if name in given}
    return named if request.correlation is None else {**to_builtins(request.correlation), **named}


def _configuration(request: SendRequest, dialect: Dialect) -> _Configuration:
    push = None if request.push is None else inline_struct(request.push, dialect)
    modes, length, wait = request.accepted_output_modes, request.history_length, request.wait
    if dialect is Dialect.V1:
        hasty = None if wait is None else not wait
        return _Configuration(modes, length, None, hasty, push)
    if dialect is Dialect.V03:
        return _Configuration(modes, length, wait, push_notification_config=push)
    # In the proto of 0.3 an absent `blocking` is false; who does not say wants to wait, as everywhere else.
    return _Configuration(modes, length, wait is not False, push_notification=push)


def task_params(query: TaskQuery, dialect: Dialect) -> bytes:
    """Params of `get`, `cancel` and `subscribe`."""
    # The query itself has the members of 1.0; 0.3 knows no tenants.
    return _encode(query if dialect is Dialect.V1 else replace(query, tenant=""))


def list_params(query: ListQuery, dialect: Dialect) -> bytes:
    """Params of `list`."""
    # 0.3 knows no tenants.
    return _encode(_list(query if dialect is Dialect.V1 else replace(query, tenant=""), dialect))


def push_params(query: PushQuery, dialect: Dialect) -> bytes:
    """Params of getting, listing and deleting push configs."""
    if dialect is Dialect.V1:
        given = {"taskId": query.task_id, "id": query.config_id, "tenant": query.tenant}
    else:
        given = {"id": query.task_id, "pushNotificationConfigId": query.config_id}
    return _encode({name: text for name, text in given.items() if text})


def card_params(tenant: str, dialect: Dialect) -> bytes:
    """Params of asking for the extended card."""
    return _encode({"tenant": tenant} if tenant and dialect is Dialect.V1 else {})


def _list(query: ListQuery, dialect: Dialect) -> Metadata:
    # What the query itself does not have as the wire spells it; the size of a page is always said.
    given: Metadata = {"pageSize": query.page_size, **to_builtins(query)}
    if query.status is not None and dialect is Dialect.V03:
        given["status"] = plain_state(query.status)
    if query.status_timestamp_after is not None:
        given["statusTimestampAfter"] = timestamp(query.status_timestamp_after)
    return given


class RestRequest(Struct, frozen=True):
    """A verb, a path with its query behind the address of an interface, and a body if there is one."""

    verb: str
    path: str
    body: bytes | None = None


def rest_send(request: SendRequest, dialect: Dialect, *, stream: bool = False) -> RestRequest:
    """The REST request of `send`, or of `stream`."""
    path = "/message:stream" if stream else "/message:send"
    return RestRequest("POST", _prefix(dialect, request.tenant) + path, send_params(request, dialect))


def rest_task(operation: Operation, query: TaskQuery, dialect: Dialect) -> RestRequest:
    """The REST request of `get`, `cancel` or `subscribe`."""
    path = f"{_prefix(dialect, query.tenant)}/tasks/{_segment(query.id)}"
    if operation is Operation.CANCEL:
        return RestRequest("POST", path + ":cancel", b"{}")
    if operation is Operation.SUBSCRIBE:
        # The table of paths says POST, the proto GET; both SDKs post, and servers in the field take that.
        return RestRequest("POST", path + ":subscribe", b"{}")
    length = query.history_length
    return RestRequest("GET", path if length is None else f"{path}?historyLength={length}")


def rest_list(query: ListQuery, dialect: Dialect) -> RestRequest:
    """The REST request of `list`; the tenant is in the path."""
    given = _list(replace(query, tenant=""), dialect)
    asked = {name: "true" if value is True else value for name, value in given.items()}
    return RestRequest("GET", f"{_prefix(dialect, query.tenant)}/tasks?{urlencode(asked)}")


def rest_set_push(request: PushRequest, dialect: Dialect, *, bare: bool = False) -> RestRequest:
    """The REST request that sets a push config; `bare` is the other of two bodies that 0.3 servers read."""
    path = f"{_prefix(dialect, request.tenant)}/tasks/{_segment(request.task_id)}{_CONFIGS}"
    return RestRequest("POST", path, write_push_request(request, dialect, bare=bare))


def rest_push(operation: Operation, query: PushQuery, dialect: Dialect) -> RestRequest:
    """The REST request that gets, lists or deletes push configs."""
    path = f"{_prefix(dialect, query.tenant)}/tasks/{_segment(query.task_id)}{_CONFIGS}"
    if operation is Operation.PUSH_LIST:
        return RestRequest("GET", path)
    verb = "DELETE" if operation is Operation.PUSH_DELETE else "GET"
    return RestRequest(verb, f"{path}/{_segment(query.config_id)}")


def rest_card(dialect: Dialect, tenant: str) -> RestRequest:
    """The REST request of the extended card."""
    prefix = _prefix(dialect, tenant)
    return RestRequest("GET", prefix + ("/extendedAgentCard" if dialect is Dialect.V1 else "/card"))


def _prefix(dialect: Dialect, tenant: str) -> str:
    if dialect is not Dialect.V1:
        return "/v1"
    return f"/{_segment(tenant)}" if tenant else ""


def _segment(text: str) -> str:
    # Nothing, or dots alone, would make it another path: who normalises it takes them away, escaped or not.
    if text.strip(".") == "":
        raise InvalidParams(f"{text!r} is no id that a path can hold", field="id")
    return quote(text, safe="")
