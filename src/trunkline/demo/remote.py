"""The tour's own few lines of client: JSON-RPC 1.0 over the standard library, and the server process."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from trunkline.clock import random_bits
from trunkline.wire import sse

READY_S = 20.0
_HEADERS = {"Content-Type": "application/json", "A2A-Version": "1.0"}


class StepFailed(Exception):
    """The tour saw something it did not expect."""


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
                 "--port", str(self.port), "--store", f"sqlite:///{self.file}"],
                stdout=log, stderr=log,
            )  # fmt: skip
        while time.monotonic() - began < READY_S:
            if self._process.poll() is not None:
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
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)

    def wait(self) -> None:
        """Until it ends."""
        if self._process is not None:
            self._process.wait()

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One JSON-RPC call; gives its result."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/a2a", _body(method, params), _HEADERS)
            answer = msgspec.json.decode(connection.getresponse().read())
        finally:
            connection.close()
        if "result" not in answer:
            raise StepFailed(f"{method}: {answer.get('error')}")
        return answer["result"]

    def send(self, text: str, **message: str) -> dict[str, Any]:
        """Send a text and wait; gives the task."""
        return self.call("SendMessage", {"message": said(text, **message)})["task"]

    def receipt(self, text: str) -> dict[str, Any]:
        """Send a text without waiting; gives the task as it begins."""
        params = {"message": said(text), "configuration": {"returnImmediately": True}}
        return self.call("SendMessage", params)["task"]

    def stream(self, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Send a text and give each frame with its id as it comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST", "/a2a", _body("SendStreamingMessage", {"message": said(text)}), _HEADERS
            )
            response = connection.getresponse()
            parser = sse.Parser()
            while piece := response.read1(65536):
                for event in parser.feed(piece):
                    yield event.id, msgspec.json.decode(event.data)["result"]
        finally:
            connection.close()


def said(text: str, **message: str) -> dict[str, Any]:
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
