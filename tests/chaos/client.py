"""A client on raw sockets that writes down what it asks, what it is told and what it reads."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Protocol

from tests.chaos.history import OK, REFUSED, Got, History, Reading, Seen, Told

CANARY = re.compile(rb"canary-([a-z0-9]+)")
ANSWER_S = 40.0
SILENCE_S = 40.0
BROKEN = (ConnectionError, asyncio.IncompleteReadError, TimeoutError, OSError)


def now_ms() -> int:
    """The wall clock, which servers on this machine share."""
    return time.time_ns() // 1_000_000


class Target(Protocol):
    """A server as clients reach it: its name changes with each life."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int: ...


class NotSent(Exception):
    """Nobody listened: the request never left."""


class Line:
    """One keep-alive connection."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # The life that was reached, noted at once: its successor listens at the same port.
        self.name = ""
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, if it is not."""
        if self.writer is not None and not self.writer.is_closing() and not self.reader_ended():
            return
        self.close()
        try:
            async with asyncio.timeout(5):
                self.reader, self.writer = await asyncio.open_connection(
                    "127.0.0.1", self.target.port, limit=1 << 24
                )
                self.name = self.target.name
        except BROKEN as error:
            raise NotSent from error

    def reader_ended(self) -> bool:
        return self.reader is None or self.reader.at_eof()

    def close(self, *, rudely: bool = False) -> None:
        """Hang up."""
        if self.writer is not None:
            with suppress(RuntimeError, OSError):
                if rudely:
                    self.writer.transport.abort()
                else:
                    self.writer.close()
        self.reader = self.writer = None

    async def ask(self, raw: bytes, limit_s: float = ANSWER_S) -> tuple[int, dict[bytes, bytes], bytes]:
        """One whole answer."""
        await self.open()
        try:
            async with asyncio.timeout(limit_s):
                status, headers = await self.begin(raw)
                body = b"".join([piece async for piece in self.pieces(headers)])
        except BaseException:
            self.close()
            raise
        if headers.get(b"connection") == b"close":
            self.close()
        return status, headers, body

    async def begin(self, raw: bytes) -> tuple[int, dict[bytes, bytes]]:
        """Send a request and read the head of its answer."""
        assert self.reader is not None and self.writer is not None
        self.writer.write(raw)
        first, *rest = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        found = (line.partition(b":") for line in rest)
        return int(first.split(b" ")[1]), {name.lower(): value.strip() for name, _, value in found}

    async def pieces(self, headers: dict[bytes, bytes]) -> AsyncIterator[bytes]:
        """The body as it comes; ends only where the server ended it."""
        reader = self.reader
        assert reader is not None
        if headers.get(b"transfer-encoding") != b"chunked":
            yield await reader.readexactly(int(headers.get(b"content-length", b"0")))
            return
        while size := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)


class Client:
    """One caller with its own connections, known by `who`; everything goes into the history."""

    def __init__(self, who: str, key: str, history: History) -> None:
        self.who = who
        self.history = history
        self._key = f"X-API-Key: {key}\r\n" if key else ""
        # Connections that nobody is using.
        self._lines: dict[int, list[Line]] = {}

    def close(self) -> None:
        """Hang up everywhere."""
        for lines in self._lines.values():
            for line in lines:
                line.close()

    def raw(self, method: str, params: Any, *headers: str) -> bytes:
        """A JSON-RPC request of version 1.0."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        extra = "".join(f"{header}\r\n" for header in headers)
        head = (
            "POST /a2a HTTP/1.1\r\nHost: 127.0.0.1\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\n"
            f"{self._key}{extra}Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def call(
        self, target: Target, method: str, params: Any, told: Told, limit_s: float = ANSWER_S
    ) -> Any:
        """Ask and note the outcome; the result, or None if there is none."""
        free = self._lines.setdefault(target.port, [])
        line = free.pop() if free else Line(target)
        await line.open()
        told.server = line.name
        self.history.told.append(told)
        try:
            _, _, body = await line.ask(self.raw(method, params), limit_s)
            free.append(line)
            answer = json.loads(body)
        except (*BROKEN, NotSent, ValueError):
            return None
        told.returned = now_ms()
        told.canaries = canaries(body)
        if "error" in answer:
            told.outcome, told.error = REFUSED, f"{answer['error']['code']} {answer['error']['message']}"
            return None
        told.outcome = OK
        return answer["result"]

    async def frames(
        self, target: Target, method: str, params: Any, *headers: str, told: Told | None = None
    ) -> AsyncIterator[tuple[Got, dict[str, Any], bytes]]:
        """The frames of a stream, until the server ends it; `told` learns which life was asked.

        Raises:
            ConnectionError, TimeoutError, asyncio.IncompleteReadError: it was cut.
            Refusal: the server answered with an error.
        """
        line = Line(target)
        await line.open()
        if told is not None:
            told.server = line.name
        try:
            async with asyncio.timeout(ANSWER_S):
                _, found = await line.begin(self.raw(method, params, "Accept: text/event-stream", *headers))
            pieces = line.pieces(found)
            if not found.get(b"content-type", b"").startswith(b"text/event-stream"):
                raise Refusal(json.loads(b"".join([piece async for piece in pieces]))["error"])
            left = b""
            while True:
                async with asyncio.timeout(SILENCE_S):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                *whole, left = (left + piece).split(b"\n\n")
                for block in whole:
                    if (frame := parse(block)) is not None:
                        yield frame
        finally:
            line.close(rudely=True)


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error['code']} {error['message']}")
        self.code: int = error["code"]


def parse(block: bytes) -> tuple[Got, dict[str, Any], bytes] | None:
    """One server-sent event: what it shows, its whole result and its bytes."""
    seq, data = None, b""
    for line in block.split(b"\n"):
        if line.startswith(b"id:"):
            seq = int(line[3:])
        elif line.startswith(b"data:"):
            data += line[5:].removeprefix(b" ")
    if not data:
        return None
    answer = json.loads(data)
    if "error" in answer:
        raise Refusal(answer["error"])
    result = answer["result"]
    match result:
        case {"task": task}:
            return Got(seq, "task", plain_state(task), artifacts_text(task)), result, data
        case {"statusUpdate": update}:
            words = parts_text(update["status"].get("message") or {})
            return Got(seq, "status", plain_state(update), words), result, data
        case {"artifactUpdate": update}:
            text = parts_text(update["artifact"])
            return (
                Got(seq, "artifact", "", text, update.get("append", False), update.get("lastChunk", False)),
                result,
                data,
            )
        case _:
            return Got(seq, "message", "completed", parts_text(result["message"])), result, data


def plain_state(task: Any) -> str:
    """The state as people read it."""
    return task["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def parts_text(holder: Any) -> str:
    """All text of a message or an artifact."""
    return "".join(part.get("text", "") for part in holder.get("parts", ()))


def artifacts_text(task: Any) -> str:
    """All text of a task's artifacts."""
    return "".join(map(parts_text, task.get("artifacts", ())))


def seen(task: Any) -> Seen:
    """A task of an answer."""
    return Seen(task["id"], plain_state(task), artifacts_text(task))


def canaries(body: bytes) -> list[str]:
    """Whose words are in these bytes."""
    return sorted({name.decode() for name in CANARY.findall(body)})


def note(reading: Reading, frame: Got, data: bytes) -> None:
    """Add a frame to what a reader got."""
    reading.frames.append(frame)
    reading.canaries = sorted({*reading.canaries, *canaries(data)})
