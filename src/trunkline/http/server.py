"""The uvicorn server of `trunkline serve`: who hears of the end, in which order, and how long it takes."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from trunkline.app import Application
from trunkline.config import Settings
from trunkline.http.connections import ServerState, room
from trunkline.server.streams import TICK_S

log = logging.getLogger("trunkline")
# Exit codes: it never came up; a second Ctrl-C.
FAILED = 3
INTERRUPTED = 130
# What the end may take beyond its limits, to write the last events and close the store.
MARGIN_S = 4.0
# Requests get this long even when no skill runs any more: slow readers, bodies on their way.
ANSWER_S = 12.0
SAY_S = 5.0
UNWIND_S = 1.0
# How often uvicorn ticks in a second; its date is as old as that.
TICKS = 10


def end_limit_s(settings: Settings) -> float:
    """After how many seconds a server that was told to end has ended, whatever hangs."""
    return settings.drain_limit + settings.cancel_limit + MARGIN_S


class HttpServer(uvicorn.Server):
    """Uvicorn, but its end is ours: answers and skills have the same time to finish, and no more."""

    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        started: Callable[[int], None],
        lifeline: socket.socket | None = None,
    ) -> None:
        super().__init__(config)
        self._application = application
        self._started = started
        self._lifeline = lifeline
        self._loop: asyncio.AbstractEventLoop | None = None
        settings = application.settings
        self._end_limit_s = end_limit_s(settings)
        # A stream notices by itself first, and says after which event it was cut.
        write_limit_s = settings.write_limit + 2 * TICK_S
        self._state = self.server_state = ServerState(
            application.server.answer,
            write_limit_s,
            room(settings.connection_limit),
            application.server.crowded,
        )

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
        say_at = began
        while connections or not application.drained:
            now = loop.time()
            if application.drained and now > began + answer_s:
                # Nothing here can change what they wait for any more.
                log.warning("server.cut connections=%d", len(connections))
                return
            if now >= say_at:
                say_at = now + SAY_S
                log.info(
                    "server.draining seconds=%.0f of=%.0f tasks=%d streams=%d connections=%d",
                    now - began,
                    self._end_limit_s,
                    application.runner.running,
                    len(application.streams),
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
