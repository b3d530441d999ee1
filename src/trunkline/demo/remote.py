"""The tour's own few lines of client: JSON-RPC 1.0 over the standard library, and the server process."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import msgspec

from trunkline.clock import random_bits
from trunkline.wire import sse

READY_S = 20.0
# One that was told to end may take so long; one that was killed is known to be dead much sooner.
ENDING_S = 15.0
MOVING = ("submitted", "working")
_HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


class StepFailed(Exception):
    """The tour saw something it did not expect."""


class Gone(Exception):  # noqa: N818 - part of what a tour is about
    """Somebody else has ended the server."""


def free_port(wanted: int) -> int:
    """This port, or any other if somebody listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Demo:
    """The demo agent in a process of its own, on a SQLite file."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.file = directory / "tasks.db"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start, wait until it answers; gives the seconds that took."""
        began = time.monotonic()
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trunkline.cli", "serve", "trunkline.demo:agent",
                 "--port", str(self.port), "--store", f"sqlite:///{self.file}", "--set", "drain_limit=2",
                 # The tour's webhook is on this machine.
                 "--set", "egress_networks=127.0.0.0/8"],
                stdout=log, stderr=log,
            )  # fmt: skip
        while time.monotonic() - began < READY_S:
            if (code := self._process.poll()) is not None:
                if code <= 0:
                    raise self._gone()
                raise StepFailed((self._directory / "server.log").read_text())
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return time.monotonic() - began
            time.sleep(0.01)
        raise StepFailed("the demo server did not start")

    @property
    def pid(self) -> int:
        """The process that serves."""
        return self._process.pid if self._process is not None else 0

    def kill(self) -> None:
        """End it without a chance to say goodbye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(ENDING_S)

    def watch(self) -> None:
        """Until it ends.

        Raises:
            Gone: it has.
        """
        if self._process is not None:
            self._process.wait()
            raise self._gone()

    def check(self) -> None:
        """After something went wrong: wait a while for the server's end.

        Raises:
            Gone: it has ended.
        """
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)
                raise self._gone()

    def _gone(self) -> Gone:
        code = 0 if self._process is None else self._process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return Gone(f"process {self.pid} {how}, and not by this tour")

    @contextlib.contextmanager
    def _ask(
        self, method: str, params: dict[str, Any], **headers: str
    ) -> Generator[http.client.HTTPResponse]:
        """An answer to one request.

        Raises:
            Gone: the server ended meanwhile.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/a2a", _body(method, params), {**_HEADERS, **headers})
            response = connection.getresponse()
            if response.status == http.client.SERVICE_UNAVAILABLE:
                self.check()
            yield response
        except (OSError, http.client.HTTPException) as error:
            self.check()
            raise StepFailed(f"{method}: {error!r}") from error
        finally:
            connection.close()

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One JSON-RPC call; gives its result."""
        with self._ask(method, params) as response:
            answer = msgspec.json.decode(response.read())
        if "result" not in answer:
            raise StepFailed(f"{method}: {answer.get('error')}")
        return answer["result"]

    def send(self, text: str, **message: str) -> dict[str, Any]:
        """Send a text and wait; gives the task."""
        return self.call("SendMessage", {"message": said(text, **message)})["task"]

    def settled(self, task_id: str) -> dict[str, Any]:
        """A task once it has ended or asks something."""
        deadline = time.monotonic() + READY_S
        while state_of(task := self.call("GetTask", {"id": task_id})) in MOVING:
            if time.monotonic() > deadline:
                raise StepFailed(f"task {task_id} does not come to an end")
            time.sleep(0.02)
        return task

    def receipt(self, text: str, push: dict[str, str] | None = None, **message: Any) -> dict[str, Any]:
        """Send a text without waiting, perhaps with a webhook; gives the task as it begins."""
        wanted: dict[str, Any] = {"returnImmediately": True}
        if push is not None:
            wanted["taskPushNotificationConfig"] = push
        return self.call("SendMessage", {"message": said(text, **message), "configuration": wanted})["task"]

    def signing_keys(self) -> bytes:
        """The public keys that its webhooks are signed with."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/.well-known/jwks.json")
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            self.check()
            raise StepFailed(f"jwks.json: {error!r}") from error
        finally:
            connection.close()

    def alive(self) -> None:
        """Go on if it runs.

        Raises:
            Gone: it has ended.
        """
        if self._process is not None and self._process.poll() is not None:
            raise self._gone()

    def stream(self, text: str, **message: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Send a text and give each frame with its id as it comes."""
        return self._frames("SendStreamingMessage", {"message": said(text, **message)})

    def resume(self, task_id: str, last: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each frame after the one with this id."""
        return self._frames("SubscribeToTask", {"id": task_id}, **{"Last-Event-ID": last})

    def _frames(
        self, method: str, params: dict[str, Any], **headers: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        with self._ask(method, params, **headers) as response:
            parser = sse.Parser()
            frame: dict[str, Any] = {}
            while piece := response.read1(65536):
                for event in parser.feed(piece):
                    frame = msgspec.json.decode(event.data)["result"]
                    yield event.id, frame
            if "statusUpdate" not in frame or state_of(frame["statusUpdate"]) in MOVING:
                # It ended in order, but not at an end of the task: the server is going down.
                self.check()


def said(text: str, **message: Any) -> dict[str, Any]:
    """A user's message."""
    return {
        "messageId": f"tour-{random_bits(64):016x}",
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        **message,
    }


def state_of(task: dict[str, Any]) -> str:
    """The state as people say it."""
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(task: dict[str, Any]) -> str:
    """The text of a task's artifacts."""
    return "".join(part.get("text", "") for one in task.get("artifacts", ()) for part in one["parts"])


def _body(method: str, params: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
