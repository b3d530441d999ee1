"""The servers of the tour in processes of their own, which may be killed by the tour or by somebody else."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TypeVar

from trunkline.client.result import Result
from trunkline.client.sync import SyncClient
from trunkline.errors import Refused, TrunklineError, Unavailable
from trunkline.net.egress import Egress, target
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.spellings import plain_state

READY_S = 20.0
# How often in a row somebody may kill a server before the tour gives up.
PATIENCE = 8
# One that was told to end may take so long; one that was killed is known to be dead much sooner.
ENDING_S = 15.0
_HOST = "127.0.0.1"
Done = TypeVar("Done")


class StepFailed(Exception):
    """The tour saw something it did not expect."""


class Gone(Exception):  # noqa: N818 - part of what a tour is about
    """A process of the tour that somebody else has ended."""


def outlive(act: Callable[[], Done], tell: Callable[[Gone], None], given_up: str) -> Done:
    """Do something again, after a word of it, each time somebody ends a server meanwhile; gives its result.

    Raises:
        StepFailed: it happens too often.
    """
    for _ in range(PATIENCE):
        try:
            return act()
        except Gone as gone:
            tell(gone)
    raise StepFailed(given_up)


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

    def check_alive(self, within_s: float | None = 0) -> None:
        """Check that the server runs, and goes on so for some seconds; None waits for its end.

        Raises:
            Gone: it has ended.
        """
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(within_s)
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
            # A server that refuses is well; what else goes wrong may be the beginning of its end.
            is_well = isinstance(error, Refused) and not isinstance(error, Unavailable)
            self.check_alive(0 if is_well else ENDING_S)
            raise StepFailed(str(error)) from error

    def _gone(self) -> Gone:
        code = 0 if self._process is None else self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Gone(f"process {self.pid} {how}, and not by this tour")


_KEYS_LIMIT = 1 << 16


class DemoServer(TourProcess):
    """The demo agent in a process of its own, on a SQLite file."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(
            directory, port,
            ["serve", "trunkline.demo:agent", "--store", f"sqlite:///{directory / 'tasks.db'}",
             # The tour's webhook is on this machine.
             "--set", "egress_networks=127.0.0.0/8"],
        )  # fmt: skip
        self.client = self._connect()

    def stop(self) -> None:
        """End the server in order."""
        self.client.close()
        super().stop()

    def check_alive(self, within_s: float | None = 0) -> None:
        """Check that the server runs; see `TourProcess`."""
        try:
            super().check_alive(within_s)
        except Gone:
            # The next server is not to blame for what this one left unanswered.
            self.client.close()
            self.client = self._connect()
            raise

    def signing_keys(self) -> bytes:
        """The public keys that its webhooks are signed with."""
        return asyncio.run(_read(f"{self.base}/.well-known/jwks.json"))

    def _connect(self) -> SyncClient:
        # Little patience: a restart of the tour's own needs none, and somebody else's kill is noticed soon.
        return SyncClient(
            self.base, timeout_s=READY_S, idle_s=READY_S / 2, connect_s=2, poll_s=0.2, retries=1
        )


class Acknowledged:
    """The newest answer for each task, to be held against the server whenever it comes back."""

    def __init__(self) -> None:
        self._answers: dict[str, Result] = {}

    def note(self, result: Result) -> None:
        """Keep an answer as the newest of its task."""
        self._answers[result.task_id] = result

    def compare(self, client: SyncClient) -> str:
        """Ask for every task again; gives what became of them, in words.

        Raises:
            StepFailed: something that was acknowledged is not there.
        """
        now: Counter[str] = Counter()
        for task_id, answered in self._answers.items():
            found = client.get(task_id)
            # What had ended stays as it was. A question may have been answered, and what ran may have ended.
            if answered.ended and describe(found) != describe(answered):
                raise StepFailed(f"task {task_id} was {describe(answered)} and is {describe(found)}")
            now[plain_state(found.state)] += 1
        states = ", ".join(f"{count} {state}" for state, count in now.items())
        return f"nothing acknowledged was lost: {states or 'there was nothing yet'}"


def describe(result: Result) -> str:
    """The state and the text of an answer, in words."""
    return f"{plain_state(result.state)} {result.text!r}"


async def _read(url: str) -> bytes:
    caller = SocketHttpClient(Egress(hosts=[target(url).host]))
    try:
        reply = await caller.open(HttpRequest("GET", url))
        return await reply.read(_KEYS_LIMIT)
    finally:
        await caller.close()
