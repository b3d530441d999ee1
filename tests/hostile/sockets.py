"""A client on raw sockets: bytes out as they are, answers cut by the letter of HTTP/1.1, a deadline on each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

DEADLINE_S = 30.0
LINES = 24


class Answer(NamedTuple):
    """What came back; status 0 means that the connection ended without an answer."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def header(self, name: bytes) -> bytes | None:
        return next((value for key, value in self.headers if key == name), None)


NOTHING = Answer(0)


def request(
    verb: str,
    target: str | bytes,
    body: bytes | None = None,
    *headers: bytes,
    host: bytes | None = b"127.0.0.1",
) -> bytes:
    """A request with nothing added but Host and Content-Length."""
    path = target.encode() if isinstance(target, str) else target
    lines = [verb.encode() + b" " + path + b" HTTP/1.1"]
    if host is not None:
        lines.append(b"Host: " + host)
    lines += headers
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def post(target: str | bytes, body: bytes, *headers: bytes) -> bytes:
    return request("POST", target, body, b"Content-Type: application/json", *headers)


class Line:
    """One keep-alive connection, opened again when the server closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, raw: bytes, *, headless: bool = False, deadline_s: float = DEADLINE_S) -> Answer:
        """Send one request and read its answer; a closed connection is tried once more, afresh."""
        async with asyncio.timeout(deadline_s):
            if self._writer is None or self._writer.is_closing():
                await self._open()
            elif self._reader is not None and self._reader.at_eof():
                self.close()
                await self._open()
            assert self._reader is not None and self._writer is not None
            try:
                self._writer.write(raw)
                answer = await read_answer(self._reader, headless=headless)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                return NOTHING
        if answer.header(b"connection") == b"close":
            self.close()
        return answer

    async def _open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


async def read_answer(reader: asyncio.StreamReader, *, headless: bool = False) -> Answer:
    """One whole answer."""
    status, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
    found = dict(headers)
    if headless or status in (204, 304):
        return Answer(status, headers)
    if found.get(b"transfer-encoding") == b"chunked":
        pieces: list[bytes] = []
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            pieces.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return Answer(status, headers, b"".join(pieces))
    return Answer(status, headers, await reader.readexactly(int(found[b"content-length"])))


def parse_head(head: bytes) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:
    first, *rest = head[:-4].split(b"\r\n")
    headers = tuple(
        (name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in rest)
    )
    return int(first.split(b" ")[1]), headers


def flood(
    port: int, requests: Sequence[bytes], *, lines: int = LINES, deadline_s: float = DEADLINE_S
) -> list[Answer]:
    """Every request over a few keep-alive connections; the answers in the same order."""
    return asyncio.run(pour(port, requests, lines=lines, deadline_s=deadline_s))


async def pour(
    port: int, requests: Sequence[bytes], *, lines: int = LINES, deadline_s: float = DEADLINE_S
) -> list[Answer]:
    """The same, within a loop."""
    answers = [NOTHING] * len(requests)
    todo = iter(range(len(requests)))

    async def work() -> None:
        line = Line(port)
        try:
            for place in todo:
                raw = requests[place]
                answers[place] = await line.ask(raw, headless=raw.startswith(b"HEAD "), deadline_s=deadline_s)
        finally:
            line.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(lines):
            group.create_task(work())
    return answers


def one(port: int, raw: bytes, *, deadline_s: float = DEADLINE_S) -> Answer:
    """One request on a connection of its own."""
    return flood(port, [raw], lines=1, deadline_s=deadline_s)[0]


def until_closed(port: int, pieces: Iterable[bytes], *, deadline_s: float = DEADLINE_S) -> tuple[bytes, int]:
    """Send pieces until the server closes or they end; all it said, and how many bytes it let us send."""
    said, sent = [], 0
    with socket.create_connection(("127.0.0.1", port), timeout=deadline_s) as line:
        try:
            for piece in pieces:
                line.sendall(piece)
                sent += len(piece)
        except ConnectionError:
            pass
        try:
            while piece := line.recv(1 << 16):
                said.append(piece)
        except ConnectionError:
            pass
    return b"".join(said), sent
