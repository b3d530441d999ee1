"""A server that speaks like OpenAI's chat completions over real HTTP, and answers what a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One answer: text in pieces, calls of tools, or an error; a stream stops at `hold` after its first piece."""

    pieces: Sequence[str] = ()
    calls: Sequence[tuple[str, Any]] = ()
    status: int = 200
    error: dict[str, Any] = field(default_factory=dict)
    hold: threading.Event | None = None


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
                    self._whole(reply.status, {"error": reply.error or {"message": "secret-of-the-provider"}})
                elif body.get("stream"):
                    self._stream(reply)
                else:
                    self._whole(200, _completion(reply))

            def _whole(self, status: int, value: Any) -> None:
                encoded = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(encoded)))
                # So that the client's own second tries cost a test nothing.
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(encoded)

            def _stream(self, reply: Reply) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                try:
                    for n, piece in enumerate(reply.pieces):
                        self._event({"content": piece})
                        if n == 0 and reply.hold is not None:
                            reply.hold.wait(60)
                    for n, (name, arguments) in enumerate(reply.calls):
                        said = arguments if isinstance(arguments, str) else json.dumps(arguments)
                        function = {"name": name, "arguments": said}
                        call = {
                            "index": n,
                            "id": f"call_{len(outer.asked)}_{n}",
                            "type": "function",
                            "function": function,
                        }
                        self._event({"tool_calls": [call]})
                    self._event({}, "tool_calls" if reply.calls else "stop")
                    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
                    self._data({**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": usage})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    # Whoever asked is gone.
                    pass

            def _event(self, delta: dict[str, Any], finish: str | None = None) -> None:
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                self._data({**_HEAD, "object": "chat.completion.chunk", "choices": [choice]})

            def _data(self, value: Any) -> None:
                self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
                self.wfile.flush()

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


_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "small"}


def _completion(reply: Reply) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(reply.pieces)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": usage}


def results(body: dict[str, Any]) -> list[str]:
    """What a request tells of the tools that were called."""
    return [one["content"] for one in body["messages"] if one["role"] == "tool"]


def told(body: dict[str, Any]) -> str:
    """What a request tells the model of itself."""
    return "\n".join(one["content"] for one in body["messages"] if one["role"] in ("system", "developer"))
