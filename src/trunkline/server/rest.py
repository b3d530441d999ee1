"""HTTP+JSON: the routes of 1.0, of 0.3 under /v1, and the short aliases of 0.3 without it."""

from __future__ import annotations

from trunkline import errors
from trunkline.server.operations import Caller, Operations
from trunkline.server.request import A2A_JSON, JSON, Exchange
from trunkline.server.streams import Plan
from trunkline.wire import read
from trunkline.wire.configs import read_set
from trunkline.wire.operations import Operation
from trunkline.wire.rest import RestCall, error_v03, error_v1
from trunkline.wire.types import PushQuery, TaskQuery
from trunkline.wire.versions import Version
from trunkline.wire.writer import Dialect

_ACCEPTED = 202


def dialect_of(call: RestCall, asked: Version | None) -> Dialect:
    """1.0 if asked for; else the ProtoJSON of 0.3 under /v1, and plain 0.3 on the aliases."""
    if asked is Version.V1:
        return Dialect.V1
    return Dialect.V03_PROTO if call.v1_prefixed else Dialect.V03


def check_path(exchange: Exchange) -> None:
    """A slash is a slash only if it was sent as one: an escaped one is no part of any path here.

    Raises:
        RouteNotFound: there is an escaped one.
    """
    raw = exchange.raw_path
    if b"%" in raw and b"%2f" in raw.lower():
        raise errors.RouteNotFound("no such path here; the card names the interfaces")


def media_type(exchange: Exchange, dialect: Dialect) -> bytes:
    """1.0 prefers its own media type; who speaks plain JSON is answered in it."""
    if dialect is not Dialect.V1:
        return JSON
    given = exchange.headers.get(b"content-type", b"")
    accepted = exchange.headers.get(b"accept", b"")
    plain = given.startswith(JSON) or (not given and JSON in accepted and A2A_JSON not in accepted)
    return JSON if plain else A2A_JSON


def error(refused: errors.Refused, dialect: Dialect) -> tuple[int, bytes]:
    """Status and body of a refusal."""
    if dialect is Dialect.V1:
        status, body = error_v1(refused)
    else:
        status, body = error_v03(refused)
    return 415 if refused.field in ("Content-Type", "Content-Encoding") else status, body


def success_status(call: RestCall, dialect: Dialect) -> int:
    """The short alias of send answers with a receipt: accepted, not done."""
    return _ACCEPTED if call.operation is Operation.SEND and dialect is Dialect.V03 else 200


async def perform(
    calls: Operations, call: RestCall, caller: Caller, body: bytes, query: dict[str, str]
) -> bytes | Plan:
    """Read path, query and body, and make the call."""
    match call.operation:
        case Operation.SEND:
            return await calls.send(caller, read.read_send(body, proto=caller.dialect is Dialect.V03_PROTO))
        case Operation.STREAM:
            return await calls.stream(caller, read.read_send(body, proto=caller.dialect is Dialect.V03_PROTO))
        case Operation.GET:
            return await calls.get(caller, read.task_query_from(call.task_id, query))
        case Operation.CANCEL:
            return await calls.cancel(caller, TaskQuery(call.task_id))
        case Operation.SUBSCRIBE:
            return await calls.subscribe(caller, TaskQuery(call.task_id))
        case Operation.LIST:
            return await calls.list(caller, read.list_query_from(query))
        case Operation.EXTENDED_CARD:
            return calls.extended_card(caller)
        case Operation.PUSH_SET:
            return await calls.set_push(caller, read_set(body, call.task_id))
        case Operation.PUSH_GET:
            return await calls.get_push(caller, PushQuery(call.task_id, call.config_id))
        case Operation.PUSH_LIST:
            return await calls.list_push(caller, PushQuery(call.task_id))
        case Operation.PUSH_DELETE:
            await calls.delete_push(caller, PushQuery(call.task_id, call.config_id))
            return b"{}"
