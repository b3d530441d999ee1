"""A local server in the place of those that hubs tell things."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest


class Desk(ThreadingHTTPServer):
    """A server that keeps what is posted to it, and answers with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Posted)
        self.status = 204
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
        self.send_response(self.server.status)
        self.end_headers()

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
