"""The codes of refusals, as HTTP tells them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from trunkline.errors import (
    FlowInvalid,
    FlowRefused,
    Forbidden,
    InternalError,
    InvalidParams,
    Refused,
    RouteNotFound,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)

JSON = b"application/json"
_NOT_FOUND = frozenset({"EXECUTION_NOT_FOUND", "WORKFLOW_NOT_FOUND", "NOT_FOUND"})
_CONFLICT = frozenset(
    {
        "DUPLICATE_EXECUTION_ID", "DUPLICATE_WORKFLOW_ID", "ACTIVITY_SUBMIT_NOT_AWAITING",
        "ACTIVITY_SUBMIT_NODE_MISMATCH", "ACTIVITY_SUBMIT_PARALLEL_MISMATCH", "SIGNAL_NOT_AWAITING",
        "SIGNAL_NAME_MISMATCH", "CANCEL_NOT_ALLOWED",
    }
)  # fmt: skip
FAILED_STATUS = 422


def status_of(code: str) -> int:
    """The HTTP status of a call that was refused with a code; whatever a caller got wrong is 400."""
    if code in _NOT_FOUND:
        return 404
    if code in _CONFLICT:
        return 409
    if code == "AUTH_FORBIDDEN":
        return 403
    return 500 if code == "INTERNAL_ERROR" else 400


def error_body(code: str, message: str, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of an error."""
    error: dict[str, Any] = {"code": code, "message": message}
    return {"error": {**error, "details": details} if details else error}


def details_of(refused: FlowRefused) -> dict[str, Any]:
    """The `details` of an error body: all that a refusal carries besides code and message."""
    if isinstance(refused, FlowInvalid) and refused.diagnostics:
        return {**refused.details, "errors": [msgspec.to_builtins(one) for one in refused.diagnostics]}
    return refused.details


def write_refusal(refused: Refused) -> tuple[int, bytes, bytes]:
    """Status, body and media type of what the host's door refuses."""
    status, code, details = _told(refused)
    return status, msgspec.json.encode(error_body(code, refused.message, details)), JSON


def _told(refused: Refused) -> tuple[int, str, dict[str, Any]]:
    match refused:
        case Unauthenticated():
            return 401, "AUTH_ERROR", {"reason": "missing_or_invalid"}
        case Forbidden():
            needed = refused.details.get("scope", "")
            granted = refused.details.get("granted", "").split()
            scopes = {"required_scope": needed, "granted_scopes": granted}
            return 403, "AUTH_FORBIDDEN", {"reason": "insufficient_scope", **scopes} if needed else {}
        case RouteNotFound():
            return (405 if refused.allow else 404), "NOT_FOUND", {}
        case TooLarge():
            return 413, "VALIDATION_ERROR", {}
        case TooManyRequests():
            return 429, "TOO_MANY_REQUESTS", {"limit": refused.field} if refused.field else {}
        case Unavailable():
            return 503, "UNAVAILABLE", {}
        case InternalError():
            return 500, "INTERNAL_ERROR", {}
        case InvalidParams() if conflict := refused.details.get("conflict"):
            return 409, conflict, {"field": refused.field}
        case _:
            return 400, "VALIDATION_ERROR", {"field": refused.field} if refused.field else {}
