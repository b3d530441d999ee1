"""Load from one process: closed loops and event streams over raw HTTP/1.1.

Requests are byte templates with two holes; answers are searched, not parsed, so that the
generator stays faster than any server it measures. `contract.py` does the careful reading.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from array import array
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import perf_counter, process_time, time_ns
from typing import Any, TypeVar

T = TypeVar("T")

HOST = "127.0.0.1"
COMPLETED = b"TASK_STATE_COMPLETED"
EVENT = b"\ndata:"
CHUNK = b"chunk-"
ECHO = "echo Please say this sentence back to me, word for word, and nothing else."
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
HOLE = "<------------>"[:12]  # as wide as the number that fills it

# Starts at the clock so that two runs against one store never repeat a message id.
_numbers = itertools.count(time_ns() // 1_000 % 0x7FFF_FFFF_FFFF)


@dataclass(frozen=True)
class Endpoint:
    """Where JSON-RPC is spoken, on loopback."""

    port: int
    path: str
    key: str = ""

    def request(
        self, method: str, params: dict[str, Any], *, stream: bool = False, close: bool = False
    ) -> bytes:
        """The bytes of one A2A 1.0 call."""
        body = json.dumps({"jsonrpc": "2.0", "id": f"r-{HOLE}", "method": method, "params": params}).encode()
        key = f"X-API-Key: {self.key}\r\n" if self.key else ""
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {HOST}:{self.port}\r\nContent-Type: application/json\r\n"
            f"Accept: {'text/event-stream' if stream else 'application/json'}\r\nA2A-Version: 1.0\r\n"
            f"{key}"
            f"Connection: {'close' if close else 'keep-alive'}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def send(
        self, text: str, *, stream: bool = False, close: bool = False, wait: bool = True
    ) -> Callable[[], bytes]:
        """Makes sends of this text, each with a message id of its own."""
        message = {
            "messageId": f"00000000-0000-4000-8000-{HOLE}",
            "role": "ROLE_USER",
            "parts": [{"text": text}],
        }
        method = "SendStreamingMessage" if stream else "SendMessage"
        settings = {"acceptedOutputModes": ["text/plain"], "returnImmediately": not wait}
        whole = self.request(
            method, {"message": message, "configuration": settings}, stream=stream, close=close
        )
        front, middle, end = whole.split(HOLE.encode())

        def fill() -> bytes:
            number = b"%012x" % next(_numbers)
            return b"".join((front, number, middle, number, end))

        return fill

    def get(self, task_id: str) -> bytes:
        """One GetTask."""
        return self.request("GetTask", {"id": task_id})

    def subscribe(self, task_id: str) -> Callable[[], bytes]:
        """Makes SubscribeToTask calls, each with a JSON-RPC id of its own, as a real crowd has."""
        front, end = self.request("SubscribeToTask", {"id": task_id}, stream=True).split(HOLE.encode())
        return lambda: b"%s%012x%s" % (front, next(_numbers), end)


class Load:
    """What a closed loop shares: where requests come from, and what was counted."""

    def __init__(self, make: Callable[[], bytes | None], mark: bytes = COMPLETED) -> None:
        self.make = make
        self.mark = mark
        self.keep: Callable[[bytes], None] | None = None
        self.latencies = array("d")
        self.bad = 0
        self.lost = 0
        self.over = False
        self.open = 0
        self.ended = asyncio.Event()

    def answered(self, seconds: float, answer: bytes) -> None:
        """Count one whole answer."""
        if self.mark not in answer:
            self.bad += 1
        elif self.keep is not None:
            self.keep(answer)
        self.latencies.append(seconds)

    def restart(self) -> None:
        """Forget the warm-up."""
        self.latencies = array("d")
        self.bad = self.lost = 0


class Caller(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    __slots__ = ("_asked", "_load", "_rest", "_transport", "_waiting")

    def __init__(self, load: Load) -> None:
        self._load = load
        self._rest = b""
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count in, and start."""
        self._transport: Any = transport
        self._load.open += 1
        self._ask()

    def _ask(self) -> None:
        request = None if self._load.over else self._load.make()
        self._waiting = request is not None
        if request is None:
            self._transport.close()
        else:
            self._asked = perf_counter()
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect until the answer is whole."""
        if self._rest:
            data = self._rest + data
        if not _whole(data):
            self._rest = data
            return
        self._rest = b""
        self._load.answered(perf_counter() - self._asked, data)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count out; a loss in the middle of a call is an error of the server."""
        load = self._load
        load.open -= 1
        if self._waiting and not load.over:
            load.lost += 1
        if load.open == 0:
            load.ended.set()


def _whole(data: bytes) -> bool:
    head = data.find(b"\r\n\r\n")
    if head < 0:
        return False
    length = LENGTH.search(data, 0, head)
    return len(data) >= head + 4 + int(length[1]) if length else data.endswith(b"\r\n0\r\n\r\n")


class Stream(asyncio.Protocol):
    """Reads one event stream at a time on one connection, counting events and chunks."""

    __slots__ = (
        "_headed",
        "_live",
        "_tail",
        "_tally",
        "_transport",
        "chunks",
        "completed",
        "events",
        "first",
        "opened",
        "opening",
        "started",
        "over",
    )

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._live = False
        loop = asyncio.get_running_loop()
        self.first: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Nothing is sent before `start`."""
        self._transport: Any = transport

    def start(self, request: bytes) -> None:
        """Begin a stream; the connection may have carried others before."""
        self._tail = b""
        self._headed = self.completed = False
        self.opening = b""
        self.events = self.chunks = 0
        self._live = True
        self.started = self.opened = perf_counter()
        self._transport.write(request)

    def close(self) -> None:
        """Drop the connection."""
        self._live = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Count marks, each once though it may be cut by a packet."""
        window = self._tail + data
        if not self._headed:
            end = window.find(b"\r\n\r\n")
            if end < 0:
                self._tail = window
                return
            if b" 200" not in window[:13] or b"event-stream" not in window[:end]:
                self._end()
                return
            self._headed = True
            window = window[end + 2 :]
            fresh = 0
        else:
            fresh = max(0, len(self._tail) - len(EVENT) + 1)
        self._tail = window[-len(COMPLETED) :]
        self._tally_up(window, fresh)

    def _tally_up(self, window: bytes, fresh: int) -> None:
        chunks = window.count(CHUNK, fresh)
        self.events += window.count(EVENT, fresh)
        self.chunks += chunks
        self._tally.chunks += chunks
        if self.events and not self.opening:
            self.opening = window[:2_000]
            self.opened = perf_counter()
            if not self.first.done():
                self.first.set_result(None)
        if not self.completed:
            self.completed = COMPLETED in window
        if window.endswith(b"\r\n0\r\n\r\n"):
            self._end()

    def _end(self) -> None:
        if not self._live:
            return
        self._live = False
        if not self.first.done():
            self.first.set_result(None)
        self._tally.ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, for a server that marks it so."""
        self._end()


class Tally:
    """Counts over all streams; `ended` is called at the end of each."""

    def __init__(self, expected: int, events: int = 0) -> None:
        # How often a chunk is told in a stream, and in how many events at least.
        self.expected = expected
        self.events = events or expected
        self.chunks = 0
        self.streams = 0
        self.bad = 0

    def ended(self, stream: Stream) -> None:
        """Judge one finished stream."""
        self.streams += 1
        # The Task, each chunk in an event of its own, the last status: merged chunks do not count.
        if not stream.completed or stream.chunks != self.expected or stream.events < self.events + 2:
            self.bad += 1
        if not stream.over.done():
            stream.over.set_result(None)


class StreamLoop(Tally):
    """Opens a new stream on the same connection when one has ended."""

    def __init__(self, expected: int, make: Callable[[], bytes], events: int = 0) -> None:
        super().__init__(expected, events)
        self.make = make
        self.stop = False
        self.firsts = array("d")  # seconds to the first event; beside `wholes` it tells a burst from a flow
        self.wholes = array("d")

    def ended(self, stream: Stream) -> None:
        """Judge it, and start the next."""
        super().ended(stream)
        self.firsts.append(stream.opened - stream.started)
        self.wholes.append(perf_counter() - stream.started)
        if not self.stop and stream.completed:
            stream.start(self.make())


@dataclass(frozen=True)
class Window:
    """What happened in the measured time."""

    seconds: float
    count: int
    bad: int
    server_cpu: float
    own_cpu: float  # near 1.0 the generator was the limit, not the server
    latencies: array[float]


async def call_loop(
    endpoint: Endpoint, load: Load, *, connections: int, warm: float, seconds: float, cpu: Callable[[], float]
) -> Window:
    """`connections` callers for `warm` + `seconds`; only the second part counts."""
    await start_callers(endpoint, load, connections)
    await asyncio.sleep(warm)
    load.restart()
    started, used, own = perf_counter(), cpu(), process_time()
    await asyncio.sleep(seconds)
    took, latencies, bad = perf_counter() - started, load.latencies, load.bad + load.lost
    own = (process_time() - own) / took
    window = Window(took, len(latencies), bad, cpu() - used, own, latencies)
    load.over = True
    await asyncio.wait_for(load.ended.wait(), 30)
    return window


async def start_callers(endpoint: Endpoint, load: Load, connections: int) -> None:
    """Open the connections; each begins at once."""
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Caller(load), HOST, endpoint.port)


async def stream_loop(
    endpoint: Endpoint,
    loop: StreamLoop,
    *,
    connections: int,
    warm: float,
    seconds: float,
    cpu: Callable[[], float],
) -> Window:
    """`connections` streams at once, again and again; counts chunks."""
    streams = [await connect(endpoint, loop) for _ in range(connections)]
    for stream in streams:
        stream.start(loop.make())
    await asyncio.sleep(warm)
    started, used, own, chunks, loop.bad = perf_counter(), cpu(), process_time(), loop.chunks, 0
    await asyncio.sleep(seconds)
    took, count = perf_counter() - started, loop.chunks - chunks
    own = (process_time() - own) / took
    window = Window(took, count, loop.bad, cpu() - used, own, array("d"))
    loop.stop = True
    for stream in streams:
        stream.close()
    return window


async def connect(endpoint: Endpoint, tally: Tally) -> Stream:
    """One connection for streams."""
    _, stream = await asyncio.get_running_loop().create_connection(lambda: Stream(tally), HOST, endpoint.port)
    return stream


async def crowd(endpoint: Endpoint, tally: Tally, make: Callable[[], bytes], count: int) -> list[Stream]:
    """`count` streams, each past its first event; a few hundred are being opened at a time."""
    gate = asyncio.Semaphore(256)

    async def one() -> Stream:
        async with gate:
            stream = await connect(endpoint, tally)
            stream.start(make())
            await asyncio.wait_for(stream.first, 120)
            return stream

    return await asyncio.gather(*(one() for _ in range(count)))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
