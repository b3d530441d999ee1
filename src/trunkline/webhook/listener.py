"""A small HTTP server in a thread that takes webhooks for as long as a check, a tour or a test lasts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from msgspec import Struct

_MOST_BYTES = 16 << 20


class IncomingWebhook(Struct, frozen=True):
    """A POST as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[IncomingWebhook], int | tuple[int, dict[str, str]]]


class WebhookListener:
    """Gives every POST to `answer`, in a thread of its own, and sends back the status that it gives.

    `address` is what it listens on; empty is every address of this machine.
    """

    def __init__(self, answer: Answer, address: str = "127.0.0.1", *, idle_s: float | None = None) -> None:
        self._server = _Server(answer, address, idle_s)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the listener."""
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    # A sender that was killed leaves its connection to a thread that ends by itself.
    block_on_close = False

    def __init__(self, answer: Answer, address: str, idle_s: float | None) -> None:
        self.answer = answer
        self._idle_s = idle_s
        self._dual = not address and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._dual or ":" in address else socket.AF_INET
        super().__init__((address, 0), _WebhookRequest)

    def server_bind(self) -> None:
        """Listen for both kinds of addresses where any will do."""
        if self._dual:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """A connection, which is given up after a while of silence."""
        connection, address = super().get_request()
        connection.settimeout(self._idle_s)
        return connection, address

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a stranger, or a sender that left; there is nothing to answer."""


class _WebhookRequest(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer in one packet: no waiting for acknowledgements.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:  # noqa: N802 - the name is the standard library's
        """Read a webhook and answer it."""
        size = min(int(self.headers.get("content-length") or 0), _MOST_BYTES)
        headers = {name.lower(): value for name, value in self.headers.items()}
        assert isinstance(self.server, _Server)
        said = self.server.answer(IncomingWebhook(self.path, headers, self.rfile.read(size)))
        status, more = (said, {}) if isinstance(said, int) else said
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing on standard error."""
