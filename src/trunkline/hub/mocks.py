"""The scripted agents of a workspace, in a process of their own that ends with the hub's."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType

from trunkline.mock.app import Mock
from trunkline.mock.script import load_scenarios
from trunkline.mock.serve import Mocks, bind, server_of

# The variable by which entries of the catalogue name the address of the mocks.
VARIABLE = "MOCKS_URL"
_HOST = "127.0.0.1"
_END_S = 5.0


class MockProcess:
    """A child process that serves the scenarios of a file: `with MockProcess(file, 8001) as url`.

    It ends when its standard input does: also with a hub that was killed.
    """

    def __init__(self, file: Path, port: int) -> None:
        """Take the file and the port that is wanted; any other serves where that is taken.

        Raises:
            Misuse: the file is wrong.
        """
        load_scenarios(file)
        self._file = file
        self._port = port

    def __enter__(self) -> str:
        listener = _listener(self._port)
        with listener:
            number = listener.fileno()
            command = [sys.executable, "-m", "trunkline.hub.mocks", str(self._file), str(number)]
            self._child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number])
            return f"http://{_HOST}:{listener.getsockname()[1]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError:
        return bind(_HOST, 0)


def main(file: str, number: int) -> None:
    """Serve the scenarios of a file on a socket that was inherited, until the hub is gone."""
    mocks = [Mock(scenario) for scenario in load_scenarios(file)]
    server = server_of(Mocks(mocks))

    def watch() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    server.run([socket.socket(fileno=number)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
