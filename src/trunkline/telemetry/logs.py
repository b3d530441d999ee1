"""Where log lines go: to the standard error output, those of changed tasks in batches.

A task changes twice per request; a record, a formatter and a system call for each would be a tenth
of the request. So a change is noted, and what was noted is written 20 times a second, at the end,
and before any other line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Callable
from select import PIPE_BUF

from trunkline.telemetry.log_format import CHANGED, FORMATS, TASK_LOG, Change, LogFormat, change_arguments

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
        taken = self._taken()
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

    def _taken(self) -> list[Change]:
        taken: list[Change] = []
        try:
            while True:
                taken.append(self._noted.popleft())
        except IndexError:
            return taken


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
