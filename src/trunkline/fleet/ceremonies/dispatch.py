"""Ceremonies on a fleet: the dispatcher opens their tasks like everybody's, and the runner stops them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from trunkline.fleet.ceremonies.ceremonies import Ceremonies
from trunkline.fleet.ceremonies.ceremony import ALL
from trunkline.fleet.ceremonies.reports import Post, no_channel
from trunkline.fleet.ceremonies.scheduler import Fire
from trunkline.fleet.routing.choose import fan_out
from trunkline.fleet.routing.dispatcher import Dispatcher, DispatchOrder
from trunkline.fleet.routing.standings import CatalogueFleet
from trunkline.net.fetch import Fetcher, FetcherOf
from trunkline.run.runner import Runner

# Lets a principal of a tenant have so many tasks opened; None where nobody counts them.
LetIn = Callable[[str, str, int], AbstractAsyncContextManager[None] | None]


def ceremonies_of(
    runner: Runner,
    dispatcher: Dispatcher,
    fleet: CatalogueFleet,
    *,
    guarded: FetcherOf,
    own: Fetcher,
    variable: Callable[[str], str | None],
    post: Post = no_channel,
    let_in: LetIn = lambda tenant, principal, count: None,
    folder: Path | None = None,
    rests: Callable[[str], bool] = lambda tenant: False,
) -> Ceremonies:
    """The ceremonies of a hub: start them, run them, and add their routes to its API."""

    async def open_task(fire: Fire) -> None:
        await dispatcher.check_room(fire.tenant, fire.target)
        await dispatcher.dispatch(_order_of(fire), task_id=fire.task_id)

    async def charge(tenant: str, principal: str, count: int) -> None:
        async with let_in(tenant, principal, count) or nullcontext():
            pass

    async def stop_task(tenant: str, task_id: str, by: str) -> None:
        feed = await runner.tasks.load(tenant, task_id)
        if feed is not None:
            await runner.cancel(feed, by)

    return Ceremonies(
        runner.tasks.store,
        open_task=open_task,
        stop_task=stop_task,
        agents_of=lambda tenant, skill: [*fan_out((ALL,), skill, fleet.with_skill(tenant, skill))],
        charge=charge,
        guarded=guarded,
        own=own,
        variable=variable,
        post=post,
        folder=folder,
        rests=rests,
        knows=lambda tenant, agent: fleet.find(tenant, agent, "") is not None,
        is_settled=lambda: fleet.is_settled,
        is_draining=lambda: runner.draining,
    )


def _order_of(fire: Fire) -> DispatchOrder:
    return DispatchOrder(
        tenant=fire.tenant,
        principal=fire.principal,
        message=fire.message,
        skill=fire.skill,
        targets=(fire.target,),
        trigger=f"ceremony:{fire.ceremony}",
        charged=fire.by_hand,
        can_wait=True,
        restriction=fire.restriction,
    )
