"""A webhook receiver that writes down what it gets and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WAIT_S = 10.0
Said = int | tuple[int, dict[str, str]]


@dataclass(frozen=True)
class Post:
    """One request; `at` is when it had arrived."""

    path: str
    headers: dict[str, str]
    raw: bytes
    at: float

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def told(self) -> Any:
        """What is inside the wrapper of 1.0, or the body itself."""
        body = self.body
        return body if "kind" in body else next(iter(body.values()))

    @property
    def state(self) -> str:
        """The state that it tells, in 0.3 spelling."""
        return self.told["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


class Hooks:
    """Listens on every loopback address, so that each of them is a target of its own.

    A path answers 200 unless `scripts` has a list for it, whose last word is repeated. A path in `gates`
    answers when its gate is set.
    """

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.scripts: dict[str, list[Said]] = {}
        self.gates: dict[str, threading.Event] = {}
        self.under_way: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)
        self._news = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self._server.server_port}{path}"

    def hold(self, path: str) -> threading.Event:
        """The gate that this path waits at from now on."""
        gate = self.gates[path] = threading.Event()
        return gate

    def on(self, path: str) -> list[Post]:
        with self._news:
            return [post for post in self.posts if post.path == path]

    def wait(self, path: str, count: int, limit_s: float = WAIT_S) -> list[Post]:
        """What has come to a path, once it is this many."""
        with self._news:
            there = self._news.wait_for(lambda: len(self._at(path)) >= count, limit_s)
            assert there, f"{len(self._at(path))} of {count} came to {path}"
            return self._at(path)

    def states(self, path: str, count: int) -> list[str]:
        """The states that were told to a path, once they are this many."""
        return [post.state for post in self.wait(path, count)]

    def _at(self, path: str) -> list[Post]:
        return [post for post in self.posts if post.path == path]

    def take(self, post: Post) -> Said:
        """Note a request, wait at its gate, and give the answer."""
        path = post.path
        with self._news:
            self.posts.append(post)
            self.under_way[path] += 1
            self.most[path] = max(self.most[path], self.under_way[path])
            script = self.scripts.get(path, [200])
            said = script.pop(0) if len(script) > 1 else script[0]
            gate = self.gates.get(path)
            self._news.notify_all()
        if gate is not None:
            gate.wait(60)
        with self._news:
            self.under_way[path] -= 1
        return said

    def __enter__(self) -> Hooks:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self.gates.values():
            gate.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    # A sender that was killed leaves its connection to a thread that ends by itself.
    block_on_close = False

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        super().__init__(("0.0.0.0", 0), _Request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that goes away in the middle is part of what is tested."""


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer in one packet each: no waiting for acknowledgements.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server = self.server
        assert isinstance(server, _Server)
        said = server.hooks.take(Post(self.path, headers, raw, time.monotonic()))
        status, more = (said, {}) if isinstance(said, int) else said
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""
