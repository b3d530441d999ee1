"""The small task API of workflow engines: submit, and ask how it stands. All else it does not have."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from urllib.parse import quote

from trunkline.client.http_transport import JSON, answered
from trunkline.client.transport import Call, Frame
from trunkline.errors import PushNotSupported, UnsupportedOperation
from trunkline.net.egress import shown
from trunkline.net.http import Headers, HttpClient, HttpRequest
from trunkline.wire.answers import Notice
from trunkline.wire.delegate import read_record, submission_of
from trunkline.wire.peer_card import Interface, PeerCard
from trunkline.wire.replies import task_of
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

_HEADERS: Headers = (("accept", JSON),)


class DelegateTransport:
    """One interface that speaks the task API. Its tenant is the agent that submissions are for."""

    def __init__(self, interface: Interface, http_client: HttpClient) -> None:
        self._url = f"{interface.url.rstrip('/')}/tasks"
        self._agent = interface.tenant
        self._http_client = http_client
        self.name = f"DELEGATE at {shown(interface.url)}"

    async def send(self, request: SendRequest, call: Call) -> Notice:
        """Submit. The message's id is the correlation id, by which a submission is known when it comes twice.

        Raises:
            UnsupportedOperation: the request holds what the API has no place for.
        """
        body = submission_of(request, self._agent)
        headers = (("content-type", JSON), *_HEADERS, *call.headers)
        return Notice(await self._task(HttpRequest("POST", self._url, headers, body), call))

    async def stream(self, request: SendRequest, call: Call) -> AsyncGenerator[Frame]:
        """Submit; the one frame is the task as it was then."""
        yield Frame(await self.send(request, call))

    async def get(self, query: TaskQuery, call: Call) -> Task:
        """A task as it stands."""
        url = f"{self._url}/{quote(query.id, safe='')}"
        task = await self._task(HttpRequest("GET", url, (*_HEADERS, *call.headers)), call)
        return task_of(Notice(task), query.id)

    async def list(self, query: ListQuery, call: Call) -> TaskPage:
        """Not in this API."""
        raise _lacks("list tasks")

    async def cancel(self, query: TaskQuery, call: Call) -> Task:
        """Not in this API."""
        raise _lacks("cancel")

    async def subscribe(self, query: TaskQuery, call: Call, *, after: str = "") -> AsyncGenerator[Frame]:
        """Not in this API."""
        raise _lacks("follow a task; ask again and again instead")
        yield

    async def set_push(self, request: PushRequest, call: Call) -> PushConfig:
        """Not in this API."""
        raise _no_push()

    async def get_push(self, query: PushQuery, call: Call) -> PushConfig:
        """Not in this API."""
        raise _no_push()

    async def list_push(self, query: PushQuery, call: Call) -> tuple[PushConfig, ...]:
        """Not in this API."""
        raise _no_push()

    async def delete_push(self, query: PushQuery, call: Call) -> None:
        """Not in this API."""
        raise _no_push()

    async def extended_card(self, call: Call) -> PeerCard:
        """Not in this API."""
        raise _lacks("give a card")

    async def _task(self, request: HttpRequest, call: Call) -> Task:
        answer = await answered(self._http_client, request, call)
        if not answer.ok:
            raise answer.refusal(of_task=request.method == "GET")
        return read_record(answer.body)


def _lacks(what: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"the task API of workflow engines cannot {what}")


def _no_push() -> PushNotSupported:
    return PushNotSupported("the task API of workflow engines has no push notifications")
