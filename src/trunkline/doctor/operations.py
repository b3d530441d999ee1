"""The operations of A2A as each version and binding spells them. Parameters come in as 1.0 has them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from trunkline.doctor.json_access import members, objects

# operation → its method in 1.0 and in 0.3.
METHODS: dict[str, tuple[str, str]] = {
    "send": ("SendMessage", "message/send"),
    "stream": ("SendStreamingMessage", "message/stream"),
    "get": ("GetTask", "tasks/get"),
    "list": ("ListTasks", "tasks/list"),
    "cancel": ("CancelTask", "tasks/cancel"),
    "subscribe": ("SubscribeToTask", "tasks/resubscribe"),
    "push-set": ("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set"),
    "push-get": ("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get"),
    "push-list": ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list"),
    "push-delete": ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete"),
    "extended-card": ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"),
}
_ROUTES: dict[str, tuple[str, str]] = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{id}"),
    "list": ("GET", "/tasks"),
    "cancel": ("POST", "/tasks/{id}:cancel"),
    "subscribe": ("POST", "/tasks/{id}:subscribe"),
    "push-set": ("POST", "/tasks/{taskId}/pushNotificationConfigs"),
    "push-get": ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "push-list": ("GET", "/tasks/{taskId}/pushNotificationConfigs"),
    "push-delete": ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}"),
    "extended-card": ("GET", "/extendedAgentCard"),
}


class OperationRoute(Struct, frozen=True):
    """An operation over HTTP+JSON: verb, path with its query, and body."""

    verb: str
    path: str
    body: dict[str, Any] | None


def method(operation: str, version: str) -> str:
    """The JSON-RPC method of an operation."""
    return METHODS[operation][0 if version == "1.0" else 1]


def params(operation: str, given: dict[str, Any], version: str) -> dict[str, Any]:
    """The parameters of an operation as this version has them."""
    if version == "1.0":
        return given
    if operation in ("send", "stream"):
        return _send(given)
    if operation == "push-set":
        config = {name: value for name, value in given.items() if name != "taskId"}
        return {"taskId": given.get("taskId"), "pushNotificationConfig": config}
    if operation in ("push-get", "push-delete"):
        return {"id": given.get("taskId"), "pushNotificationConfigId": given.get("id")}
    if operation == "push-list":
        return {"id": given.get("taskId")}
    return given


def _send(given: dict[str, Any]) -> dict[str, Any]:
    found = dict(given)
    if isinstance(given.get("message"), dict):
        found["message"] = _message(members(given["message"]))
    if isinstance(given.get("configuration"), dict):
        configuration = dict(members(given["configuration"]))
        configuration["blocking"] = not configuration.pop("returnImmediately", False)
        if "taskPushNotificationConfig" in configuration:
            configuration["pushNotificationConfig"] = configuration.pop("taskPushNotificationConfig")
        found["configuration"] = configuration
    return found


def _message(given: dict[str, Any]) -> dict[str, Any]:
    found = {"kind": "message", **given}
    if given.get("role") == "ROLE_USER":
        found["role"] = "user"
    if "parts" in given:
        found["parts"] = [{"kind": "text", **part} for part in objects(given["parts"])]
    return found


def route(operation: str, given: dict[str, Any]) -> OperationRoute:
    """The request of an operation over HTTP+JSON in 1.0."""
    verb, path = _ROUTES[operation]
    rest = dict(given)
    for name in ("taskId", "id"):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", quote(str(rest.pop(name, "")), safe=""))
    if verb == "POST":
        return OperationRoute(verb, path, rest if operation in ("send", "stream", "push-set") else None)
    query = {name: _query_value(value) for name, value in rest.items()}
    return OperationRoute(verb, f"{path}?{urlencode(query)}" if query else path, None)


def _query_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
