"""An office whose API has the routes of a hub: its agent can be asked for by name and by skill."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tests.fleet.office import Office, office
from tests.fleet.routing.test_dispatcher import Few, agent
from trunkline.fleet.route import routes_of
from trunkline.fleet.routing.chat_api import ChatApi
from trunkline.fleet.routing.dispatch_api import DispatchApi
from trunkline.fleet.routing.dispatcher import Dispatcher, Policy


class Hub:
    """What callers do with the routes."""

    def __init__(self, at: Office) -> None:
        self.at = at

    async def post(self, path: str, body: Any, who: str = "alice", **headers: str) -> tuple[int, Any]:
        got = await self.at.ask(who, "POST", f"/api/{path}", body, **headers)
        return got.status_code, got.json()

    async def get(self, path: str, who: str = "alice") -> tuple[int, Any]:
        got = await self.at.ask(who, "GET", f"/api/{path}")
        return got.status_code, got.json()


def hub(work: Callable[[Hub], Awaitable[None]], *, wait_s: float = 30.0, store: str = "memory:") -> None:
    """Do something with a fleet of one agent, `desk`, and one that is disabled."""

    async def main(at: Office) -> None:
        host = at.application.host
        fleet = Few(agent("desk", "work", "other"), agent("off", "work", excluded="it is disabled"))
        dispatcher = Dispatcher(host.runner, fleet, Policy())
        host.api.add(routes_of(DispatchApi(host.runner, dispatcher)))
        host.api.add(routes_of(ChatApi(host.runner, dispatcher, fleet, wait_s)))
        await work(Hub(at))

    office(main, store)
