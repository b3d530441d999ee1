"""A server of the tour in a process of its own, which may be killed by the tour or by somebody else."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from trunkline.errors import Refused, TrunklineError, Unavailable

READY_S = 20.0
# How often in a row somebody may kill a server before the tour gives up.
PATIENCE = 8
# One that was told to end may take so long; one that was killed is known to be dead much sooner.
ENDING_S = 15.0
_HOST = "127.0.0.1"


class StepFailed(Exception):
    """The tour saw something it did not expect."""


class Gone(Exception):  # noqa: N818 - part of what a tour is about
    """A process of the tour that somebody else has ended."""


def free_port(wanted: int) -> int:
    """This port, or any other if somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, wanted))
        except OSError:
            probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


class TourProcess:
    """A `trunkline` command that serves on a port of loopback; what it logs is in a file of the folder."""

    def __init__(self, directory: Path, port: int, arguments: Sequence[str]) -> None:
        self.port = port
        self.base = f"http://{_HOST}:{port}"
        self._arguments = [*arguments, "--port", str(port), "--set", "drain_limit=2"]
        self._log = directory / f"{arguments[0]}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the server and wait until it answers; gives the seconds that took."""
        began = time.monotonic()
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "trunkline.cli", *self._arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while time.monotonic() - began < READY_S:
            if (code := self._process.poll()) is not None:
                if code <= 0:
                    raise self._gone()
                raise StepFailed(self._log.read_text())
            with socket.socket() as probe:
                if probe.connect_ex((_HOST, self.port)) == 0:
                    return time.monotonic() - began
            time.sleep(0.01)
        raise StepFailed(f"`trunkline {self._arguments[0]}` did not start")

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._process.pid if self._process is not None else 0

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End the server without a chance to say goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End the server in order."""
        if self._process is not None and self.runs:
            self._process.terminate()
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(ENDING_S)
            finally:
                # Whoever presses Ctrl-C again does not wait for the order, and still nothing is left behind.
                self.kill()

    def watch(self) -> None:
        """Wait for the end of the server.

        Raises:
            Gone: it has.
        """
        if self._process is not None:
            self._process.wait()
            raise self._gone()

    def alive(self) -> None:
        """Check that the server still runs.

        Raises:
            Gone: it has ended.
        """
        if self._process is not None and self._process.poll() is not None:
            raise self._gone()

    def await_end(self) -> None:
        """After something went wrong: wait a while for the server's end.

        Raises:
            Gone: it has ended.
        """
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
                raise self._gone()

    @contextlib.contextmanager
    def checked(self) -> Generator[None]:
        """Whatever the client complains about within is the server's end, or a step that failed.

        Raises:
            Gone: the server ended meanwhile.
            StepFailed: it did not.
        """
        try:
            yield
        except TrunklineError as error:
            if isinstance(error, Refused) and not isinstance(error, Unavailable):
                self.alive()
            else:
                self.await_end()
            raise StepFailed(str(error)) from error

    def _gone(self) -> Gone:
        code = 0 if self._process is None else self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Gone(f"process {self.pid} {how}, and not by this tour")
