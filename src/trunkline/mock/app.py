"""A mock agent as an ASGI application: its scenario answers each request, and faults spoil the answer.

In process it is reached by `net.in_process`, over a socket by `mock.serve`. Tasks live in its memory.
"""

from __future__ import annotations

import hmac
import logging
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline import errors
from trunkline.client.result import text_of
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.mock.exchange import MockAnswer, MockExchange, MockStream, refusal, serve_lifespan
from trunkline.mock.faults import REFUSALS, Faults, FaultSchedule
from trunkline.mock.kept import KeptTasks
from trunkline.mock.playback import Playback
from trunkline.mock.quirks import Quirks
from trunkline.mock.request import MockRequest, read_rest, read_rpc
from trunkline.mock.scenario import Persona, Scenario, ScriptedAuth, ScriptedExtension, ScriptedSkill
from trunkline.mock.state import MockState, MockWebhooks, PlannedReply, StartedReply, trimmed
from trunkline.wire.card import ApiKeyScheme, BearerScheme, Card, Extension, Scheme, Skill, card_hybrid
from trunkline.wire.operations import Operation
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.types import ListQuery, Message, Metadata, PushQuery, PushRequest, SendRequest, TaskQuery
from trunkline.wire.writer import Dialect

# Laid over a card of both versions these take away what only 0.3 has, or only 1.0.
_V03_MEMBERS: Metadata = dict.fromkeys(
    ("protocolVersion", "url", "preferredTransport", "additionalInterfaces", "security")
    + ("supportsAuthenticatedExtendedCard",)
)
_V1_MEMBERS: Metadata = dict.fromkeys(("supportedInterfaces", "securityRequirements"))


def card_document(persona: Persona, quirks: Quirks, base: str, *, deduplicates: bool) -> Metadata:
    """The card as a document; `base` is the address at which it was requested."""
    base = (persona.url or base).rstrip("/")
    card = Card(
        name=persona.name,
        description=persona.description,
        version=persona.version,
        rpc_url=base + quirks.path,
        rest_url=base,
        skills=tuple(_skill(skill) for skill in persona.skills),
        default_input_modes=persona.input_modes,
        default_output_modes=persona.output_modes,
        streaming=persona.streaming,
        push=persona.push,
        extended_card=persona.extended_card,
        extensions=_extensions(persona, deduplicates=deduplicates),
        schemes=_schemes(persona),
        requirements=tuple((name,) for name in _schemes(persona)),
    )
    document: Metadata = msgspec.json.decode(card_hybrid(card))
    return patched(_shaped(document, persona, quirks), persona.card)


def patched(document: Metadata, patch: Metadata) -> Metadata:
    """A document with these members laid over it, at any depth; null leaves one out."""
    found = dict(document)
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict) and isinstance(found.get(name), dict):
            found[name] = patched(found[name], cast("Metadata", value))
        else:
            found[name] = value
    return found


def _shaped(document: Metadata, persona: Persona, quirks: Quirks) -> Metadata:
    document["supportedInterfaces"] = [
        each
        for each in document["supportedInterfaces"]
        if each["protocolVersion"] in persona.versions and each["protocolBinding"] in persona.bindings
    ]
    known = [each for each in document["additionalInterfaces"] if each["transport"] in persona.bindings]
    document["additionalInterfaces"] = known
    if known:
        document["url"], document["preferredTransport"] = known[0]["url"], known[0]["transport"]
    if quirks.card == "1.0" or "0.3" not in persona.versions:
        return patched(document, _V03_MEMBERS)
    if quirks.card == "0.3" or "1.0" not in persona.versions:
        return patched(document, _V1_MEMBERS)
    return document


def _skill(skill: ScriptedSkill) -> Skill:
    name = skill.name or skill.id
    description, tags = skill.description or name, skill.tags or ("mock",)
    return Skill(skill.id, name, description, tags, skill.examples, skill.input_modes, skill.output_modes)


def _extensions(persona: Persona, *, deduplicates: bool) -> tuple[Extension, ...]:
    given = [ScriptedExtension(uri=each) if isinstance(each, str) else each for each in persona.extensions]
    if deduplicates and all(each.uri != IDEMPOTENT_SEND for each in given):
        given.append(
            ScriptedExtension(uri=IDEMPOTENT_SEND, description="A message that comes twice is done once")
        )
    return tuple(Extension(each.uri, each.description, each.required, each.params) for each in given)


def _schemes(persona: Persona) -> dict[str, Scheme]:
    auth = persona.auth or ScriptedAuth()
    schemes: dict[str, Scheme] = {}
    if auth.bearer:
        schemes["bearer"] = BearerScheme()
    if auth.api_key:
        schemes["apiKey"] = ApiKeyScheme(auth.header)
    return schemes


log = logging.getLogger("trunkline.mock")
_OTHER_VERSION = errors.VersionNotSupported("this version is not spoken here, whatever the card says")


class ReceivedRequest(Struct, frozen=True):
    """A request that came: its operation, the message if it brought one, and the rule that was hit."""

    operation: str
    path: str
    headers: dict[str, str]
    message: Message | None = None
    rule: str = ""
    faults: Faults = ()

    def __repr__(self) -> str:
        # Headers stay unsaid: one of them may be a credential.
        return f"ReceivedRequest({self.operation!r}, {self.path!r}, text={self.text!r}, rule={self.rule!r})"

    @property
    def text(self) -> str:
        """The texts of the message."""
        return text_of(self.message)


class Mock:
    """One mock agent; `mock(scope, receive, send)` serves it."""

    def __init__(self, scenario: Scenario, kept: KeptTasks | None = None) -> None:
        """Take what it says, and a file for its tasks where it is to know them after a restart."""
        self.scenario = scenario
        self.received: list[ReceivedRequest] = []
        self._webhooks = MockWebhooks()
        self._state = MockState(scenario, self._webhooks.notify, kept)
        # How often the work of each message was begun, by its id; more than once is a second run.
        self.runs = self._state.runs
        # How often each rule was hit, by its name; the empty one counts messages that fitted none.
        self.hits = self._state.hits
        self._schedule = FaultSchedule(scenario.faults, scenario.seed)
        self._quirks = self._state.quirks
        persona, quirks = scenario.agent, self._quirks
        # Without what the quirks take away from it.
        self._persona = replace(
            persona,
            versions=quirks.claims or persona.versions,
            bindings=persona.bindings if quirks.rest else ("JSONRPC",),
        )

    @property
    def messages(self) -> list[Message]:
        """The messages that came, each time they came."""
        return [each.message for each in self.received if each.message is not None]

    def check(self) -> list[str]:
        """The expectations of the scenario that were not met, in words; empty if all is well."""
        return self._state.check()

    async def close(self) -> None:
        """Stop the replies and notifications that are still under way."""
        self._state.close()
        await self._webhooks.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "lifespan":
            await serve_lifespan(receive, send, self.close)
        elif scope["type"] == "http":
            await self._serve(MockExchange(scope, receive, send))

    async def _serve(self, exchange: MockExchange) -> None:
        if exchange.path in self._quirks.card_paths:
            await self._serve_card(exchange)
            return
        body = await exchange.body()
        auth = self._persona.auth
        if auth is not None and not _is_known(auth, exchange.headers):
            log.info("mock.unauthenticated path=%s", exchange.path)
            challenge = (("www-authenticate", "Bearer" if auth.bearer else "ApiKey"),)
            await exchange.deliver(MockAnswer(b'{"error":"say who you are"}', 401, headers=challenge), ())
            return
        is_rpc = exchange.method == "POST" and exchange.path.rstrip("/") == self._quirks.path.rstrip("/")
        read = read_rpc if is_rpc and "JSONRPC" in self._persona.bindings else read_rest
        request = read(exchange, body, self._persona, self._quirks)
        if isinstance(request, MockAnswer):
            log.info("mock.refused path=%s", exchange.path)
            await exchange.deliver(request, ())
            return
        await self._serve_request(exchange, request)

    async def _serve_card(self, exchange: MockExchange) -> None:
        faults = self._schedule.due("card", exchange.path)
        self.received.append(ReceivedRequest("card", exchange.path, exchange.headers, faults=faults))
        if not await self._is_refused(exchange, faults, None):
            body = msgspec.json.encode(self._card(exchange, faults))
            await exchange.deliver(MockAnswer(body), faults)

    def _card(self, exchange: MockExchange, faults: Faults) -> Metadata:
        deduplicates = self.scenario.deduplicates
        document = card_document(self._persona, self._quirks, exchange.base, deduplicates=deduplicates)
        for fault in faults:
            if fault.do == "lie":
                document = patched(document, fault.card)
        return document

    async def _serve_request(self, exchange: MockExchange, request: MockRequest) -> None:
        name = request.operation_name
        faults = self._schedule.due(name, exchange.path)
        send = request.params if isinstance(request.params, SendRequest) else None
        plan: PlannedReply | None = None
        answer: MockAnswer | MockStream | None = None
        if send is not None:
            try:
                plan = self._state.plan(send)
                faults = (*faults, *self._state.faults(plan, name, exchange.path))
            except errors.Refused as refused:
                answer = request.refused(refused)
        message, rule = None if send is None else send.message, "" if plan is None else plan.rule
        self.received.append(ReceivedRequest(name, exchange.path, exchange.headers, message, rule, faults))
        if faults:
            log.info("mock.fault asked=%s do=%s", name, ",".join(fault.do for fault in faults))
        if await self._is_refused(exchange, faults, request):
            return
        if any(fault.do == "dialect" for fault in faults):
            other = Dialect.V03 if request.dialect is Dialect.V1 else Dialect.V1
            request = replace(request, dialect=other)
        if answer is None:
            answer = await self._answer(exchange, request, plan, faults)
        late = next((fault for fault in faults if fault.do in REFUSALS and fault.worked), None)
        await exchange.deliver(answer if late is None else refusal(late), faults)

    async def _is_refused(self, exchange: MockExchange, faults: Faults, request: MockRequest | None) -> bool:
        """Answer now, if a fault says so before anything is done."""
        for fault in faults:
            if fault.do == "drop":
                await exchange.drop()
            elif fault.do == "version" and request is not None:
                await exchange.deliver(request.refused(_OTHER_VERSION), ())
            elif fault.do in REFUSALS and not fault.worked:
                await exchange.deliver(refusal(fault), faults)
            else:
                continue
            return True
        return False

    async def _answer(
        self, exchange: MockExchange, request: MockRequest, plan: PlannedReply | None, faults: Faults
    ) -> MockAnswer | MockStream:
        state = self._state
        try:
            match request.operation, request.params:
                case _, SendRequest() as send if plan is not None:
                    return await self._send(exchange, request, send, plan)
                case Operation.GET, TaskQuery(id=task_id, history_length=length):
                    return request.task_result(trimmed(state.find(task_id).task, length))
                case Operation.CANCEL, TaskQuery(id=task_id):
                    return request.task_result(state.cancel(task_id))
                case Operation.LIST, ListQuery() as query:
                    return request.result(request.writer().page(state.list(query)))
                case Operation.SUBSCRIBE, TaskQuery(id=task_id):
                    return self._subscribe(request, state.find(task_id))
                case Operation.EXTENDED_CARD, _:
                    if not self._persona.extended_card:
                        raise errors.ExtendedCardNotConfigured("this agent has no extended card")
                    return request.result(msgspec.json.encode(self._card(exchange, faults)))
                case _, PushRequest() | PushQuery() as params:
                    self._check_push()
                    playback = state.find(params.task_id)
                    return await self._webhooks.serve(request, params, playback, self._quirks)
                case _:
                    raise errors.MethodNotFound("there is no such method here")
        except errors.Refused as refused:
            return request.refused(refused)

    async def _send(
        self, exchange: MockExchange, request: MockRequest, send: SendRequest, plan: PlannedReply
    ) -> MockAnswer | MockStream:
        streams = request.operation is Operation.STREAM
        if streams:
            self._check_streaming()
        if send.push is not None:
            self._check_push()
            await self._webhooks.check(send.push, self._quirks)
        started = await self._state.perform(plan)
        playback = started.playback
        if send.push is not None:
            self._webhooks.keep(playback, send.push, request)
        if playback.failure is not None:
            return request.failed(playback.failure)
        if streams:
            return self._stream(request, started, plan)
        wait = send.wait if send.wait is not None else self._quirks.reply == "wait"
        wait = wait and not playback.receipt
        if wait:
            await exchange.while_connected(playback.rest())
        if playback.message is not None:
            return request.send_result(playback.message)
        return request.send_result(trimmed(playback.task if wait else started.task, send.history_length))

    def _stream(self, request: MockRequest, started: StartedReply, plan: PlannedReply) -> MockStream:
        playback = started.playback
        if playback.message is not None:
            frame = request.frame(None, request.writer().message_frame(playback.message))
            return _single_frame(frame)
        if (after := self._resumed_after(request, playback)) is not None:
            return self._state.frames(request, playback, after, None, through=False)
        opening = started.task if plan.playback is not None and self._quirks.opening else None
        return self._state.frames(request, playback, started.seq, opening, through=False)

    def _subscribe(self, request: MockRequest, playback: Playback) -> MockStream:
        self._check_streaming()
        if (after := self._resumed_after(request, playback)) is not None:
            return self._state.frames(request, playback, after, None, through=True)
        if playback.over and request.dialect is Dialect.V1:
            raise errors.UnsupportedOperation(f"task {playback.id} has ended; get it")
        # To whoever subscribes to a task that has ended, 0.3 sends its end again.
        seq = len(playback.events) - playback.over
        return self._state.frames(request, playback, seq, playback.task, through=True)

    def _resumed_after(self, request: MockRequest, playback: Playback) -> int | None:
        """The event after which a stream is resumed; None if it begins anew."""
        text = request.last_event_id
        if text is None or not self._quirks.ids:
            return None
        if text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= len(playback.events):
            return int(text)
        raise errors.InvalidParams("Last-Event-ID is no event of this task", field="Last-Event-ID")

    def _check_streaming(self) -> None:
        if not self._persona.streaming:
            raise errors.UnsupportedOperation("this agent does not stream")

    def _check_push(self) -> None:
        if not self._persona.push:
            raise errors.PushNotSupported("this agent sends no push notifications")


async def _single_frame(frame: bytes) -> MockStream:
    yield frame


def _is_known(auth: ScriptedAuth, headers: dict[str, str]) -> bool:
    shown = [
        (auth.bearer, headers.get("authorization", "").removeprefix("Bearer ")),
        (auth.api_key, headers.get(auth.header.lower(), "")),
    ]
    return any(wanted and hmac.compare_digest(wanted.encode(), given.encode()) for wanted, given in shown)
