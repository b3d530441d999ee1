"""The machine-readable half of an error: google.rpc ErrorInfo and BadRequest, the same on every binding."""

from __future__ import annotations

from msgspec import Struct

from trunkline.errors import Refused
from trunkline.wire.codes import code_of

_DOMAIN = "a2a-protocol.org"
_TYPES = "type.googleapis.com/google.rpc."


class ErrorInfo(Struct, frozen=True, tag_field="@type", tag=_TYPES + "ErrorInfo"):
    """Why, in one word that programs compare; metadata values are always strings."""

    reason: str
    domain: str
    metadata: dict[str, str]


class FieldViolation(Struct, frozen=True):
    """A member and what is wrong with it."""

    field: str
    description: str


class BadRequest(Struct, frozen=True, rename="camel", tag_field="@type", tag=_TYPES + "BadRequest"):
    """Which member of the request is at fault."""

    field_violations: tuple[FieldViolation, ...]


Detail = ErrorInfo | BadRequest


def details(refused: Refused) -> tuple[Detail, ...]:
    """ErrorInfo, and BadRequest when the refusal names a field."""
    info = ErrorInfo(code_of(refused).reason, _DOMAIN, refused.details)
    if not refused.field:
        return (info,)
    return (info, BadRequest((FieldViolation(refused.field, refused.message),)))
