"""Looking into JSON that anybody may have written: nothing here raises, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

TERMINAL = frozenset(("completed", "failed", "canceled", "rejected"))
INTERRUPTED = frozenset(("input-required", "auth-required"))
_UPDATES = {"statusUpdate": "status-update", "artifactUpdate": "artifact-update"}
_KINDS = frozenset(("task", "message", "status-update", "artifact-update"))


def parsed(body: bytes | str) -> Any:
    """JSON decoded; None if it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def members(value: object) -> dict[str, Any]:
    """An object's members; none if it is no object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """An array's items; none if it is no array."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: object) -> str:
    """A text; empty if it is none."""
    return value if isinstance(value, str) else ""


def at(value: object, *path: str) -> Any:
    """What lies at the end of these member names; None if nothing does."""
    for name in path:
        value = members(value).get(name)
    return value


def state_of(task: object) -> str:
    """The state of a task or update in its plain spelling, `input-required`; empty if there is none."""
    word = text(at(task, "status", "state")).lower().removeprefix("task_state_").replace("_", "-")
    return "canceled" if word == "cancelled" else word


class JsonPiece(Struct, frozen=True):
    """An object of the protocol inside an answer: what it is, itself, and where it lies."""

    kind: str
    value: dict[str, Any]
    path: str


def unwrapped(result: object) -> JsonPiece | None:
    """The task, message or update in an answer of either version; None if there is none."""
    found = members(result)
    for name in ("task", "message", "statusUpdate", "artifactUpdate"):
        if isinstance(found.get(name), dict) and "parts" not in found and "taskId" not in found:
            return JsonPiece(_UPDATES.get(name, name), members(found[name]), name)
    kind = text(found.get("kind"))
    if kind in _KINDS:
        return JsonPiece(kind, found, kind)
    if "artifact" in found:
        return JsonPiece("artifact-update", found, "artifact-update")
    if "status" in found:
        return JsonPiece("task" if "id" in found else "status-update", found, "task")
    return JsonPiece("message", found, "message") if "parts" in found else None


def pieces(top: JsonPiece) -> Iterator[JsonPiece]:
    """An object and all objects of the protocol inside it; metadata and data are the agent's own."""
    yield top
    value, path = top.value, top.path
    if top.kind == "message" and value.get("role") in ("ROLE_USER", "user"):
        # What a caller has written is the caller's.
        return
    if top.kind in ("task", "status-update") and isinstance(value.get("status"), dict):
        yield from pieces(JsonPiece("status", value["status"], f"{path}.status"))
    if isinstance(value.get("message"), dict) and top.kind == "status":
        yield from pieces(JsonPiece("message", value["message"], f"{path}.message"))
    if isinstance(value.get("artifact"), dict):
        yield from pieces(JsonPiece("artifact", value["artifact"], f"{path}.artifact"))
    for name, kind in (("history", "message"), ("artifacts", "artifact"), ("parts", "part")):
        for place, item in enumerate(items(value.get(name))):
            yield from pieces(JsonPiece(kind, members(item), f"{path}.{name}[{place}]"))


def texts(artifacts: object) -> dict[str, str]:
    """The text of each artifact by its id."""
    found: dict[str, str] = {}
    for artifact in items(artifacts):
        name = text(at(artifact, "artifactId"))
        found[name] = "".join(text(at(part, "text")) for part in items(at(artifact, "parts")))
    return found


_SNAKE = re.compile(r"[a-z0-9_]+")
_OWN = frozenset(("metadata", "data", "params", "scopes", "schemes", "security", "header"))


def snake_members(value: object, path: str = "") -> Iterator[str]:
    """Where members are spelled with underscores; what is the agent's own is left out."""
    for name, inner in members(value).items():
        place = f"{path}.{name}" if path else name
        if "_" in name.strip("_") and _SNAKE.fullmatch(name):
            yield place
        if name not in _OWN and not name.endswith(("Schemes", "Requirements")):
            yield from snake_members(inner, place)
    for number, inner in enumerate(items(value)):
        yield from snake_members(inner, f"{path}[{number}]")
