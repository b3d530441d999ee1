"""Row 40: request targets that climb, double, escape or overflow; nothing is reached but the routes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness import Agent, ServerProcess
from tests.hostile.shapes import V1
from tests.hostile.sockets import Answer, flood, one, request, until_closed

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("TRUNKLINE_TEST_SEED", "20260131"))
COUNT = 5_000
VERBS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS")
PIECES = (
    "tasks", "v1", "message:send", "message:stream", "card", "extendedAgentCard", "a2a", ".well-known", "agent-card.json",
    "pushNotificationConfigs", "default", "..", ".", "%2e%2e", "%2E.", "..;", "..%3b", "%00", "%0d%0a", "%ff", "%c0%ae", "%25%32%65",
    "%e2%88%95", "%ef%bc%8f", "%5c..", "..%5c", "%2f", "%2F..%2f", "", "*", "~", "x:cancel", "x:subscribe", ":cancel", ":", "x:y:z",
    "x%3acancel", "%f0%9f%98%80", "%e2%80%ae", "%20", "%7f", "etc", "passwd", "tasks.db", "trunkline.toml", "x" * 257, "\\..\\",
)  # fmt: skip
ROUTED = {200, 202, 400, 404, 405, 413, 415, 501}


def _targets(seed: int) -> Iterator[bytes]:
    chance = random.Random(seed)
    for _ in range(COUNT):
        pieces = [chance.choice(PIECES) for _ in range(chance.randint(1, 6))]
        path = chance.choice(["/", "//", "/v1/", "/tasks/", "/./", ""]) + chance.choice(
            ["/", "//", "%2f", ";/"]
        ).join(pieces)
        yield (path if path[:1] in "/*" else "/" + path).encode()


def test_strange_paths(target: ServerProcess) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    raws = [request(chance.choice(VERBS), path, None, *chance.choice([(), (V1,)])) for path in _targets(SEED)]
    answers = flood(target.port, raws)
    print(sorted(Counter(answer.status for answer in answers).items()))
    for raw, answer in zip(raws, answers, strict=True):
        assert answer.status in ROUTED, (raw, answer)
        assert b"root:" not in answer.body and b"SQLite" not in answer.body
        assert _is_ours(answer), (raw, answer)


def _is_ours(answer: Answer) -> bool:
    """A whole answer of the agent: JSON, or a stream, or nothing at all; or the connection's word that it is no HTTP."""
    kind = answer.header(b"content-type") or b"application/json"
    return (
        kind in (b"application/json", b"application/a2a+json", b"text/event-stream") or answer.status == 400
    )


@pytest.fixture(scope="module")
def task(target: ServerProcess) -> str:
    agent = Agent(target.base)
    made = agent.send("echo treasure")["id"]
    agent.close()
    return made


CLIMBS = (
    "/delegate/tasks%2f{id}", "/delegate/../tasks/{id}", "/delegate//tasks/{id}", "/delegate/tasks//{id}", "/delegate/tasks/./{id}",
    "/tasks/../tasks/{id}", "/tasks/%2e%2e/tasks/{id}", "/tasks/./{id}", "/tasks//{id}", "//tasks/{id}", "/tasks/..;/tasks/{id}",
    "/tasks/x/../{id}", "/tasks%2f{id}", "/tasks%2F{id}", "/tasks/x%2f..%2f{id}", "/tasks/%2e%2e%2ftasks%2f{id}", "/tasks/{id}/",
    "/tasks/{id}%00", "/tasks/{id}%0a", "/tasks/{id}%20", "/tasks/%20{id}", "/tasks/{id}.json", "/tasks/{id};x=y", "/tasks\\{id}",
    "/tasks/\u2215{id}", "/tasks\u2215{id}", "/TASKS/{id}", "/v1/v1/tasks/{id}", "/v2/tasks/{id}", "/a2a/tasks/{id}", "/a2a/../tasks/{id}",
    "/%2e/tasks/{id}", "/.well-known/../tasks/{id}", "/.well-known/%2e%2e/tasks/{id}", "/other/tasks/{id}", "/../tasks/{id}",
)  # fmt: skip


@pytest.mark.parametrize("climb", CLIMBS)
@pytest.mark.parametrize("version", [(), (V1,)], ids=["plain", "1.0"])
def test_a_task_has_one_address(
    target: ServerProcess, task: str, climb: str, version: tuple[bytes, ...]
) -> None:
    assert one(target.port, request("GET", f"/tasks/{task}", None, *version)).status == 200
    answer = one(target.port, request("GET", climb.format(id=task), None, *version))
    assert answer.status in (400, 404), answer
    assert b"treasure" not in answer.body


ODD_IDS = (
    "x" * 256, "x" * 257, "x" * 10_000, "%2e%2e", "%F0%9F%98%80", "%E2%80%AE", "%00", "%0d%0aX-Evil:%201", "'%20OR%201=1--", "%25s%25n",
    "0", "-1", "null", "undefined", "[object%20Object]", "00000000-0000-0000-0000-000000000000", "%E2%80%A8", "{{7*7}}", "$%7Bjndi:x%7D", "%ED%A0%80",
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: odd[:20])
@pytest.mark.parametrize("shape", ["/tasks/{}", "/v1/tasks/{}", "/tasks/{}:cancel", "/v1/tasks/{}:subscribe", "/tasks/{}/pushNotificationConfigs", "/tasks/x/pushNotificationConfigs/{}", "/delegate/tasks/{}"])  # fmt: skip
def test_odd_ids_are_not_found(target: ServerProcess, odd: str, shape: str) -> None:
    for verb in ("GET", "POST"):
        answer = one(target.port, request(verb, shape.format(odd), None))
        assert answer.status in (400, 404, 405, 501), answer
        assert not any(b"evil" in name + value.lower() for name, value in answer.headers)


TARGETS = (
    b"*", b"http://evil.example/a2a", b"http://127.0.0.1", b"evil.example:80", b"/a2a#x", b"/a2a?x#y", b"/\xff", b"/\xc3\xa9", b"/a\tb", b"?", b"#",
    b"/" + b"a" * 60_000, b"/?" + b"a=1&" * 10_000, b"/a b c", b"/\x00", b"\\\\evil\\share", b"http://[::1/", b"https://", b"//evil.example/tasks",
)  # fmt: skip


@pytest.mark.parametrize("verb", ["GET", "POST", "OPTIONS", "CONNECT", "TRACE", "BREW", "get"])
@pytest.mark.parametrize("odd", TARGETS, ids=lambda odd: repr(odd[:20]))
def test_odd_targets(target: ServerProcess, verb: str, odd: bytes) -> None:
    said, _ = until_closed(target.port, [request(verb, odd, None, b"Connection: close")])
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 ", b"HTTP/1.1 405 ", b"HTTP/1.1 415 ")), said[
        :200
    ]


@pytest.mark.parametrize("endless", [b"a", b"X-%d: y\r\n"], ids=["target", "headers"])
def test_a_head_without_end_is_cut(target: ServerProcess, endless: bytes) -> None:
    begin = b"GET /" if endless == b"a" else request("GET", "/tasks", None)[:-2]
    piece = endless * 65536 if endless == b"a" else b"".join(endless % number for number in range(6000))
    said, sent = until_closed(target.port, [begin, *[piece] * 600])
    assert said.startswith(b"HTTP/1.1 431 ") or not said, said[:200]
    assert sent <= 12 << 20, "the server went on reading"
