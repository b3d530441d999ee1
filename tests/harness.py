"""Real server processes and plain HTTP for tests: what a stranger's client would do, byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

V1 = {"A2A-Version": "1.0"}
# On a machine with much else to do; nobody waits for longer than it takes.
READY_S = 120.0
# What seals the secrets of push configs where no file can lie beside the store.
SECRET = {"TRUNKLINE_SECRET_KEY": "a-secret-key-for-the-tests-of-push"}
# For clients that speak plain HTTP: reading the authorities of the web takes each longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def free_port() -> int:
    """A port that nobody uses, nor will: below those that the system gives to whoever connects or asks for any."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(10_000, 32_000)))
            return probe.getsockname()[1]


class ServerProcess:
    """`trunkline serve` in a process of its own, on loopback."""

    def __init__(
        self,
        directory: Path,
        target: str = "trunkline.demo:agent",
        *flags: str,
        store: str = "sqlite:///tasks.db",
        env: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.base}/a2a"
        self.log = directory / f"server-{self.port}.log"
        self._env = {**os.environ, **(env or {})}
        self._command = [
            sys.executable, "-c", "from trunkline.cli.main import main; main()",
            "serve", target, "--port", str(self.port), "--store", store, *flags,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> ServerProcess:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command, cwd=self.directory, env=self._env, stdout=out, stderr=out
            )
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"server ended with {self.process.returncode}:\n{self.text()}")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        # Nobody else would: one that was left behind slows down all that follow.
        self.kill()
        raise TimeoutError(f"server not ready:\n{self.text()}")

    def stop(self, how: int = signal.SIGTERM, timeout: float = 60.0) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(timeout)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop(signal.SIGKILL)


class Agent:
    """One agent under test, spoken to by hand in either version."""

    def __init__(self, base: str, *, path: str = "/a2a", headers: dict[str, str] | None = None) -> None:
        self.base = base
        self.url = base + path
        self.http = httpx2.Client(timeout=60, headers=headers or {}, verify=NO_TLS)

    def close(self) -> None:
        self.http.close()

    def post(self, body: Any, headers: dict[str, str] | None = None, url: str = "") -> httpx2.Response:
        """POST to the JSON-RPC endpoint: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(
            url or self.url, content=content, headers={"Content-Type": "application/json", **(headers or {})}
        )

    def rpc(
        self, method: str, params: Any = None, *, version: str = "1.0", request_id: Any = 1, **headers: str
    ) -> Any:
        """The whole JSON-RPC answer."""
        body = {
            "jsonrpc": "2.0",
            "id": request_id,
            "method": method,
            "params": {} if params is None else params,
        }
        response = self.post(body, _headers(version, headers))
        assert response.status_code == 200, (response.status_code, response.text)
        return response.json()

    def result(self, method: str, params: Any = None, **kwargs: Any) -> Any:
        answer = self.rpc(method, params, **kwargs)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method: str, params: Any = None, **kwargs: Any) -> Any:
        answer = self.rpc(method, params, **kwargs)
        assert "error" in answer, answer
        return answer["error"]

    def send(self, text: str, *, version: str = "1.0", wait: bool = True, **message: Any) -> Any:
        """Send a text; the Task (or Message) of the answer."""
        result = self.result(
            "SendMessage" if version == "1.0" else "message/send",
            params(text, version, wait, **message),
            version=version,
        )
        return (result.get("task") or result.get("message")) if version == "1.0" else result

    def get(self, task_id: str, *, version: str = "1.0") -> Any:
        return self.result("GetTask" if version == "1.0" else "tasks/get", {"id": task_id}, version=version)

    def until(self, task_id: str, *states: str, version: str = "1.0", limit_s: float = 60.0) -> Any:
        """Poll until the task is in one of these states (0.3 spelling)."""
        deadline = time.monotonic() + limit_s
        while True:
            task = self.get(task_id, version=version)
            if plain_state(task) in states:
                return task
            assert time.monotonic() < deadline, task
            time.sleep(0.02)

    @contextmanager
    def stream(
        self, method: str, params_: Any, *, version: str = "1.0", request_id: Any = 1, **headers: str
    ) -> Iterator[Frames]:
        """An open SSE response of a streaming method."""
        body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params_}).encode()
        all_headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            **_headers(version, headers),
        }
        with self.http.stream("POST", self.url, content=body, headers=all_headers) as response:
            yield Frames(response)

    @contextmanager
    def open(self, verb: str, path: str, *, body: Any = None, **headers: str) -> Iterator[Frames]:
        """An open SSE response of a REST route."""
        content = b"" if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content else {}
        with self.http.stream(
            verb, self.base + path, content=content, headers={**kind, **headers}
        ) as response:
            yield Frames(response)


class Frame:
    """One server-sent event as it came."""

    def __init__(self, seq: int | None, data: Any, at: float) -> None:
        self.id = seq
        self.data = data
        self.at = at

    @property
    def result(self) -> Any:
        return self.data.get("result", self.data)

    def __repr__(self) -> str:
        return f"Frame(id={self.id}, {self.data})"


class Frames:
    """Iterates the frames of a response; comments and retry are noted aside."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.comments = 0
        self.retry: int | None = None
        # One reader: whoever stops and comes back goes on where it was.
        self._each = self._read()

    def __iter__(self) -> Iterator[Frame]:
        return self._each

    def _read(self) -> Iterator[Frame]:
        seq, data = None, []
        for line in self.response.iter_lines():
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("retry:"):
                self.retry = int(line[6:])
            elif line.startswith("id:"):
                seq = int(line[3:])
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
            elif not line and data:
                yield Frame(seq, json.loads("\n".join(data)), time.monotonic())
                seq, data = None, []

    def all(self) -> list[Frame]:
        return list(self)


def message(text: str, version: str = "1.0", **more: Any) -> dict[str, Any]:
    """A user message with a fresh UUID, in the shape of a version."""
    part = {"text": text} if version == "1.0" else {"kind": "text", "text": text}
    base: dict[str, Any] = {
        "messageId": str(uuid.uuid4()),
        "role": "ROLE_USER" if version == "1.0" else "user",
        "parts": [part],
    }
    if version != "1.0":
        base["kind"] = "message"
    return {**base, **more}


def params(text: str, version: str = "1.0", wait: bool = True, **more: Any) -> dict[str, Any]:
    """Send params in the shape of a version."""
    flag = {"returnImmediately": not wait} if version == "1.0" else {"blocking": wait}
    return {"message": message(text, version, **more), "configuration": flag}


def plain_state(task: Any) -> str:
    """The state in 0.3 spelling, from either version."""
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def text_of(task: Any) -> str:
    """All text of a task's artifacts."""
    return "".join(
        part.get("text", "") for artifact in task.get("artifacts", []) for part in artifact["parts"]
    )


def _headers(version: str, more: dict[str, str]) -> dict[str, str]:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return {**(V1 if version == "1.0" else {}), **named}
