"""A proxy before a real agent that forwards everything unchanged, and the recording that it makes.

A recording becomes a scenario that replays the agent. Ids of tasks, contexts and messages become
placeholders, which the mock fills with its own. Nothing of a request is kept but its message and the skill
that it names: no header, no credential.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from copy import copy
from typing import cast
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from trunkline.client.result import text_of
from trunkline.errors import Forbidden, Misuse, PeerError, Refused, Unreachable, Unreadable
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.host_check import LOOPBACK, HostCheck
from trunkline.mock.exchange import EVENTS, MockAnswer, MockExchange, serve_lifespan
from trunkline.mock.faults import MockFault
from trunkline.mock.playback import CONTEXT, MESSAGE, TASK, grown, renamed
from trunkline.mock.quirks import Quirks
from trunkline.mock.request import MockRequest, read_rest, read_rpc
from trunkline.mock.scenario import (
    Binding,
    Content,
    Failure,
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedExtension,
    ScriptedFile,
    ScriptedPart,
    ScriptedSkill,
    ScriptedStep,
    State,
    Version,
    When,
    skill_of,
)
from trunkline.net.http import Headers, HttpClient, HttpRequest, HttpResponse
from trunkline.wire import sse
from trunkline.wire.answers import Notice
from trunkline.wire.codes import code_of
from trunkline.wire.error_reader import read_http_error
from trunkline.wire.operations import Operation
from trunkline.wire.peer_card import PeerCard, read_card
from trunkline.wire.replies import rest_notice, rpc_notice
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import (
    RESTING,
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    SendRequest,
    StatusUpdate,
    Task,
    TaskQuery,
    TaskState,
    TaskStatus,
)
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")
BODY_BYTES = 64 << 20
# Headers of one hop, or that this proxy sets itself.
_HOP_HEADERS = {"host", "content-length", "connection", "accept-encoding", "transfer-encoding", "keep-alive"}
_FOLLOWED = {Operation.GET, Operation.SUBSCRIBE}
_VERSIONS: tuple[Version, ...] = ("1.0", "0.3")
_BINDINGS: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")


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
            text = f"{url!r} is not the URL of an agent; give one like https://agents.example/scribe"
            raise Misuse(text, hint="trunkline mock record http://HOST:PORT")
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
                    log.warning(
                        "mock.elsewhere url=%s effect=%a", interface.url, "calls of this URL are not recorded"
                    )
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
            log.info("mock.recorded task=%s resting=%s", self.reply.task_id, self.reply.resting)

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


class RecordedReply:
    """One message and the reply to it, as far as it was recorded."""

    def __init__(self, request: SendRequest, turn: int, earlier: RecordedReply | None) -> None:
        message = request.message
        self.task_id = message.task_id
        self.context_id = message.context_id
        self.resting = False
        self._message_id = message.message_id
        self._when = _when_of(message, skill_of(message, request.metadata), turn)
        self._steps: list[ScriptedStep] = []
        self._reply: Reply | None = None
        self._fault: MockFault | None = None
        # The answer came before the end, though the caller would have waited.
        self.receipt = False
        # What the task had before this message, as an earlier reply left it, is no part of this reply.
        self._known: dict[str, Artifact] = {} if earlier is None else dict(earlier._known)
        self._state: TaskStatus | None = None if earlier is None else earlier._state

    def add(self, notice: Notice, delay: float = 0) -> None:
        """Add what an answer or a frame of a stream tells of the task."""
        answer = notice.answer
        if isinstance(answer, Message):
            self.context_id = self.context_id or answer.context_id
            self._reply = Reply(message=_content(answer), metadata=answer.metadata)
            self.resting = True
            return
        if isinstance(answer, Task):
            answer = StatusUpdate(answer.id, answer.context_id, answer.status)
        self.task_id, self.context_id = answer.task_id, answer.context_id or self.context_id
        if isinstance(answer, ArtifactUpdate):
            self._add_chunk(answer, delay)
            return
        for artifact in notice.artifacts:
            if self._known.get(artifact.artifact_id) != artifact:
                self._known[artifact.artifact_id] = artifact
                self._steps.append(ScriptedStep(artifact=_scripted_artifact(artifact)))
        self._add_status(answer, delay)

    def set_refusal(self, refused: Refused) -> None:
        """Note that the agent refused the message."""
        code = refused.code if isinstance(refused, PeerError) else code_of(refused).rpc
        self._reply = Reply(error=Failure(code=code, message=refused.message))
        self.resting = True

    def set_http_status(self, status: int) -> None:
        """Note that the message was refused by HTTP alone."""
        self._fault = MockFault(do="status", status=status)
        self.resting = True

    def _add_chunk(self, update: ArtifactUpdate, delay: float) -> None:
        artifact = update.artifact
        self._known[artifact.artifact_id] = grown(self._known.get(artifact.artifact_id), update)
        step = ScriptedStep(
            artifact=_scripted_artifact(artifact),
            append=update.append,
            last=update.last_chunk,
            delay=delay,
            metadata=update.metadata,
        )
        self._steps.append(step)

    def _add_status(self, update: StatusUpdate, delay: float) -> None:
        status = update.status
        self.resting = status.state in RESTING
        if status.state is TaskState.SUBMITTED or self._state == status:
            return
        self._state = status
        say = None if status.message is None else _content(status.message)
        step = ScriptedStep(
            state=cast("State", plain_state(status.state)), say=say, delay=delay, metadata=update.metadata
        )
        self._steps.append(step)

    def rule(self) -> Rule:
        """The rule that replays this reply."""
        reply = self._reply or Reply(steps=tuple(self._steps), hold=not self._steps, receipt=self.receipt)
        ids = ((self.task_id, TASK), (self.context_id, CONTEXT), (self._message_id, MESSAGE))
        reply = renamed(reply, [(found, placeholder) for found, placeholder in ids if found])
        return Rule(when=self._when, reply=reply, faults=() if self._fault is None else (self._fault,))


class Recording:
    """The card and the replies of an agent, in the order of the messages."""

    def __init__(self, *, timing: bool = False) -> None:
        self.timing = timing
        self.card: PeerCard | None = None
        self._replies: list[RecordedReply] = []
        self._by_task: dict[str, RecordedReply] = {}
        self._turns: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many messages were recorded."""
        return len(self._replies)

    def start_reply(self, request: SendRequest) -> RecordedReply:
        """Record a message on its way to the agent, and begin its reply."""
        message = request.message
        earlier = self._by_task.get(message.task_id)
        context = message.context_id or (earlier.context_id if earlier is not None else "")
        recorded = RecordedReply(request, self._turns[context] + 1 if context else 1, earlier)
        self._replies.append(recorded)
        return recorded

    def finish_reply(self, recorded: RecordedReply) -> None:
        """Note that the answer to a message is over: from here on its task is known by its id."""
        self._turns[recorded.context_id] += 1
        if recorded.task_id:
            self._by_task[recorded.task_id] = recorded

    def add_later(self, notice: Notice, delay: float = 0) -> None:
        """Add what a get or a subscription tells of a task, to the reply that it belongs to."""
        answer = notice.answer
        recorded = self._by_task.get(answer.id if isinstance(answer, Task) else answer.task_id)
        if recorded is not None and not recorded.resting:
            recorded.add(notice, delay)

    def forget(self, task_id: str) -> None:
        """Stop recording a task that the caller cancels: what follows is no reply."""
        self._by_task.pop(task_id, None)

    def scenario(self) -> Scenario:
        """The scenario that replays all of it. A message that got several replies gets them in that order."""
        rules: list[Rule] = []
        for recorded in self._replies:
            rule = recorded.rule()
            same = [index for index, each in enumerate(rules) if each.when == rule.when]
            if any(rules[index].reply == rule.reply and rules[index].times is None for index in same):
                continue
            for index in same:
                rules[index] = replace(rules[index], times=rules[index].times or 1)
            rules.append(rule)
        # The first rule that fits is taken: those of a certain turn come before those of any.
        rules.sort(key=lambda rule: rule.when.turn is None)
        if self.card is None:
            return Scenario(rules=tuple(rules))
        deduplicates = any(each.uri == IDEMPOTENT_SEND for each in self.card.extensions)
        return Scenario(agent=_persona(self.card), rules=tuple(rules), deduplicates=deduplicates)


def _persona(card: PeerCard) -> Persona:
    """The agent as its card describes it, without its authentication: a replay asks for none."""
    majors = {one.version.split(".")[0] for one in card.interfaces}
    bindings = {one.binding for one in card.interfaces}
    return Persona(
        name=card.name,
        description=card.description,
        version=card.version,
        skills=tuple(ScriptedSkill(**asdict(skill)) for skill in card.skills),
        input_modes=card.default_input_modes,
        output_modes=card.default_output_modes,
        streaming=card.streaming,
        push=card.push,
        versions=tuple(known for known in _VERSIONS if known.split(".")[0] in majors) or ("0.3",),
        bindings=tuple(known for known in _BINDINGS if known in bindings) or ("JSONRPC",),
        extensions=tuple(
            ScriptedExtension(**asdict(each)) for each in card.extensions if each.uri != IDEMPOTENT_SEND
        ),
    )


def _when_of(message: Message, skill: str, turn: int) -> When:
    data = next((part.data for part in message.parts if part.data is not UNSET), UNSET)
    text = text_of(message) or (None if data is not UNSET else "")
    return When(skill=skill, text=text, data=data, turn=turn if turn > 1 else None)


def _scripted_artifact(artifact: Artifact) -> ScriptedArtifact:
    return ScriptedArtifact(
        id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=tuple(_scripted_part(part) for part in artifact.parts),
        metadata=artifact.metadata,
    )


def _content(message: Message) -> Content:
    parts = tuple(_scripted_part(part) for part in message.parts)
    if len(parts) == 1 and parts[0] == ScriptedPart(text=parts[0].text) and parts[0].text is not None:
        return parts[0].text
    return parts


def _scripted_part(part: Part) -> ScriptedPart:
    if part.text is None and part.data is UNSET:
        file = ScriptedFile(name=part.filename, media_type=part.media_type, base64=part.raw, url=part.url)
        return ScriptedPart(file=file, metadata=part.metadata)
    return ScriptedPart(text=part.text, data=part.data, media_type=part.media_type, metadata=part.metadata)
