"""Agents of a host announce themselves to a hub: again and again while they are served, until withdrawn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.clock import wait_event
from trunkline.config import Secret, Settings
from trunkline.errors import TrunklineError
from trunkline.fleet.hub_client import HubClient
from trunkline.net.egress import shown

log = logging.getLogger("trunkline.fleet")
# Of the time that an announcement holds, the part after which it is said again.
RENEWED = 1 / 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# A hub that has not answered by then is away.
ANSWER_S = 10.0
# How long a server that stops waits for the hub to hear of it; it would find out by itself.
WITHDRAWAL_S = 3.0
# Who serves the agent says where, a moment after it was started.
ADDRESS_S = 10.0


class _RefusalBody(Struct):
    detail: str = ""


class Announcement:
    """Where the agents of a host are, told to the hub that its settings name."""

    def __init__(self, settings: Settings, agents: Sequence[str], prefix: str) -> None:
        """Take the agents by their ids; the first is at the origin, and all others below the prefix."""
        self._settings = settings
        self._agents = agents
        self._prefix = prefix
        self._base = settings.public_url.rstrip("/")
        self._known = asyncio.Event()
        if self._base:
            self._known.set()
        self._leaving = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def listening(self, base: str) -> None:
        """Say at which address the host is served; a public address that is set wins."""
        self._base = self._base or base
        self._known.set()

    async def run(self) -> None:
        """Announce the agents until they are withdrawn; at once over if the settings name no hub."""
        hub = self._settings.announce
        if not hub or not await self._has_address():
            return
        client = HubClient(hub, self._settings.announce_key or Secret(""))
        log.info("announce.begun hub=%s agents=%s", shown(hub), ",".join(self._agents))
        try:
            async with asyncio.TaskGroup() as group:
                for place, agent in enumerate(self._agents):
                    url = f"{self._base}{self._prefix}{agent}/a2a" if place else f"{self._base}/a2a"
                    one = AnnouncedAgent(agent, url, client, self._settings.announce_ttl, self._leaving)
                    task = group.create_task(one.run())
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
        finally:
            await client.close()

    async def withdraw(self) -> None:
        """Tell the hub that the agents go, if it listens now."""
        self._leaving.set()
        if self._running:
            await asyncio.wait(self._running, timeout=WITHDRAWAL_S)

    async def _has_address(self) -> bool:
        if not await wait_event(self._known, ADDRESS_S):
            log.error("announce.off reason=%a fix=public_url", "the address of this server is unknown")
        return bool(self._base)


class AnnouncedAgent:
    """One agent at one hub: when it is announced, and what is logged of it."""

    def __init__(self, name: str, url: str, hub: HubClient, ttl_s: float, leaving: asyncio.Event) -> None:
        self._name = name
        self._url = url
        self._hub = hub
        self._ttl_s = ttl_s
        self._leaving = leaving
        self._failures = 0
        # What was last logged: the same trouble is said once.
        self._said: str | None = None

    async def run(self) -> None:
        """Announce the agent until it leaves, then withdraw it."""
        while not self._leaving.is_set():
            trouble = await self._put(self._ttl_s)
            self._failures = self._failures + 1 if trouble else 0
            if trouble != self._said:
                self._log(trouble)
            await wait_event(self._leaving, pause_s(self._ttl_s, self._failures))
        if not self._failures and not await self._put(0):
            log.info("announce.withdrawn agent=%s", self._name)

    async def _put(self, ttl_s: float) -> str:
        """Why the hub does not list the agent; empty if it does."""
        body = {"url": self._url, "ttl": ttl_s}
        try:
            async with asyncio.timeout(ANSWER_S):
                status, answer = await self._hub.ask("PUT", f"/announce/{quote(self._name, safe='')}", body)
        except TimeoutError:
            return f"no answer within {ANSWER_S:g} seconds"
        except TrunklineError as error:
            return str(error)
        return "" if status == 200 else f"{status} {_detail(answer)}".rstrip()

    def _log(self, trouble: str) -> None:
        self._said = trouble
        if trouble:
            log.warning(
                "announce.failed agent=%s hub=%s reason=%a fix=%a",
                *(self._name, shown(self._hub.url), trouble, _fix(trouble)),
            )
        else:
            log.info("announce.listed agent=%s url=%s", self._name, shown(self._url))


def pause_s(ttl_s: float, failures: int) -> float:
    """How long to wait after an announcement, or after this many in a row that failed."""
    if not failures:
        return ttl_s * RENEWED
    return min(FIRST_PAUSE_S * 2 ** min(failures - 1, 10), LONGEST_PAUSE_S)


def _fix(trouble: str) -> str:
    """Return what an operator should do after an announcement has failed."""
    if trouble.startswith(("401", "403")):
        return "set TRUNKLINE_ANNOUNCE_KEY to a key with the scope announce"
    return "check --announce: it is the address of a hub"


def _detail(answer: bytes) -> str:
    """The reason of a hub's refusal, short enough for a line of the log."""
    try:
        return msgspec.json.decode(answer, type=_RefusalBody).detail[:300]
    except msgspec.MsgspecError:
        return ""
