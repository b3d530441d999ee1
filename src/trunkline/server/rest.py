"""HTTP+JSON: the routes of 1.0, of 0.3 under /v1, and the short aliases of 0.3 without it."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline import errors
from trunkline.http.exchange import JSON, Exchange
from trunkline.server.encoding import Params
from trunkline.wire import read
from trunkline.wire.codes import rest_error_v03, rest_error_v1
from trunkline.wire.operations import Operation, RestCall
from trunkline.wire.push import read_push_request
from trunkline.wire.service_parameters import Version
from trunkline.wire.types import PushQuery
from trunkline.wire.writer import Dialect

A2A_JSON = b"application/a2a+json"
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
    status, body = (rest_error_v1 if dialect is Dialect.V1 else rest_error_v03)(refused)
    return 415 if refused.field in ("Content-Type", "Content-Encoding") else status, body


def success_status(call: RestCall, dialect: Dialect) -> int:
    """The short alias of send answers with a receipt: accepted, not done."""
    return _ACCEPTED if call.operation is Operation.SEND and dialect is Dialect.V03 else 200


def read_params(call: RestCall, body: bytes, query: dict[str, str], dialect: Dialect) -> Params:
    """What path, query and body say, for any operation but that of the extended card."""
    match call.operation:
        case Operation.SEND | Operation.STREAM:
            # The clients that send flat parts use JSON-RPC.
            return replace(read.read_send(body, dialect), flat=False)
        case Operation.GET:
            return read.task_query_from(call.task_id, query)
        case Operation.CANCEL | Operation.SUBSCRIBE:
            return read.task_query_from(call.task_id, query, body)
        case Operation.LIST:
            return read.list_query_from(query)
        case Operation.PUSH_SET:
            return read_push_request(body, call.task_id)
        case _:
            return PushQuery(call.task_id, call.config_id, query.get("tenant", ""))
