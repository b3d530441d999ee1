"""The seam of the dialects: a transport speaks to one interface of a peer, in one binding and version.

`rpc`, `rest` and `delegate` are transports; a vendor's adapter is another. Requests go in and notices come
out in the shapes of `wire`. A transport neither retries nor waits nor remembers: that is the client's.
All raise the classes of `errors`: `Refused` for what the agent says, `Unreachable`, `Unreadable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from trunkline.net.http import Headers, HttpClient
from trunkline.wire.answers import Notice
from trunkline.wire.peer_card import Interface, PeerCard
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

# Waits, if need be, before more of a stream is read; the argument is the number of lines that came.
Pace = Callable[[int], Awaitable[None]]


class Call(Struct, frozen=True):
    """The options of any request: its headers, how long silence may last, and the pace of its stream."""

    headers: Headers = ()
    idle_s: float | None = None
    pace: Pace | None = None


class Frame(Struct, frozen=True, gc=False):
    """One event of a stream. `id` is the server's, for `Last-Event-ID`; empty where it gives none."""

    notice: Notice
    id: str = ""


class Transport(Protocol):
    """One way to speak to one interface. Its name is what logs and explanations call it."""

    name: str

    async def send(self, request: SendRequest, call: Call) -> Notice:
        """A task or a message."""
        ...

    def stream(self, request: SendRequest, call: Call) -> AsyncIterator[Frame]:
        """Send and follow. One frame even where the agent answers a stream with plain JSON.

        The iterator ends where the stream ends, whether the task has ended or not.
        """
        ...

    async def get(self, query: TaskQuery, call: Call) -> Task:
        """A task as it stands."""
        ...

    async def list(self, query: ListQuery, call: Call) -> TaskPage:
        """A page of tasks."""
        ...

    async def cancel(self, query: TaskQuery, call: Call) -> Task:
        """Stop a task."""
        ...

    def subscribe(self, query: TaskQuery, call: Call, *, after: str = "") -> AsyncIterator[Frame]:
        """Follow a task; `after` is sent as `Last-Event-ID`."""
        ...

    async def set_push(self, request: PushRequest, call: Call) -> PushConfig:
        """Have a webhook told of a task."""
        ...

    async def get_push(self, query: PushQuery, call: Call) -> PushConfig:
        """One push config."""
        ...

    async def list_push(self, query: PushQuery, call: Call) -> tuple[PushConfig, ...]:
        """All push configs of a task."""
        ...

    async def delete_push(self, query: PushQuery, call: Call) -> None:
        """Forget a push config."""
        ...

    async def extended_card(self, call: Call) -> PeerCard:
        """The card for callers who are known."""
        ...


# Makes a transport for an interface, with the HTTP client that it sends by.
TransportFactory = Callable[[Interface, HttpClient], Transport]
