"""What the transports over HTTP share: one request with one answer, and one whose answer is a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable

from msgspec import Struct

from trunkline.client.transport import Call, Frame
from trunkline.errors import Refused, TaskNotFound, TooLarge, Unreachable, Unreadable
from trunkline.net.egress import target
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.wire.answers import Notice
from trunkline.wire.error_reader import read_http_error
from trunkline.wire.frame_template import FrameTemplate
from trunkline.wire.peer_card import Interface
from trunkline.wire.sse import SseParser, SsePiece, Take
from trunkline.wire.types import PushConfig, PushQuery

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
    """The events of a stream, one by one; `come` are those that came together with the last."""

    __slots__ = ("come", "reply", "source")

    def __init__(self, source: AsyncGenerator[list[Frame]]) -> None:
        self.source = source
        self.come: deque[Frame] = deque()
        self.reply: HttpResponse | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come beside what has come already."""
        return getattr(self.reply, "is_read", False)

    def __aiter__(self) -> HttpStream:
        return self

    async def __anext__(self) -> Frame:
        if not self.come:
            self.come.extend(await self.source.__anext__())
        return self.come.popleft()

    async def aclose(self) -> None:
        """Let go of the connection."""
        self.come.clear()
        await self.source.aclose()


def followed(
    http_client: HttpClient,
    request: HttpRequest,
    call: Call,
    read: Read,
    whole: Callable[[HttpAnswer], Notice],
) -> HttpStream:
    """The events of a stream, each read by `read`. An answer that is no stream is read by `whole`."""

    def note(reply: HttpResponse) -> None:
        stream.reply = reply

    stream = HttpStream(_follow(http_client, request, call, read, whole, opened=note))
    return stream


async def _follow(
    http_client: HttpClient,
    request: HttpRequest,
    call: Call,
    read: Read,
    whole: Callable[[HttpAnswer], Notice],
    *,
    opened: Callable[[HttpResponse], None],
) -> AsyncGenerator[list[Frame]]:
    reply = await http_client.open(request)
    opened(reply)
    try:
        if not (200 <= reply.status < 300 and _is_stream(reply)):
            yield [Frame(whole(await _whole(reply, request, call)))]
            return
        parser = SseParser(limit=LIMIT)
        template = FrameTemplate(read)
        found: list[Frame] = []

        def take(events: bytes) -> str:
            found.extend(template.run(events, Frame))
            return found[-1].id if found else ""

        async for chunk in reply.chunks(idle_s=call.idle_s):
            found = []
            try:
                _read_into(found, _pieces(parser, chunk, take), template.read)
            except (Refused, Unreadable):
                # What came before an event that cannot be read has come.
                if found:
                    yield found
                raise
            if found:
                yield found
    finally:
        await reply.close()


def _is_stream(reply: HttpResponse) -> bool:
    return reply.headers.get("content-type", "").lower().startswith(EVENTS)


def _pieces(parser: SseParser, chunk: bytes, take: Take) -> list[SsePiece]:
    try:
        return parser.pieces(chunk, take)
    except TooLarge as error:
        raise Unreadable(f"{error.message}, which is more than is read") from None


def _read_into(found: list[Frame], pieces: list[SsePiece], read: Read) -> None:
    """One by one: what came before an event that cannot be read has come."""
    for piece in pieces:
        data, own_id = piece.data, piece.own_id
        # Some say that a stream is over in the way of model providers.
        if data == b"[DONE]":
            continue
        try:
            found.append(Frame(read(data), own_id if len(own_id) <= ID_LIMIT else ""))
        except Unreadable:
            # Events with names of their own may mean anything; those without one are A2A's.
            if piece.event in ("message", "error"):
                raise
