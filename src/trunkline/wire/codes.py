"""How an error looks on the wire: one table of codes for every binding, and the details beside a code.

The details are google.rpc ErrorInfo and BadRequest, the same on every binding. Who speaks plain HTTP and no
A2A gets problem details (RFC 9457).
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from msgspec import Struct

from trunkline import errors as e

_DOMAIN = "a2a-protocol.org"
_TYPES = "type.googleapis.com/google.rpc."
PROBLEM = b"application/problem+json"
# What gRPC calls a request that the state of an agent or a task does not allow.
_UNMET = "FAILED_PRECONDITION"
# The code for an agent that does not exist, in place of the code for a missing path.
AGENT_NOT_FOUND = "AGENT_NOT_FOUND"


class Code(Struct, frozen=True):
    """The codes and names of one error class on each binding."""

    rpc: int
    reason: str
    http: int
    grpc: str
    http_03: int
    name_03: str


CODES: dict[type[e.Refused], Code] = {
    e.ParseError: Code(-32700, "PARSE_ERROR", 400, "INVALID_ARGUMENT", 400, "JSONParseError"),
    e.InvalidRequest: Code(-32600, "INVALID_REQUEST", 400, "INVALID_ARGUMENT", 400, "InvalidRequestError"),
    e.MethodNotFound: Code(-32601, "METHOD_NOT_FOUND", 404, "NOT_FOUND", 404, "MethodNotFoundError"),
    e.InvalidParams: Code(-32602, "INVALID_PARAMS", 400, "INVALID_ARGUMENT", 400, "InvalidParamsError"),
    e.InternalError: Code(-32603, "INTERNAL", 500, "INTERNAL", 500, "InternalError"),
    e.TaskNotFound: Code(-32001, "TASK_NOT_FOUND", 404, "NOT_FOUND", 404, "TaskNotFoundError"),
    e.TaskNotCancelable: Code(-32002, "TASK_NOT_CANCELABLE", 400, _UNMET, 409, "TaskNotCancelableError"),
    e.PushNotSupported: Code(
        -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 400, _UNMET, 501, "PushNotificationNotSupportedError"
    ),
    e.UnsupportedOperation: Code(
        -32004, "UNSUPPORTED_OPERATION", 400, _UNMET, 501, "UnsupportedOperationError"
    ),
    e.ContentTypeNotSupported: Code(
        -32005, "CONTENT_TYPE_NOT_SUPPORTED", 400, "INVALID_ARGUMENT", 415, "ContentTypeNotSupportedError"
    ),
    e.ExtendedCardNotConfigured: Code(
        -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, _UNMET, 404, "ExtendedAgentCardNotConfiguredError"
    ),
    e.VersionNotSupported: Code(
        -32009, "VERSION_NOT_SUPPORTED", 400, _UNMET, 400, "VersionNotSupportedError"
    ),
    e.Unauthenticated: Code(-32010, "UNAUTHENTICATED", 401, "UNAUTHENTICATED", 401, "UnauthenticatedError"),
    e.Forbidden: Code(-32011, "PERMISSION_DENIED", 403, "PERMISSION_DENIED", 403, "ForbiddenError"),
    e.TooLarge: Code(-32600, "BODY_TOO_LARGE", 413, "INVALID_ARGUMENT", 413, "InvalidRequestError"),
    e.RouteNotFound: Code(-32601, "ROUTE_NOT_FOUND", 404, "NOT_FOUND", 404, "RouteNotFoundError"),
    e.TooManyRequests: Code(-32012, "RATE_LIMITED", 429, "RESOURCE_EXHAUSTED", 429, "TooManyRequestsError"),
    e.PeerError: Code(-32603, "PEER_ERROR", 502, "UNAVAILABLE", 502, "PeerError"),
    e.Unavailable: Code(-32603, "UNAVAILABLE", 503, "UNAVAILABLE", 503, "UnavailableError"),
}


def code_of(error: e.Refused) -> Code:
    """The row of the table for an error's class."""
    return CODES[type(error)]


class ErrorInfo(Struct, frozen=True, tag_field="@type", tag=_TYPES + "ErrorInfo"):
    """The reason of an error in one word that programs compare; metadata values are always strings."""

    reason: str
    domain: str
    metadata: dict[str, str]


class FieldViolation(Struct, frozen=True):
    """A member of the request and what is wrong with it."""

    field: str
    description: str


class BadRequest(Struct, frozen=True, rename="camel", tag_field="@type", tag=_TYPES + "BadRequest"):
    """Which member of the request is at fault."""

    field_violations: tuple[FieldViolation, ...]


Detail = ErrorInfo | BadRequest


def details(refused: e.Refused) -> tuple[Detail, ...]:
    """The details of a refusal: ErrorInfo, and BadRequest when it names a field."""
    info = ErrorInfo(code_of(refused).reason, _DOMAIN, refused.details)
    if not refused.field:
        return (info,)
    return (info, BadRequest((FieldViolation(refused.field, refused.message),)))


def _is_wrong_verb(refused: e.Refused) -> bool:
    return isinstance(refused, e.RouteNotFound) and bool(refused.allow)


def rest_error_v1(refused: e.Refused) -> tuple[int, bytes]:
    """HTTP status and google.rpc.Status body, as REST 1.0 has it."""
    code = code_of(refused)
    http, grpc = (405, "UNIMPLEMENTED") if _is_wrong_verb(refused) else (code.http, code.grpc)
    status = {"code": http, "status": grpc, "message": refused.message, "details": details(refused)}
    return http, msgspec.json.encode({"error": status})


def rest_error_v03(refused: e.Refused) -> tuple[int, bytes]:
    """HTTP status and body for REST 0.3, whose clients read `message` and `type`."""
    code = code_of(refused)
    body = {"code": code.rpc, "message": refused.message, "type": code.name_03, "data": details(refused)}
    return 405 if _is_wrong_verb(refused) else code.http_03, msgspec.json.encode(body)


class Problem(Struct, frozen=True, omit_defaults=True):
    """What is wrong with a request; `code` is the word that programs compare, `field` the member at fault."""

    status: int
    title: str
    detail: str
    code: str
    field: str = ""


def problem_of(refused: e.Refused) -> Problem:
    """The problem details of a refusal; one that the state of a task causes is a conflict."""
    code = code_of(refused)
    conflict = refused.details.get("conflict", "")
    if conflict or isinstance(refused, e.TaskNotCancelable | e.UnsupportedOperation):
        status = HTTPStatus.CONFLICT
    elif _is_wrong_verb(refused):
        status = HTTPStatus.METHOD_NOT_ALLOWED
    else:
        status = HTTPStatus(415 if refused.field == "Content-Encoding" else code.http)
    named = conflict or reason_of(refused)
    return Problem(status.value, status.phrase, refused.message, named, refused.field)


def reason_of(refused: e.Refused) -> str:
    """Return the reason of a refusal, which for an unknown resource names its kind."""
    missing = refused.missing if isinstance(refused, e.RouteNotFound) else ""
    return missing or code_of(refused).reason


def write_problem(refused: e.Refused) -> tuple[int, bytes, bytes]:
    """Status, body and media type of a refusal."""
    problem = problem_of(refused)
    return problem.status, msgspec.json.encode(problem), PROBLEM
