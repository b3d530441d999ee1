"""The HTTP server of `trunkline serve`: who hears of the end, in which order, and how long it takes."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, Protocol

from msgspec import Struct

from trunkline.clock import wait_event
from trunkline.errors import Misuse
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.connection import ServerConnection
from trunkline.http.connections import ServerState, UnreadAnswers, fit_connections, report_connections
from trunkline.http.exchange import Exchange
from trunkline.http.mounts import Mounts

try:
    from uvloop import new_event_loop
except ImportError:
    # It is not made for every platform.
    from asyncio import new_event_loop

log = logging.getLogger("trunkline")
# Exit codes: it never came up; a second Ctrl-C.
FAILED = 3
INTERRUPTED = 130
# What the end may take beyond its limits, to write the last events and close the store.
MARGIN_S = 4.0
# Requests get this long even when no skill runs any more: slow readers, bodies on their way.
ANSWER_S = 12.0
REPORT_S = 5.0
UNWIND_S = 1.0
BACKLOG = 4096
# How often connections are looked at; the date that they write is as old as that.
BEAT_S = 1.0


class ServerLimits(Struct, frozen=True):
    """How many connections there may be, how long a write may take, and the end of all of it."""

    connections: int
    write_s: float
    # For work that runs to come to its end, before the server itself ends.
    drain_s: float
    # Bytes of large answers that readers have not taken.
    unread: int = 0

    @property
    def end_s(self) -> float:
        """After how many seconds a server that was told to end has ended, whatever hangs."""
        return self.drain_s + MARGIN_S


class ServedApplication(Protocol):
    """The application that an HTTP server runs, and how it is drained."""

    mounts: Mounts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI: what becomes a WebSocket."""
        ...

    def lifespan(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Start it, and put everything back at the end."""
        ...

    @property
    def answer(self) -> Callable[[Exchange], Coroutine[Any, Any, None]]:
        """What answers a request that came by a connection of ours."""
        ...

    def crowded(self) -> None:
        """Count a connection that was one too many."""
        ...

    def drain(self) -> None:
        """Take nothing new, and let what runs come to an end."""
        ...

    @property
    def drained(self) -> bool:
        """Whether nothing runs any more, and nothing will."""
        ...

    def load(self) -> Mapping[str, int]:
        """How much of what still runs, for the log."""
        ...


class HttpServer:
    """Serves an application on sockets; at its end answers and skills have the same time, and no more."""

    def __init__(
        self,
        application: ServedApplication,
        limits: ServerLimits,
        *,
        started: Callable[[int], None],
        lifeline: socket.socket | None = None,
    ) -> None:
        self.started = False
        # Why the application could not start or broke off.
        self.failure: Exception | None = None
        self._application = application
        self._tell_started = started
        self._lifeline = lifeline
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end_limit_s = limits.end_s
        self._is_ending = False
        self._ending = asyncio.Event()
        self._limit, self._connections = limits.connections, fit_connections(limits.connections)
        self._state = ServerState(
            application.answer,
            limits.write_s,
            self._connections,
            application.crowded,
            UnreadAnswers(limits.unread),
        )
        if limits_of_sockets := application.mounts.websocket_limits:
            # A route counts what has come; what no route takes need not even be gathered.
            self._state.websocket = self._websockets(max(limits_of_sockets))

    def _websockets(self, message_limit: int) -> Callable[[], asyncio.Protocol]:
        try:
            from trunkline.http.websocket import websocket_factory
        except ImportError as error:
            hint = "pip install 'trunkline[websocket]'"
            raise Misuse(f"WebSockets need {error.name}: {hint}", hint=hint) from None
        return websocket_factory(self._application, self._state, message_limit)

    def run(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on these sockets in a loop of its own, to the end."""
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self.serve(sockets))

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        """Serve to the end; a skill that cannot be stopped does not hold it up, its task has ended."""
        self._loop = asyncio.get_running_loop()
        if self._lifeline is not None:
            self._loop.add_reader(self._lifeline, self._let_go)
        with self._signals():
            try:
                async with self._application.lifespan():
                    await self._serve(sockets)
            except Exception as error:  # noqa: BLE001 - logged, and reported to the caller of `run`
                self.failure = error
                log.error("app.failed error=%s", error)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left and (await asyncio.wait(left, timeout=UNWIND_S))[1]:
            logging.shutdown()
            os._exit(0 if self.started else FAILED)

    async def _serve(self, sockets: Sequence[socket.socket]) -> None:
        """Say where, answer until the end is asked for, then answer what was asked by then."""
        loop, state = asyncio.get_running_loop(), self._state
        state.beat(loop.time())
        connect = partial(ServerConnection, state)
        servers = [await loop.create_server(connect, sock=each, backlog=BACKLOG) for each in sockets]
        self.started = True
        self._tell_started(sockets[0].getsockname()[1])
        report_connections(self._limit, self._connections)
        while not self._ending.is_set():
            await wait_event(self._ending, BEAT_S)
            state.beat(loop.time())
        for server in servers:
            server.close()
        for each in sockets:
            each.close()
        self._application.drain()
        state.drain()
        await self._settle()
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            # Only there signals are heard; whoever serves from another thread says itself when to end.
            yield
            return
        before = {each: signal.signal(each, self._heard) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, heard in before.items():
                signal.signal(each, heard)

    def _heard(self, signum: int, frame: FrameType | None) -> None:
        """A signal came: go down in order; a second Ctrl-C does not wait."""
        del frame
        if self._is_ending and signum == signal.SIGINT:
            os._exit(INTERRUPTED)
        self.end()

    def end(self) -> None:
        """Go down in order, but go down."""
        if self._is_ending:
            return
        self._is_ending = True
        # A skill, a reader or a store that hangs, even one that holds the whole interpreter: the process
        # says where and ends.
        faulthandler.dump_traceback_later(self._end_limit_s, exit=True, file=sys.__stderr__ or 2)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._application.drain)
            self._loop.call_soon_threadsafe(self._ending.set)

    def _let_go(self) -> None:
        # The process that holds the other end says nothing more; it can only have ended.
        if self._loop is not None and self._lifeline is not None:
            self._loop.remove_reader(self._lifeline)
        log.warning("worker.orphaned pid=%d", os.getpid())
        self.end()

    async def _settle(self) -> None:
        application, connections = self._application, self._state.connections
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer_s = min(ANSWER_S, self._end_limit_s - MARGIN_S / 2)
        report_at = began
        while connections or not application.drained:
            now = loop.time()
            if application.drained and now > began + answer_s:
                # Nothing here can change what they wait for any more.
                log.warning("server.cut connections=%d", len(connections))
                return
            if now >= report_at:
                report_at = now + REPORT_S
                load = {**application.load(), "connections": len(connections)}
                template = "server.draining seconds=%.0f of=%.0f" + "".join(f" {name}=%d" for name in load)
                log.info(template, now - began, self._end_limit_s, *load.values())
            self._state.beat(now)
            await asyncio.sleep(0.05)
