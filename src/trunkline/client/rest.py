"""HTTP+JSON: the routes of 1.0, and those of 0.3 under `/v1`, whose objects are ProtoJSON of its proto."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from trunkline.client.http_transport import (
    EITHER,
    JSON,
    FoundStream,
    HttpAnswer,
    HttpStream,
    answered,
    first_of,
    spoken,
)
from trunkline.client.transport import Call, Frame
from trunkline.errors import (
    InvalidParams,
    PushNotSupported,
    Refused,
    RouteNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from trunkline.net.egress import shown
from trunkline.net.http import Headers, HttpClient, HttpRequest
from trunkline.wire import requests
from trunkline.wire.answers import Notice
from trunkline.wire.operations import Operation
from trunkline.wire.peer_card import Interface, PeerCard, read_card
from trunkline.wire.replies import read_config, read_configs, read_page, rest_notice, task_of
from trunkline.wire.requests import RestRequest
from trunkline.wire.types import (
    ListQuery,
    PushConfig,
    PushQuery,
    PushRequest,
    SendRequest,
    Task,
    TaskPage,
    TaskQuery,
)
from trunkline.wire.writer import Dialect

# What 1.0 calls itself; plain JSON is what everybody takes.
_A2A_JSON = f"application/a2a+json, {JSON}"
_OLD_PREFIX = "/v1"
_BODY: Headers = (("content-type", JSON),)

Q = TypeVar("Q", SendRequest, TaskQuery, ListQuery, PushRequest, PushQuery)


class RestTransport:
    """One interface that speaks HTTP+JSON."""

    def __init__(self, interface: Interface, http_client: HttpClient) -> None:
        modern = (interface.words or interface.version).startswith("1")
        self._dialect = Dialect.V1 if modern else Dialect.V03_PROTO
        self._base = interface.url.rstrip("/")
        if not modern:
            # Whether the address of 0.3 has the prefix already was never said.
            self._base = self._base.removesuffix(_OLD_PREFIX)
        self._tenant = interface.tenant
        self._http_client = http_client
        self.name = f"HTTP+JSON {interface.version or '0.3'} at {shown(interface.url)}"
        version = spoken(interface)
        self._headers: Headers = (("accept", _A2A_JSON if modern else JSON), *version)
        self._stream_headers: Headers = (("accept", EITHER), *version)
        # The table of paths has the one and the proto the other.
        self._subscribes = ("POST", "GET")

    async def send(self, request: SendRequest, call: Call) -> Notice:
        """A task or a message."""
        asked = requests.rest_send(self._at_home(request), self._dialect)
        return self._notice(await self._ask(asked, call, of_task=bool(request.message.task_id)))

    def stream(self, request: SendRequest, call: Call) -> HttpStream:
        """Send a message and follow its task."""
        asked = requests.rest_send(self._at_home(request), self._dialect, stream=True)
        return self._follow(asked, call, of_task=bool(request.message.task_id))

    async def get(self, query: TaskQuery, call: Call) -> Task:
        """A task as it stands."""
        return await self._task(Operation.GET, query, call)

    async def list(self, query: ListQuery, call: Call) -> TaskPage:
        """A page of tasks."""
        asked = requests.rest_list(self._at_home(query), self._dialect)
        return read_page(await self._optional(Operation.LIST, asked, call), proto=self._is_proto)

    async def cancel(self, query: TaskQuery, call: Call) -> Task:
        """Stop a task."""
        return await self._task(Operation.CANCEL, query, call)

    def subscribe(self, query: TaskQuery, call: Call, *, after: str = "") -> FoundStream:
        """Follow a task; `after` is sent as `Last-Event-ID`."""
        return FoundStream(self._subscribed(query, call, after))

    async def _subscribed(self, query: TaskQuery, call: Call, after: str) -> AsyncGenerator[list[Frame]]:
        asked = requests.rest_task(Operation.SUBSCRIBE, self._at_home(query), self._dialect)
        if after:
            call = replace(call, headers=(*call.headers, ("last-event-id", after)))
        for place, verb in enumerate(self._subscribes, start=1):
            asked = asked if verb == "POST" else RestRequest(verb, asked.path)
            try:
                async with aclosing(self._follow(asked, call, of_task=True)) as source:
                    async for frame in source:
                        yield [frame, *source.taken()]
                return
            except RouteNotFound as refused:
                # Who lacks the one verb may have the other; which, is remembered.
                if self._subscribes[place:]:
                    self._subscribes = self._subscribes[place:]
                    continue
                raise _absent(Operation.SUBSCRIBE, asked, refused) from None

    async def set_push(self, request: PushRequest, call: Call) -> PushConfig:
        """Have a webhook told of a task."""
        request = self._at_home(request)
        asked = requests.rest_set_push(request, self._dialect)
        try:
            answer = await self._optional(Operation.PUSH_SET, asked, call)
        except InvalidParams:
            if not self._is_proto:
                raise
            # What is the body of this route, the SDKs of 0.3 do not agree on.
            asked = requests.rest_set_push(request, self._dialect, bare=True)
            answer = await self._optional(Operation.PUSH_SET, asked, call)
        return read_config(answer)

    async def get_push(self, query: PushQuery, call: Call) -> PushConfig:
        """One push config; without an id the first, which only the list tells."""
        if not query.config_id:
            return first_of(await self.list_push(query, call), query)
        return read_config(await self._push(Operation.PUSH_GET, query, call))

    async def list_push(self, query: PushQuery, call: Call) -> tuple[PushConfig, ...]:
        """All push configs of a task."""
        return read_configs(await self._push(Operation.PUSH_LIST, query, call))

    async def delete_push(self, query: PushQuery, call: Call) -> None:
        """Forget a push config."""
        await self._push(Operation.PUSH_DELETE, query, call)

    async def extended_card(self, call: Call) -> PeerCard:
        """The card for callers who are known."""
        asked = requests.rest_card(self._dialect, self._tenant)
        return read_card(await self._optional(Operation.EXTENDED_CARD, asked, call))

    @property
    def _is_proto(self) -> bool:
        return self._dialect is Dialect.V03_PROTO

    def _at_home(self, request: Q) -> Q:
        """The request with the tenant of this interface, which every request must repeat."""
        return replace(request, tenant=self._tenant) if self._tenant else request

    def _notice(self, answer: HttpAnswer) -> Notice:
        return rest_notice(answer.body, proto=self._is_proto)

    async def _task(self, operation: Operation, query: TaskQuery, call: Call) -> Task:
        asked = requests.rest_task(operation, self._at_home(query), self._dialect)
        return task_of(self._notice(await self._ask(asked, call, of_task=True)), query.id)

    async def _push(self, operation: Operation, query: PushQuery, call: Call) -> bytes:
        asked = requests.rest_push(operation, self._at_home(query), self._dialect)
        return await self._optional(operation, asked, call)

    async def _optional(self, operation: Operation, asked: RestRequest, call: Call) -> bytes:
        """The answer to an operation that not every agent has."""
        try:
            return (await self._ask(asked, call, of_task=operation is not Operation.LIST)).body
        except (RouteNotFound, VersionNotSupported) as refused:
            # Servers of both take `/v1` for a tenant of 1.0 where 0.3 has no such route.
            if isinstance(refused, VersionNotSupported) and not self._is_proto:
                raise
            raise _absent(operation, asked, refused) from None

    async def _ask(self, asked: RestRequest, call: Call, *, of_task: bool) -> HttpAnswer:
        answer = await answered(self._http_client, self._request(asked, self._headers, call), call)
        if not answer.ok:
            raise answer.refusal(of_task=of_task)
        return answer

    def _follow(self, asked: RestRequest, call: Call, *, of_task: bool) -> HttpStream:
        request = self._request(asked, self._stream_headers, call)
        read = partial(rest_notice, proto=self._is_proto)
        return HttpStream(self._http_client, request, call, read, of_task=of_task)

    def _request(self, asked: RestRequest, kept: Headers, call: Call) -> HttpRequest:
        body = () if asked.body is None else _BODY
        return HttpRequest(asked.verb, self._base + asked.path, (*body, *kept, *call.headers), asked.body)


def _absent(operation: Operation, asked: RestRequest, refused: Refused) -> Refused:
    error = PushNotSupported if operation.name.startswith("PUSH") else UnsupportedOperation
    return error(f"this agent has no {asked.verb} {asked.path.partition('?')[0]}: {refused.message}")
