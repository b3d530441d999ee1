"""Everything that sends notifications, made when the store is open and taken down before it closes."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections.abc import Collection, Coroutine

from trunkline.auth.signing import Signer
from trunkline.auth.vault import Vault, find_key
from trunkline.clock import Ids, now_ms
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.net.breaker import Breaker
from trunkline.net.fetch import FetcherOf
from trunkline.run.delivery import DeliveryCounts, DeliveryWorker
from trunkline.run.notification import NotificationComposer
from trunkline.run.push_configs import PushConfigs
from trunkline.run.retry import RetrySchedule
from trunkline.run.tasks import Tasks

log = logging.getLogger("trunkline.webhook")
# What is on its way when the process goes down has this long; the rest is posted by the next one.
LINGER_S = 1.5
# And the store this long to hear what became of it.
SETTLE_S = 1.0


class Notifier:
    """Push configs, the delivery worker and its signing keys, of one process."""

    def __init__(
        self, tasks: Tasks, ids: Ids, settings: Settings, whole: Collection[str] | None = frozenset()
    ) -> None:
        """Take the tasks of a process; those of the agents in `whole`, None is all, are told whole."""
        self._tasks = tasks
        self._settings = settings
        self._whole = whole
        self._ids = ids
        self._running: list[Task[None]] = []
        self.counts = DeliveryCounts()

    async def start(self, poster_of: FetcherOf) -> None:
        """Begin to deliver what is due, for each tenant by a fetcher that its maker closes.

        Raises:
            Misuse: the secrets that were sealed here cannot be opened.
            StoreError: the store does not answer.
        """
        settings, tasks = self._settings, self._tasks
        key = find_key(settings)
        if key is None:
            raise Misuse("push needs secret_key on this store")
        vault = Vault(key)
        self.signer = Signer(tasks.store.docs, vault, now_ms, self._ids)
        await self.signer.start()
        self.push = PushConfigs(tasks, self._ids, poster_of, vault, show=settings.push_secrets == "show")
        composer = NotificationComposer(tasks, vault, self.signer.sign, whole=self._whole)
        schedule = RetrySchedule(long=settings.push_retry == "long")
        self.worker = DeliveryWorker(
            tasks,
            composer,
            poster_of,
            Breaker(),
            schedule,
            timeout_s=settings.push_timeout,
            counts=self.counts,
        )
        tasks.announced = self.worker.announced
        self._spawn(self.worker.run())
        if tasks.store.shared:
            self._spawn(self.signer.mirror.follow())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_ended)
        self._running.append(task)

    async def stop(self) -> None:
        """Post what is on its way, if that goes quickly, and let go of the rest."""
        if not self._running:
            return
        await self.worker.stop(LINGER_S)
        await asyncio.wait(self._running[:1], timeout=SETTLE_S)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


def _ended(task: Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("push.broke", exc_info=error)
