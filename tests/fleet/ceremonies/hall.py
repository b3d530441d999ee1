"""An office whose operator's API has ceremonies, with a real runner behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.fleet.office import Office, office
from trunkline.fleet.ceremonies.api import CeremonyApi
from trunkline.fleet.ceremonies.ceremony_store import CeremonyStore
from trunkline.fleet.ceremonies.scheduler import Fire, Scheduler
from trunkline.fleet.route import routes_of
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.wire.types import SendRequest

LEAST = {
    "id": "standup",
    "name": "Stand-up",
    "schedule": "0 9 * * 1-5",
    "skill": "work",
    "message": "hold on",
}
CREATE = "/api/ceremonies/create"


class Hall:
    """An office with ceremonies."""

    def __init__(self, at: Office) -> None:
        self.at = at
        runner = at.application.host.runner

        async def open_task(fire: Fire) -> None:
            request = SendRequest(message=fire.message)
            _, ack = runner.submit(
                fire.tenant, fire.principal, request, agent=runner.origin, task_id=fire.task_id
            )
            await ack

        async def stop_task(tenant: str, task_id: str, by: str) -> None:
            feed = await runner.tasks.load(tenant, task_id)
            assert feed is not None
            await runner.cancel(feed, by)

        async def charge(_tenant: str, principal: str, count: int) -> None:
            await asyncio.sleep(0)
            self.charged += [principal] * count

        self.charged: list[str] = []
        self.ceremony_store = CeremonyStore(at.store.docs, lambda key: self.scheduler.expect(key))
        self.scheduler = Scheduler(
            at.store,
            self.ceremony_store.all,
            open_task=open_task,
            stop_task=stop_task,
            agents_of=lambda _tenant, _skill: ["desk"],
            charge=charge,
        )
        api = CeremonyApi(self.ceremony_store, self.scheduler, at.store.clock, lambda _: Fetcher(Egress()))
        at.application.host.api.add(routes_of(api))

    async def post(self, who: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.at.ask(who, "POST", path, {} if body is None else body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def ids(self, who: str) -> list[str]:
        return [one["id"] for one in (await self.at.get(who, "/api/ceremonies"))["items"]]

    async def runs(self, who: str, ceremony_id: str = "standup", query: str = "") -> list[Any]:
        return (await self.at.get(who, f"/api/ceremonies/{ceremony_id}/runs{query}"))["items"]


def hall(work: Callable[[Hall], Awaitable[None]]) -> None:
    async def main(at: Office) -> None:
        await work(Hall(at))

    office(main)
