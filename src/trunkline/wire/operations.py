"""The operations of A2A, whatever the binding, and their JSON-RPC method names in both versions."""

from __future__ import annotations

from enum import Enum, auto


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
