"""The scripted agents of a workspace, in a process of their own that ends with the hub's."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from trunkline.errors import Misuse
from trunkline.mock.app import Mock
from trunkline.mock.kept import KeptTasks
from trunkline.mock.script import load_scenarios
from trunkline.mock.serve import Mocks, bind, server_of
from trunkline.telemetry.logs import set_up_logs

log = logging.getLogger("trunkline.hub")
# The variable by which entries of the catalogue name the address of the mocks.
VARIABLE = "MOCKS_URL"
# Where the mocks of a hub keep their tasks, beside their script.
KEPT = ".jsonl"
_HOST = "127.0.0.1"
_END_S = 5.0
# The mocks of a hub that was killed a moment ago still have its port.
_LEAVE_S = 3.0
# Between the death of a child and the next one: twice as long each time, until one has served for a while.
_PAUSE_S, _LONGEST_S = 0.5, 30.0
_WHILE_S = 10.0


class MockProcess:
    """A child process that serves the scenarios of a file: `with MockProcess(file, 8001) as url`.

    It ends when its standard input does: also with a hub that was killed. If it dies itself, another takes
    its place. With `keeps`, tasks are kept in a file, and those that are started next go on with them.
    """

    def __init__(
        self, file: Path, port: int, *, keeps: bool = False, logs: tuple[str, str] = ("warning", "text")
    ) -> None:
        """Take the file and the port that is wanted; any other serves where that is taken.

        `logs` are the level and the format of the log lines.

        Raises:
            Misuse: the file is wrong.
        """
        load_scenarios(file)
        self._file = file
        self._port = port
        self._keeps = keeps
        self._logs = logs
        self._closing = threading.Event()
        # Held by who has the next child begin, and by who wants no further one.
        self._turn = threading.Lock()

    def __enter__(self) -> str:
        was_here = self._keeps and self._file.with_suffix(KEPT).exists()
        self._listener = _listener(self._port, _LEAVE_S if was_here else 0.0)
        self._child = self._begin()
        threading.Thread(target=self._watch, name="trunkline-mocks", daemon=True).start()
        return f"http://{_HOST}:{self._listener.getsockname()[1]}"

    @property
    def pid(self) -> int:
        """The process that serves now."""
        return self._child.pid

    def _begin(self) -> subprocess.Popen[bytes]:
        number = self._listener.fileno()
        command = [sys.executable, "-m", "trunkline.hub.mocks", str(self._file), str(number)]
        command += [*self._logs, *(["keep"] if self._keeps else [])]
        return subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])

    def _watch(self) -> None:
        pause_s = _PAUSE_S
        while True:
            began = time.monotonic()
            self._child.wait()
            if time.monotonic() - began > _WHILE_S:
                pause_s = _PAUSE_S
            if self._closing.is_set():
                return
            log.warning("mocks.died file=%s exit=%s again_s=%s", self._file, self._child.returncode, pause_s)
            if self._closing.wait(pause_s):
                return
            pause_s = min(2 * pause_s, _LONGEST_S)
            with self._turn:
                if self._closing.is_set():
                    return
                dead, self._child = self._child, self._begin()
            if dead.stdin is not None:
                dead.stdin.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._turn:
            self._closing.set()
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._listener.close()


def _listener(port: int, patience_s: float) -> socket.socket:
    until = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_server((_HOST, port))
        except OSError:
            if time.monotonic() > until:
                return bind(_HOST, 0)
            time.sleep(_END_S / 100)


def main(file: str, number: int, *, keeps: bool) -> None:
    """Serve the scenarios of a file on a socket that was inherited, until the hub is gone."""
    kept = KeptTasks(Path(file).with_suffix(KEPT)) if keeps else None
    mocks = [Mock(scenario, kept) for scenario in load_scenarios(file)]
    server = server_of(Mocks(mocks))

    def watch() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    server.run([socket.socket(fileno=number)])


if __name__ == "__main__":
    try:
        set_up_logs(*sys.argv[3:5])
        main(sys.argv[1], int(sys.argv[2]), keeps="keep" in sys.argv[5:])
    except Misuse as error:
        # It was right when the hub began: what is wrong now is one line, and no traceback.
        sys.exit(str(error))
