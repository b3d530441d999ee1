"""Writes 1.0: the canonical structs as they are, with `extra` members back in their places."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.wire.reports import is_bare, without_bare
from trunkline.wire.types import ArtifactUpdate, Message, Part, StatusUpdate, Task, TaskPage

_encode = msgspec.json.Encoder().encode
# In JSON text a quote inside a string is escaped, so this stands only where a member begins.
_EXTRA_MEMBER = b'"extra":'


def task(task: Task) -> bytes:
    """A bare Task."""
    if any([one.extensions for one in task.artifacts]):
        task = without_bare(task)
    body = _encode(task)
    # `find`, as `in` takes `bytes` for a number first, at the price of an error.
    return body if body.find(_EXTRA_MEMBER) < 0 else _encode(_flat_task(_plain(task)))


def message(message: Message) -> bytes:
    """A bare Message."""
    return _message(message)


def answer_task(task_bytes: bytes) -> bytes:
    """The result of a send that made or continued a task."""
    return b'{"task":%b}' % task_bytes


def answer_message(message: Message) -> bytes:
    """The result of a send that was answered directly."""
    return b'{"message":%b}' % _message(message)


task_frame = answer_task
message_frame = answer_message


def status_frame(update: StatusUpdate, *, final: bool) -> bytes:
    """A change of status in a stream; in 1.0 its end is the end of the stream, and `final` is not written."""
    body = _encode(update)
    if _EXTRA_MEMBER in body:
        plain = _plain(update)
        _flatten_status(plain["status"])
        body = _encode(plain)
    return b'{"statusUpdate":%b}' % body


def artifact_frame(update: ArtifactUpdate) -> bytes:
    """A new or grown artifact in a stream; nothing of one that holds reports alone: the last status tells."""
    if is_bare(update.artifact):
        if not update.append:
            return b""
        # The end of an artifact that its reader has: a piece has a part, if only an empty one.
        update = replace(update, artifact=replace(update.artifact, parts=(Part(text=""),)))
    body = _encode(update)
    if _EXTRA_MEMBER in body:
        plain = _plain(update)
        _flatten_parts(plain["artifact"])
        body = _encode(plain)
    return b'{"artifactUpdate":%b}' % body


def page(page: TaskPage) -> bytes:
    """One page of `list`."""
    page = replace(page, tasks=tuple([without_bare(item) for item in page.tasks]))
    body = _encode(page)
    if _EXTRA_MEMBER not in body:
        return body
    plain = _plain(page)
    plain["tasks"] = [_flat_task(item) for item in plain["tasks"]]
    return _encode(plain)


def _message(message: Message) -> bytes:
    body = _encode(message)
    return _encode(_flat(_plain(message))) if _EXTRA_MEMBER in body else body


def _plain(value: Struct) -> dict[str, Any]:
    return msgspec.to_builtins(value)


def _flat_task(plain: dict[str, Any]) -> dict[str, Any]:
    _flatten_status(plain["status"])
    for artifact in plain.get("artifacts", ()):
        _flatten_parts(artifact)
    if "history" in plain:
        plain["history"] = [_flat(item) for item in plain["history"]]
    return plain


def _flatten_status(status: dict[str, Any]) -> None:
    if "message" in status:
        status["message"] = _flat(status["message"])


def _flatten_parts(holder: dict[str, Any]) -> None:
    if "parts" in holder:
        holder["parts"] = [_flat(part) for part in holder["parts"]]


def _flat(plain: dict[str, Any]) -> dict[str, Any]:
    """A message or a part with its `extra` among its own members, which it never overrides."""
    _flatten_parts(plain)
    extra: dict[str, Any] = plain.pop("extra", None) or {}
    return {**plain, **{name: value for name, value in extra.items() if name not in plain}}
