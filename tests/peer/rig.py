"""A caller whose skill calls a remote agent that is in the same process, by real requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from tests.run.desk import Desk, Flaky, Shared
from trunkline import Agent, Turn
from trunkline.agent.executor import SkillExecutor
from trunkline.client.client import Client
from trunkline.clock import Ids
from trunkline.config import Settings
from trunkline.net.in_process import InProcessHttpClient
from trunkline.peer.callbacks import Callbacks, Following
from trunkline.peer.clients import PeerClients
from trunkline.peer.executor import PeerExecutor, remote_id
from trunkline.peer.remote import Peer, Reachable
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits
from trunkline.store.records import Where

HOME = "http://localhost"
CALLER = "caller"
LIMIT_S = 30.0
PATIENT = Limits(cancel_s=5, drain_s=0.2, park_after_s=60)
PARKING = Limits(cancel_s=5, drain_s=0.2, park_after_s=0.02)
Skill = Callable[[Turn], Awaitable[object]]


class NearClients(PeerClients):
    """Clients that reach an ASGI application of this process."""

    def __init__(self, app: Any) -> None:
        super().__init__()
        self._app = app

    def of(self, named: str, peer: Peer, tenant: str = "") -> Client:
        del named, peer, tenant
        if "near" not in self._clients:
            http = InProcessHttpClient(self._app)
            self._clients["near"] = Client(HOME, http_client=http, poll_s=0.01, timeout_s=1000)
        return self._clients["near"]


class Caller(Desk):
    """A runner with one agent whose skill calls others, and what follows its remote tasks."""

    async def until_asked(self, feed: Feed, unlike: str) -> None:
        """Wait for another question than this."""
        while (asked := feed.state.question) is None or asked.message_id == unlike:
            await self.tasks.move(feed, 5)

    async def child(self, parent: Feed) -> Feed:
        """The first child of a task, once it is there."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                where = Where(parent=parent.state.task_id)
                page = await self.store.heads.list(parent.tenant, where, size=1)
                if page.heads:
                    found = await self.tasks.load(parent.tenant, page.heads[0].task_id)
                    assert found is not None
                    return found
                await asyncio.sleep(0.01)


def executors(
    skill: Skill, app: Any, uncertain: Any, following: Following | None, *others: Agent
) -> list[HostedAgent]:
    agent = Agent(CALLER, on_crash="resume")
    agent.skill(id="call")(skill)
    named = [CALLER, *(other.id for other in others)]
    hosted: list[HostedAgent] = []
    for one in (agent, *others):
        reachable = Reachable(remote_id(one.id), {"peer"}, named)
        executor = SkillExecutor(one.name, one.skills, one.default, Settings(), reachable=reachable)
        hosted.append(HostedAgent(one.id, executor))
    peers = {"peer": Peer(url=HOME, uncertain=uncertain)}
    hosted.append(HostedAgent(remote_id(CALLER), PeerExecutor(peers, NearClients(app), following)))
    return hosted


@asynccontextmanager
async def calling(
    skill: Skill,
    app: Any = None,
    *others: Agent,
    limits: Limits = PATIENT,
    store: Flaky | None = None,
    uncertain: str = "fail",
    following: Following | None = None,
    answer_s: float = 0.0,
) -> AsyncGenerator[Caller]:
    """A started runner; it is stopped at the end, and its store too if it is its own."""
    own = store is None
    store = store or Shared()
    if own:
        await store.open()
    hosted = executors(skill, app, uncertain, following, *others)
    hosted[-1] = replace(hosted[-1], answer_s=answer_s)
    runner = Caller(store, hosted, Ids(), limits)
    runner.store = store
    await runner.start()
    try:
        yield runner
    finally:
        await runner.stop()
        if own:
            await store.close()


def told_by(own: str = "http://127.0.0.1:9", **more: float) -> Following:
    """How a caller follows remote tasks that listens here."""
    callbacks = Callbacks(Settings(store="memory:"))
    callbacks.own = own
    return Following(callbacks=callbacks, **more)


@asynccontextmanager
async def served(agent: Agent, **settings: object) -> AsyncGenerator[Any]:
    """A remote agent of our own make."""
    application = agent.asgi(store="memory:", drain_limit=1, **settings)
    async with application.lifespan():
        yield application
