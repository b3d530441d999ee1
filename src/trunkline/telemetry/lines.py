"""What a line of the log looks like, as text for people and as JSON for machines.

A foreign text cannot forge a line or a field: JSON escapes it, text escapes whatever does not print.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Protocol

import msgspec
from msgspec import Struct

TASK_LOG = "trunkline.task"
CHANGED = "task.state task=%s context=%a tenant=%a state=%s seq=%d node=%s trace=%s"
_EVENT = re.compile(r"[a-z]+\.[a-z.]+")
_FIELD = re.compile(r" (\w+)=")
_PLACE = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
# JSON lets these stand as they are; some readers take them for line ends, some terminals for commands.
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


class LineHead(Protocol):
    """What a line says of a task."""

    @property
    def task_id(self) -> str:
        """Its id."""
        ...

    @property
    def context_id(self) -> str:
        """Its conversation."""
        ...

    @property
    def state(self) -> Enum:
        """Where it stands."""
        ...

    @property
    def seq(self) -> int:
        """The event that brought it there."""
        ...

    @property
    def node(self) -> str:
        """Whose it is."""
        ...


# When, whose, what, the state it came to in plain words, the event that brought it there, and the
# `traceparent` that it was opened with.
Change = tuple[int, str, LineHead, str, int, str]


class LineFormat(Protocol):
    """A way to write lines; each ends with a line end."""

    def record(self, record: logging.LogRecord) -> bytes:
        """The line of a record."""
        ...

    def changes(self, changes: Sequence[Change]) -> bytes:
        """The lines of changed tasks."""
        ...


def arguments(change: Change) -> tuple[str, str, str, str, int, str, str]:
    """What stands in the places of `CHANGED`."""
    _, tenant, head, state, seq, trace = change
    return head.task_id, head.context_id, tenant, state, seq, head.node, trace[3:35]


class Text:
    """One line per record, `key=value`; a traceback follows indented."""

    def record(self, record: logging.LogRecord) -> bytes:
        """The line of a record."""
        when = stamp(int(record.created * 1000))
        line = f"{when} {record.levelname} {record.name} {_printable(record.getMessage())}\n"
        for more in _exception(record).splitlines():
            line += f"    {_printable(more)}\n"
        return line.encode(errors="backslashreplace")

    def changes(self, changes: Sequence[Change]) -> bytes:
        """The lines of changed tasks."""
        return "".join(
            [f"{stamp(change[0])} INFO {TASK_LOG} {CHANGED % arguments(change)}\n" for change in changes]
        ).encode()


class _Changed(Struct, omit_defaults=True, gc=False):
    time: str
    level: str
    logger: str
    event: str
    task: str
    context: str
    tenant: str
    state: str
    seq: int
    node: str
    trace: str = ""


class Json:
    """One JSON object per record."""

    def record(self, record: logging.LogRecord) -> bytes:
        """The line of a record."""
        event, fields = _parts(record)
        line: dict[str, object] = {
            "time": stamp(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        for name, value in fields:
            line[f"{name}_" if name in line else name] = value
        if trace := _exception(record):
            line["exception"] = trace
        try:
            return _plain(_encode(line)) + b"\n"
        except UnicodeEncodeError:
            # Half a surrogate pair, from a path or a broken file name.
            return _plain(_encode({name: _whole(value) for name, value in line.items()})) + b"\n"

    def changes(self, changes: Sequence[Change]) -> bytes:
        """The lines of changed tasks."""
        return _plain(
            _encode_lines(
                [
                    _Changed(stamp(change[0]), "info", TASK_LOG, "task.state", *arguments(change))
                    for change in changes
                ]
            )
        )


FORMS: dict[str, LineFormat] = {"text": Text(), "json": Json()}


@lru_cache(maxsize=64)
def stamp(ms: int) -> str:
    """A moment as RFC 3339 has it, in UTC."""
    second, part = divmod(ms, 1000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{part:03d}Z", time.gmtime(second))


def _parts(record: logging.LogRecord) -> tuple[str, list[tuple[str, object]]]:
    """The event and its fields; only our own lines are known to have this shape."""
    args = record.args or ()
    if record.name.partition(".")[0] == "trunkline" and isinstance(args, tuple):
        event, pieces = _shape(str(record.msg))
        if event and sum(count for *_, count in pieces) == len(args):
            return event, [
                (name, _value(piece, args[place : place + count])) for name, piece, place, count in pieces
            ]
    return record.getMessage(), []


@lru_cache(maxsize=256)
def _shape(template: str) -> tuple[str, list[tuple[str, str, int, int]]]:
    """The event of a template, and its fields: name, template, place and number of its arguments."""
    event, *rest = _FIELD.split(template)
    if not _EVENT.fullmatch(event):
        return "", []
    pieces: list[tuple[str, str, int, int]] = []
    place = 0
    for name, piece in zip(rest[::2], rest[1::2], strict=True):
        count = sum(found != "%%" for found in _PLACE.findall(piece))
        pieces.append((name, piece, place, count))
        place += count
    return event, pieces


def _value(piece: str, args: tuple[object, ...]) -> object:
    if not args:
        return piece
    if len(args) == 1 and _PLACE.fullmatch(piece):
        value = args[0]
        return value if isinstance(value, int | float) else str(value)
    return piece % args


def _exception(record: logging.LogRecord) -> str:
    if record.exc_info and record.exc_info[1] is not None:
        return "".join(traceback.format_exception(record.exc_info[1])).rstrip("\n")
    return ""


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() else ascii(one)[1:-1] for one in text])


def _plain(line: bytes) -> bytes:
    if line.isascii():
        return line
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()


def _whole(value: object) -> object:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
