"""The client for code without an event loop: a thin front before one that runs in a thread of its own.

Every call blocks the calling thread, and no other. Inside a running event loop it would block that loop:
use `Client` there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack

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
from trunkline.wire.types import PushConfig

P = ParamSpec("P")
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


class _Loop:
    """An event loop in a thread, started at the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.closed = False

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
            self.closed = True
            loop, thread = self._loop, self._thread
        if loop is not None and thread is not None and thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self.closed:
                raise Misuse("this client is closed; make another")
            if self._loop is None:
                # With a factory the runner leaves the calling thread's own loop as it is.
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(
                    target=_live, args=(runner,), name="trunkline-client", daemon=True
                )
                self._thread.start()
            return self._loop


def _live(runner: asyncio.Runner) -> None:
    with runner:
        runner.get_loop().run_forever()


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

    def __exit__(self, *_: object) -> None:
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


def _blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    """A method of `Client` that takes and gives the same, and blocks until it is done."""

    @wraps(method)
    def call(front: SyncClient, /, *given: P.args, **named: P.kwargs) -> T:
        # It becomes a method of that class, which may touch what is private to it.
        return front._loop.run(method(front._client, *given, **named))  # pyright: ignore[reportPrivateUsage]

    return call


class SyncClient:
    """`Client` without `await`; takes the same options."""

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        self._loop = _Loop()
        self._client = Client(url, **options)
        self.url = url

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *_: object) -> None:
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

    interface = _blocking(Client.interface)
    card = _blocking(Client.card)
    extended_card = _blocking(Client.extended_card)
    send = _blocking(Client.send)
    wait = _blocking(Client.wait)
    get = _blocking(Client.get)
    list = _blocking(Client.list)
    cancel = _blocking(Client.cancel)
    set_push = _blocking(Client.set_push)
    get_push = _blocking(Client.get_push)
    delete_push = _blocking(Client.delete_push)

    def list_push(self, task_id: str) -> tuple[PushConfig, ...]:
        """All push configs of a task."""
        return tuple(self._loop.run(self._client.list_push(task_id)))

    def stream(self, content: Content, **said: Unpack[Sending]) -> SyncStream:
        """Say something and read the answer as it is made."""
        return SyncStream(self._loop, self._client.stream(content, **said))

    def subscribe(self, task_id: str, *, after: str = "") -> SyncStream:
        """Follow a task."""
        return SyncStream(self._loop, self._client.subscribe(task_id, after=after))

    def chat(self, *, context_id: str = "", skill: str = "") -> SyncChat:
        """A conversation that keeps its context and its task."""
        return SyncChat(self._loop, self._client.chat(context_id=context_id, skill=skill))
