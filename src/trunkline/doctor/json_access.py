"""Reading JSON that anybody may have written: nothing here raises, whatever is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.wire import types
from trunkline.wire.spellings import plain_state, state_named

TERMINAL = frozenset(map(plain_state, types.TERMINAL))
INTERRUPTED = frozenset(map(plain_state, types.INTERRUPTED))
AT_REST = TERMINAL | INTERRUPTED
# What a result may be: the member under which 1.0 puts it, and in the same order the word of 0.3 for it.
WRAPPERS = ("task", "message", "statusUpdate", "artifactUpdate")
KINDS = ("task", "message", "status-update", "artifact-update")
# Objects that lie under a member of their own name, and in which; an artifact in any.
_HOLDERS = {"status": ("task", "status-update"), "message": ("status",), "artifact": ()}


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


def objects(value: object) -> list[dict[str, Any]]:
    """An array's items as objects; an item that is none is an empty one."""
    return [members(item) for item in items(value)]


def text(value: object) -> str:
    """A text; empty if it is none."""
    return value if isinstance(value, str) else ""


def at(value: object, *path: str) -> Any:
    """The value at the end of these member names; None if there is none."""
    for name in path:
        value = members(value).get(name)
    return value


def state_of(task: object) -> str:
    """The state of a task or update in its plain spelling, `input-required`; empty if there is none."""
    word = text(at(task, "status", "state"))
    known = state_named(word)
    return word.lower() if known is None else plain_state(known)


class ProtocolObject(Struct, frozen=True):
    """A task, message, update or a part of one inside an answer: its kind, its JSON and where it lies.

    One without a kind stands for an answer in which there is none.
    """

    kind: str
    value: dict[str, Any]
    path: str

    @property
    def task_id(self) -> str:
        """The id of the task that it is, or is of; empty if it does not say."""
        return text(self.value.get("id" if self.kind == "task" else "taskId"))

    @property
    def state(self) -> str:
        """The state that it tells; empty if it tells none."""
        return state_of(self.value)


def _wrapper(found: dict[str, Any]) -> str:
    # A message or an update of 0.3 may have members of these names itself.
    if "parts" in found or "taskId" in found:
        return ""
    return next((name for name in WRAPPERS if isinstance(found.get(name), dict)), "")


def is_wrapped(result: object) -> bool:
    """Whether a result holds its object under the object's name, as in 1.0."""
    return bool(_wrapper(members(result)))


def protocol_object(result: object) -> ProtocolObject:
    """The task, message or update in a result of either version; without a kind if there is none."""
    found = members(result)
    if name := _wrapper(found):
        return ProtocolObject(KINDS[WRAPPERS.index(name)], members(found[name]), name)
    kind = text(found.get("kind"))
    if kind in KINDS:
        return ProtocolObject(kind, found, kind)
    if "artifact" in found:
        return ProtocolObject("artifact-update", found, "artifact-update")
    if "status" in found:
        return ProtocolObject("task" if "id" in found else "status-update", found, "task")
    return ProtocolObject("message", found, "message") if "parts" in found else ProtocolObject("", {}, "")


def nested_objects(top: ProtocolObject) -> Iterator[ProtocolObject]:
    """An object and all objects of the protocol inside it; metadata and data are the agent's own."""
    yield top
    value, path = top.value, top.path
    if top.kind == "message" and value.get("role") in ("ROLE_USER", "user"):
        # The agent repeats what its caller wrote, which says nothing about the agent.
        return
    for kind, holders in _HOLDERS.items():
        if isinstance(value.get(kind), dict) and (not holders or top.kind in holders):
            yield from nested_objects(ProtocolObject(kind, value[kind], f"{path}.{kind}"))
    for name, kind in (("history", "message"), ("artifacts", "artifact"), ("parts", "part")):
        for index, item in enumerate(objects(value.get(name))):
            yield from nested_objects(ProtocolObject(kind, item, f"{path}.{name}[{index}]"))


def texts(artifacts: object) -> dict[str, str]:
    """The text of each artifact by its id."""
    return {
        text(artifact.get("artifactId")): "".join(
            text(part.get("text")) for part in objects(artifact.get("parts"))
        )
        for artifact in objects(artifacts)
    }


_SNAKE = re.compile(r"[a-z0-9_]+")
_OWN = frozenset(("metadata", "data", "params", "scopes", "schemes", "security", "header"))


def snake_members(value: object, path: str = "") -> Iterator[str]:
    """The places of members that are spelled with underscores; the agent's own data is left out."""
    for name, inner in members(value).items():
        place = f"{path}.{name}" if path else name
        if "_" in name.strip("_") and _SNAKE.fullmatch(name):
            yield place
        if name not in _OWN and not name.endswith(("Schemes", "Requirements")):
            yield from snake_members(inner, place)
    for index, inner in enumerate(items(value)):
        yield from snake_members(inner, f"{path}[{index}]")
