"""`Store` on PostgreSQL, shared by as many processes as there are replicas; its time is the database's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from trunkline.store.group_commit import Observer
from trunkline.store.postgres.address import EVERY_TENANT
from trunkline.store.postgres.database import PostgresDatabase
from trunkline.store.postgres.docs import PostgresDocs
from trunkline.store.postgres.log import PostgresHeads, PostgresLog
from trunkline.store.postgres.maintenance import PostgresMaintenance
from trunkline.store.postgres.nodes import PostgresNodes
from trunkline.store.postgres.outbox import PostgresOutbox
from trunkline.store.postgres.sessions import fetch

NODE_TTL_SECONDS = 3.0


class PostgresClock:
    """`Clock` of the database, unless a clock was given."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def now(self) -> int:
        """See `Clock`."""
        moment = self._database.now_ms()
        if moment is None:
            ((moment,),) = await self._database.read(EVERY_TENANT, partial(fetch, name="now"))
        return moment

    async def fire_once(self, schedule: str, planned_at: int) -> bool:
        """See `Clock`."""
        call = partial(fetch, name="fire", schedule=schedule, planned_at=planned_at)
        return bool(await self._database.change(call))


class PostgresStore:
    """`Store` on a database. Opened once, on the loop that uses it."""

    # As many processes as you like.
    shared = True

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        node_ttl_s: float = NODE_TTL_SECONDS,
        read_only: bool = False,
    ) -> None:
        self.database = PostgresDatabase(url, now_ms=now_ms, read_only=read_only)
        self.log = PostgresLog(self.database)
        self.heads = PostgresHeads(self.database)
        self.docs = PostgresDocs(self.database)
        self.outbox = PostgresOutbox(self.database)
        self.nodes = PostgresNodes(self.database, node_ttl_s)
        self.clock = PostgresClock(self.database)
        self.maintenance = PostgresMaintenance(self.database, self.nodes)
        self.open = self.database.open
        self.close = self.database.close

    @property
    def migrated(self) -> tuple[int, int]:
        """See `Store`."""
        return self.database.migrated

    def observe(self, observer: Observer) -> None:
        """See `Store`."""
        self.database.group_commit.observer = observer
