"""HTTP+JSON: the routes of 1.0, of 0.3 under /v1, and the short aliases of 0.3 without it."""

from __future__ import annotations

from trunkline import errors
from trunkline.http.exchange import JSON, Exchange
from trunkline.server.caller import Caller
from trunkline.server.card import no_extended_card
from trunkline.server.encoding import EncodedOperations
from trunkline.server.streams import Subscription
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


async def perform(
    encoded: EncodedOperations, call: RestCall, caller: Caller, body: bytes, query: dict[str, str]
) -> bytes | Subscription:
    """Read path, query and body, and make the call."""
    operations = encoded.operations
    match call.operation:
        case Operation.SEND:
            return await encoded.send(caller, read.read_send(body, caller.dialect))
        case Operation.STREAM:
            return await operations.stream(caller, read.read_send(body, caller.dialect))
        case Operation.GET:
            return await encoded.get(caller, read.task_query_from(call.task_id, query))
        case Operation.CANCEL:
            return await encoded.cancel(caller, read.task_query_from(call.task_id, query, body))
        case Operation.SUBSCRIBE:
            return await operations.subscribe(caller, read.task_query_from(call.task_id, query, body))
        case Operation.LIST:
            return await encoded.list(caller, read.list_query_from(query))
        case Operation.EXTENDED_CARD:
            raise no_extended_card(caller.dialect)
        case Operation.PUSH_SET:
            return await encoded.set_push(caller, read_push_request(body, call.task_id))
        case Operation.PUSH_GET:
            return await encoded.get_push(caller, _push_query(call, query))
        case Operation.PUSH_LIST:
            return await encoded.list_push(caller, _push_query(call, query))
        case Operation.PUSH_DELETE:
            await operations.push.delete(caller, _push_query(call, query))
            return b"{}"


def _push_query(call: RestCall, query: dict[str, str]) -> PushQuery:
    return PushQuery(call.task_id, call.config_id, query.get("tenant", ""))
