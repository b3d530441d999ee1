"""A webhook receiver that writes down what it gets and answers as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

from trunkline.webhook.listener import IncomingWebhook, WebhookListener

WAIT_S = 60.0
FollowUp = int | tuple[int, dict[str, str]]


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
        self.scripts: dict[str, list[FollowUp]] = {}
        self.gates: dict[str, threading.Event] = {}
        self.under_way: Counter[str] = Counter()
        self.most: defaultdict[str, int] = defaultdict(int)
        self._news = threading.Condition()
        self._listener = WebhookListener(self._answer, "0.0.0.0")

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self._listener.port}{path}"

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

    def _answer(self, webhook: IncomingWebhook) -> FollowUp:
        return self.take(Post(webhook.path, webhook.headers, webhook.body, time.monotonic()))

    def take(self, post: Post) -> FollowUp:
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
        return self

    def __exit__(self, *_: object) -> None:
        for gate in self.gates.values():
            gate.set()
        self._listener.close()
