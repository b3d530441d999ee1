"""JSON-RPC 2.0 envelopes and error objects."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from trunkline.errors import InvalidParams, InvalidRequest, ParseError, Refused
from trunkline.wire.codes import code_of, details
from trunkline.wire.decode import DECODE_ERRORS, parse_error

RequestId = str | int | float | None
# An id comes back in the answer and in every frame of a stream: what a caller makes long, it makes us repeat.
ID_BYTES = 256
# As many as fit into that in decimal digits, whatever they are.
_NUMBER_BITS = 840


class Envelope(Struct, frozen=True):
    """One request. When `fault` is set, nothing else but `id` counts, and the answer is that error."""

    id: RequestId = None
    method: str = ""
    params: Raw | None = None
    notification: bool = False
    fault: Refused | None = None


class _ProperRequest(Struct, frozen=True, gc=False):
    jsonrpc: Literal["2.0"]
    method: str
    id: RequestId | UnsetType = UNSET
    params: Raw = Raw()


class _AnyRequest(Struct, frozen=True):
    jsonrpc: Any = None
    method: Any = None
    id: Any | UnsetType = UNSET
    params: Raw = Raw()


_proper = msgspec.json.Decoder(_ProperRequest)
_any = msgspec.json.Decoder(_AnyRequest)
_encode = msgspec.json.Encoder().encode


def read_envelope(body: bytes) -> Envelope:
    """The request in a body; never raises, so that the answer to a bad one can carry its id."""
    try:
        proper = _proper.decode(body)
    except msgspec.ValidationError:
        return _faulty(body)
    except DECODE_ERRORS as error:
        return Envelope(fault=parse_error(error))
    params = proper.params
    if proper.id is UNSET:
        envelope = Envelope(None, proper.method, params, True)
    elif _is_id(proper.id):
        envelope = Envelope(proper.id, proper.method, params)
    else:
        return Envelope(fault=_bad_id())
    # A view, not a copy: params may be megabytes. Raw values come without the whitespace around them.
    if bytes(memoryview(params)[:1]) == b"{":
        return envelope
    return _with_odd_params(envelope, bytes(params))


def _with_odd_params(envelope: Envelope, params: bytes) -> Envelope:
    fault: Refused | None = None
    if params[:1] == b"[":
        fault = InvalidParams("params must be an object; A2A has no positional parameters", field="params")
    elif params not in (b"", b"null"):
        fault = InvalidRequest("params must be an object", field="params")
    return msgspec.structs.replace(envelope, params=None, fault=fault)


def _faulty(body: bytes) -> Envelope:
    if body.lstrip()[:1] == b"[":
        return Envelope(fault=_batch(body))
    try:
        found = _any.decode(body)
    except msgspec.ValidationError as error:
        if str(error).startswith("Expected `object`"):
            return Envelope(fault=InvalidRequest("the body must be a JSON-RPC request object"))
        return Envelope(fault=parse_error(error))
    except DECODE_ERRORS as error:
        return Envelope(fault=parse_error(error))
    if found.id is not UNSET and not _is_id(found.id):
        return Envelope(fault=_bad_id())
    what = (
        InvalidRequest('jsonrpc must be "2.0"', field="jsonrpc")
        if found.jsonrpc != "2.0"
        else InvalidRequest("method must be a string", field="method")
    )
    # What is not a request is not a notification either: it is answered, under the id `null`.
    return Envelope(id=None if found.id is UNSET else found.id, fault=what)


def _batch(body: bytes) -> Refused:
    try:
        msgspec.json.decode(body, type=list[Raw])
    except DECODE_ERRORS as error:
        return parse_error(error)
    return InvalidRequest("batches are not part of A2A; send one request object per POST")


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value if value.isascii() else value.encode()) <= ID_BYTES
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() <= _NUMBER_BITS
    return value is None or isinstance(value, float)


def _bad_id() -> InvalidRequest:
    return InvalidRequest(f"id must be a string of at most {ID_BYTES} bytes, a number or null", field="id")


def envelope_parts(request_id: RequestId) -> tuple[bytes, bytes]:
    """What stands before and after a result, for a stream that sends many under one id."""
    return b'{"jsonrpc":"2.0","id":%b,"result":' % _encode(request_id), b"}"


def result(request_id: RequestId, result_bytes: bytes) -> bytes:
    """The answer with this result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (_encode(request_id), result_bytes)


def error(request_id: RequestId, refused: Refused) -> bytes:
    """The answer with this error. Both versions carry the same codes and data; 0.3 leaves `data` open."""
    if isinstance(refused, ParseError):
        # What was found of an id may be no more than a part of the damage: JSON-RPC says null.
        request_id = None
    what = {"code": code_of(refused).rpc, "message": refused.message, "data": details(refused)}
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": what})
