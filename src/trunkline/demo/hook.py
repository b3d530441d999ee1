"""The tour's own webhook: a few lines of HTTP server around `trunkline.webhook.Receiver`."""

from __future__ import annotations

import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from trunkline.errors import Refused
from trunkline.webhook import Notification, Receiver


class TourWebhook:
    """Listens on loopback; what it was told and could believe is in `told`."""

    def __init__(self, receiver: Receiver) -> None:
        self.told: queue.Queue[Notification] = queue.Queue()
        told = self.told

        class Endpoint(BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self) -> None:  # noqa: N802 - the name is the standard library's
                """Take a notification, once however often it comes."""
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                try:
                    notification = receiver.receive(dict(self.headers), body)
                except Refused:
                    self.send_error(401)
                    return
                if not notification.repeated:
                    told.put(notification)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing: the tour does."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
