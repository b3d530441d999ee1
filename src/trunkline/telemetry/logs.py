"""Log lines, as text for people or as JSON for machines, on the standard error output.

A foreign text cannot forge a line or a field: JSON escapes it, text escapes whatever does not print.

A task changes twice per request; a record, a formatter and a system call for each would be a tenth
of the request. So a change is noted, and what was noted is written 20 times a second, at the end,
and before any other line.
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
CHANGED = "task.state task=%s context=%a tenant=%a state=%s seq=%d node=%s trace=%s"
_EVENT = re.compile(r"[a-z]+\.[a-z.]+")
_FIELD = re.compile(r" (\w+)=")
_PLACEHOLDER = re.compile(r"%(?:%|[-#0 +]*\d*(?:\.\d+)?[a-zA-Z])")
# JSON lets these stand as they are; some readers take them for line ends, some terminals for commands.
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")
_encode = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


class LoggedTask(Protocol):
    """A task as far as a log line names it; `log.head.Head` is one."""

    @property
    def task_id(self) -> str:
        """The task's id."""
        ...

    @property
    def context_id(self) -> str:
        """The conversation that it belongs to."""
        ...

    @property
    def state(self) -> Enum:
        """The state that it is in."""
        ...

    @property
    def seq(self) -> int:
        """The number of its newest event."""
        ...

    @property
    def node(self) -> str:
        """The node that works on it."""
        ...


# When, whose, what, the state it came to in plain words, the event that brought it there, and the
# `traceparent` that it was opened with.
Change = tuple[int, str, LoggedTask, str, int, str]


def change_arguments(change: Change) -> tuple[str, str, str, str, int, str, str]:
    """The arguments of the template `CHANGED` for one change."""
    _, tenant, head, state, seq, trace = change
    return head.task_id, head.context_id, tenant, state, seq, head.node, trace[3:35]


class TextFormat:
    """One line per record, `key=value`; a traceback follows indented."""

    def record(self, record: logging.LogRecord) -> bytes:
        """The line of a record."""
        when = timestamp(int(record.created * 1000))
        line = f"{when} {record.levelname} {record.name} {_printable(record.getMessage())}\n"
        for more in _exception(record).splitlines():
            line += f"    {_printable(more)}\n"
        return line.encode(errors="backslashreplace")

    def changes(self, changes: Sequence[Change]) -> bytes:
        """The lines of changed tasks."""
        return "".join(
            [
                f"{timestamp(change[0])} INFO {TASK_LOG} {CHANGED % change_arguments(change)}\n"
                for change in changes
            ]
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


class JsonFormat:
    """One JSON object per record."""

    def record(self, record: logging.LogRecord) -> bytes:
        """The line of a record."""
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
        """The lines of changed tasks."""
        return _escape_controls(
            _encode_lines(
                [
                    _Changed(timestamp(change[0]), "info", TASK_LOG, "task.state", *change_arguments(change))
                    for change in changes
                ]
            )
        )


LogFormat = TextFormat | JsonFormat
FORMATS: dict[str, LogFormat] = {"text": TextFormat(), "json": JsonFormat()}


@lru_cache(maxsize=64)
def timestamp(ms: int) -> str:
    """A moment as RFC 3339 has it, in UTC."""
    second, part = divmod(ms, 1000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{part:03d}Z", time.gmtime(second))


def _event_fields(record: logging.LogRecord) -> tuple[str, list[tuple[str, object]]]:
    """The event and the fields of a record; only our own templates are known to have this shape."""
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
    """The event of a template, and its fields: name, template, place and number of its arguments."""
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


BATCH = 256
BATCH_S = 0.05
_STANDARD_ERROR = 2
# Not what is derived from it: a file's is.
_REPLACED: tuple[type, ...] = (logging.StreamHandler,)
# At debug level these write down whatever a receiver answers, cookies and all.
_TALKATIVE = ("httpcore2", "httpx2")
_task_log = logging.getLogger(TASK_LOG)


class LogHandler(logging.Handler):
    """Writes records and changed tasks, in the order in which they came."""

    def __init__(self, log_format: LogFormat, write: Callable[[bytes], None]) -> None:
        super().__init__()
        self._format = log_format
        self._write = write
        # A deque: other threads may write lines while the loop notes changes.
        self._noted: deque[Change] = deque()
        self._lost = 0

    def note(self, change: Change) -> None:
        """Have the line of a changed task written soon."""
        noted = self._noted
        noted.append(change)
        if len(noted) == 1:
            asyncio.get_running_loop().call_later(BATCH_S, self.flush)
        elif len(noted) >= BATCH:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after what was noted before it."""
        try:
            line = self._format.record(record)
        except Exception:  # noqa: BLE001 - logging's own way to report a record that cannot be written
            self.handleError(record)
            return
        self._put(line)

    def flush(self) -> None:
        """Write what was noted."""
        self.acquire()
        try:
            if self._noted:
                self._put(b"")
        finally:
            self.release()

    def _put(self, last: bytes) -> None:
        taken: list[Change] = []
        # Whoever takes holds the lock of this handler, so that there is nobody to take the same. To the last
        # one: what another loop notes meanwhile, it leaves to us.
        while self._noted:
            taken.append(self._noted.popleft())
        text = (self._format.changes(taken) if taken else b"") + last
        if self._lost:
            # The output is the only place to say it: a full disk, or a reader that was away.
            text = self._format.record(_lost(self._lost)) + text
        try:
            self._write(text)
        except OSError:
            self._lost += len(taken) + bool(last)
        else:
            self._lost = 0


def set_up_logs(level: str, log_format: str) -> None:
    """Have all logging go to the standard error output in this format; called once by a server process.

    An author's own handlers stay, but for one that writes plain lines to a terminal.
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
    """Where the line of a changed task goes: into a batch if nobody else listens, else through logging."""
    handlers = logging.getLogger().handlers
    if len(handlers) == 1 and isinstance(handlers[0], LogHandler) and not _task_log.handlers:
        return handlers[0].note
    return _through_logging


def _through_logging(change: Change) -> None:
    _task_log.info(CHANGED, *change_arguments(change))


def line_writer(descriptor: int) -> Callable[[bytes], None]:
    """Write whole lines to an open file; several processes may share it."""
    # A pipe takes so much at once; of more, another process might write into the middle.
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
