"""Brings a schema to the newest version, forwards only; one transaction per step, one process at a time.

A kill between two steps leaves the older version whole, and the next start goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from trunkline.errors import StoreError
from trunkline.store.postgres.address import DatabaseAddress
from trunkline.store.statements import Migration, migrations

if TYPE_CHECKING:
    from trunkline.store.postgres.address import Connection

POSTGRES: tuple[Migration, ...] = migrations("postgres")
_OLDEST_SERVER = 14


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
            "serve an agent on it first, or name another with ?schema="
        )
    if version < newest:
        raise StoreError(
            f"{address.name} has schema {version} and this trunkline reads {newest}: "
            "run trunkline store migrate"
        )
    return version, newest


def lock_key(schema: str, name: str) -> int:
    """The number of an advisory lock."""
    digest = blake2b(f"{schema}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


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
    if version > newest:
        raise StoreError(
            f"{address.name} was written by a newer trunkline (schema {version}, this one knows {newest}); "
            "upgrade trunkline or choose another --store"
        )
    return version


async def _apply(connection: Connection, address: DatabaseAddress, step: Migration) -> None:
    async with connection.transaction():
        # Only where it lacks, because to create one may be forbidden where it was given to us.
        if await connection.fetchval("SELECT to_regnamespace($1) IS NULL", address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        await connection.execute("CREATE TABLE IF NOT EXISTS version (number integer PRIMARY KEY)")
        await connection.execute(step.script, timeout=60)
        await connection.execute("INSERT INTO version (number) VALUES ($1)", step.version)
