"""`trunkline serve`: find the agent, run uvicorn, and tell the application when it drains."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import uvicorn

from trunkline.agent.agent import Agent
from trunkline.app import Application, build
from trunkline.cli.connection import Connection, State
from trunkline.config import Settings, assignment
from trunkline.errors import Misuse
from trunkline.server.guard import is_loopback
from trunkline.server.streams import TICK_S
from trunkline.store.url import shown

log = logging.getLogger("trunkline")
# The writer thread needs the interpreter a few times per group; the default of 5 ms would be its latency.
SWITCH_S = 0.001
UNWIND_S = 1.0
# How often uvicorn ticks in a second; its date is as old as that.
TICKS = 10


class Server(uvicorn.Server):
    """Uvicorn, but the application hears of the end before its connections are waited for."""

    def __init__(self, config: uvicorn.Config, application: Application) -> None:
        super().__init__(config)
        self._application = application
        # A stream notices by itself first, and says after which event it was cut.
        write_limit_s = application.settings.write_limit + 2 * TICK_S
        self._state = self.server_state = State(application.server.answer, write_limit_s)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: end the streams, then shut down; a second Ctrl-C does not wait."""
        # Not uvicorn's own, which kills the process by the same signal once it has ended cleanly.
        del frame
        self._application.drain()
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve to the end; a skill that cannot be stopped does not hold it up, its task has ended."""
        await super().serve(sockets)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left and (await asyncio.wait(left, timeout=UNWIND_S))[1]:
            logging.shutdown()
            os._exit(0 if self.started else 3)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Start, then say where."""
        self._state.beat(asyncio.get_running_loop().time())
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            _announce(self._application.settings, self.servers[0].sockets[0].getsockname()[1])

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, by uvicorn; the connections hear every tenth."""
        over = await super().on_tick(counter)
        if counter % TICKS == 0:
            self._state.beat(asyncio.get_running_loop().time())
        return over


def find(target: str) -> Agent:
    """The agent named by module:attribute.

    Raises:
        Misuse: there is none; the message says what was looked for.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or module_name.startswith(".") or not attribute:
        raise Misuse(f"{target!r} should be module:agent, for example scribe:agent")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there but imports one that is not has a traceback of its own to show.
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise Misuse(f"there is no module {module_name!r} here or among the installed ones") from None
        raise
    found = getattr(module, attribute, None)
    if not isinstance(found, Agent):
        raise Misuse(f"{module_name} has no Agent named {attribute!r}")
    if not found.skills:
        raise Misuse(f"{target} has no skill; decorate a function with @{attribute}.skill")
    return found


def run(target: str, flags: Mapping[str, object], settings: list[str]) -> None:
    """Serve until a signal.

    Raises:
        Misuse: the agent or a setting is wrong, or it would be open to the network without a key.
    """
    application = build(find(target), {**flags, **dict(assignment(one) for one in settings)})
    chosen = application.settings
    _check_exposure(chosen)
    logging.basicConfig(
        level=chosen.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    sys.setswitchinterval(SWITCH_S)
    # What is loaded by now stays; a young generation of 700 would be collected every few requests.
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    config = uvicorn.Config(
        application,
        host=chosen.host,
        port=chosen.port,
        log_config=None,
        log_level=chosen.log_level,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=4096,
        ws="none",
        http=Connection,
        lifespan="on",
        timeout_graceful_shutdown=int(chosen.drain_limit + chosen.cancel_limit + 5),
    )
    server = Server(config, application)
    server.run()
    if not server.started:
        raise SystemExit(3)


def _check_exposure(settings: Settings) -> None:
    if settings.keys or settings.open or is_loopback(settings.host):
        return
    raise Misuse(
        f"{settings.host} is reachable by other machines and no key is set: "
        "give --key KEY, or --open to let anybody in"
    )


def _announce(settings: Settings, port: int) -> None:
    base = settings.public_url or f"http://{settings.host}:{port}"
    log.info("serving %s/a2a card=%s/.well-known/agent-card.json store=%s", base, base, shown(settings.store))
    if not settings.keys:
        who = "only this machine can reach it" if is_loopback(settings.host) else "anybody can use it"
        log.info("no key is set: %s", who)
