"""A server that speaks like those of models over real HTTP, and answers what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.gateway.model.protocols import HEAD, Reply, events


class ModelServer:
    """Answers each request by `answer`; what was asked is in `asked`, with its headers in `headers`."""

    def __init__(self, answer: Callable[[dict[str, Any]], Reply]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                outer.paths.append(self.path)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                reply = outer.answer(body)
                if reply.status != 200:
                    error = {"error": reply.error or {"message": "secret-of-the-provider"}}
                    self._whole(reply.status, error, reply.location)
                elif body.get("stream") or "stream" in self.path:
                    self._stream(reply)
                else:
                    self._whole(200, _completion(reply))

            def _whole(self, status: int, value: Any, location: str = "") -> None:
                encoded = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(encoded)))
                # So that the client's own second tries cost a test nothing.
                self.send_header("retry-after-ms", "1")
                if location:
                    self.send_header("location", location)
                self.end_headers()
                self.wfile.write(encoded)

            def _stream(self, reply: Reply) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for event in events(self.path, reply, len(outer.asked)):
                        self.wfile.write(event)
                        self.wfile.flush()
                        if reply.hold is not None and reply.pieces and reply.pieces[0].encode() in event:
                            reply.hold.wait(60)
                except OSError:
                    # Whoever asked is gone.
                    pass

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ModelServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _completion(reply: Reply) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(reply.pieces)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    return {**HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}


__all__ = ["ModelServer", "Reply", "results", "told"]


def results(body: dict[str, Any]) -> list[str]:
    """What a request tells of the tools that were called."""
    return [one["content"] for one in body["messages"] if one["role"] == "tool"]


def told(body: dict[str, Any]) -> str:
    """What a request tells the model of itself."""
    return "\n".join(one["content"] for one in body["messages"] if one["role"] in ("system", "developer"))
