"""A proxy before a real agent that passes everything on as it is, and puts what it hears on a tape."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse, Refused, Unreachable, Unreadable
from trunkline.mock.quirks import Quirks
from trunkline.mock.recording import Recording, Take
from trunkline.mock.request import MockRequest, read_rest, read_rpc
from trunkline.mock.response import EVENTS, MockResponse, Whole
from trunkline.mock.scenario import Persona, Scenario
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.server.request import Receive, Scope, Send
from trunkline.wire import sse
from trunkline.wire.answers import Notice
from trunkline.wire.error_reader import read_http_error
from trunkline.wire.operations import Operation
from trunkline.wire.peer_card import read_card
from trunkline.wire.replies import rest_notice, rpc_notice
from trunkline.wire.types import Message, SendRequest, TaskQuery
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")
BODY_BYTES = 64 << 20
# Of one hop, or ours to say.
_OURS = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "keep-alive"}
_FOLLOWED = {Operation.GET, Operation.SUBSCRIBE}


class Recorder:
    """An ASGI application that is the agent at `url`, as far as callers can tell.

    The end of its lifespan closes the carrier.
    """

    def __init__(self, url: str, carrier: HttpClient, *, timing: bool = False) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Misuse(f"{url!r} is no URL of an agent; give one like https://agents.example/scribe")
        self.tape = Recording(timing=timing)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        # Where the agent itself is under its origin, and so under ours.
        self.path = parts.path.rstrip("/")
        self._carrier = carrier

    def scenario(self) -> Scenario:
        """What replays all that was heard so far."""
        return self.tape.scenario()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await self._carrier.close()
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await self._pass(MockResponse(scope, receive, send))

    async def _pass(self, line: MockResponse) -> None:
        body = await line.body()
        query = f"?{line.query_string}" if line.query_string else ""
        request = HttpRequest(
            line.method,
            f"{self._origin}{line.raw_path}{query}",
            tuple((name, value) for name, value in line.headers.items() if name not in _OURS),
            body or None,
        )
        heard = _Heard.of(self.tape, line, body)
        try:
            reply = await self._carrier.open(request)
        except Unreachable as error:
            log.warning("mock.record_failed path=%s why=%s", line.path, error)
            await line.deliver(Whole(b'{"error":"the agent cannot be reached"}', 502), ())
            return
        try:
            if line.path.endswith(".json"):
                await self._pass_card(line, reply)
            else:
                await self._pass_reply(line, reply, heard)
        finally:
            await reply.close()

    async def _pass_card(self, line: MockResponse, reply: HttpResponse) -> None:
        raw = await reply.read(BODY_BYTES)
        try:
            card = read_card(raw)
            self.tape.hear_card(card)
            log.info("mock.recorded card=%s", line.path)
            for interface in card.interfaces:
                if not f"{interface.url}/".startswith(f"{self._origin}/"):
                    log.warning("mock.elsewhere url=%s: who calls it there is not heard", interface.url)
        except Unreadable as error:
            log.warning("mock.no_card path=%s why=%s", line.path, error)
        # Callers go where the card says, and must come by here.
        here = msgspec.json.encode(line.base)[1:-1]
        raw = raw.replace(msgspec.json.encode(self._origin)[1:-1], here)
        kept = tuple((name, reply.headers[name]) for name in ("cache-control",) if name in reply.headers)
        media_type = reply.headers.get("content-type", "application/json")
        await line.deliver(Whole(raw, reply.status, media_type, kept), ())

    async def _pass_reply(self, line: MockResponse, reply: HttpResponse, heard: _Heard | None) -> None:
        headers: Headers = tuple((name, value) for name, value in reply.headers.items() if name not in _OURS)
        await line.begin(reply.status, headers)
        pieces: list[bytes] = []
        streams = reply.headers.get("content-type", "").startswith(EVENTS)
        try:
            async for chunk in reply.chunks():
                await line.write(chunk)
                if heard is not None and streams:
                    heard.frames(chunk)
                elif heard is not None:
                    pieces.append(chunk)
        except Unreachable as error:
            log.warning("mock.record_cut path=%s why=%s", line.path, error)
            await line.drop()
            return
        finally:
            if heard is not None:
                heard.end(reply, None if streams else b"".join(pieces))
        await line.write(b"", more=False)


class _Heard(Struct):
    """One exchange that the tape wants to know of."""

    tape: Recording
    asked: MockRequest
    take: Take | None
    parser: sse.SseParser
    at: float

    @classmethod
    def of(cls, tape: Recording, line: MockResponse, body: bytes) -> _Heard | None:
        """What this request is; None if its answer is of no interest."""
        asked = _asked(line, body)
        if asked is None:
            return None
        params = asked.params
        if asked.operation is Operation.CANCEL and isinstance(params, TaskQuery):
            tape.forget(params.id)
        take = tape.hear_request(params) if isinstance(params, SendRequest) else None
        if take is None and asked.operation not in _FOLLOWED:
            return None
        return cls(tape, asked, take, sse.SseParser(), asyncio.get_running_loop().time())

    def frames(self, chunk: bytes) -> None:
        """A piece of a stream."""
        for event in self.parser.feed(chunk):
            self._notice(event.data.encode())

    def end(self, reply: HttpResponse, body: bytes | None) -> None:
        """The answer is over; a body is one that was no stream."""
        if body is not None and reply.status < 400:
            self._notice(body)
            if self.take is not None and not self.take.resting and self._would_wait():
                self.take.hear_receipt()
        elif body is not None and self.take is not None:
            self._refusal(reply, body, self.take)
        if self.take is not None:
            self.tape.settle(self.take)
            log.info("mock.recorded message task=%s resting=%s", self.take.task_id, self.take.resting)

    def _refusal(self, reply: HttpResponse, body: bytes, take: Take) -> None:
        # Of REST it is the answer; of JSON-RPC it is what stood before the agent.
        if self.asked.rest is not None and reply.headers.get("content-type", "").endswith("json"):
            take.hear_refusal(read_http_error(reply.status, reply.headers, body))
        else:
            take.hear_status(reply.status)

    def _would_wait(self) -> bool:
        params = self.asked.params
        return isinstance(params, SendRequest) and params.wait is not False

    def _notice(self, raw: bytes) -> None:
        now = asyncio.get_running_loop().time()
        delay, self.at = (round(now - self.at, 3) if self.tape.timing else 0), now
        try:
            notice = self._read(raw)
        except Refused as refused:
            if self.take is not None:
                self.take.hear_refusal(refused)
            return
        except Unreadable as error:
            log.warning("mock.unreadable why=%s", error)
            return
        if self.take is not None:
            self.take.hear(notice, delay)
        elif not isinstance(notice.answer, Message):
            self.tape.hear_later(notice, delay)

    def _read(self, raw: bytes) -> Notice:
        if self.asked.rest is not None:
            return rest_notice(raw, proto=self.asked.dialect is Dialect.V03_PROTO)
        return rpc_notice(raw, "")


def _asked(line: MockResponse, body: bytes) -> MockRequest | None:
    """What a request asks for, if it is one of A2A, wherever the agent is mounted."""
    if b'"jsonrpc"' in body:
        asked = read_rpc(line, body, Persona(), Quirks())
        return asked if isinstance(asked, MockRequest) else None
    path = line.path
    try:
        while line.path:
            asked = read_rest(line, body, Persona(), Quirks())
            if isinstance(asked, MockRequest):
                return asked
            line.path = "/".join(["", *line.path.split("/")[2:]]).rstrip("/")
        return None
    finally:
        line.path = path
