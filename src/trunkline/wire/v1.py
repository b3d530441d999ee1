"""Writes 1.0: the canonical structs as they are, with `extra` members back in their places."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.wire.reports import is_bare, without_bare
from trunkline.wire.types import ArtifactUpdate, Message, Metadata, Part, StatusUpdate, Task, TaskPage

_encode = msgspec.json.Encoder().encode
# In JSON text a quote inside a string is escaped, so this stands only where a member begins.
_EXTRA_MEMBER = b'"extra":'


def task(task: Task) -> bytes:
    """A bare Task."""
    if any([one.extensions for one in task.artifacts]):
        task = without_bare(task)
    body = _encode(task)
    # `find`, as `in` takes `bytes` for a number first, at the price of an error.
    return body if body.find(_EXTRA_MEMBER) < 0 else _flattened(task, _flatten_task)


def message(message: Message) -> bytes:
    """A bare Message."""
    body = _encode(message)
    return _flattened(message, _flatten) if _EXTRA_MEMBER in body else body


_message = message


def task_frame(task_bytes: bytes) -> bytes:
    """The result of a send that made or continued a task, and a task in a stream."""
    return b'{"task":%b}' % task_bytes


def message_frame(message: Message) -> bytes:
    """The result of a send that was answered directly, also in a stream."""
    return b'{"message":%b}' % _message(message)


def status_frame(update: StatusUpdate, *, final: bool) -> bytes:
    """A change of status in a stream; in 1.0 its end is the end of the stream, and `final` is not written."""
    body = _encode(update)
    if _EXTRA_MEMBER in body:
        body = _flattened(update, _flatten_status)
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
        body = _flattened(update, lambda plain: _flatten(plain["artifact"]))
    return b'{"artifactUpdate":%b}' % body


def page(page: TaskPage) -> bytes:
    """One page of `list`."""
    page = replace(page, tasks=tuple([without_bare(item) for item in page.tasks]))
    body = _encode(page)
    return _flattened(page, _flatten_page) if _EXTRA_MEMBER in body else body


def _flattened(value: Struct, flatten: Callable[[Metadata], None]) -> bytes:
    plain: Metadata = msgspec.to_builtins(value)
    flatten(plain)
    return _encode(plain)


def _flatten_page(plain: Metadata) -> None:
    for item in plain["tasks"]:
        _flatten_task(item)


def _flatten_task(plain: Metadata) -> None:
    _flatten_status(plain)
    for item in (*plain.get("artifacts", ()), *plain.get("history", ())):
        _flatten(item)


def _flatten_status(plain: Metadata) -> None:
    if "message" in plain["status"]:
        _flatten(plain["status"]["message"])


def _flatten(plain: Metadata) -> None:
    """Put the `extra` of a message, a part or the parts of an artifact among its own members.

    It never overrides them.
    """
    for part in plain.get("parts", ()):
        _flatten(part)
    extra: Metadata = plain.pop("extra", None) or {}
    for name, value in extra.items():
        plain.setdefault(name, value)
