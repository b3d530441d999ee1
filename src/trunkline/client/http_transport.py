"""What the transports over HTTP share: one request with one answer, and one whose answer is a stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from msgspec import Struct

from trunkline.client.transport import Call, Frame
from trunkline.errors import Refused, TaskNotFound, TooLarge, TrunklineError, Unreachable, Unreadable
from trunkline.net.egress import target
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.wire.answers import Notice
from trunkline.wire.error_reader import read_http_error
from trunkline.wire.frame_template import FrameTemplate
from trunkline.wire.peer_card import Interface
from trunkline.wire.sse import SseParser
from trunkline.wire.types import ArtifactUpdate, PushConfig, PushQuery

# What one answer, and one event of a stream, may hold.
LIMIT = 16 * 1024 * 1024
# An id goes back in a header; a longer one is none.
ID_LIMIT = 1024
JSON = "application/json"
EVENTS = "text/event-stream"
# A refusal comes as JSON; some agents refuse callers who would not take it.
EITHER = f"{EVENTS}, {JSON}"

Read = Callable[[bytes], Notice]


class HttpAnswer(Struct, frozen=True):
    """An answer that has come whole."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str

    @property
    def ok(self) -> bool:
        """Whether HTTP says that it went well."""
        return 200 <= self.status < 300

    def refusal(self, *, of_task: bool = False) -> Refused:
        """The error of an answer that is not `ok`; `of_task`: a task was in the path."""
        host = target(self.url).host
        return read_http_error(self.status, self.headers, self.body, of_task=of_task, host=host)


def spoken(interface: Interface) -> Headers:
    """The header that says which version is spoken. 0.3 has none: servers of both take that for 0.3."""
    return (("a2a-version", "1.0"),) if interface.version.startswith("1") else ()


def first_of(configs: tuple[PushConfig, ...], query: PushQuery) -> PushConfig:
    """The config that is meant by who names none.

    Raises:
        TaskNotFound: the task has none.
    """
    if configs:
        return configs[0]
    raise TaskNotFound(f"task {query.task_id} has no push config")


async def answered(http_client: HttpClient, request: HttpRequest, call: Call) -> HttpAnswer:
    """The whole answer, whatever its status."""
    reply = await http_client.open(request)
    try:
        return await _whole(reply, request, call)
    finally:
        await reply.close()


async def _whole(reply: HttpResponse, request: HttpRequest, call: Call) -> HttpAnswer:
    try:
        body = await reply.read(LIMIT, idle_s=call.idle_s)
        return HttpAnswer(reply.status, reply.headers, body, request.url)
    except Unreachable as error:
        if error.reason != "size":
            raise
        # The work may have been done; only its answer is of no use here.
        advice = "have it made in pieces and read it with stream"
        raise Unreachable(f"{error}, the most that is read at once; {advice}", reason="size") from None


class HttpStream:
    """The events of a stream, each read by `read`; `come` are those that came together with the last.

    An answer that is no stream is one event; `of_task`: a task was in the path.
    """

    __slots__ = ("_call", "_chunks", "_closed", "_error", "_http_client", "_lines", "_loop", "_of_task",
                 "_parser", "_read", "_reply", "_request", "_template", "come")  # fmt: skip

    def __init__(
        self, http_client: HttpClient, request: HttpRequest, call: Call, read: Read, *, of_task: bool = False
    ) -> None:
        self.come: deque[Frame] = deque()
        self._http_client = http_client
        self._request = request
        self._call = call
        self._of_task = of_task
        self._parser = SseParser(limit=LIMIT)
        self._read = read
        # Of a stream of pieces, once that is seen: most answers are a few frames that are all different.
        self._template: FrameTemplate | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reply: HttpResponse | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._error: TrunklineError | None = None
        self._closed = False
        # How many lines came since `pace` was called.
        self._lines = 0

    def __del__(self) -> None:
        # Whoever forgets it must not keep the connection for ever.
        if self._reply is not None and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.create_task, _close(self._reply))

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come beside what has come already."""
        return self._closed or getattr(self._reply, "is_read", False)

    def __aiter__(self) -> HttpStream:
        return self

    async def __anext__(self) -> Frame:
        come, pace = self.come, self._call.pace
        if not come:
            if self._closed:
                raise StopAsyncIteration
            try:
                if self._error is not None:
                    raise self._error
                if self._chunks is None:
                    await self._open()
                while not come:
                    assert self._chunks is not None
                    if pace is not None and self._lines:
                        lines, self._lines = self._lines, 0
                        await pace(lines)
                    chunk = await self._chunks.__anext__()
                    if pace is not None:
                        self._lines += chunk.count(b"\n") + chunk.count(b"\r")
                    self._take(chunk)
            except BaseException:
                await self.aclose()
                raise
        return come.popleft()

    def taken(self) -> list[Frame]:
        """Those that came together with the last; they are not given again."""
        come = [*self.come]
        self.come.clear()
        return come

    async def aclose(self) -> None:
        """Let go of the connection."""
        self.come.clear()
        self._closed = True
        reply, self._reply = self._reply, None
        if reply is not None:
            await reply.close()

    async def _open(self) -> None:
        request, call = self._request, self._call
        self._loop = asyncio.get_running_loop()
        reply = self._reply = await self._http_client.open(request)
        kind = reply.headers.get("content-type", "")
        if 200 <= reply.status < 300 and kind.lower().startswith(EVENTS):
            self._chunks = reply.chunks(idle_s=call.idle_s)
            return
        answer = await _whole(reply, request, call)
        if not answer.ok:
            raise answer.refusal(of_task=self._of_task)
        frame = Frame(self._read(answer.body))
        await self.aclose()
        self.come.append(frame)

    def _take(self, chunk: bytes) -> None:
        come, template = self.come, self._template
        read, take = (self._read, None) if template is None else (template.read, self._take_alike)
        try:
            try:
                pieces = self._parser.pieces(chunk, take)
            except TooLarge as error:
                raise Unreadable(f"{error.message}, which is more than is read") from None
            for piece in pieces:
                data, own_id = piece.data, piece.own_id
                try:
                    come.append(Frame(read(data), own_id if len(own_id) <= ID_LIMIT else ""))
                except Unreadable:
                    # Some say that a stream is over in the way of model providers. Events with names of
                    # their own may mean anything; those without one are A2A's.
                    if data != b"[DONE]" and piece.event in ("message", "error"):
                        raise
        except (Refused, Unreadable) as error:
            # What came before an event that cannot be read has come.
            if not come:
                raise
            self._error = error
        if template is None and come:
            newest = come[-1].notice.answer
            if type(newest) is ArtifactUpdate and newest.append:
                self._template = FrameTemplate(self._read)

    def _take_alike(self, events: bytes) -> str:
        found = [] if self._template is None else self._template.run(events, Frame)
        self.come.extend(found)
        return found[-1].id if found else ""


class FoundStream:
    """The events of a stream whose place is found when it is opened: `source` gives as many as there are."""

    __slots__ = ("_source", "come")

    def __init__(self, source: AsyncGenerator[list[Frame]]) -> None:
        self._source = source
        self.come: deque[Frame] = deque()

    def __aiter__(self) -> FoundStream:
        return self

    async def __anext__(self) -> Frame:
        if not self.come:
            self.come.extend(await self._source.__anext__())
        return self.come.popleft()

    async def aclose(self) -> None:
        """Let go of the connection."""
        self.come.clear()
        await self._source.aclose()


async def _close(reply: HttpResponse) -> None:
    await reply.close()
