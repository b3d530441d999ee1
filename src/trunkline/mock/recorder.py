"""A proxy before a real agent that forwards everything unchanged and records the replies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from copy import copy
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import Forbidden, Misuse, Refused, Unreachable, Unreadable
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.host_check import LOOPBACK, HostCheck
from trunkline.mock.exchange import EVENTS, MockAnswer, MockExchange, serve_lifespan
from trunkline.mock.quirks import Quirks
from trunkline.mock.recording import RecordedReply, Recording
from trunkline.mock.request import MockRequest, read_rest, read_rpc
from trunkline.mock.scenario import Persona
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.wire import sse
from trunkline.wire.error_reader import read_http_error
from trunkline.wire.operations import Operation
from trunkline.wire.peer_card import read_card
from trunkline.wire.replies import rest_notice, rpc_notice
from trunkline.wire.types import Message, SendRequest, TaskQuery
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")
BODY_BYTES = 64 << 20
# Headers of one hop, or that this proxy sets itself.
_HOP_HEADERS = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "keep-alive"}
_FOLLOWED = {Operation.GET, Operation.SUBSCRIBE}


class Recorder:
    """An ASGI application that is the agent at `url`, as far as callers can tell.

    The end of its lifespan closes the HTTP client. Like the agent itself it lets only some `hosts` in: it
    names the right Host to the agent, so that a page which was led here by DNS would pass for a caller.
    """

    def __init__(
        self, url: str, http_client: HttpClient, *, timing: bool = False, hosts: Iterable[str] = LOOPBACK
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise Misuse(f"{url!r} is no URL of an agent; give one like https://agents.example/scribe")
        self.recording = Recording(timing=timing)
        self._host_check = HostCheck(hosts)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        # Where the agent itself is under its origin, and so under this proxy.
        self.path = parts.path.rstrip("/")
        self._http_client = http_client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or serve the lifespan."""
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, self._http_client.close)
        elif scope["type"] == "http":
            await self._forward(MockExchange(scope, receive, send))

    async def _forward(self, exchange: MockExchange) -> None:
        headers = {name.encode(): value.encode("latin-1") for name, value in exchange.headers.items()}
        try:
            self._host_check.check(headers)
        except Forbidden as error:
            log.warning("mock.refused path=%a why=%s", exchange.path, error)
            await exchange.deliver(MockAnswer(msgspec.json.encode({"error": error.message}), 403), ())
            return
        body = await exchange.body()
        query = f"?{exchange.query_string}" if exchange.query_string else ""
        url = f"{self._origin}{exchange.raw_path}{query}"
        forwarded = HttpRequest(exchange.method, url, _end_to_end(exchange.headers), body or None)
        recorder = _ExchangeRecorder.of(self.recording, exchange, body)
        try:
            response = await self._http_client.open(forwarded)
        except Unreachable as error:
            log.warning("mock.record_failed path=%s why=%s", exchange.path, error)
            await exchange.deliver(MockAnswer(b'{"error":"the agent cannot be reached"}', 502), ())
            return
        try:
            if exchange.path.endswith(".json"):
                await self._forward_card(exchange, response)
            else:
                await self._forward_response(exchange, response, recorder)
        finally:
            await response.close()

    async def _forward_card(self, exchange: MockExchange, response: HttpResponse) -> None:
        raw = await response.read(BODY_BYTES)
        try:
            card = read_card(raw)
            self.recording.card = card
            log.info("mock.recorded card=%s", exchange.path)
            for interface in card.interfaces:
                if not f"{interface.url}/".startswith(f"{self._origin}/"):
                    log.warning("mock.elsewhere url=%s: who calls it there is not heard", interface.url)
        except Unreadable as error:
            log.warning("mock.no_card path=%s why=%s", exchange.path, error)
        # Callers go where the card says, and must come through this proxy.
        proxy = msgspec.json.encode(exchange.base)[1:-1]
        raw = raw.replace(msgspec.json.encode(self._origin)[1:-1], proxy)
        headers = tuple(one for one in response.headers.items() if one[0] == "cache-control")
        media_type = response.headers.get("content-type", "application/json")
        await exchange.deliver(MockAnswer(raw, response.status, media_type, headers), ())

    async def _forward_response(
        self, exchange: MockExchange, response: HttpResponse, recorder: _ExchangeRecorder | None
    ) -> None:
        await exchange.begin(response.status, _end_to_end(response.headers))
        pieces: list[bytes] = []
        streams = response.headers.get("content-type", "").startswith(EVENTS)
        try:
            async for chunk in response.chunks():
                await exchange.write(chunk)
                if recorder is not None and streams:
                    recorder.frames(chunk)
                elif recorder is not None:
                    pieces.append(chunk)
        except Unreachable as error:
            log.warning("mock.record_cut path=%s why=%s", exchange.path, error)
            await exchange.drop()
            return
        finally:
            if recorder is not None:
                recorder.end(response, None if streams else b"".join(pieces))
        await exchange.write(b"", more=False)


def _end_to_end(headers: dict[str, str]) -> Headers:
    return tuple((name, value) for name, value in headers.items() if name not in _HOP_HEADERS)


class _ExchangeRecorder(Struct):
    """Records one exchange: the reply to a message, or later news of its task."""

    recording: Recording
    request: MockRequest
    reply: RecordedReply | None
    parser: sse.SseParser
    at: float

    @classmethod
    def of(cls, recording: Recording, exchange: MockExchange, body: bytes) -> _ExchangeRecorder | None:
        """The recorder of a request; None if its answer says nothing of a reply."""
        request = _parsed(exchange, body)
        if request is None:
            return None
        params = request.params
        if request.operation is Operation.CANCEL and isinstance(params, TaskQuery):
            recording.forget(params.id)
        reply = recording.start_reply(params) if isinstance(params, SendRequest) else None
        if reply is None and request.operation not in _FOLLOWED:
            return None
        return cls(recording, request, reply, sse.SseParser(), asyncio.get_running_loop().time())

    def frames(self, chunk: bytes) -> None:
        """Record a chunk of a stream."""
        for event in self.parser.feed(chunk):
            self._notice(event.data.encode())

    def end(self, response: HttpResponse, body: bytes | None) -> None:
        """Record the end of the answer; `body` is that of one that was no stream."""
        if body is not None and response.status < 400:
            self._notice(body)
            params = self.request.params
            if self.reply is not None and isinstance(params, SendRequest) and params.wait is not False:
                self.reply.receipt = not self.reply.resting
        elif body is not None and self.reply is not None:
            self._refusal(response, body, self.reply)
        if self.reply is not None:
            self.recording.finish_reply(self.reply)
            log.info("mock.recorded message task=%s resting=%s", self.reply.task_id, self.reply.resting)

    def _refusal(self, response: HttpResponse, body: bytes, reply: RecordedReply) -> None:
        # Of REST it is the answer; of JSON-RPC it is what stood before the agent.
        if self.request.rest is not None and response.headers.get("content-type", "").endswith("json"):
            reply.set_refusal(read_http_error(response.status, response.headers, body))
        else:
            reply.set_http_status(response.status)

    def _notice(self, raw: bytes) -> None:
        now = asyncio.get_running_loop().time()
        delay, self.at = (round(now - self.at, 3) if self.recording.timing else 0), now
        try:
            if self.request.rest is None:
                notice = rpc_notice(raw, "")
            else:
                notice = rest_notice(raw, proto=self.request.dialect is Dialect.V03_PROTO)
        except Refused as refused:
            if self.reply is not None:
                self.reply.set_refusal(refused)
            return
        except Unreadable as error:
            log.warning("mock.unreadable why=%s", error)
            return
        if self.reply is not None:
            self.reply.add(notice, delay)
        elif not isinstance(notice.answer, Message):
            self.recording.add_later(notice, delay)


def _parsed(exchange: MockExchange, body: bytes) -> MockRequest | None:
    """The A2A request in an exchange, wherever the agent is mounted; None if it is none."""
    if b'"jsonrpc"' in body:
        request = read_rpc(exchange, body, Persona(), Quirks())
        return request if isinstance(request, MockRequest) else None
    mounted = copy(exchange)
    while mounted.path:
        request = read_rest(mounted, body, Persona(), Quirks())
        if isinstance(request, MockRequest):
            return request
        mounted.path = "/".join(["", *mounted.path.split("/")[2:]]).rstrip("/")
    return None
