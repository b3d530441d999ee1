"""A local server in the place of those that hubs tell things."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest


class Desk(ThreadingHTTPServer):
    """A server that keeps what is posted to it, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posted)
        self.status = 204
        # What is answered to a method, a path and a body.
        self.answer: Callable[[str, str, bytes], bytes] = lambda method, path, body: b""
        self.heard: list[tuple[str, dict[str, str], bytes]] = []

    def bodies(self) -> list[Any]:
        """What was posted, as JSON."""
        return [json.loads(body) for _, _, body in self.heard]

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Posted(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Desk)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.heard.append((self.path, dict(self.headers), body))
        answer = self.server.answer(self.command, self.path, body)
        self.send_response(self.server.status)
        if answer:
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PATCH(self) -> None:
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def desk() -> Iterator[Desk]:
    server = Desk()
    serving = Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()
