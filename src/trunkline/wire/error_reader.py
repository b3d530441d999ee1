"""Reads the errors of other agents, of whatever form: the table of codes, backwards.

The reason of an ErrorInfo tells most, then the name or the code of an error, then the HTTP status.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline import errors as e
from trunkline.wire.codes import CODES
from trunkline.wire.decode import DECODE_ERRORS, check_structure

EXCERPT = 200
_CAPITAL = re.compile(r"([A-Z])")
_MAX_WAIT_S = 3600.0
_MAX_TEXT = 2000
_MAX_DETAILS = 32

_BY_REASON = {code.reason: error for error, code in CODES.items()}
# Where two classes share a code, the first of the table is meant by who gives no reason.
_BY_CODE = {code.rpc: error for error, code in reversed(CODES.items())}
_BY_NAME = {
    code.name_03.lower().removesuffix("error").replace("agentcard", "card"): error
    for error, code in reversed(CODES.items())
}
_BY_STATUS: dict[int, type[e.Refused]] = {
    401: e.Unauthenticated,
    403: e.Forbidden,
    404: e.RouteNotFound,
    405: e.RouteNotFound,
    409: e.TaskNotCancelable,
    413: e.TooLarge,
    415: e.ContentTypeNotSupported,
    422: e.InvalidParams,
    429: e.TooManyRequests,
    501: e.UnsupportedOperation,
    503: e.Unavailable,
}
# These statuses say more than a code that stands for anything.
_CLEAR_STATUSES = frozenset({401, 403, 413, 429, 503})
_VAGUE_CODES = frozenset({-32603, -32600})


class ErrorContent(Struct, frozen=True):
    """What an error says, wherever in the answer it stood: the input of `refusal_of`."""

    message: str = ""
    code: int = 0
    name: str = ""
    reason: str = ""
    field: str = ""
    metadata: dict[str, str] = {}


def excerpt(body: bytes) -> str:
    """The beginning of a body, fit for a line of a log or a terminal."""
    shown = _clean(body[: 4 * EXCERPT].decode(errors="replace")).strip()
    return shown if len(shown) <= EXCERPT else f"{shown[:EXCERPT]}…"


def _clean(text: str) -> str:
    # An error may be as long as an answer; letter by letter that takes a second.
    text = text[:_MAX_TEXT]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def read_http_error(
    status: int, headers: dict[str, str], body: bytes, *, of_task: bool = False, host: str = ""
) -> e.Refused:
    """The refusal in an answer with an error status, JSON or not; `of_task`: a task was in its path.

    Where the answer says nothing itself, `host` is named, which may be a gateway and not the agent.
    """
    content = read_content(decode_leniently(body))
    if of_task and status == 404 and not content.reason and "task" in content.message.lower():
        return e.TaskNotFound(_clean(content.message))
    if 300 <= status < 400:
        where = headers.get("location", "")[:EXCERPT] or "nowhere"
        moved = f"HTTP {status}: it sends callers on to {where}; if that is the agent, give that URL"
        content = msgspec.structs.replace(content, message=moved)
    elif not content.message:
        said = excerpt(body)
        answered = f"HTTP {status} from {host}" if host else f"HTTP {status}"
        content = msgspec.structs.replace(content, message=f"{answered}: {said}" if said else answered)
    return refusal_of(content, status, headers)


def read_rpc_error(error: object) -> e.Refused:
    """The refusal in the `error` of a JSON-RPC answer."""
    return refusal_of(read_content(error), 200, {})


def read_content(value: object) -> ErrorContent:
    """What an error of any shape says: JSON-RPC's, google.rpc.Status, problem details, text."""
    if isinstance(value, str):
        return ErrorContent(message=value)
    if not isinstance(value, dict):
        return ErrorContent()
    given = cast("dict[str, Any]", value)
    inner = given.get("error")
    if isinstance(inner, dict):
        return read_content(cast("object", inner))
    message = text(given, "message", "detail", "title", "error", "error_description")
    code = given.get("code")
    info, field = _details(given.get("details"), given.get("data"))
    metadata = as_object(info.get("metadata"))
    return ErrorContent(
        message,
        code if isinstance(code, int) and not isinstance(code, bool) else 0,
        text(given, "type", "name"),
        text(info, "reason") or text(given, "reason"),
        field,
        {name: value for name, value in metadata.items() if isinstance(value, str)},
    )


def refusal_of(content: ErrorContent, status: int, headers: dict[str, str]) -> e.Refused:
    """The exception of the class that stands for an error, with what the error says."""
    found = _class(content, status)
    # It goes into logs and onto terminals, and its sender may be anybody.
    message = _clean(content.message) or f"no reason given (code {content.code or status})"
    if found is e.TooManyRequests:
        return e.TooManyRequests(message, retry_after_s=_seconds(headers.get("retry-after", "")))
    if found is e.RouteNotFound:
        return e.RouteNotFound(message, allow=headers.get("allow", ""))
    if found is None or found is e.PeerError:
        return e.PeerError(message, code=content.code or status)
    details = {
        _clean(name): _clean(value)
        for name, value in list(content.metadata.items())[:_MAX_DETAILS]
        if name not in {"message", "field", "self"}
    }
    if found is e.Unavailable and "retry-after" in headers:
        details["retryAfter"] = f"{_seconds(headers['retry-after']):.0f}"
    if found is e.Unavailable and (content.reason or content.code):
        details["reason"] = _clean(content.reason) or str(content.code)
    return found(message, field=_clean(content.field), **details)


def _class(content: ErrorContent, status: int) -> type[e.Refused] | None:
    by_reason = _BY_REASON.get(content.reason)
    if by_reason is not None:
        return by_reason
    if status in _CLEAR_STATUSES and (content.code in _VAGUE_CODES or content.code not in _BY_CODE):
        return _BY_STATUS[status]
    words = content.message.lower()
    found = _BY_NAME.get(_bare_name(content.name)) if content.name else None
    found = found or _BY_CODE.get(content.code)
    if found is e.ExtendedCardNotConfigured and "version" in words:
        # An agent in the field says this number for a version that it does not speak.
        return e.VersionNotSupported
    if found is e.TaskNotFound and ("terminal" in words or "cancelable" in words or "cancellable" in words):
        # And one that a task is not there when it only cannot be canceled any more.
        return e.TaskNotCancelable
    return found if found is not None or content.code < 0 else _BY_STATUS.get(status)


def _bare_name(name: str) -> str:
    """`TaskNotFoundError`, `TASK_NOT_FOUND` and `https://…/errors/task-not-found` are one name."""
    last = name.rstrip("/").rpartition("/")[2].lower()
    letters = "".join(letter for letter in last if letter.isalnum())
    return letters.removesuffix("error").replace("agentcard", "card").replace("cancellable", "cancelable")


def _details(*places: object) -> tuple[dict[str, Any], str]:
    """The ErrorInfo and the first field at fault among the details, whatever holds them."""
    info: dict[str, Any] = {}
    field = ""
    for place in places:
        for known in map(as_object, as_list(place) or [place]):
            if isinstance(known.get("reason"), str):
                info = info or known
            violations = as_list(take(known, "fieldViolations"))
            field = field or text(as_object(violations[0] if violations else None), "field")
    return info, field


def take(given: dict[str, Any], name: str) -> object:
    """A member by its name in JSON, or as Python and the proto spell it."""
    found = given.get(name)
    return given.get(_CAPITAL.sub(r"_\1", name).lower()) if found is None else found


def text(given: dict[str, Any], *names: str) -> str:
    """The first of these members that is a text and not empty; nothing if none is."""
    found = [take(given, name) for name in names]
    return next((one for one in found if isinstance(one, str) and one), "")


def as_object(value: object) -> dict[str, Any]:
    """What anybody may have sent as an object; an empty one if it is none."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """What anybody may have sent as a list; an empty one if it is none."""
    return cast("list[object]", value) if isinstance(value, list) else []


def decode_leniently(body: bytes) -> object:
    """The JSON in a body that anybody may have sent; None if it is none, or nests or holds too much."""
    try:
        check_structure(body)
        return msgspec.json.decode(body)
    except (*DECODE_ERRORS, e.ParseError):
        return None


def _seconds(text: str) -> float:
    """Retry-After in seconds; a date counts as one second, as clocks of two machines differ."""
    try:
        return min(max(0.0, float(text)), _MAX_WAIT_S)
    except ValueError:
        return 1.0
