"""The operations of A2A, whatever the binding: names of JSON-RPC methods in both versions, REST paths.

Paths are relative to the base and already percent-decoded.
"""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from trunkline.errors import RouteNotFound


class Operation(Enum):
    """The eleven operations of A2A."""

    __hash__ = object.__hash__

    SEND = auto()
    STREAM = auto()
    GET = auto()
    LIST = auto()
    CANCEL = auto()
    SUBSCRIBE = auto()
    PUSH_SET = auto()
    PUSH_GET = auto()
    PUSH_LIST = auto()
    PUSH_DELETE = auto()
    EXTENDED_CARD = auto()


METHODS_V1: dict[str, Operation] = {
    "SendMessage": Operation.SEND,
    "SendStreamingMessage": Operation.STREAM,
    "GetTask": Operation.GET,
    "ListTasks": Operation.LIST,
    "CancelTask": Operation.CANCEL,
    "SubscribeToTask": Operation.SUBSCRIBE,
    "CreateTaskPushNotificationConfig": Operation.PUSH_SET,
    "GetTaskPushNotificationConfig": Operation.PUSH_GET,
    "ListTaskPushNotificationConfigs": Operation.PUSH_LIST,
    "DeleteTaskPushNotificationConfig": Operation.PUSH_DELETE,
    "GetExtendedAgentCard": Operation.EXTENDED_CARD,
}

METHODS_V03: dict[str, Operation] = {
    "message/send": Operation.SEND,
    "message/stream": Operation.STREAM,
    "message/sendStream": Operation.STREAM,
    "tasks/get": Operation.GET,
    "tasks/list": Operation.LIST,
    "tasks/cancel": Operation.CANCEL,
    "tasks/resubscribe": Operation.SUBSCRIBE,
    "tasks/subscribe": Operation.SUBSCRIBE,
    "tasks/pushNotificationConfig/set": Operation.PUSH_SET,
    "tasks/pushNotificationConfig/get": Operation.PUSH_GET,
    "tasks/pushNotificationConfig/list": Operation.PUSH_LIST,
    "tasks/pushNotificationConfig/delete": Operation.PUSH_DELETE,
    # The names of 0.2 and before, still sent by old clients.
    "tasks/pushNotification/set": Operation.PUSH_SET,
    "tasks/pushNotification/get": Operation.PUSH_GET,
    "agent/getAuthenticatedExtendedCard": Operation.EXTENDED_CARD,
}

# What an operation is called, whatever name it came by.
NAMES: dict[Operation, str] = {operation: name for name, operation in METHODS_V1.items()}

_ID_LIMIT = 256
# Stand for ids in the table below; `_matched` puts them into a path before it looks the path up.
_TASK_AT, _CONFIG_AT = "{task}", "{config}"
_CONFIGS = "pushNotificationConfigs"
_PATHS: dict[tuple[str, ...], dict[str, Operation]] = {
    ("message:send",): {"POST": Operation.SEND},
    ("message:stream",): {"POST": Operation.STREAM},
    ("tasks",): {"GET": Operation.LIST},
    ("extendedAgentCard",): {"GET": Operation.EXTENDED_CARD},
    ("card",): {"GET": Operation.EXTENDED_CARD},
    ("tasks", _TASK_AT): {"GET": Operation.GET},
    ("tasks", _TASK_AT + ":cancel"): {"POST": Operation.CANCEL},
    ("tasks", _TASK_AT + ":subscribe"): {"GET": Operation.SUBSCRIBE, "POST": Operation.SUBSCRIBE},
    ("tasks", _TASK_AT, _CONFIGS): {"GET": Operation.PUSH_LIST, "POST": Operation.PUSH_SET},
    ("tasks", _TASK_AT, _CONFIGS, _CONFIG_AT): {"GET": Operation.PUSH_GET, "DELETE": Operation.PUSH_DELETE},
}


class RestCall(Struct, frozen=True):
    """The operation and the ids in a REST path. `v1_prefixed`: it came by `/v1/…`, the routes of 0.3."""

    operation: Operation
    task_id: str = ""
    config_id: str = ""
    tenant: str = ""
    v1_prefixed: bool = False


def routes() -> list[tuple[str, str, Operation]]:
    """Every verb and path there is; `/v1` or a tenant may stand before each path."""
    return [
        (verb, "/" + "/".join(segments), operation)
        for segments, verbs in _PATHS.items()
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
    verbs, task_id, config_id = matched
    operation = verbs.get(method)
    if operation is None:
        allow = ", ".join(verbs)
        raise RouteNotFound(f"this path takes {allow} only", allow=allow)
    return RestCall(operation, task_id, config_id, tenant, prefixed)


def _matched(segments: tuple[str, ...]) -> tuple[dict[str, Operation], str, str] | None:
    """The verbs of a path, its task and its config; None if there is no such path."""
    if len(segments) < 2:
        verbs = _PATHS.get(segments)
        return None if verbs is None else (verbs, "", "")
    task_id, colon, action = segments[1].partition(":")
    pattern = (segments[0], _TASK_AT + colon + action, *segments[2:])
    config_id = ""
    if len(segments) == 4:
        pattern, config_id = (*pattern[:3], _CONFIG_AT), segments[3]
    verbs = _PATHS.get(pattern)
    if verbs is None or not _is_id(task_id) or (segments[3:] and not _is_id(config_id)):
        return None
    return verbs, task_id, config_id


def _is_id(text: str) -> bool:
    # A colon would begin an action; dots alone and backslashes are somebody climbing the path.
    odd = ":" in text or "\\" in text or text in {".", ".."}
    return 0 < len(text) <= _ID_LIMIT and text.isprintable() and not odd
