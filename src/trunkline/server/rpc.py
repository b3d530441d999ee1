"""JSON-RPC over HTTP: one POST, one request, both versions."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from trunkline import errors
from trunkline.http.exchange import EVENTS, JSON, Exchange
from trunkline.server.encoding import Params
from trunkline.server.rest import A2A_JSON
from trunkline.wire import read
from trunkline.wire.codes import code_of
from trunkline.wire.jsonrpc import Envelope
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation
from trunkline.wire.push import read_push_query, read_push_request
from trunkline.wire.service_parameters import Version
from trunkline.wire.writer import Dialect

MEDIA_TYPES = (JSON, A2A_JSON)
_V03 = Version.V03
_SERVED_V1 = {method: (operation, Dialect.V1) for method, operation in METHODS_V1.items()}
_SERVED_V03 = {method: (operation, Dialect.V03) for method, operation in METHODS_V03.items()}
SENDS = (Operation.SEND, Operation.STREAM)
_READERS: dict[Operation, Callable[[Raw | None], Params]] = {
    **dict.fromkeys((Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE), read.read_task_query),
    **dict.fromkeys((Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE), read_push_query),
    Operation.LIST: read.read_list_query,
    Operation.PUSH_SET: read_push_request,
}
_SAID_BY_HTTP = (
    errors.Unauthenticated,
    errors.Forbidden,
    errors.TooLarge,
    errors.TooManyRequests,
    errors.Unavailable,
)


def operation_of(method: str, asked: Version | None) -> tuple[Operation, Dialect]:
    """The operation behind a method name and the dialect that it is served in.

    Raises:
        MethodNotFound: the version that was asked for has no such method.
    """
    # A 1.0 name without a version header is served as 1.0: nobody means anything else by it.
    if asked is not _V03 and (found := _SERVED_V1.get(method)) is not None:
        return found
    # Clients in the field name version 1.0 and speak 0.3: the name of the method says what they read.
    if (found := _SERVED_V03.get(method)) is not None:
        return found
    version = (asked or Version.V03).value
    advice = "; it is a method of 1.0, see the A2A-Version header" if method in METHODS_V1 else ""
    raise errors.MethodNotFound(f"there is no such method in A2A {version}{advice}")


def check_media_type(exchange: Exchange) -> None:
    """A body must say that it is JSON: a page can send anything else without asking the browser.

    Raises:
        ContentTypeNotSupported: it does not.
    """
    given = exchange.headers.get(b"content-type", b"")
    if given not in MEDIA_TYPES and given.split(b";")[0].strip().lower() not in MEDIA_TYPES:
        raise errors.ContentTypeNotSupported("send Content-Type: application/json", field="Content-Type")


def read_params(
    operation: Operation, params: Raw | None, dialect: Dialect, v03_parts: str = "auto"
) -> Params:
    """Read the params of any operation except that of the extended card.

    `v03_parts` is the setting of that name: `auto` leaves it to the message whether a task is flat.
    """
    if operation not in SENDS:
        return _READERS[operation](params)
    request = read.read_send(params, dialect)
    if v03_parts == "auto" or dialect is not Dialect.V03:
        return request
    return replace(request, flat=v03_parts == "flat")


def http_status(refused: errors.Refused) -> int:
    """JSON-RPC errors travel with 200; what HTTP itself must say keeps its own status."""
    if isinstance(refused, errors.RouteNotFound):
        # The one path of JSON-RPC is always found; only the verb can be wrong.
        return 405
    if isinstance(refused, _SAID_BY_HTTP):
        return code_of(refused).http
    return 415 if refused.field in ("Content-Type", "Content-Encoding") else 200


def reads_frames_only(exchange: Exchange, envelope: Envelope) -> bool:
    """0.3 clients that open a stream refuse anything but a stream: an error reaches them as a frame only."""
    streaming = METHODS_V03.get(envelope.method) in (Operation.STREAM, Operation.SUBSCRIBE)
    return streaming and exchange.headers.get(b"accept", b"").startswith(EVENTS)
