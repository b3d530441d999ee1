"""One HTTP exchange with a mock, over bare ASGI: the request, and an answer that faults may spoil."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import Struct

from trunkline.http.asgi import Receive, Scope, Send
from trunkline.mock.faults import MockFault

Headers = tuple[tuple[str, str], ...]
_Result = TypeVar("_Result")
# What the server on a socket offers beyond ASGI: to close the connection, at once or when all is written.
ABORT, CLOSE = "trunkline.abort", "trunkline.close"
EVENTS = "text/event-stream"
_PIECES = 8
_BLOCK = 64 << 10
_PAGE = b"<!DOCTYPE html><html><head><title>%d</title></head><body><h1>%d</h1></body></html>"


class MockAnswer(Struct, frozen=True):
    """An answer that is no stream."""

    body: bytes
    status: int = 200
    media_type: str = "application/json"
    headers: Headers = ()


# An answer that is a stream: its frames.
MockStream = AsyncGenerator[bytes, None]


async def serve_lifespan(receive: Receive, send: Send, close: Callable[[], Awaitable[None]]) -> None:
    """Serve the lifespan of an application that has nothing to start, and this to close."""
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await close()
    await send({"type": "lifespan.shutdown.complete"})


class MockExchange:
    """A request and the means to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        self.path = path.removeprefix(root) if root and path.startswith(root + "/") else path
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        raw: bytes = scope.get("raw_path") or b""
        # As it came, for the recorder, which forwards it.
        self.raw_path = raw.decode("latin-1") or quote(self.path)
        self.query_string: str = scope.get("query_string", b"").decode("latin-1")
        self.query = dict(parse_qsl(self.query_string, keep_blank_values=True))
        self.base = f"{scope.get('scheme', 'http')}://{self.headers.get('host', 'localhost')}{root}"

    async def body(self) -> bytes:
        """The body of the request, as far as it came."""
        pieces: list[bytes] = []
        while True:
            message = await self._receive()
            pieces.append(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body"):
                return b"".join(pieces)

    async def disconnected(self) -> None:
        """Wait until the caller has disconnected."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def while_connected(self, work: Coroutine[Any, Any, _Result]) -> _Result | None:
        """Do something, but no longer than the caller waits for it; None if the caller has left."""
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(self.disconnected())
        try:
            await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.wait({working, leaving})

    async def drop(self) -> None:
        """Close the connection as it is. In process, returning without the rest is the same."""
        if self._call(ABORT):
            await self.disconnected()

    def _call(self, what: str) -> bool:
        offered = cast("dict[str, Callable[[], None]]", self._scope.get("extensions") or {})
        if what not in offered:
            return False
        offered[what]()
        return True

    async def deliver(self, answer: MockAnswer | MockStream, faults: Sequence[MockFault]) -> None:
        """Send an answer, spoiled by these faults."""
        by_kind = {fault.do: fault for fault in faults}
        if "lose" in by_kind:
            await self.drop()
        elif isinstance(answer, MockAnswer):
            await self._deliver_whole(answer, by_kind)
        elif await self.while_connected(_StreamWriter(self, answer, faults).run()):
            await self.drop()
        if "close" in by_kind:
            self._call(CLOSE)

    async def _deliver_whole(self, answer: MockAnswer, faults: dict[str, MockFault]) -> None:
        stall = faults.get("stall")
        if stall is not None and not await self.while_connected(_pause(stall.seconds)):
            return
        body, headers = answer.body, list(answer.headers)
        if "garbage" in faults:
            body = b'{"jsonrpc": "2.0", "result": <<< this is no JSON >>>'
        if "wrong_id" in faults:
            body = other_id(body)
        if "empty" in faults:
            body = b""
        if "gzip" in faults:
            body = zlib.compress(body, wbits=31)
            headers.append(("content-encoding", "gzip"))
        media_type = faults["media_type"].to if "media_type" in faults else answer.media_type
        huge = faults.get("huge")
        size = len(body) + (huge.size if huge else 0)
        await self.begin(
            answer.status, [*headers, ("content-type", media_type), ("content-length", str(size))]
        )
        if "truncate" in faults:
            await self.write(body[: len(body) // 2])
            await self.drop()
            return
        for block in padding(huge.size if huge else 0, b" "):
            await self.write(block)
        if (slow := faults.get("slow")) is not None:
            await self.write_slowly(body, slow)
            body = b""
        await self.write(body, more=False)

    async def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Send the status and headers of the answer."""
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes, *, more: bool = True) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def write_slowly(self, body: bytes, fault: MockFault) -> None:
        """Send a body in pieces, with a pause before each."""
        step = max(1, -(-len(body) // _PIECES))
        for start in range(0, len(body), step):
            await asyncio.sleep(fault.seconds or 0)
            await self.write(body[start : start + step])


class _StreamWriter:
    """Sends the frames of a stream, with the faults of each event."""

    def __init__(self, exchange: MockExchange, stream: MockStream, faults: Sequence[MockFault]) -> None:
        self._exchange = exchange
        self._stream = stream
        self._at: dict[tuple[str, int], MockFault] = {(fault.do, fault.at): fault for fault in faults}
        self._all = {fault.do: fault for fault in faults}
        self._compressor = zlib.compressobj(wbits=31) if "gzip" in self._all else None
        self._sent = 0

    async def run(self) -> bool:
        """Send the frames; true if the connection is to be broken off now."""
        media_type = self._all["media_type"].to if "media_type" in self._all else EVENTS
        headers = [("content-type", media_type), ("cache-control", "no-store")]
        if self._compressor is not None:
            headers.append(("content-encoding", "gzip"))
        await self._exchange.begin(200, headers)
        await self._exchange.write(b"")
        broken = "empty" not in self._all and await self._send_frames()
        if not broken:
            await self._write(b"", more=False)
        return broken

    async def _send_frames(self) -> bool:
        """True if the connection breaks off after or amid one of them."""
        async with aclosing(self._stream) as frames:
            async for frame in self._disordered(frames):
                await self._stall()
                if self._is_due("cut") or self._is_due("end"):
                    return self._is_due("cut")
                if await self._one(frame):
                    return True
        await self._stall()
        return self._is_due("cut")

    def _is_due(self, do: str) -> bool:
        return (do, self._sent) in self._at

    async def _disordered(self, frames: MockStream) -> MockStream:
        number, held = 0, b""
        async for frame in frames:
            number += 1
            if ("reorder", number) in self._at and not held:
                held = frame
                continue
            yield frame
            if ("duplicate", number) in self._at:
                yield frame
            if held:
                yield held
                held = b""
        if held:
            yield held

    async def _stall(self) -> None:
        if (stall := self._at.pop(("stall", self._sent), None)) is not None:
            await _pause(stall.seconds)

    async def _one(self, frame: bytes) -> bool:
        """Send one frame; true if the connection breaks off amid it."""
        self._sent += 1
        number = self._sent
        if "wrong_id" in self._all:
            head, mark, data = frame.partition(b"data: ")
            frame = head + mark + other_id(data.removesuffix(b"\n\n")) + b"\n\n"
        if ("garbage", number) in self._at:
            frame = b"data: <<< this is no JSON >>>\n\n"
        if (huge := self._at.get(("huge", number))) is not None:
            await self._write(b": ")
            for block in padding(huge.size, b"x"):
                await self._write(block)
            await self._write(b"\n\n")
        if ("truncate", number) in self._at:
            await self._write(frame[: len(frame) // 2])
            return True
        if (slow := self._all.get("slow")) is not None:
            await self._exchange.write_slowly(self._gzipped(frame), slow)
        else:
            await self._write(frame)
        return False

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        await self._exchange.write(self._gzipped(data, more=more), more=more)

    def _gzipped(self, data: bytes, *, more: bool = True) -> bytes:
        if self._compressor is None:
            return data
        mode = zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH
        return self._compressor.compress(data) + self._compressor.flush(mode)


async def _pause(seconds: float | None) -> bool:
    """Wait so long, or for ever; true when that is over."""
    await (asyncio.Future[None]() if seconds is None else asyncio.sleep(seconds))
    return True


def refusal(fault: MockFault) -> MockAnswer:
    """The answer that a fault puts in place of the right one."""
    headers = tuple(fault.headers.items())
    if fault.do == "redirect":
        return MockAnswer(b"", fault.status, headers=(*headers, ("location", fault.to)))
    if fault.seconds is not None:
        headers = (*headers, ("retry-after", f"{fault.seconds:g}"))
    if fault.status in (204, 304):
        return MockAnswer(b"", fault.status, headers=headers)
    if fault.do == "html":
        return MockAnswer(_PAGE % (fault.status, fault.status), fault.status, "text/html", headers)
    return MockAnswer(
        b'{"error":"the mock was told to say %d"}' % fault.status, fault.status, headers=headers
    )


def padding(size: int, filling: bytes) -> Iterator[bytes]:
    """So many bytes of filling, in blocks."""
    while size > 0:
        yield filling * min(size, _BLOCK)
        size -= _BLOCK


def other_id(body: bytes) -> bytes:
    """The same answer under the id of another request."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return body
    return msgspec.json.encode({**answer, "id": "of-another-request"}) if "jsonrpc" in answer else body
