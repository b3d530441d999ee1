"""Log lines on standard error: short text for people, or JSON with every field for machines.

Text from outside cannot forge a line or a field. JSON escapes it, and the text form escapes what does not
print.

A task changes twice per request. Formatting and writing each change on its own would cost a tenth of the
request, so changes are collected and written 20 times a second, before any other line, and at exit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from select import PIPE_BUF
from typing import Protocol

import msgspec
from msgspec import Struct

TASK_LOG = "trunkline.task"
CHANGED = "task.state task=%s context=%a tenant=%a state=%s seq=%d node=%s trace=%s correlation=%a"
_EVENT = re.compile(r"[a-z_]+\.[a-z_.]+")
_FIELD = re.compile(r" (\w+)=")
_PLACEHOLDER = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
# JSON allows these unescaped, but some readers treat them as line ends and some terminals as commands.
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


class LoggedTask(Protocol):
    """What a log line says about a task; implemented by `log.head.Head`."""

    @property
    def task_id(self) -> str:
        """ID of the task, a UUIDv7."""
        ...

    @property
    def agent(self) -> str:
        """Name of the agent that has the task."""
        ...

    @property
    def context_id(self) -> str:
        """ID of the conversation."""
        ...

    @property
    def state(self) -> Enum:
        """Current state."""
        ...

    @property
    def seq(self) -> int:
        """Sequence number of the newest event."""
        ...

    @property
    def node(self) -> str:
        """ID of the process that runs it."""
        ...


# Time in milliseconds, tenant, task, new state, sequence number of the event that changed it, and of the
# request that opened the task the `traceparent` and the correlation ID.
Change = tuple[int, str, LoggedTask, str, int, str, str]


def change_arguments(change: Change) -> tuple[str, str, str, str, int, str, str, str]:
    """Return the arguments of the template `CHANGED` for one change."""
    _, tenant, head, state, seq, trace, correlation = change
    return head.task_id, head.context_id, tenant, state, seq, head.node, trace[3:35], correlation


def duration_ms(task_id: str, now: int) -> int | None:
    """Return the age of a task in milliseconds, read from its UUIDv7, or None for another kind of ID."""
    if len(task_id) != 36 or task_id[14] != "7":
        return None
    try:
        return max(0, now - int(task_id[:8] + task_id[9:13], 16))
    except ValueError:
        return None


class TextFormat:
    """One short line per record: time, level, event, fields. A traceback follows, indented.

    The line of a changed task has the last eight characters of its ID: the first ones are a timestamp, which
    tasks of the same minute share.
    """

    def record(self, record: logging.LogRecord) -> bytes:
        """Return the line of a record; the logger is named only if it belongs to another library."""
        when = _time_of_day(int(record.created * 1000))
        source = "" if record.name.partition(".")[0] == "trunkline" else f"{record.name} "
        line = f"{when} {record.levelname} {source}{_printable(record.getMessage())}\n"
        for more in _exception(record).splitlines():
            line += f"    {_printable(more)}\n"
        return line.encode(errors="backslashreplace")

    def changes(self, changes: Sequence[Change]) -> bytes:
        """Return the lines of changed tasks."""
        return "".join([_change_line(change) for change in changes]).encode(errors="backslashreplace")


def _change_line(change: Change) -> str:
    now, tenant, task, state, _, _, _ = change
    shown = f"{_time_of_day(now)} INFO task.state agent={_printable(task.agent)}"
    shown += f" task={task.task_id[-8:]} state={state}"
    age = duration_ms(task.task_id, now)
    if age is not None:
        shown += f" duration={age}ms" if age < 10_000 else f" duration={age // 1000}s"
    return f"{shown}\n" if tenant == DEFAULT_TENANT else f"{shown} tenant={tenant!a}\n"


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
    correlation: str = ""
    agent: str = ""
    duration_ms: int | None = None


class JsonFormat:
    """One JSON object per record."""

    def record(self, record: logging.LogRecord) -> bytes:
        """Return the line of a record."""
        event, fields = _event_fields(record)
        line: dict[str, object] = {
            "time": timestamp(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        for name, value in fields:
            line[f"{name}_" if name in line else name] = value
        if trace := _exception(record):
            line["exception"] = trace
        try:
            body = _encode(line)
        except UnicodeEncodeError:
            # Half a surrogate pair, from a path or a broken file name.
            body = _encode({name: _encodable(value) for name, value in line.items()})
        return _escape_controls(body) + b"\n"

    def changes(self, changes: Sequence[Change]) -> bytes:
        """Return the lines of changed tasks."""
        return _escape_controls(
            _encode_lines(
                [
                    _Changed(
                        timestamp(change[0]),
                        "info",
                        TASK_LOG,
                        "task.state",
                        *change_arguments(change),
                        agent=change[2].agent,
                        duration_ms=duration_ms(change[2].task_id, change[0]),
                    )
                    for change in changes
                ]
            )
        )


LogFormat = TextFormat | JsonFormat
FORMATS: dict[str, LogFormat] = {"text": TextFormat(), "json": JsonFormat()}


@lru_cache(maxsize=64)
def timestamp(ms: int) -> str:
    """Return a time in RFC 3339 form, in UTC with milliseconds."""
    second, part = divmod(ms, 1000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{part:03d}Z", time.gmtime(second))


def _time_of_day(ms: int) -> str:
    return timestamp(ms)[11:]


def _event_fields(record: logging.LogRecord) -> tuple[str, list[tuple[str, object]]]:
    """Return the event and the fields of a record. Only our own templates have that form."""
    args = record.args or ()
    if record.name.partition(".")[0] == "trunkline" and isinstance(args, tuple):
        event, pieces = _parse_template(str(record.msg))
        if event and sum(count for *_, count in pieces) == len(args):
            return event, [
                (name, _value(piece, args[place : place + count])) for name, piece, place, count in pieces
            ]
    return record.getMessage(), []


@lru_cache(maxsize=256)
def _parse_template(template: str) -> tuple[str, list[tuple[str, str, int, int]]]:
    """Return the event of a template and its fields: name, template, position and number of its arguments."""
    event, *rest = _FIELD.split(template)
    if not _EVENT.fullmatch(event):
        return "", []
    pieces: list[tuple[str, str, int, int]] = []
    place = 0
    for name, piece in zip(rest[::2], rest[1::2], strict=True):
        count = sum(found != "%%" for found in _PLACEHOLDER.findall(piece))
        pieces.append((name, piece, place, count))
        place += count
    return event, pieces


def _value(piece: str, args: tuple[object, ...]) -> object:
    if not args:
        return piece
    if len(args) == 1 and _PLACEHOLDER.fullmatch(piece):
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


def _escape_controls(line: bytes) -> bytes:
    if line.isascii():
        return line
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()


def _encodable(value: object) -> object:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


DEFAULT_TENANT = "default"
BATCH = 256
BATCH_S = 0.05
_STANDARD_ERROR = 2
# Exactly this class: `FileHandler` derives from it and stays.
_REPLACED: tuple[type, ...] = (logging.StreamHandler,)
# At debug level these log whole responses, cookies included.
_TALKATIVE = ("httpcore2", "httpx2")
_task_log = logging.getLogger(TASK_LOG)


class LogHandler(logging.Handler):
    """Writes records and changed tasks in the order of their arrival."""

    def __init__(self, log_format: LogFormat, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._format = log_format
        self._write = write
        # A deque: other threads may write lines while the loop notes changes.
        self._noted: deque[Change] = deque()
        self._lost = 0

    def note(self, change: Change) -> None:
        """Write the line of a changed task within 50 ms."""
        noted = self._noted
        noted.append(change)
        if len(noted) == 1:
            asyncio.get_running_loop().call_later(BATCH_S, self.flush)
        elif len(noted) >= BATCH:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record after the changes that precede it."""
        try:
            line = self._format.record(record)
        except Exception:  # noqa: BLE001 - logging's own way to report a record that cannot be written
            self.handleError(record)
            return
        self._put(line)

    def flush(self) -> None:
        """Write the collected changes."""
        self.acquire()
        try:
            if self._noted:
                self._put(b"")
        finally:
            self.release()

    def _put(self, last: bytes) -> None:
        taken: list[Change] = []
        # The lock of this handler is held, so no other thread takes the same changes. Empty the deque: a loop
        # that adds a change to a non-empty one schedules no flush of its own.
        while self._noted:
            taken.append(self._noted.popleft())
        text = (self._format.changes(taken) if taken else b"") + last
        if self._lost:
            # The disk was full or the reader absent: only the output itself can report the loss.
            text = self._format.record(_lost(self._lost)) + text
        try:
            self._write(text)
        except OSError:
            self._lost += len(taken) + bool(last)
        else:
            self._lost = 0


def set_up_logs(level: str, log_format: str) -> None:
    """Send all logging to standard error in this format. A server process calls it once.

    Handlers of the author stay, except a plain `StreamHandler`.
    """
    root = logging.getLogger()
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))
    for known in list(root.handlers):
        if type(known) in _REPLACED:
            root.removeHandler(known)
    root.addHandler(LogHandler(FORMATS[log_format], line_writer(_STANDARD_ERROR)))


def change_log() -> Callable[[Change], None]:
    """Return the function that logs a changed task: in batches, unless `logging` has other handlers."""
    handlers = logging.getLogger().handlers
    if len(handlers) == 1 and isinstance(handlers[0], LogHandler) and not _task_log.handlers:
        return handlers[0].note
    return _through_logging


def _through_logging(change: Change) -> None:
    _task_log.info(CHANGED, *change_arguments(change))


def line_writer(descriptor: int) -> Callable[[bytes], None]:
    """Return a function that writes whole lines to an open file, which several processes may share."""
    # A longer write to a pipe is not atomic: another process could write into its middle.
    most = sys.maxsize if stat.S_ISREG(os.fstat(descriptor).st_mode) else PIPE_BUF

    def write(text: bytes) -> None:
        while text:
            end = text.rfind(b"\n", 0, most) + 1 or text.find(b"\n") + 1 or len(text)
            piece, text = text[:end], text[end:]
            while piece:
                piece = piece[os.write(descriptor, piece) :]

    return write


def _lost(count: int) -> logging.LogRecord:
    return logging.LogRecord(
        "trunkline.log", logging.WARNING, __file__, 0, "log.lost lines=%d", (count,), None
    )
