"""The health of a fleet while a host lives: documents are written, records kept, alerts raised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from trunkline.clock import now_ms as system_now_ms
from trunkline.errors import StoreError
from trunkline.fleet.health.alerts import AlertLimits, AlertLog, LimitsOf, RaiseAlert
from trunkline.fleet.health.health_records import HealthRecords, merged
from trunkline.fleet.health.outcome import CALLED, CLASSES, TaskOutcome
from trunkline.fleet.health.recorder import HealthRecorder
from trunkline.fleet.health.snapshot import watched
from trunkline.fleet.health.tally import Summary
from trunkline.store.base import Store
from trunkline.store.tail import TailReader
from trunkline.telemetry.counters import AgentSample

log = logging.getLogger("trunkline.fleet")
NAME = "health"
ALERT_EVERY_S = 60.0
# Who asks is answered with what is known after this time, though a long log may not be read to its end.
CATCH_UP_S = 5.0
# Each is a handful of series wherever metrics are kept.
SAMPLES = 1000


def agent_sample(tenant: str, agent: str, found: Summary) -> AgentSample:
    """How an agent did, as metrics have it."""
    measured = zip(("0.5", "0.95"), found.percentiles((0.5, 0.95)), strict=True)
    return AgentSample(
        tenant,
        agent,
        dict(zip(CLASSES, found.tally.kinds, strict=True)),
        found.tally.cost,
        {quantile: ms / 1000 for quantile, ms in measured if ms is not None},
    )


class UnsettledSpending:
    """What outcomes cost that a reader of the log has found and not written yet."""

    def __init__(self, reader: TailReader) -> None:
        self._reader = reader
        self._found: Sequence[object] = ()
        self._count = 0
        self._spent: dict[tuple[str, str], tuple[float, int]] = {}

    def spent(self, tenant: str, principal: str) -> tuple[float, int]:
        """Return what a tenant or one principal of it spent, in dollars and in tokens."""
        found = self._reader.unsettled
        if found is not self._found:
            self._found, self._count, self._spent = found, 0, {}
        for one in found[self._count :]:
            if isinstance(one, TaskOutcome) and one.kind != CALLED and not one.is_charged:
                for payer in {"", one.principal}:
                    cost, tokens = self._spent.get((one.tenant, payer), (0.0, 0))
                    tokens += one.tokens_in + one.tokens_out
                    self._spent[one.tenant, payer] = cost + (one.cost or 0.0), tokens
        self._count = len(found)
        return self._spent.get((tenant, principal), (0.0, 0))


class FleetHealth:
    """Reads the whole log of a store into documents, and these into the records in memory.

    A hub runs it always. Elsewhere it begins when somebody first asks, and goes on until the store closes.
    """

    def __init__(
        self,
        store: Store,
        *,
        origin: str,
        window_s: float,
        registered: Callable[[str], Collection[str]],
        limits: LimitsOf | None = None,
        raised: RaiseAlert | None = None,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        """Take the agents that a tenant has now, by their ids; without limits no alert is logged.

        `raised` is told of each alert.
        """
        self.registered = registered
        self.limits: LimitsOf = limits or (lambda tenant: AlertLimits())
        self.records = HealthRecords(store.docs, round(window_s * 1000), now_ms)
        self._store = store
        self._reader = TailReader(store, NAME, HealthRecorder(store, self.records, origin))
        self._unsettled = UnsettledSpending(self._reader)
        self._alerts = None if limits is None else AlertLog(store.docs, limits, raised)
        self._running: asyncio.Task[None] | None = None
        self._loaded = False

    def start(self) -> asyncio.Task[None]:
        """Begin, unless it has begun; gives what goes on, to be cancelled before the store closes."""
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        return self._running

    async def fresh(self) -> HealthRecords:
        """The records with everything that ended before this call.

        Raises:
            StoreError: the store does not answer.
        """
        self.start()
        try:
            async with asyncio.timeout(CATCH_UP_S):
                return await self.caught_up()
        except TimeoutError:
            log.info("health.behind")
        return self.records

    async def read_spending(self) -> None:
        """Have `spent` contain everything that ended before this call, at any process that shares the store.

        Raises:
            StoreError: the store does not answer.
        """
        self.start()
        try:
            async with asyncio.timeout(CATCH_UP_S):
                await self._load()
                await self._reader.read_on()
                if self._store.shared:
                    await self.records.mirror.refresh()
        except TimeoutError:
            log.info("health.behind")

    def spent(self, tenant: str, principal: str = "") -> tuple[float, int]:
        """Return what the tasks of a tenant or one principal of it cost in a day, in dollars and in tokens.

        Outcomes count as soon as they were read. Model calls of open tasks count once they are recorded.
        """
        cost, tokens = self.records.spent(tenant, principal)
        more_cost, more_tokens = self._unsettled.spent(tenant, principal)
        return cost + more_cost, tokens + more_tokens

    async def caught_up(self) -> HealthRecords:
        """The same, however long that takes, and without going on beside.

        Raises:
            StoreError: the store does not answer.
        """
        await self._load()
        await self._reader.catch_up()
        if self._store.shared:
            await self.records.mirror.refresh()
        return self.records

    async def check(self) -> None:
        """Say what is above its limits."""
        if self._alerts is None:
            return
        for tenant in self.records.tenants:
            figures, _ = watched(self.records, tenant, self.registered(tenant))
            await self._alerts.tell(tenant, figures, self.records.now_ms())

    def samples(self) -> list[AgentSample]:
        """How the agents of all tenants did, for metrics: those with the most outcomes."""
        found = [
            agent_sample(tenant, agent, merged(skills))
            for tenant in self.records.tenants
            for agent, skills in self.records.window(tenant).items()
        ]
        found.sort(key=lambda one: -sum(one.outcomes.values()))
        return found[:SAMPLES]

    async def _load(self) -> None:
        if not self._loaded:
            await self.records.mirror.refresh()
            self._loaded = True

    async def _run(self) -> None:
        try:
            await self._load()
        except StoreError as error:
            log.warning("health.unread error=%s", error)
        work = [self._reader.run()]
        if self._store.shared:
            work.append(self.records.mirror.follow())
        if self._alerts is not None:
            work.append(self._watch())
        await asyncio.gather(*work)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(ALERT_EVERY_S)
            try:
                await self.check()
            except StoreError as error:
                log.warning("health.unwatched error=%s", error)
