"""JSON-RPC over HTTP, in the words of 1.0 or of 0.3 and before."""

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
from trunkline.clock import random_bits
from trunkline.errors import MethodNotFound, PushNotSupported, Refused, UnsupportedOperation
from trunkline.net.egress import shown
from trunkline.net.http import Headers, HttpClient, HttpRequest
from trunkline.wire import requests
from trunkline.wire.answers import Notice
from trunkline.wire.operations import METHODS_V03, METHODS_V1, Operation
from trunkline.wire.peer_card import Interface, PeerCard, read_card
from trunkline.wire.plain_frames import PlainFrames
from trunkline.wire.push import write_push_request
from trunkline.wire.replies import read_config, read_configs, read_page, rpc_notice, rpc_result, task_of
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

_V1 = {operation: name for name, operation in METHODS_V1.items()}
# Where an operation has several names, the first is that of the specification.
_V03 = {operation: name for name, operation in reversed(METHODS_V03.items())}
_SUBSCRIBES = {
    Dialect.V1: ("SubscribeToTask",),
    Dialect.V03: tuple(name for name, asked in METHODS_V03.items() if asked is Operation.SUBSCRIBE),
}
_PUSHES = frozenset({Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE})

Q = TypeVar("Q", SendRequest, TaskQuery, ListQuery, PushRequest, PushQuery)


class JsonRpcTransport:
    """One interface that speaks JSON-RPC."""

    def __init__(self, interface: Interface, http_client: HttpClient) -> None:
        self._url = interface.url
        self._tenant = interface.tenant
        self._http_client = http_client
        modern = (interface.words or interface.version).startswith("1")
        self._dialect = Dialect.V1 if modern else Dialect.V03
        self._methods = _V1 if modern else _V03
        self._subscribes = _SUBSCRIBES[self._dialect]
        self.name = f"JSONRPC {interface.version or self._dialect.value} at {shown(interface.url)}"
        version = spoken(interface)
        self._headers: Headers = (("content-type", JSON), ("accept", JSON), *version)
        self._stream_headers: Headers = (("content-type", JSON), ("accept", EITHER), *version)
        # No other caller has such ids: an answer with one of ours that is not this request's is a mix-up.
        self._ids = f"{random_bits(48):012x}"
        self._count = 0

    async def send(self, request: SendRequest, call: Call) -> Notice:
        """A task or a message."""
        params = requests.send_params(self._at_home(request), self._dialect)
        return await self._notice(Operation.SEND, params, call)

    def stream(self, request: SendRequest, call: Call) -> HttpStream:
        """Send a message and follow its task."""
        params = requests.send_params(self._at_home(request), self._dialect)
        return self._follow(self._methods[Operation.STREAM], params, call)

    async def get(self, query: TaskQuery, call: Call) -> Task:
        """A task as it stands."""
        params = requests.task_params(self._at_home(query), self._dialect)
        return task_of(await self._notice(Operation.GET, params, call), query.id)

    async def list(self, query: ListQuery, call: Call) -> TaskPage:
        """A page of tasks."""
        params = requests.list_params(self._at_home(query), self._dialect)
        return read_page(await self._result(Operation.LIST, params, call))

    async def cancel(self, query: TaskQuery, call: Call) -> Task:
        """Stop a task."""
        params = requests.task_params(self._at_home(query), self._dialect)
        return task_of(await self._notice(Operation.CANCEL, params, call), query.id)

    def subscribe(self, query: TaskQuery, call: Call, *, after: str = "") -> FoundStream:
        """Follow a task; `after` is sent as `Last-Event-ID`."""
        return FoundStream(self._subscribed(query, call, after))

    async def _subscribed(self, query: TaskQuery, call: Call, after: str) -> AsyncGenerator[list[Frame]]:
        params = requests.task_params(replace(self._at_home(query), history_length=None), self._dialect)
        if after:
            call = replace(call, headers=(*call.headers, ("last-event-id", after)))
        for place, method in enumerate(self._subscribes, start=1):
            try:
                async with aclosing(self._follow(method, params, call)) as source:
                    async for frame in source:
                        yield [frame, *source.taken()]
                return
            except MethodNotFound as refused:
                # Who lacks the one name may have the other; which, is remembered.
                if self._subscribes[place:]:
                    self._subscribes = self._subscribes[place:]
                    continue
                raise _absent(Operation.SUBSCRIBE, method, refused) from None

    async def set_push(self, request: PushRequest, call: Call) -> PushConfig:
        """Have a webhook told of a task."""
        params = write_push_request(self._at_home(request), self._dialect)
        return read_config(await self._result(Operation.PUSH_SET, params, call))

    async def get_push(self, query: PushQuery, call: Call) -> PushConfig:
        """One push config; without an id the first, which in 1.0 only the list tells."""
        if not query.config_id and self._dialect is Dialect.V1:
            return first_of(await self.list_push(query, call), query)
        params = requests.push_params(self._at_home(query), self._dialect)
        return read_config(await self._result(Operation.PUSH_GET, params, call))

    async def list_push(self, query: PushQuery, call: Call) -> tuple[PushConfig, ...]:
        """All push configs of a task."""
        params = requests.push_params(replace(self._at_home(query), config_id=""), self._dialect)
        return read_configs(await self._result(Operation.PUSH_LIST, params, call))

    async def delete_push(self, query: PushQuery, call: Call) -> None:
        """Forget a push config."""
        params = requests.push_params(self._at_home(query), self._dialect)
        await self._result(Operation.PUSH_DELETE, params, call)

    async def extended_card(self, call: Call) -> PeerCard:
        """The card for callers who are known."""
        params = requests.card_params(self._tenant, self._dialect)
        return read_card(await self._result(Operation.EXTENDED_CARD, params, call))

    def _at_home(self, request: Q) -> Q:
        """The request with the tenant of this interface, which every request must repeat."""
        return replace(request, tenant=self._tenant) if self._tenant else request

    async def _notice(self, operation: Operation, params: bytes, call: Call) -> Notice:
        request_id, answer = await self._ask(self._methods[operation], params, call)
        return rpc_notice(answer.body, request_id)

    async def _result(self, operation: Operation, params: bytes, call: Call) -> bytes:
        """The result of an operation that not every agent has."""
        method = self._methods[operation]
        try:
            request_id, answer = await self._ask(method, params, call)
            return rpc_result(answer.body, request_id)
        except MethodNotFound as refused:
            raise _absent(operation, method, refused) from None

    async def _ask(self, method: str, params: bytes, call: Call) -> tuple[str, HttpAnswer]:
        request_id, body = self._envelope(method, params)
        headers = (*self._headers, *call.headers)
        answer = await answered(self._http_client, HttpRequest("POST", self._url, headers, body), call)
        if not answer.ok:
            raise answer.refusal()
        return request_id, answer

    def _follow(self, method: str, params: bytes, call: Call) -> HttpStream:
        request_id, body = self._envelope(method, params)
        modern = self._dialect is Dialect.V1
        read = PlainFrames(request_id).read if modern else partial(rpc_notice, request_id=request_id)
        request = HttpRequest("POST", self._url, (*self._stream_headers, *call.headers), body)
        return HttpStream(self._http_client, request, call, read)

    def _envelope(self, method: str, params: bytes) -> tuple[str, bytes]:
        self._count += 1
        request_id = f"{self._ids}-{self._count}"
        start = f'{{"jsonrpc":"2.0","id":"{request_id}","method":"{method}","params":'
        return request_id, start.encode() + params + b"}"


def _absent(operation: Operation, method: str, refused: MethodNotFound) -> Refused:
    """An operation that an agent need not have is not supported; a method that it must have is not found."""
    error = PushNotSupported if operation in _PUSHES else UnsupportedOperation
    return error(f"this agent has no {method}: {refused.message}")
