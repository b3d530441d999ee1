"""REST paths → operations, and the error bodies of both REST dialects.

Paths are relative to the base and already percent-decoded.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from trunkline.errors import Refused, RouteNotFound
from trunkline.wire.codes import code_of
from trunkline.wire.details import Detail, details
from trunkline.wire.operations import Operation

_ID_LIMIT = 256


class RestCall(Struct, frozen=True):
    """Where a request goes. `v1_prefixed` tells that it came by `/v1/…`, the routes of 0.3."""

    operation: Operation
    task_id: str = ""
    config_id: str = ""
    tenant: str = ""
    v1_prefixed: bool = False


class _Place(Struct, frozen=True):
    verbs: dict[str, Operation]
    task_id: str = ""
    config_id: str = ""


_SUBSCRIBE = {"GET": Operation.SUBSCRIBE, "POST": Operation.SUBSCRIBE}
_CARD = {"GET": Operation.EXTENDED_CARD}
_FIXED: dict[tuple[str, ...], dict[str, Operation]] = {
    ("message:send",): {"POST": Operation.SEND},
    ("message:stream",): {"POST": Operation.STREAM},
    ("tasks",): {"GET": Operation.LIST},
    ("extendedAgentCard",): _CARD,
    ("card",): _CARD,
}
_ACTIONS = {"cancel": {"POST": Operation.CANCEL}, "subscribe": _SUBSCRIBE}
_TASK = {"GET": Operation.GET}
_CONFIGS = {"GET": Operation.PUSH_LIST, "POST": Operation.PUSH_SET}
_CONFIG = {"GET": Operation.PUSH_GET, "DELETE": Operation.PUSH_DELETE}


def match(method: str, path: str) -> RestCall:
    """The call behind a verb and a path.

    Raises:
        RouteNotFound: no such path; or, with `allow` set, not with this verb.
    """
    segments = tuple(path.removeprefix("/").split("/"))
    prefixed = segments[0] == "v1"
    tenant = ""
    place = _place(segments[1:] if prefixed else segments)
    if place is None and not prefixed and _is_id(segments[0]):
        tenant = segments[0]
        place = _place(segments[1:])
    if place is None:
        raise RouteNotFound("no such path here; the card names the interfaces")
    operation = place.verbs.get(method)
    if operation is None:
        allow = ", ".join(place.verbs)
        raise RouteNotFound(f"this path takes {allow} only", allow=allow)
    return RestCall(operation, place.task_id, place.config_id, tenant, prefixed)


def _place(segments: tuple[str, ...]) -> _Place | None:
    fixed = _FIXED.get(segments)
    if fixed is not None:
        return _Place(fixed)
    match segments:
        case ("tasks", last):
            task_id, colon, action = last.partition(":")
            verbs = _ACTIONS.get(action) if colon else _TASK
            return _Place(verbs, task_id) if verbs is not None and _is_id(task_id) else None
        case ("tasks", task_id, "pushNotificationConfigs") if _is_id(task_id):
            return _Place(_CONFIGS, task_id)
        case ("tasks", task_id, "pushNotificationConfigs", config) if _is_id(task_id) and _is_id(config):
            return _Place(_CONFIG, task_id, config)
        case _:
            return None


def _is_id(text: str) -> bool:
    # A colon would begin an action; dots alone and backslashes are somebody climbing the path.
    odd = ":" in text or "\\" in text or text in {".", ".."}
    return 0 < len(text) <= _ID_LIMIT and text.isprintable() and not odd


class _Status(Struct, frozen=True):
    code: int
    status: str
    message: str
    details: tuple[Detail, ...]


class _StatusBody(Struct, frozen=True):
    error: _Status


class _Body03(Struct, frozen=True):
    code: int
    message: str
    type: str
    data: tuple[Detail, ...]


def _wrong_verb(refused: Refused) -> bool:
    return isinstance(refused, RouteNotFound) and bool(refused.allow)


def error_v1(refused: Refused) -> tuple[int, bytes]:
    """HTTP status and google.rpc.Status body, as 1.0 has it."""
    code = code_of(refused)
    http, grpc = (405, "UNIMPLEMENTED") if _wrong_verb(refused) else (code.http, code.grpc)
    return http, msgspec.json.encode(_StatusBody(_Status(http, grpc, refused.message, details(refused))))


def error_v03(refused: Refused) -> tuple[int, bytes]:
    """HTTP status and body for 0.3, whose clients read `message` and `type`."""
    code = code_of(refused)
    http = 405 if _wrong_verb(refused) else code.http_03
    return http, msgspec.json.encode(_Body03(code.rpc, refused.message, code.name_03, details(refused)))
