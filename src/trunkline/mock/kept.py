"""The tasks of mocks in a file: mocks that are started again know them, and go on with them.

Each change of a task is a line with all of it; the last line of a task counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from trunkline.mock.playback import Playback
from trunkline.mock.scenario import Reply
from trunkline.wire.types import RESTING, Message, Task

log = logging.getLogger("trunkline.mock")
# As many tasks are kept, those that changed last; the file has at most so many times as many lines.
LIMIT = 1000
_TIMES = 4


class KeptTask(Struct, frozen=True, omit_defaults=True):
    """A task of a mock: what its question is answered with, or what was being played and to which message."""

    mock: str
    task: Task
    then: Reply | str | None = None
    reply: Reply | None = None
    message: Message | None = None


class KeptTasks:
    """A file of tasks; without one that can be written, nothing is kept."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: dict[str, bytes] = {}
        self._written = 0
        try:
            content = file.read_bytes()
            for line in content.splitlines():
                self._load(line)
            if content and not content.endswith(b"\n"):
                # The next line would be one with what is torn: the file is written anew.
                self._written = LIMIT * _TIMES
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("mock.unread file=%s why=%s", file, error.strerror)

    def playbacks(self, mock: str, on_status: Callable[[Playback], None]) -> list[Playback]:
        """The tasks of one mock as they were."""
        kept = [msgspec.json.decode(line, type=KeptTask) for line in self._lines.values()]
        return [_playback(one, on_status) for one in kept if one.mock == mock]

    def write(self, mock: str, playback: Playback) -> None:
        """Keep a task as it stands."""
        task = playback.task
        reply, message = (None, None) if task.status.state in RESTING else playback.playing or (None, None)
        line = msgspec.json.encode(KeptTask(mock, task, playback.then, reply, message))
        self._add(task.id, line)
        try:
            if self._written < LIMIT * _TIMES:
                with self._file.open("ab") as file:
                    file.write(line + b"\n")
            else:
                self._rewrite()
        except OSError as error:
            log.warning("mock.unkept file=%s why=%s", self._file, error.strerror)

    def _rewrite(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(b"".join([line + b"\n" for line in self._lines.values()]))
        fresh.replace(self._file)
        self._written = len(self._lines)

    def _load(self, line: bytes) -> None:
        try:
            self._add(msgspec.json.decode(line, type=KeptTask).task.id, line)
        except msgspec.DecodeError:
            # The last line of a process that was killed, or one of another version.
            log.info("mock.unread file=%s", self._file)

    def _add(self, task_id: str, line: bytes) -> None:
        self._written += 1
        self._lines.pop(task_id, None)
        self._lines[task_id] = line
        if len(self._lines) > LIMIT:
            del self._lines[next(iter(self._lines))]


def _playback(kept: KeptTask, on_status: Callable[[Playback], None]) -> Playback:
    playback = Playback(kept.task.id, kept.task.context_id, on_status)
    playback.task, playback.then = kept.task, kept.then
    playback.events.append(kept.task)
    if kept.reply is not None and kept.message is not None:
        playback.playing = playback.unplayed = (kept.reply, kept.message)
    playback.started.set()
    return playback
