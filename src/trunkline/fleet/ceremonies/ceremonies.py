"""The ceremonies of a hub, put together: what it starts, serves and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from trunkline.fleet.ceremonies.api import CeremonyApi
from trunkline.fleet.ceremonies.ceremony_store import CeremonyStore
from trunkline.fleet.ceremonies.files import CeremonyFiles
from trunkline.fleet.ceremonies.reports import Post, RunReports, no_channel
from trunkline.fleet.ceremonies.scheduler import AgentsOf, Charge, OpenTask, Scheduler, StopTask
from trunkline.fleet.route import routes_of
from trunkline.net.fetch import Fetcher, FetcherOf
from trunkline.store.base import Store


class Ceremonies:
    """Ceremonies of the store, and of a folder of files where there is one.

    `guarded` posts where tenants may have things posted, `own` where the operator wants it.
    """

    def __init__(
        self,
        store: Store,
        *,
        open_task: OpenTask,
        stop_task: StopTask,
        agents_of: AgentsOf,
        charge: Charge | None = None,
        guarded: FetcherOf,
        own: Fetcher,
        variable: Callable[[str], str | None],
        post: Post = no_channel,
        folder: Path | None = None,
        rests: Callable[[str], bool] = lambda tenant: False,
        knows: Callable[[str, str], bool] = lambda tenant, agent: True,
        is_settled: Callable[[], bool] = lambda: True,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        reports = RunReports(guarded, own, variable, post)
        self.ceremony_store = CeremonyStore(store.docs, self._changed)
        self.scheduler = Scheduler(
            store,
            self.ceremony_store.all,
            open_task=open_task,
            stop_task=stop_task,
            agents_of=agents_of,
            charge=charge,
            tell=reports.tell,
            rests=rests,
            knows=knows,
            is_settled=is_settled,
            is_draining=is_draining,
        )
        self._files = None if folder is None else CeremonyFiles(folder, self.ceremony_store.take_files)
        self.api = CeremonyApi(self.ceremony_store, self.scheduler, store.clock, guarded)
        self.routes = routes_of(self.api)

    async def start(self) -> None:
        """Read what there is.

        Raises:
            Misuse: a file cannot be used; the text names file and line.
            StoreError: the store does not answer.
        """
        if self._files is not None:
            self._files.start()
        await self.ceremony_store.refresh()

    async def run(self) -> None:
        """Have everything done when it is due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.scheduler.run())
            if self._files is not None:
                group.create_task(self._files.watch())
            if self._store.shared:
                group.create_task(self.ceremony_store.follow())

    def _changed(self, key: tuple[str, str]) -> None:
        self.scheduler.expect(key)
