"""One PostgreSQL database, opened: its schema, and the sessions of this replica.

The schema is brought to the newest version, forwards only: one transaction per step, one process at a time.
A kill between two steps leaves the older version whole, and the next start goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from trunkline.errors import StoreError
from trunkline.store.database import Database, Rows, check_readable, check_version
from trunkline.store.group_commit import Entry
from trunkline.store.postgres.address import (
    DATABASE_ERRORS,
    EVERY_TENANT,
    STATEMENT_SECONDS,
    DatabaseAddress,
    lock_key,
)
from trunkline.store.postgres.append import PostgresAppends
from trunkline.store.postgres.hints import PostgresHints
from trunkline.store.postgres.liveness import Liveness
from trunkline.store.postgres.sessions import (
    SNAPSHOT_SECONDS,
    TEXTS,
    KeptSession,
    Pool,
    Snapshot,
    fetch,
    fetch_text,
    hang_up,
)
from trunkline.store.statements import Migration, migrations

if TYPE_CHECKING:
    from asyncpg import Record

    from trunkline.store.postgres.address import Connection

_logger = logging.getLogger("trunkline.store")

T = TypeVar("T")

POSTGRES: tuple[Migration, ...] = migrations("postgres")
_OLDEST_SERVER = 14
_OPEN_SECONDS = 10.0


class PostgresDatabase(Database):
    """The sessions of one replica: the writer, four for reads and small changes, hints, and liveness."""

    sql = TEXTS
    _writing: asyncio.Task[None]

    def __init__(
        self,
        url: str,
        *,
        now_ms: Callable[[], int] | None = None,
        read_only: bool = False,
    ) -> None:
        self._address = DatabaseAddress(url)
        # At most one group is under way, and so at most one is here.
        self._groups: asyncio.Queue[list[Entry]] = asyncio.Queue()
        super().__init__(self._address.name, self._groups.put_nowait, read_only=read_only)
        # Whoever only reads neither makes the schema nor moves it on below a server that runs.
        self._prepare = verify if read_only else migrate
        self._clock = now_ms
        self._writer = KeptSession(self._address, "writer")
        self._snapshot: Snapshot | None = None
        self._pool = Pool(self._address)
        self._replicas = PostgresHints(self._address, self.hints, self.doc_hints)
        self.liveness = Liveness(self._address)
        self._appends = PostgresAppends(self._address, self._writer, self.now_ms)

    def now_ms(self) -> int | None:
        """What to take for the time; None is the database's own."""
        return None if self._clock is None else self._clock()

    # Life

    async def _open(self) -> None:
        role, limit_s = ("snapshot", SNAPSHOT_SECONDS) if self._read_only else ("writer", STATEMENT_SECONDS)
        connection = await self._address.connect(role, seconds=_OPEN_SECONDS, statement_s=limit_s)
        try:
            self.migrated = await self._prepare(connection, self._address)
            if self._read_only:
                self._snapshot = Snapshot(self._address, connection)
                await self._snapshot.begin()
        except (*DATABASE_ERRORS, StoreError) as error:
            await hang_up(connection)
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.name} cannot be opened: {self._address.told(error)}") from None
        if self._read_only:
            return
        self._writer.begin(connection)
        await self._replicas.start(_OPEN_SECONDS)
        self._writing = asyncio.create_task(self._write())
        self.group_commit.start()

    async def _close(self) -> None:
        if self._snapshot is not None:
            return await self._snapshot.close()
        await self.group_commit.stop()
        self._writing.cancel()
        await asyncio.wait({self._writing})
        await self.liveness.close()
        await self._replicas.stop()
        await self._pool.close()
        await self._writer.close()

    async def _write(self) -> None:
        while True:
            group = await self._groups.get()
            outcomes = await self._appends.write(group)
            try:
                self.group_commit.done(group, outcomes)
            except Exception as error:  # noqa: BLE001 - whoever listens badly must not end the writing
                _logger.error("store.unheard", exc_info=error)
            self._replicas.tell(
                (entry.tenant, entry.task_id, outcome)
                for entry, outcome in zip(group, outcomes, strict=True)
                if isinstance(outcome, int)
            )

    def read(self, tenant: str, call: Callable[[Connection], Awaitable[T]]) -> Awaitable[T]:
        """Run a call that only reads, as this tenant."""
        self.check()
        return (self._snapshot or self._pool).read(tenant, call)

    def change(self, call: Callable[[Connection], Awaitable[T]], tenant: str = EVERY_TENANT) -> Awaitable[T]:
        """Run a call that writes, as this tenant."""
        self.check_writable()
        return self._pool.change(call, tenant)

    # What the parts of every store ask, by the names of statements

    async def rows_of(self, text: str, tenant: str | None = None, /, **values: Any) -> list[Record]:
        """See `Database`."""
        call = partial(fetch_text, text=text, tenant=tenant, **values)
        return await self.read(EVERY_TENANT if tenant is None else tenant, call)

    async def write(self, name: str, tenant: str | None = None, /, **values: Any) -> list[Record]:
        """See `Database`."""
        call = partial(fetch, name=name, tenant=tenant, **values)
        return await self.change(call, EVERY_TENANT if tenant is None else tenant)

    async def transaction(self, call: Callable[[Rows], Awaitable[T]], tenant: str | None = None) -> T:
        """See `Database`; it goes by the indexes, also where it was planned when there was nothing yet."""

        async def run(connection: Connection) -> T:
            async def rows(name: str, tenant: str | None = None, /, **values: Any) -> list[Record]:
                return await fetch(connection, name, tenant=tenant, **values)

            async with connection.transaction():
                await connection.execute(TEXTS["along_indexes"])
                return await call(rows)

        return await self.change(run, EVERY_TENANT if tenant is None else tenant)

    def tell_docs(self, kind: str) -> None:
        """Tell who listens, here and at the other replicas, that documents of a kind have changed."""
        super().tell_docs(kind)
        self._replicas.tell([("", kind, 0)])


async def migrate(
    connection: Connection, address: DatabaseAddress, steps: Sequence[Migration] = POSTGRES
) -> tuple[int, int]:
    """Apply the steps that this schema lacks; gives its version before and after.

    Raises:
        StoreError: it belongs to a newer version, is no store of ours, or the server is too old.
    """
    server, newest = connection.get_server_version(), steps[-1].version
    if server.major < _OLDEST_SERVER:
        raise StoreError(f"{address.name} is PostgreSQL {server.major}; {_OLDEST_SERVER} or newer is needed")
    if (encoding := connection.get_settings().server_encoding) != "UTF8":
        raise StoreError(f"{address.name} holds text as {encoding}; create the database with ENCODING 'UTF8'")
    version = await _version(connection, address, newest)
    if version == newest:
        return version, newest
    key = lock_key(address.schema, "migrate")
    # Waits for whoever is at it; the lock goes with the session if we are killed.
    await connection.execute("SET statement_timeout = '60s'")
    await connection.fetchval("SELECT pg_advisory_lock($1)", key, timeout=60)
    try:
        version = await _version(connection, address, newest)
        for step in steps:
            if step.version > version:
                await _apply(connection, address, step)
    finally:
        await connection.fetchval("SELECT pg_advisory_unlock($1)", key)
        await connection.execute("RESET statement_timeout")
    return version, newest


async def verify(
    connection: Connection, address: DatabaseAddress, steps: Sequence[Migration] = POSTGRES
) -> tuple[int, int]:
    """See that this schema can be read as it is; gives its version, twice.

    Raises:
        StoreError: it cannot; the message names the way out.
    """
    newest = steps[-1].version
    version = await _version(connection, address, newest)
    if not version:
        raise StoreError(
            f"schema {address.schema} of {address.name} holds no store: "
            "serve an agent on it first, or name another with ?schema=",
            hint="trunkline serve MODULE:AGENT --store URL",
        )
    check_readable(address.name, version, newest)
    return version, newest


async def _version(connection: Connection, address: DatabaseAddress, newest: int) -> int:
    found = await connection.fetchrow(
        "SELECT to_regclass('version') IS NOT NULL, "
        "(SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1))",
        address.schema,
    )
    ours, tables = (False, 0) if found is None else found
    if not ours:
        if tables:
            raise StoreError(
                f"schema {address.schema} of {address.name} is another program's; choose another ?schema="
            )
        return 0
    version = await connection.fetchval("SELECT max(number) FROM version") or 0
    check_version(address.name, version, newest)
    return version


async def _apply(connection: Connection, address: DatabaseAddress, step: Migration) -> None:
    async with connection.transaction():
        # Only where it lacks, because to create one may be forbidden where it was given to us.
        if await connection.fetchval("SELECT to_regnamespace($1) IS NULL", address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        await connection.execute("CREATE TABLE IF NOT EXISTS version (number integer PRIMARY KEY)")
        await connection.execute(step.script, timeout=60)
        await connection.execute("INSERT INTO version (number) VALUES ($1)", step.version)
