"""REST paths → operations, and the error bodies of both REST dialects.

Paths are relative to the base and already percent-decoded.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from trunkline.errors import Refused, RouteNotFound
from trunkline.wire.codes import Detail, code_of, details
from trunkline.wire.operations import Operation

_ID_LIMIT = 256


class RestCall(Struct, frozen=True):
    """The operation and the ids in a REST path. `v1_prefixed`: it came by `/v1/…`, the routes of 0.3."""

    operation: Operation
    task_id: str = ""
    config_id: str = ""
    tenant: str = ""
    v1_prefixed: bool = False


class _MatchedPath(Struct, frozen=True):
    verbs: dict[str, Operation]
    task_id: str = ""
    config_id: str = ""


_CARD = {"GET": Operation.EXTENDED_CARD}
_FIXED: dict[tuple[str, ...], dict[str, Operation]] = {
    ("message:send",): {"POST": Operation.SEND},
    ("message:stream",): {"POST": Operation.STREAM},
    ("tasks",): {"GET": Operation.LIST},
    ("extendedAgentCard",): _CARD,
    ("card",): _CARD,
}
_CONFIGS = "pushNotificationConfigs"
# Stand for an id in the table below; `_matched` puts them into a path before it looks the path up.
_TASK_AT, _CONFIG_AT = "{task}", "{config}"
_OF_TASKS: dict[tuple[str, ...], dict[str, Operation]] = {
    ("tasks", _TASK_AT): {"GET": Operation.GET},
    ("tasks", _TASK_AT + ":cancel"): {"POST": Operation.CANCEL},
    ("tasks", _TASK_AT + ":subscribe"): {"GET": Operation.SUBSCRIBE, "POST": Operation.SUBSCRIBE},
    ("tasks", _TASK_AT, _CONFIGS): {"GET": Operation.PUSH_LIST, "POST": Operation.PUSH_SET},
    ("tasks", _TASK_AT, _CONFIGS, _CONFIG_AT): {"GET": Operation.PUSH_GET, "DELETE": Operation.PUSH_DELETE},
}


def routes() -> list[tuple[str, str, Operation]]:
    """Every verb and path there is; `/v1` or a tenant may stand before each path."""
    return [
        (verb, "/" + "/".join(segments), operation)
        for segments, verbs in {**_FIXED, **_OF_TASKS}.items()
        for verb, operation in verbs.items()
    ]


def match(method: str, path: str) -> RestCall:
    """The call behind a verb and a path.

    Raises:
        RouteNotFound: no such path; or, with `allow` set, not with this verb.
    """
    segments = tuple(path.removeprefix("/").split("/"))
    prefixed = segments[0] == "v1"
    tenant = ""
    matched = _matched(segments[1:] if prefixed else segments)
    if matched is None and not prefixed and _is_id(segments[0]):
        tenant = segments[0]
        matched = _matched(segments[1:])
    if matched is None:
        raise RouteNotFound("no such path here; the card names the interfaces")
    operation = matched.verbs.get(method)
    if operation is None:
        allow = ", ".join(matched.verbs)
        raise RouteNotFound(f"this path takes {allow} only", allow=allow)
    return RestCall(operation, matched.task_id, matched.config_id, tenant, prefixed)


def _matched(segments: tuple[str, ...]) -> _MatchedPath | None:
    fixed = _FIXED.get(segments)
    if fixed is not None:
        return _MatchedPath(fixed)
    if not 2 <= len(segments) <= 4:
        return None
    task_id, colon, action = segments[1].partition(":")
    config_id = segments[3] if len(segments) == 4 else ""
    pattern = (
        segments[0],
        _TASK_AT + colon + action,
        *segments[2:3],
        *((_CONFIG_AT,) if segments[3:] else ()),
    )
    verbs = _OF_TASKS.get(pattern)
    if verbs is None or not _is_id(task_id) or (segments[3:] and not _is_id(config_id)):
        return None
    return _MatchedPath(verbs, task_id, config_id)


def _is_id(text: str) -> bool:
    # A colon would begin an action; dots alone and backslashes are somebody climbing the path.
    odd = ":" in text or "\\" in text or text in {".", ".."}
    return 0 < len(text) <= _ID_LIMIT and text.isprintable() and not odd


class _RpcStatus(Struct, frozen=True):
    code: int
    status: str
    message: str
    details: tuple[Detail, ...]


class _StatusBody(Struct, frozen=True):
    error: _RpcStatus


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
    return http, msgspec.json.encode(_StatusBody(_RpcStatus(http, grpc, refused.message, details(refused))))


def error_v03(refused: Refused) -> tuple[int, bytes]:
    """HTTP status and body for 0.3, whose clients read `message` and `type`."""
    code = code_of(refused)
    http = 405 if _wrong_verb(refused) else code.http_03
    return http, msgspec.json.encode(_Body03(code.rpc, refused.message, code.name_03, details(refused)))
