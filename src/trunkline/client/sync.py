"""The client for code without an event loop: a thin front before one that runs in a thread of its own.

Every call blocks the calling thread, and no other. Inside a running event loop it would block that loop:
use `Client` there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack

from trunkline.client.assembler import Update
from trunkline.client.chat import Chat
from trunkline.client.client import Client
from trunkline.client.credentials import Auth
from trunkline.client.message import Content, Sending
from trunkline.client.result import Result
from trunkline.client.stream import Stream
from trunkline.client.transport import TransportFactory
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.net.egress import Egress
from trunkline.net.http import HttpClient
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import PushConfig, TaskPage, TaskState

T = TypeVar("T")


class ClientOptions(TypedDict, total=False):
    """The options that `Client` takes beside its URL."""

    auth: Auth | None
    api_key: str | Secret
    api_key_env: str
    bearer: str | Secret
    bearer_env: str
    headers: Mapping[str, str] | None
    version: str
    bindings: Sequence[str]
    card: PeerCard | None
    card_url: str
    card_ttl_s: float
    timeout_s: float
    idle_s: float
    connect_s: float
    poll_s: float
    retries: int
    deduplicates: bool | None
    verify_tls: bool
    http_client: HttpClient | None
    transports: Mapping[str, TransportFactory] | None
    egress: Egress | None


class Listing(TypedDict, total=False):
    """The arguments that `list` takes."""

    context_id: str
    status: TaskState | None
    page_size: int
    page_token: str
    history_length: int | None
    include_artifacts: bool
    updated_after_ms: int | None


class _Loop:
    """An event loop in a thread, started at the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stop: asyncio.Event | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        waiting = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return waiting.result()
        except BaseException:
            # A keyboard interrupt reaches this thread and not that one.
            waiting.cancel()
            raise

    def close(self) -> None:
        with self._starting:
            self._closed = True
            loop, stop, thread = self._loop, self._stop, self._thread
        if loop is not None and stop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise Misuse("this client is closed; make another")
            if self._loop is None:
                ready = threading.Event()
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._live(ready)), name="trunkline-client", daemon=True
                )
                self._thread.start()
                ready.wait()
            assert self._loop is not None
            return self._loop

    async def _live(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        ready.set()
        await self._stop.wait()


class SyncStream:
    """The updates of one answer, as a plain iterator."""

    def __init__(self, loop: _Loop, stream: Stream) -> None:
        self._loop = loop
        self._stream = stream

    def __iter__(self) -> Iterator[Update]:
        return self

    def __next__(self) -> Update:
        found = self._loop.run(self._step())
        if found is None:
            raise StopIteration
        return found

    async def _step(self) -> Update | None:
        return await anext(self._stream, None)

    def __enter__(self) -> SyncStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def result(self) -> Result | None:
        """The answer as far as it has come."""
        return self._stream.result

    def finish(self) -> Result:
        """Read to the end."""
        return self._loop.run(self._stream.finish())

    def close(self) -> None:
        """Let go of the connection; the task goes on."""
        self._loop.run(self._stream.close())


class SyncChat:
    """A conversation; see `Chat`."""

    def __init__(self, loop: _Loop, chat: Chat) -> None:
        self._loop = loop
        self._chat = chat

    @property
    def context_id(self) -> str:
        """The conversation's id; empty before the first answer."""
        return self._chat.context_id

    @property
    def task_id(self) -> str:
        """The task that the next word belongs to; empty if it opens one."""
        return self._chat.task_id

    def say(self, content: Content, *, done: bool = False, **said: Unpack[Sending]) -> Result:
        """Say something to the agent, and wait for its answer."""
        return self._loop.run(self._chat.say(content, done=done, **said))

    def stream(self, content: Content, **said: Unpack[Sending]) -> SyncStream:
        """The agent's answer as it is made."""
        return SyncStream(self._loop, self._chat.stream(content, **said))


class SyncClient:
    """`Client` without `await`; takes the same options."""

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._loop = _Loop()
        self._client = Client(url, **options)
        self.url = url

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every connection and end the thread; may be called twice."""
        if not self._loop.closed:
            self._loop.run(self._client.close())
            self._loop.close()

    @property
    def explanation(self) -> tuple[str, ...]:
        """How the interface was chosen, line by line."""
        return self._client.explanation

    def interface(self) -> str:
        """The interface that was chosen, in words."""
        return self._loop.run(self._client.interface())

    def card(self, *, refresh: bool = False) -> PeerCard:
        """The agent's card."""
        return self._loop.run(self._client.card(refresh=refresh))

    def extended_card(self) -> PeerCard:
        """The card for callers whom the agent knows."""
        return self._loop.run(self._client.extended_card())

    def send(self, content: Content, *, wait: bool = True, **said: Unpack[Sending]) -> Result:
        """Say something; with `wait` the answer, else its receipt."""
        return self._loop.run(self._client.send(content, wait=wait, **said))

    def stream(self, content: Content, **said: Unpack[Sending]) -> SyncStream:
        """Say something and read the answer as it is made."""
        return SyncStream(self._loop, self._client.stream(content, **said))

    def subscribe(self, task_id: str, *, after: str = "") -> SyncStream:
        """Follow a task."""
        return SyncStream(self._loop, self._client.subscribe(task_id, after=after))

    def wait(self, task_id: str, *, timeout_s: float | None = None) -> Result:
        """A task when it rests."""
        return self._loop.run(self._client.wait(task_id, timeout_s=timeout_s))

    def get(self, task_id: str, *, history_length: int | None = None) -> Result:
        """A task as it stands."""
        return self._loop.run(self._client.get(task_id, history_length=history_length))

    def list(self, **query: Unpack[Listing]) -> TaskPage:
        """A page of tasks."""
        return self._loop.run(self._client.list(**query))

    def cancel(self, task_id: str) -> Result:
        """Stop a task."""
        return self._loop.run(self._client.cancel(task_id))

    def set_push(self, task_id: str, config: PushConfig | Mapping[str, str]) -> PushConfig:
        """Have a webhook told of a task."""
        return self._loop.run(self._client.set_push(task_id, config))

    def get_push(self, task_id: str, config_id: str = "") -> PushConfig:
        """One push config of a task."""
        return self._loop.run(self._client.get_push(task_id, config_id))

    def list_push(self, task_id: str) -> tuple[PushConfig, ...]:
        """All push configs of a task."""
        return tuple(self._loop.run(self._client.list_push(task_id)))

    def delete_push(self, task_id: str, config_id: str) -> None:
        """Forget a push config."""
        self._loop.run(self._client.delete_push(task_id, config_id))

    def chat(self, *, context_id: str = "", skill: str = "") -> SyncChat:
        """A conversation that keeps its context and its task."""
        return SyncChat(self._loop, self._client.chat(context_id=context_id, skill=skill))
