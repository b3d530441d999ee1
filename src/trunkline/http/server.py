"""The uvicorn server of `trunkline serve`: who hears of the end, in which order, and how long it takes."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import FrameType
from typing import Any, Protocol

import uvicorn
from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.connection import ServerConnection
from trunkline.http.connections import ServerState, room
from trunkline.http.exchange import Exchange

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
# How often uvicorn ticks in a second; its date is as old as that.
TICKS = 10


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


class Application(Protocol):
    """The application that an HTTP server runs, and how it is drained."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI; its lifespan is that of the server."""
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

    @property
    def websocket_limits(self) -> Sequence[int]:
        """The most bytes of one message, of each WebSocket here."""
        ...

    def load(self) -> Mapping[str, int]:
        """How much of what still runs, for the log."""
        ...


class HttpServer(uvicorn.Server):
    """Uvicorn, but its end is ours: answers and skills have the same time to finish, and no more."""

    def __init__(
        self,
        application: Application,
        limits: ServerLimits,
        *,
        log_level: str,
        started: Callable[[int], None],
        lifeline: socket.socket | None = None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                log_config=None,
                log_level=log_level,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                ws="none",
                http=ServerConnection,
                lifespan="on",
            )
        )
        self._application = application
        self._started = started
        self._lifeline = lifeline
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end_limit_s = limits.end_s
        self._state = self.server_state = ServerState(
            application.answer,
            limits.write_s,
            room(limits.connections),
            application.crowded,
            unread_limit=limits.unread,
        )
        if application.websocket_limits:
            # A route counts what has come; what no route takes need not even be gathered.
            self.config.ws_max_size = max(application.websocket_limits)
            self._state.websocket = self._websockets()

    def _websockets(self) -> Callable[[], asyncio.Protocol]:
        try:
            from trunkline.http.websocket import websocket_factory
        except ImportError as error:
            raise Misuse(f"WebSockets need {error.name}: pip install 'trunkline[websocket]'") from None
        return websocket_factory(self.config, self._state, {})

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: go down in order; a second Ctrl-C does not wait."""
        # Not uvicorn's own, which kills the process by the same signal once it has ended cleanly.
        del frame
        if self.should_exit and sig == signal.SIGINT:
            os._exit(INTERRUPTED)
        self.end()

    def end(self) -> None:
        """Go down in order, but go down."""
        if self.should_exit:
            return
        self.should_exit = True
        # A skill, a reader or a store that hangs, even one that holds the whole interpreter: the process
        # says where and ends.
        faulthandler.dump_traceback_later(self._end_limit_s, exit=True, file=sys.__stderr__ or 2)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._application.drain)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve to the end; a skill that cannot be stopped does not hold it up, its task has ended."""
        self._loop = asyncio.get_running_loop()
        if self._lifeline is not None:
            self._loop.add_reader(self._lifeline, self._let_go)
        await super().serve(sockets)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left and (await asyncio.wait(left, timeout=UNWIND_S))[1]:
            logging.shutdown()
            os._exit(0 if self.started else FAILED)

    def _let_go(self) -> None:
        # The process that holds the other end says nothing more; it can only have ended.
        if self._loop is not None and self._lifeline is not None:
            self._loop.remove_reader(self._lifeline)
        log.warning("worker.orphaned pid=%d", os.getpid())
        self.end()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say where."""
        self._state.beat(asyncio.get_running_loop().time())
        await super().startup(sockets)
        if self.started and sockets:
            self._started(sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked while the skills come to their end, then close the store."""
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        self._application.drain()
        self._state.drain()
        await self._settle()
        for connection in list(self._state.members):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await self.lifespan.shutdown()

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
                log.info(
                    "server.draining seconds=%.0f of=%.0f %s connections=%d",
                    now - began,
                    self._end_limit_s,
                    " ".join(f"{name}={count}" for name, count in application.load().items()),
                    len(connections),
                )
            await self.on_tick(0)
            await asyncio.sleep(0.05)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, by uvicorn; the connections hear every tenth."""
        over = await super().on_tick(counter)
        if counter % TICKS == 0:
            self._state.beat(asyncio.get_running_loop().time())
        return over
