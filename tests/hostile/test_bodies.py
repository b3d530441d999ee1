"""Rows 35 to 37: bodies that are compressed, huge, endless, late, mislabelled or absurdly deep."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain, repeat

import pytest

from tests.harness import Agent, ServerProcess, message
from tests.hostile.conftest import resident_kib
from tests.hostile.shapes import V1
from tests.hostile.sockets import flood, one, parse_head, post, request, until_closed

pytestmark = pytest.mark.slow

LIMIT = 1 << 20
PEAK_KIB = 320 * 1024
# What a connection holds before the application asks.
READ_AHEAD = 64 << 10
TYPE = b"Content-Type: application/json"
POSTS = (
    "/a2a",
    "/a2a/",
    "/message:send",
    "/message:stream",
    "/v1/message:send",
    "/tasks/x:cancel",
    "/v1/tasks/x:subscribe",
)
KNOWN = ("/a2a", "/message:send", "/v1/message:send", "/delegate/tasks")


def _send(text: str) -> bytes:
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message(text)}}
    return json.dumps(body).encode()


@cache
def _bomb() -> bytes:
    """Ten megabytes in ten kilobytes."""
    return gzip.compress(bytes(10_000_000))


@pytest.mark.parametrize(
    "coding",
    [b"gzip", b"br", b"deflate", b"zstd", b"gzip, gzip", b"x-gzip", b"compress", b"identity, gzip", b""],
)
@pytest.mark.parametrize("path", POSTS)
def test_a_compressed_body_is_refused(target: ServerProcess, path: str, coding: bytes) -> None:
    before = resident_kib(target)
    answer = one(target.port, post(path, _bomb(), b"Content-Encoding: " + coding))
    assert answer.status == 415, answer
    assert resident_kib(target) - before <= 8 * 1024


def test_a_bomb_under_a_false_name_is_not_inflated(target: ServerProcess) -> None:
    for squeezed in (gzip.compress(bytes(20_000_000)), zlib.compress(bytes(20_000_000))):
        answer = one(target.port, post("/a2a", squeezed, V1))
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (200, -32700)


@pytest.mark.parametrize("path", KNOWN)
def test_bodies_of_every_size(target: ServerProcess, path: str) -> None:
    sizes = [0, 1, 2, 10, 1000, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1, LIMIT - 1, LIMIT]
    for fill in (b" ", b"[", b"x", b"\0"):
        for size, answer in zip(
            sizes, flood(target.port, [post(path, fill * size, V1) for size in sizes], lines=4), strict=True
        ):
            assert answer.status == (200 if path == "/a2a" else 400), (size, fill, answer)


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("size", [LIMIT + 1, 10 * LIMIT, 100_000_000, 10**17, 10**18, 2**64 - 1])
def test_a_body_that_says_it_is_too_large_is_not_read(target: ServerProcess, path: str, size: int) -> None:
    head = request("POST", path, None, TYPE, b"Content-Length: %d" % size)
    said, _ = until_closed(target.port, [head])
    status, headers = parse_head(said[: said.index(b"\r\n\r\n") + 4])
    assert status == 413
    assert dict(headers)[b"connection"] == b"close"


@pytest.mark.parametrize("path", KNOWN)
def test_a_body_without_end_is_cut_at_the_limit(target: ServerProcess, path: str) -> None:
    before = resident_kib(target)
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head = request("POST", path, None, TYPE, b"Transfer-Encoding: chunked")
    said, sent = until_closed(target.port, chain([head], repeat(chunk, 4000)))
    assert said.startswith(b"HTTP/1.1 413 ") or not said, said[:200]
    # Socket buffers of both sides take some more than the server reads.
    assert sent <= LIMIT + 12 * (1 << 20), "the server went on reading"
    assert resident_kib(target) - before <= 8 * 1024


@pytest.mark.parametrize("path", [*POSTS, "/tasks/x", "/.well-known/agent-card.json", "/nowhere"])
@pytest.mark.parametrize("host", [b"127.0.0.1", b"evil.example"])
def test_no_answer_leaves_an_endless_body_running(target: ServerProcess, path: str, host: bytes) -> None:
    """Whatever the answer is, a body that was not read is not drained for as long as its sender likes."""
    verb = "GET" if path.startswith(("/tasks/x", "/.well")) and ":" not in path else "POST"
    head = request(verb, path, None, b"Transfer-Encoding: chunked", host=host)
    said, sent = until_closed(
        target.port, chain([head], repeat(b"10000\r\n" + b" " * 0x10000 + b"\r\n", 4000))
    )
    assert sent <= LIMIT + 12 * (1 << 20), said[:200]


LENGTHS = [
    b"-1",
    b"+5",
    b"0x10",
    b"1e3",
    b"5, 6",
    b"5 5",
    b"abc",
    b"\xb2",
    b"",
    b"9" * 5000,
    b"00000000000000000000000002",
]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_wrong_content_length_is_refused(target: ServerProcess, length: bytes) -> None:
    headers = (TYPE, b"Content-Length: " + length, b"Connection: close")
    said, _ = until_closed(target.port, [request("POST", "/a2a", None, *headers) + b"{}", b"\r\n" * 4])
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ", b"HTTP/1.1 200 ")), said[:200]


FRAMINGS: list[tuple[bytes, ...]] = [
    (b"Content-Length: 2", b"Content-Length: 40"),
    (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    (b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    (b"Transfer-Encoding: chunked, identity",),
    (b"Transfer-Encoding: identity, chunked, chunked",),
    (b"Transfer-Encoding: xchunked",),
    (b"Transfer-Encoding: gzip, chunked",),
    (b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"),
    (b"Transfer-Encoding:\x0bchunked",),
    (b"Transfer-Encoding : chunked",),
]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_two_readings_of_one_request_are_refused(target: ServerProcess, framing: tuple[bytes, ...]) -> None:
    """A request that a proxy could cut otherwise than we do must not smuggle a second one in."""
    smuggled = request("GET", "/tasks", None)
    raw = request("POST", "/a2a", None, TYPE, *framing) + b"0\r\n\r\n" + smuggled
    said, _ = until_closed(target.port, [raw, b"\r\n" * 4])
    assert said.startswith(b"HTTP/1.1 400 "), said[:300]
    assert said.count(b"HTTP/1.1 ") == 1


def test_more_bytes_than_declared_are_not_a_second_answer(target: ServerProcess) -> None:
    raw = request("POST", "/a2a", None, TYPE, V1, b"Content-Length: 2") + _send("echo no")
    said, _ = until_closed(target.port, [raw, b"\r\n\r\n"])
    assert said.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 ")), said[:200]
    assert b"echo no" not in said


def test_a_caller_that_leaves_in_the_middle_is_forgotten(target: ServerProcess) -> None:
    for path in POSTS:
        with socket.create_connection(("127.0.0.1", target.port)) as line:
            line.sendall(request("POST", path, None, TYPE, b"Content-Length: 100") + b"{")


def _pieces(head: bytes, body: bytes) -> Iterator[bytes]:
    yield head
    yield body


@pytest.mark.parametrize("path", KNOWN)
@pytest.mark.parametrize("body", [b"", b"{"], ids=["silent", "begun"])
@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
def test_a_late_body_is_not_waited_for(hasty: ServerProcess, path: str, body: bytes, framing: bytes) -> None:
    begun = b"%x\r\n%b\r\n" % (len(body), body) if body and b"chunked" in framing else body
    # Ends when the server closes; the deadline of the socket is the assertion that it does.
    said, _ = until_closed(
        hasty.port, _pieces(request("POST", path, None, TYPE, V1, framing), begun), deadline_s=15
    )
    status, headers = parse_head(said[: said.index(b"\r\n\r\n") + 4])
    assert status in (200, 400)
    assert b"did not arrive" in said
    assert dict(headers)[b"connection"] == b"close"


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(
        tmp_path_factory.mktemp("hasty"), "trunkline.demo:agent", "--set", "body_timeout=0.3"
    ) as server:
        yield server


def test_the_limit_can_be_set(make: Callable[..., ServerProcess]) -> None:
    with make("--set", "body_limit=1000") as server:
        answers = flood(
            server.port, [post("/a2a", _send("echo " + "x" * size), V1) for size in (10, 2000)], lines=1
        )
    assert [answer.status for answer in answers] == [200, 413]


DEPTHS = (10, 50, 99, 100, 101, 500, 999, 1000, 1001, 1999, 2000, 2001, 10_000, 100_000)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "opening", [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")], ids=["lists", "objects", "both"]
)
@pytest.mark.parametrize("closed", [True, False])
def test_depth(target: ServerProcess, depth: int, opening: tuple[bytes, bytes], closed: bool) -> None:
    deep = opening[0] * depth + b"1" + opening[1] * depth * closed
    plain = _send("echo deep")
    inner = json.dumps({"message": message("echo deep")}).encode()
    bodies = [
        post("/a2a", deep, V1),
        post("/a2a", plain.replace(b'"id": 1', b'"id": ' + deep), V1),
        post("/a2a", plain.replace(b'"jsonrpc": "2.0"', b'"jsonrpc": ' + deep), V1),
        post("/a2a", plain.replace(b'"jsonrpc"', b'"x": ' + deep + b', "jsonrpc"'), V1),
        *[
            post(path, whole.replace(b'"messageId"', b'"%b": %b, "messageId"' % (name, deep)), V1)
            for path, whole in (("/a2a", plain), ("/message:send", inner), ("/v1/message:send", inner))
            for name in (b"metadata", b"parts", b"unknown", b"role")
        ],
    ]
    for answer in flood(target.port, bodies, lines=4):
        assert answer.status in (200, 400, 413), answer
        assert b"-32603" not in answer.body


WIDE = {
    "keys": b"{" + b",".join(b'"%x":1' % n for n in range(90_000)) + b"}",
    "a million keys": b"{" + b",".join(b'"%x":1' % n for n in range(1_000_000)) + b"}",
    "equal keys": b"{" + b",".join(repeat(b'"a":1', 170_000)) + b"}",
    "numbers": b"[" + b",".join(repeat(b"1", 500_000)) + b"]",
    "lists": b"[" + b",".join(repeat(b"[]", 340_000)) + b"]",
    "objects": b"[" + b",".join(repeat(b"{}", 340_000)) + b"]",
    "texts": b"[" + b",".join(repeat(b'"\xf0\x9f\x98\x80"', 140_000)) + b"]",
    "digits": b"9" * 1_000_000,
    "many long numbers": b"[" + b",".join(repeat(b"9" * 4300, 240)) + b"]",
    "escapes": b'"' + b"\\u0000" * 170_000 + b'"',
    "quotes": b'"' + b'\\"' * 500_000 + b'"',
    "brackets in text": b'"' + b"[{" * 500_000 + b'"',
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("wide")) as server:
        yield server
        # A mebibyte of small values is many times that in Python, and an allocator gives little of it
        # back. It must not add up: containers are counted, and requests are read one at a time.
        assert resident_kib(server, "VmHWM") <= PEAK_KIB


@pytest.mark.parametrize("name", WIDE)
def test_width(wide: ServerProcess, name: str) -> None:
    plain = _send("echo wide")
    rest = json.dumps({"message": message("echo wide")}).encode()
    raws = [
        post(path, whole.replace(b'"messageId"', b'"%b":%b,"messageId"' % (field, WIDE[name])), V1)
        for path, whole in (("/a2a", plain), ("/message:send", rest))
        for field in (b"metadata", b"parts", b"unknown", b"extensions")
    ]
    for answer in flood(wide.port, raws * 2, lines=2):
        assert answer.status in (200, 400, 413), answer
        assert b"-32603" not in answer.body


def test_afterwards_others_are_served(target: ServerProcess) -> None:
    agent = Agent(target.base)
    assert agent.send("echo fine")["status"]["state"] == "TASK_STATE_COMPLETED"
    agent.close()
