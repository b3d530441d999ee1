"""Requests with a deadline, the record of each, and the JSON in it: what was sent and what came back.

Nothing here raises for what an agent does: silence, a cut connection and nonsense are things to record, and
its JSON may be anything. Where the doctor's own rules keep it from calling, `Undecided` says so.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import TooLarge, TrunklineError, Unreachable
from trunkline.net.http import HttpClient, HttpRequest, HttpResponse
from trunkline.wire import sse, types
from trunkline.wire.spellings import plain_state, state_named

# Whether a stream need not be read beyond this event.
Enough = Callable[[sse.SseEvent], bool]
AT_ONCE = 8
EVENTS = "text/event-stream"
_LIMIT = 8 * 1024 * 1024
_SHOWN = 400
_LEAST_S = 0.05
_SECRET_HEADERS = frozenset(("authorization", "x-api-key", "cookie", "proxy-authorization"))

TERMINAL = frozenset(map(plain_state, types.TERMINAL))
INTERRUPTED = frozenset(map(plain_state, types.INTERRUPTED))
AT_REST = TERMINAL | INTERRUPTED
# What a result may be: the member under which 1.0 puts it, and in the same order the word of 0.3 for it.
WRAPPERS = ("task", "message", "statusUpdate", "artifactUpdate")
KINDS = ("task", "message", "status-update", "artifact-update")
# Objects that lie under a member of their own name, and in which; an artifact in any.
_HOLDERS = {"status": ("task", "status-update"), "message": ("status",), "artifact": ()}
_SNAKE = re.compile(r"[a-z0-9_]+")
_OWN = frozenset(("metadata", "data", "params", "scopes", "schemes", "security", "header"))


class NotPossible(Exception):  # noqa: N818 - it is no error: what a check needs is not there
    """A check cannot be done; the text says why. It becomes a skipped one."""


class Undecided(NotPossible):
    """Whether the agent does it right cannot be found out; the text says why. The outcome stays unknown."""


class Evidence(Struct, frozen=True):
    """A request and the beginning of its answer as text, without secrets."""

    request: str
    response: str


class ProbeExchange(Struct, kw_only=True):
    """A request and its answer. `trouble` says why nothing, or not everything, came."""

    request: HttpRequest
    label: str = ""
    status: int = 0
    headers: dict[str, str] = {}
    body: bytes = b""
    events: list[sse.SseEvent] = []
    # Of a stream: the agent closed it by itself.
    closed: bool = False
    trouble: str = ""

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none."""
        return parsed(self.body)

    @property
    def media_type(self) -> str:
        """Its content type without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def excerpt(self, size: int) -> str:
        """The beginning of the body as text."""
        return self.body[:size].decode(errors="replace").strip()

    def summary(self) -> str:
        """The answer in a few words."""
        if not self.status:
            return self.trouble
        text = " ".join(self.excerpt(160).split())
        if self.events:
            text = f"{len(self.events)} events"
        if 300 <= self.status < 400:
            return f"HTTP {self.status}, a redirect to {self.headers.get('location', 'nowhere')}"
        end = f"; {self.trouble}" if self.trouble else ""
        return f"HTTP {self.status} {self.media_type or 'without a content type'}: {text or 'empty'}{end}"


class ProbeClient:
    """Sends requests and keeps a journal of all exchanges. At most `AT_ONCE` are under way."""

    def __init__(
        self, http_client: HttpClient, *, secrets: Sequence[str] = (), timeout_s: float = 4.0
    ) -> None:
        self.journal: list[ProbeExchange] = []
        self.timeout_s = timeout_s
        # The end of the time for everything, by the loop's clock; it comes before any other limit.
        self.deadline = math.inf
        self._http_client = http_client
        self._secrets = sorted((one for one in secrets if one), key=len, reverse=True)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def fetch(
        self,
        request: HttpRequest,
        label: str = "",
        timeout_s: float | None = None,
        enough: Enough | None = None,
    ) -> ProbeExchange:
        """Send a request, and read the answer whole; a stream, if asked for, until an event is enough."""
        exchange = ProbeExchange(request=request, label=label, events=[])
        async with self._slots:
            self.journal.append(exchange)
            limit_s = self.timeout_s if timeout_s is None else timeout_s
            left_s = self.deadline - asyncio.get_running_loop().time()
            limit_s = round(max(min(limit_s, left_s), _LEAST_S), 2)
            try:
                async with asyncio.timeout(limit_s):
                    await self._read(exchange, enough)
            except TimeoutError:
                what = "the answer did not end" if exchange.status else "no answer"
                exchange.trouble = f"{what} within {limit_s:g} s"
            except TooLarge as error:
                exchange.trouble = str(error)
            except TrunklineError as error:
                if isinstance(error, Unreachable) and error.reason == "refused":
                    host = urlsplit(request.url).hostname
                    raise Undecided(
                        f"the doctor does not follow the card into a private network, to {host}; "
                        "if that is the agent, examine it at that address"
                    ) from None
                exchange.trouble = f"the connection failed: {error}"
        return exchange

    async def _read(self, exchange: ProbeExchange, enough: Enough | None) -> None:
        try:
            response = await self._http_client.open(exchange.request)
        except Unreachable as error:
            if error.reason != "sent":
                raise
            # An agent that has broken may close a connection after its answer without saying so; whoever
            # comes next on it must not be taken for refused.
            response = await self._http_client.open(exchange.request)
        try:
            exchange.status, exchange.headers = response.status, response.headers
            if enough is None or exchange.media_type != EVENTS:
                exchange.body = await response.read(_LIMIT)
            else:
                await _read_events(exchange, response, enough)
        finally:
            await response.close()

    def evidence(self, exchange: ProbeExchange) -> Evidence:
        """The part of an exchange that a report shows."""
        request = exchange.request
        shown = [f"{request.method} {request.url}"]
        shown += [
            f"{name}: {'***' if name.lower() in _SECRET_HEADERS else value}"
            for name, value in request.headers
        ]
        if request.body:
            shown.append(_cut(request.body))
        answer = exchange.summary()
        if exchange.events:
            answer = "\n".join([answer, *(_cut(event.data.encode()) for event in exchange.events[:3])])
        elif exchange.status:
            answer = (
                f"HTTP {exchange.status} {exchange.headers.get('content-type', '')}\n{_cut(exchange.body)}"
            )
            answer += f"\n({exchange.trouble})" if exchange.trouble else ""
        return Evidence(self.redacted("\n".join(shown)), self.redacted(answer.strip()))

    def redacted(self, text: str) -> str:
        """The text without any of the credentials."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


async def _read_events(exchange: ProbeExchange, response: HttpResponse, enough: Enough) -> None:
    parser = sse.SseParser(limit=_LIMIT)
    size = 0
    async for chunk in response.chunks():
        size += len(chunk)
        if size > _LIMIT:
            raise TooLarge(f"the stream is over {_LIMIT} bytes")
        exchange.body = exchange.body or chunk[:_SHOWN]
        for event in parser.feed(chunk):
            exchange.events.append(event)
            if enough(event):
                return
    exchange.closed = True


def _cut(body: bytes) -> str:
    text = body[:_SHOWN].decode(errors="replace")
    return text if len(body) <= _SHOWN else f"{text}… ({len(body)} bytes)"


def parsed(body: bytes | str) -> Any:
    """JSON decoded; None if it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def members(value: object) -> dict[str, Any]:
    """An object's members; none if it is no object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """An array's items; none if it is no array."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects(value: object) -> list[dict[str, Any]]:
    """An array's items as objects; an item that is none is an empty one."""
    return [members(item) for item in items(value)]


def text(value: object) -> str:
    """A text; empty if it is none."""
    return value if isinstance(value, str) else ""


def at(value: object, *path: str) -> Any:
    """The value at the end of these member names; None if there is none."""
    for name in path:
        value = members(value).get(name)
    return value


def state_of(task: object) -> str:
    """The state of a task or update in its plain spelling, `input-required`; empty if there is none."""
    word = text(at(task, "status", "state"))
    known = state_named(word)
    return word.lower() if known is None else plain_state(known)


class ProtocolObject(Struct, frozen=True):
    """A task, message, update or a part of one inside an answer: its kind, its JSON and where it lies.

    One without a kind stands for an answer in which there is none.
    """

    kind: str
    value: dict[str, Any]
    path: str

    @property
    def task_id(self) -> str:
        """The id of the task that it is, or is of; empty if it does not say."""
        return text(self.value.get("id" if self.kind == "task" else "taskId"))

    @property
    def state(self) -> str:
        """The state that it tells; empty if it tells none."""
        return state_of(self.value)


def _wrapper(found: dict[str, Any]) -> str:
    # A message or an update of 0.3 may have members of these names itself.
    if "parts" in found or "taskId" in found:
        return ""
    return next((name for name in WRAPPERS if isinstance(found.get(name), dict)), "")


def is_wrapped(result: object) -> bool:
    """Whether a result holds its object under the object's name, as in 1.0."""
    return bool(_wrapper(members(result)))


def protocol_object(result: object) -> ProtocolObject:
    """The task, message or update in a result of either version; without a kind if there is none."""
    found = members(result)
    if name := _wrapper(found):
        return ProtocolObject(KINDS[WRAPPERS.index(name)], members(found[name]), name)
    kind = text(found.get("kind"))
    if kind in KINDS:
        return ProtocolObject(kind, found, kind)
    if "artifact" in found:
        return ProtocolObject("artifact-update", found, "artifact-update")
    if "status" in found:
        return ProtocolObject("task" if "id" in found else "status-update", found, "task")
    return ProtocolObject("message", found, "message") if "parts" in found else ProtocolObject("", {}, "")


def nested_objects(top: ProtocolObject) -> Iterator[ProtocolObject]:
    """An object and all objects of the protocol inside it; metadata and data are the agent's own."""
    yield top
    value, path = top.value, top.path
    if top.kind == "message" and value.get("role") in ("ROLE_USER", "user"):
        # The agent repeats what its caller wrote, which says nothing about the agent.
        return
    for kind, holders in _HOLDERS.items():
        if isinstance(value.get(kind), dict) and (not holders or top.kind in holders):
            yield from nested_objects(ProtocolObject(kind, value[kind], f"{path}.{kind}"))
    for name, kind in (("history", "message"), ("artifacts", "artifact"), ("parts", "part")):
        for index, item in enumerate(objects(value.get(name))):
            yield from nested_objects(ProtocolObject(kind, item, f"{path}.{name}[{index}]"))


def texts(artifacts: object) -> dict[str, str]:
    """The text of each artifact by its id."""
    return {
        text(artifact.get("artifactId")): "".join(
            text(part.get("text")) for part in objects(artifact.get("parts"))
        )
        for artifact in objects(artifacts)
    }


def snake_members(value: object, path: str = "") -> Iterator[str]:
    """The places of members that are spelled with underscores; the agent's own data is left out."""
    for name, inner in members(value).items():
        place = f"{path}.{name}" if path else name
        if "_" in name.strip("_") and _SNAKE.fullmatch(name):
            yield place
        if name not in _OWN and not name.endswith(("Schemes", "Requirements")):
            yield from snake_members(inner, place)
    for index, inner in enumerate(items(value)):
        yield from snake_members(inner, f"{path}[{index}]")
