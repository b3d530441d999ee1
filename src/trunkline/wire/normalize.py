"""Bytes or a query string → one of the raw structs, lenient in spelling and exact in its errors.

Only requests that spell something unusually are normalized: every member renamed, kept or dropped by the
fields of its raw struct.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from trunkline.wire import raw
from trunkline.wire.decode_errors import DECODE_ERRORS, check_structure, invalid_params, parse_error

S = TypeVar("S", bound=raw.RawStruct)


class MemberPlan(Struct, frozen=True):
    """How to normalize one object: every spelling of each member, and the plans of the objects inside it."""

    names: dict[str, str]
    inner: dict[str, MemberPlan]
    keeps: bool


def _plan(
    struct: type[raw.RawStruct], inner: dict[str, MemberPlan] | None = None, **aliases: str
) -> MemberPlan:
    names = dict(aliases)
    for field in msgspec.structs.fields(struct):
        if field.encode_name != raw.EXTRA:
            names[field.name] = names[field.encode_name] = field.encode_name
    # `bytes` is the wire name of a field that Python calls otherwise.
    if struct is raw.RawFile:
        del names["content"]
    return MemberPlan(names, inner or {}, keeps=struct in (raw.RawPart, raw.RawMessage))


_FILE = _plan(raw.RawFile, mediaType="mimeType", media_type="mimeType", filename="name")
_PART = _plan(raw.RawPart, {"file": _FILE})
_MESSAGE = _plan(raw.RawMessage, {"parts": _PART, "content": _PART})
_AUTHENTICATION = _plan(raw.RawAuthentication)
_PUSH = _plan(raw.RawPushConfig, {"authentication": _AUTHENTICATION})
_CONFIGURATION = _plan(
    raw.RawConfiguration,
    {"pushNotificationConfig": _PUSH, "taskPushNotificationConfig": _PUSH, "pushNotification": _PUSH},
)
_PUSH_ENVELOPE = _plan(raw.RawPushEnvelope, {"pushNotificationConfig": _PUSH})
_ARTIFACT = _plan(raw.RawArtifact, {"parts": _PART})
# `update` is what 0.3's proto calls the message of a status; a session is what later is a context.
_STATUS = _plan(raw.RawStatus, {"message": _MESSAGE}, update="message")
_RESULTS = {"status": _STATUS, "artifact": _ARTIFACT, "artifacts": _ARTIFACT, "history": _MESSAGE}

_PLANS: dict[type[raw.RawStruct], MemberPlan] = {
    raw.RawSend: _plan(
        raw.RawSend, {"message": _MESSAGE, "request": _MESSAGE, "configuration": _CONFIGURATION}
    ),
    raw.RawTaskQuery: _plan(raw.RawTaskQuery),
    raw.RawListQuery: _plan(raw.RawListQuery),
    raw.RawPushRequest: _plan(
        raw.RawPushRequest,
        {"authentication": _AUTHENTICATION, "pushNotificationConfig": _PUSH, "config": _PUSH_ENVELOPE},
    ),
    raw.RawPushQuery: _plan(raw.RawPushQuery),
    raw.RawMessage: _MESSAGE,
    raw.RawTask: _plan(raw.RawTask, _RESULTS, sessionId="contextId"),
    raw.RawUpdate: _plan(raw.RawUpdate, _RESULTS, sessionId="contextId"),
}


def read_params(decoder: msgspec.json.Decoder[S], struct: type[S], params: bytes | Raw | None) -> S:
    """The raw struct of params as they came; none are the same as empty ones.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member does not fit.
    """
    body = b"{}" if params is None else bytes(params)
    check_structure(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return _read_normalized(struct, body)
    except DECODE_ERRORS as error:
        raise parse_error(error) from None


def _read_normalized(struct: type[S], body: bytes) -> S:
    try:
        value = msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise parse_error(error) from None
    try:
        return msgspec.convert(_normalize(value, _PLANS[struct]), struct)
    except msgspec.ValidationError as error:
        raise invalid_params(error, "params") from None


def read_query(struct: type[S], query: dict[str, str]) -> S:
    """The raw struct of a query string in camelCase or snake_case; an empty value is an absent one.

    Raises:
        InvalidParams: a parameter does not fit.
    """
    given = {name: text for name, text in query.items() if text}
    try:
        return msgspec.convert(_normalize(given, _PLANS[struct]), struct, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_params(error, "query") from None


def _normalize(value: Any, plan: MemberPlan) -> Any:
    """The same value with every known member under its one name; wrong types are left to be refused."""
    if isinstance(value, list):
        return [_normalize(item, plan) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for spelling, member in cast("dict[str, Any]", value).items():
        name = plan.names.get(spelling)
        if name is None:
            kept[spelling] = member
        elif spelling == name or name not in value:
            # When both spellings are there, the proper one is the truth.
            known[name] = _normalize(member, plan.inner[name]) if name in plan.inner else member
    if kept and plan.keeps:
        known[raw.EXTRA] = kept
    return known
