"""Several processes on one socket: the parent starts them, replaces those that die and ends them together.

It serves nothing itself. Each worker holds one end of a socket pair, by which it is told what to serve
and says that it does; whichever end is left alone knows that the other process is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable

from msgspec import Struct, field

from trunkline.clock import wait_event
from trunkline.http.server import FAILED, INTERRUPTED

log = logging.getLogger("trunkline")
# A worker that lasted this long did not die of its start; the next one comes at once.
STEADY_S = 10.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
# So many failed starts in a row, with nobody left who serves, are the end.
TRIES = 5
# A worker ends by itself within its limit; one that does not is killed.
OVERTIME_S = 0.5
# Linux shares connections out among sockets on one port; on one socket the first to wake takes them all.
SHARES = sys.platform == "linux"


class Workers(Struct, eq=False):
    """The processes that serve: how each is started, where they listen, and the place that each has."""

    module: str
    # What a worker is told, as one line, given the descriptors of the sockets that it inherits.
    order: Callable[[list[int]], bytes]
    host: str
    port: int
    count: int
    end_limit_s: float
    announce: Callable[[int], None]
    # What each place listens on; all the same where the system cannot share out connections.
    _sockets: list[list[socket.socket]] = []
    _living: set[Process] = set()
    _serving: int = 0
    _announced: bool = False
    # Starts in a row that came to nothing.
    _failed: int = 0
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _code: int = 0

    async def run(self) -> int:
        """Until a signal has ended all of them, or none can be started; the exit code."""
        try:
            # Sockets that share a port would also share it with a stranger's: look first.
            for each in bind(self.host, self.port):
                self.port = self.port or each.getsockname()[1]
                each.close()
            for _ in range(self.count):
                # One by one: where they cannot share a port, all have the first one's sockets.
                self._sockets.append(self._listening())
        except OSError as error:
            log.error("server.bind_failed host=%s port=%d error=%s", self.host, self.port, error)
            return FAILED
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._signalled, each)
        await asyncio.gather(*(self._keep(place) for place in range(self.count)))
        return self._code

    def _listening(self) -> list[socket.socket]:
        if not SHARES and self._sockets:
            return self._sockets[0]
        return bind(self.host, self.port, share=SHARES)

    def _signalled(self, sig: signal.Signals) -> None:
        if not self._ending.is_set():
            self._end()
        elif sig is signal.SIGINT:
            self._code = INTERRUPTED
            self._kill()

    def _end(self) -> None:
        log.info("workers.ending workers=%d", len(self._living))
        self._ending.set()
        # The workers close theirs; while this copy were open, strangers would still be let in.
        for place in range(len(self._sockets)):
            self._close(place)
        for process in self._living:
            _send(process, signal.SIGTERM)
        limit_s = self.end_limit_s + OVERTIME_S
        asyncio.get_running_loop().call_later(limit_s, self._kill)

    def _close(self, place: int) -> None:
        for each in self._sockets[place]:
            each.close()

    def _kill(self) -> None:
        for process in self._living:
            log.error("worker.killed pid=%d", process.pid)
            _send(process, signal.SIGKILL)

    async def _keep(self, place: int) -> None:
        """One place: a worker, and another one whenever it dies."""
        loop = asyncio.get_running_loop()
        quick = 0
        while not self._ending.is_set():
            began = loop.time()
            served, code = await self._work(self._sockets[place])
            if self._ending.is_set():
                if code not in (0, -signal.SIGTERM):
                    self._code = self._code or 1
                return
            if not served and self._hopeless():
                return
            quick = 0 if loop.time() - began > STEADY_S else quick + 1
            # One death may be chance: callers wait in line for the next worker. Several have a cause.
            if quick > 1:
                await self._rest(place, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (quick - 2)))

    def _hopeless(self) -> bool:
        """After a start that came to nothing: whether that is the end of all."""
        self._failed += 1
        if self._announced and (self._serving or self._failed < TRIES):
            return False
        if not self._ending.is_set():
            log.error("workers.hopeless starts=%d", self._failed)
            self._code = FAILED
            self._end()
        return True

    async def _rest(self, place: int, seconds: float) -> None:
        """Leave a place empty for a while; nobody is to wait in a line that nobody serves."""
        if SHARES:
            self._close(place)
        if not await wait_event(self._ending, seconds):
            self._sockets[place] = self._listening()

    async def _work(self, sockets: list[socket.socket]) -> tuple[bool, int]:
        """The life of one worker: whether it served, and its exit code."""
        ours, theirs = socket.socketpair()
        inherited = [each.fileno() for each in sockets]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.module,
            stdin=theirs.fileno(),
            pass_fds=inherited,
            # A Ctrl-C in the terminal is for the parent, which passes it on once.
            start_new_session=True,
        )
        theirs.close()
        self._living.add(process)
        if self._ending.is_set():
            _send(process, signal.SIGTERM)
        reader, writer = await asyncio.open_connection(sock=ours)
        served = False
        try:
            writer.write(self.order(inherited) + b"\n")
            served = await _serves(reader)
            if served:
                self._ready(process)
            code = await process.wait()
        finally:
            self._living.discard(process)
            self._serving -= served
            writer.close()
        if not self._ending.is_set():
            log.error("worker.died pid=%d exit=%s", process.pid, _how(code))
        return served, code

    def _ready(self, process: Process) -> None:
        log.info("worker.ready pid=%d", process.pid)
        self._serving += 1
        self._failed = 0
        if not self._announced and not self._ending.is_set():
            self._announced = True
            self.announce(self.port)


def bind(host: str, port: int, *, share: bool = False) -> list[socket.socket]:
    """A socket for each address that a host name stands for, all on one port.

    Raises:
        OSError: there is no such address here, or somebody listens there.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with contextlib.ExitStack() as opened:
        made: list[socket.socket] = []
        for family, kind, protocol, _, address in dict.fromkeys(found):
            one = opened.enter_context(socket.socket(family, kind, protocol))
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if share:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind((address[0], port, *address[2:]))
            port = port or one.getsockname()[1]
        opened.pop_all()
    return made


async def _serves(reader: asyncio.StreamReader) -> bool:
    """One byte when it serves; none if it ended before, perhaps even before it had read its order."""
    try:
        return bool(await reader.read(1))
    except ConnectionError:
        return False


def _send(process: Process, sig: signal.Signals) -> None:
    # It may have ended a moment ago.
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(sig)


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)
