"""A mock agent as an ASGI application: it lets its script answer a request, and gets it wrong if told to.

In process it is reached by `net.inside`, over a socket by `mock.socket`. Tasks live in its memory.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from trunkline import errors
from trunkline.mock import request as ask
from trunkline.mock.card import card_document, patched
from trunkline.mock.faults import REFUSALS, FaultSchedule, MockFault
from trunkline.mock.playback import Playback
from trunkline.mock.quirks import Quirks
from trunkline.mock.request import MockRequest
from trunkline.mock.response import MockResponse, ResponseStream, Whole, refusal
from trunkline.mock.scenario import Entry, Persona, Scenario
from trunkline.mock.state import Begun, Cue, MockState, trimmed
from trunkline.mock.webhooks import Post
from trunkline.server.request import Receive, Scope, Send
from trunkline.wire.operations import Operation
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.service_parameters import Version
from trunkline.wire.types import (
    ListQuery,
    Message,
    Metadata,
    PushConfig,
    PushQuery,
    PushRequest,
    SendRequest,
    TaskQuery,
)
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")


class ReceivedRequest(Struct, frozen=True):
    """One request as it came: what it asked for, the message if it brought one, and the rule that it hit."""

    asked: str
    path: str
    headers: dict[str, str]
    message: Message | None = None
    rule: str = ""
    faults: tuple[MockFault, ...] = ()

    def __repr__(self) -> str:
        # Headers stay unsaid: one of them may be a credential.
        return f"Received({self.asked!r}, {self.path!r}, text={self.text!r}, rule={self.rule!r})"

    @property
    def text(self) -> str:
        """The texts of the message."""
        return "" if self.message is None else "".join(part.text or "" for part in self.message.parts)


class Mock:
    """One mock agent; `mock(scope, receive, send)` serves it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.received: list[ReceivedRequest] = []
        self._post: Post | None = None
        self._stage = MockState(scenario, self._tell)
        self._schedule = FaultSchedule(scenario.faults, scenario.seed)
        self._persona = _claimed(scenario.agent, self._stage.manner)

    @property
    def messages(self) -> list[Message]:
        """The messages that came, each time they came."""
        return [each.message for each in self.received if each.message is not None]

    @property
    def runs(self) -> Counter[str]:
        """How often the work of each message was begun, by its id; more than once is a second run."""
        return self._stage.runs

    @property
    def hits(self) -> Counter[str]:
        """How often each rule was hit, by its name; the empty one counts messages that fitted none."""
        return self._stage.hits

    def check(self) -> list[str]:
        """What the scenario expects and has not happened, in words; empty if all is well."""
        return self._stage.check()

    def reset(self) -> None:
        """Forget everything, as a restart would."""
        self._stage.close()
        self._stage = MockState(self.scenario, self._tell)
        self._schedule = FaultSchedule(self.scenario.faults, self.scenario.seed)
        self.received.clear()

    async def close(self) -> None:
        """Stop what still goes on."""
        self._stage.close()
        if self._post is not None:
            await self._post.close()
            self._post = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(MockResponse(scope, receive, send))

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, line: MockResponse) -> None:
        manner = self._stage.manner
        if line.path in manner.card_paths:
            await self._serve_card(line)
            return
        body = await line.body()
        if (refused := self._at_the_door(line)) is not None:
            await line.deliver(refused, ())
            return
        persona = self._persona
        if _is_rpc(line, manner) and "JSONRPC" in persona.bindings:
            asked = ask.read_rpc(line, body, persona, manner)
        else:
            asked = ask.read_rest(line, body, persona, manner)
        if isinstance(asked, Whole):
            log.info("mock.refused path=%s", line.path)
            await line.deliver(asked, ())
            return
        await self._serve_call(line, asked)

    def _at_the_door(self, line: MockResponse) -> Whole | None:
        auth = self._persona.auth
        if auth is None or _is_known(auth, line.headers):
            return None
        challenge = "Bearer" if auth.bearer else "ApiKey"
        log.info("mock.unauthenticated path=%s", line.path)
        return Whole(b'{"error":"say who you are"}', 401, headers=(("www-authenticate", challenge),))

    async def _serve_card(self, line: MockResponse) -> None:
        faults = self._schedule.due("card", line.path)
        self.received.append(ReceivedRequest("card", line.path, line.headers, faults=faults))
        if await self._is_refused(line, faults, None):
            return
        body = msgspec.json.encode(self._card(line, faults))
        await line.deliver(Whole(body), faults)

    def _card(self, line: MockResponse, faults: tuple[MockFault, ...]) -> Metadata:
        scenario = self.scenario
        document = card_document(
            self._persona, self._stage.manner, line.base, deduplicates=scenario.deduplicates
        )
        for fault in faults:
            if fault.do == "lie":
                document = patched(document, fault.card)
        return document

    async def _serve_call(self, line: MockResponse, asked: MockRequest) -> None:
        faults = self._schedule.due(asked.word, line.path)
        request = asked.params if isinstance(asked.params, SendRequest) else None
        cue: Cue | None = None
        answer: Whole | ResponseStream | None = None
        if request is not None:
            try:
                cue = self._stage.cue(request)
                faults = (*faults, *self._stage.faults(cue, asked.word, line.path))
            except errors.Refused as refused:
                answer = ask.refuse(refused, asked)
        self.received.append(
            ReceivedRequest(
                asked.word,
                line.path,
                line.headers,
                None if request is None else request.message,
                "" if cue is None else cue.rule,
                faults,
            )
        )
        if faults:
            log.info("mock.fault asked=%s do=%s", asked.word, ",".join(fault.do for fault in faults))
        if await self._is_refused(line, faults, asked):
            return
        asked = _in_other_dialect(asked) if any(fault.do == "dialect" for fault in faults) else asked
        if answer is None:
            answer = await self._answer(line, asked, cue, faults)
        late = next((fault for fault in faults if fault.do in REFUSALS and fault.worked), None)
        await line.deliver(answer if late is None else refusal(late), faults)

    async def _is_refused(
        self, line: MockResponse, faults: tuple[MockFault, ...], asked: MockRequest | None
    ) -> bool:
        """Answer now, if a fault says so before anything is done."""
        for fault in faults:
            if fault.do == "drop":
                await line.drop()
                return True
            if fault.do == "version" and asked is not None:
                refused = errors.VersionNotSupported(
                    "this version is not spoken here, whatever the card says"
                )
                await line.deliver(ask.refuse(refused, asked), ())
                return True
            if fault.do in REFUSALS and fault.do != "version" and not fault.worked:
                await line.deliver(refusal(fault), faults)
                return True
        return False

    async def _answer(
        self, line: MockResponse, asked: MockRequest, cue: Cue | None, faults: tuple[MockFault, ...]
    ) -> Whole | ResponseStream:
        try:
            if cue is not None and isinstance(asked.params, SendRequest):
                return await self._send(line, asked, asked.params, cue)
            return await self._other(line, asked, faults)
        except errors.Refused as refused:
            return ask.refuse(refused, asked)

    async def _send(
        self, line: MockResponse, asked: MockRequest, request: SendRequest, cue: Cue
    ) -> Whole | ResponseStream:
        streams = asked.operation is Operation.STREAM
        if streams and not self._persona.streaming:
            raise errors.UnsupportedOperation("this agent does not stream")
        config = None if request.push is None else await self._accepted(request.push)
        begun = await self._stage.perform(cue)
        work = begun.work
        if config is not None:
            self._keep(work, config, asked)
        if work.failure is not None:
            return ask.fail(work.failure, asked)
        if streams:
            return self._stream(asked, begun, cue)
        wait = request.wait if request.wait is not None else self._stage.manner.reply == "wait"
        if wait and not work.receipt:
            await line.unless_left(work.rest())
        if work.message is not None:
            return asked.said(work.message)
        task = work.task if wait and not work.receipt else begun.task
        return asked.sent(trimmed(task, request.history_length))

    def _stream(self, asked: MockRequest, begun: Begun, cue: Cue) -> ResponseStream:
        work = begun.work
        if work.message is not None:
            frame = asked.frame(None, asked.writer().message_frame(work.message))
            return ResponseStream(_only(frame))
        if asked.last_event_id is not None and self._stage.manner.ids:
            after = _place(asked.last_event_id, work)
            return ResponseStream(self._stage.frames(asked, work, after, None, through=False))
        opening = begun.task if cue.work is not None and self._stage.manner.opening else None
        return ResponseStream(self._stage.frames(asked, work, begun.seq, opening, through=False))

    async def _other(
        self, line: MockResponse, asked: MockRequest, faults: tuple[MockFault, ...]
    ) -> Whole | ResponseStream:
        stage = self._stage
        match asked.operation, asked.params:
            case Operation.GET, TaskQuery(id=task_id, history_length=length):
                return asked.task(trimmed(stage.find(task_id).task, length))
            case Operation.CANCEL, TaskQuery(id=task_id):
                return asked.task(stage.cancel(task_id))
            case Operation.LIST, ListQuery() as query:
                return asked.result(asked.writer().page(stage.list(query)))
            case Operation.SUBSCRIBE, TaskQuery(id=task_id):
                return self._subscribe(asked, stage.find(task_id))
            case Operation.EXTENDED_CARD, _:
                if not self._persona.extended_card:
                    raise errors.ExtendedCardNotConfigured("this agent has no extended card")
                return asked.result(msgspec.json.encode(self._card(line, faults)))
            case _, PushRequest() | PushQuery() as params:
                return await self._push(asked, params)
            case _:
                raise errors.MethodNotFound("there is no such method here")

    def _subscribe(self, asked: MockRequest, work: Playback) -> ResponseStream:
        if not self._persona.streaming:
            raise errors.UnsupportedOperation("this agent does not stream")
        if asked.last_event_id is not None and self._stage.manner.ids:
            after = _place(asked.last_event_id, work)
            return ResponseStream(self._stage.frames(asked, work, after, None, through=True))
        if work.over and asked.dialect is Dialect.V1:
            raise errors.UnsupportedOperation(f"task {work.id} has ended; get it")
        # Of a task that has ended, 0.3 hears the end again.
        seq = len(work.events) - work.over
        return ResponseStream(self._stage.frames(asked, work, seq, work.task, through=True))

    async def _push(self, asked: MockRequest, params: PushRequest | PushQuery) -> Whole:
        if not self._persona.push:
            raise errors.PushNotSupported("this agent sends no push notifications")
        work = self._stage.find(params.task_id)
        if isinstance(params, PushRequest):
            config = self._keep(work, await self._accepted(params.config), asked)
            return asked.result(write_config(work.id, config, asked.dialect))
        if asked.operation is Operation.PUSH_LIST:
            configs = [config for config, _ in work.push.values()]
            return asked.result(write_configs(work.id, configs, asked.dialect))
        found = params.config_id or next(iter(work.push), "")
        if found not in work.push:
            raise errors.TaskNotFound("there is no such push config")
        if asked.operation is Operation.PUSH_GET:
            return asked.result(write_config(work.id, work.push[found][0], asked.dialect))
        del work.push[found]
        return asked.result(b"null" if asked.rest is None else b"{}")

    async def _accepted(self, config: PushConfig) -> PushConfig:
        if not self._persona.push:
            raise errors.PushNotSupported("this agent sends no push notifications")
        if not self._stage.manner.trusting:
            try:
                await self._posting().check(config.url)
            except errors.Unreachable as error:
                raise errors.InvalidParams(f"url: {error}", field="url") from None
        return config

    def _keep(self, work: Playback, config: PushConfig, asked: MockRequest) -> PushConfig:
        config = msgspec.structs.replace(config, id=config.id or f"config-{len(work.push) + 1}")
        version = Version.V1 if asked.dialect is Dialect.V1 else Version.V03
        work.push[config.id] = (config, version.value)
        return config

    def _posting(self) -> Post:
        if self._post is None:
            self._post = Post()
        return self._post

    def _tell(self, work: Playback) -> None:
        if work.push:
            self._posting().tell(work)


def _claimed(persona: Persona, manner: Quirks) -> Persona:
    """The persona as its manner lets it be."""
    return msgspec.structs.replace(
        persona,
        versions=manner.claims or persona.versions,
        bindings=persona.bindings if manner.rest else ("JSONRPC",),
    )


async def _only(frame: bytes) -> AsyncIterator[bytes]:
    yield frame


def _is_rpc(line: MockResponse, manner: Quirks) -> bool:
    return line.path.rstrip("/") == manner.path.rstrip("/") and line.method == "POST"


def _is_known(auth: Entry, headers: dict[str, str]) -> bool:
    shown = [
        (auth.bearer, headers.get("authorization", "").removeprefix("Bearer ")),
        (auth.api_key, headers.get(auth.header.lower(), "")),
    ]
    return any(wanted and hmac.compare_digest(wanted.encode(), given.encode()) for wanted, given in shown)


def _in_other_dialect(asked: MockRequest) -> MockRequest:
    other = Dialect.V03 if asked.dialect is Dialect.V1 else Dialect.V1
    return msgspec.structs.replace(asked, dialect=other)


def _place(text: str, work: Playback) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= len(work.events):
        return int(text)
    raise errors.InvalidParams("Last-Event-ID is no event of this task", field="Last-Event-ID")
