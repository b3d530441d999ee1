"""`trunkline store …`: look at a store, bring it up to date, empty it of what is old, carry it elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from trunkline import __version__
from trunkline.auth.key_store import KIND as KEY_KIND
from trunkline.auth.keys import StoredKey
from trunkline.cli.admin import TASKS, ask, span_ms
from trunkline.cli.admin import settings_for as _settings
from trunkline.cli.private_file import write_private
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.documents import ENTRY_KIND, OVERRIDE_KIND, KeptEntry
from trunkline.fleet.ceremonies.ceremony_store import KIND as CEREMONY_KIND
from trunkline.fleet.journal import KIND as JOURNAL_KIND
from trunkline.gateway.audit import KIND as AUDIT_KIND
from trunkline.gateway.audit import AuditRow
from trunkline.gateway.tenants import KIND as TENANT_KIND
from trunkline.gateway.tenants import Tenant
from trunkline.log.ids import is_task_id
from trunkline.server.admin import PREFIX, Prune, WaitingTask
from trunkline.store.backup import Shown, restore
from trunkline.store.backup import export as lines_of
from trunkline.store.base import Store
from trunkline.store.check import CheckReport
from trunkline.store.check import check as check_store
from trunkline.store.url import shown, store_from_url


def _whole(tenant: str, body: bytes) -> tuple[str, bytes]:
    return tenant, body


def _unsealed(tenant: str, body: bytes) -> tuple[str, bytes]:
    """An entry without its credentials, which do not leave the store even sealed."""
    kept = msgspec.json.decode(body, type=KeptEntry)
    return tenant, msgspec.json.encode(replace(kept, sealed="")) if kept.sealed else body


def _tenant(tenant: str, body: bytes) -> tuple[str, bytes]:
    # All tenants are kept in one place too.
    del tenant
    return msgspec.json.decode(body, type=Tenant).id, body


def _act(tenant: str, body: bytes) -> tuple[str, bytes]:
    del tenant
    return msgspec.json.decode(body, type=AuditRow).tenant, body


def _key(tenant: str, body: bytes) -> tuple[str, bytes]:
    # All keys are kept in one place; whose one is stands in it.
    del tenant
    return msgspec.json.decode(body, type=StoredKey).tenant, body


# The documents that an export carries beside the logs.
_KINDS: dict[str, Shown] = {
    KEY_KIND: _key,
    TENANT_KIND: _tenant,
    AUDIT_KIND: _act,
    ENTRY_KIND: _unsealed,
    OVERRIDE_KIND: _whole,
    CEREMONY_KIND: _whole,
    JOURNAL_KIND: _whole,
}


def check(url: str | None, *, as_json: bool) -> int:
    """Read everything and print what there is and what is wrong; gives the exit code."""
    settings = _settings(url)

    async def work() -> CheckReport:
        async with _opened(settings.store, read_only=True) as store:
            return await check_store(store)

    report = asyncio.run(work())
    print(msgspec.json.encode(report).decode() if as_json else _told(report))
    return 1 if report.problems else 0


def _told(report: CheckReport) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.tasks.items()))
    lines = [
        f"tasks     {sum(report.tasks.values())}{f' ({states})' if states else ''}",
        f"events    {report.events}",
        f"bytes     {report.bytes}",
    ]
    if report.unread:
        lines.append(f"unread    {report.unread} (of kinds that a newer version wrote; kept and passed by)")
    lines += [
        f"problem   {f'task {one.task_id}: ' if one.task_id else ''}{one.text}" for one in report.problems
    ]
    return "\n".join([*lines, f"problems  {len(report.problems)}"])


def migrate(url: str | None) -> None:
    """Bring the schema up to date and print from which version to which."""
    settings = _settings(url)

    async def work() -> tuple[int, int]:
        async with _opened(settings.store) as store:
            return store.migrated

    versions = asyncio.run(work())
    if versions[0] == versions[1]:
        print(f"{shown(settings.store)}: the schema is up to date")
    else:
        print(f"{shown(settings.store)}: schema {versions[0]} is now {versions[1]}")


def prune(url: str | None, older_than: str | None) -> None:
    """Forget tasks that ended longer ago than this, make the others small, and print how many."""
    settings = _settings(url)
    done = ask(settings, "POST", f"{PREFIX}store:prune", Prune(_age_ms(older_than, settings)))
    print(f"forgotten  {done['forgotten']}\ncompacted  {done['compacted']}")


def waiting(url: str | None, tenant: str, *, as_json: bool) -> None:
    """Print the open tasks of agents that no process carries."""
    settings, found = _settings(url), list[WaitingTask]()
    query = {"waiting": "1", "tenant": tenant, "limit": "1000", "after": ""}
    while True:
        page = msgspec.convert(ask(settings, "GET", TASKS, query=query)["tasks"], list[WaitingTask])
        found += page
        if len(page) < int(query["limit"]):
            break
        query["after"] = page[-1].id
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    for one in found:
        print(f"{one.id}  {one.state:<14}  {one.agent or '(the agent at the origin)'}  {one.tenant}")
    print(f"waiting  {len(found)}")


def cancel(url: str | None, task_id: str, tenant: str) -> None:
    """Cancel a task that waits for its agent."""
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the id of a task; trunkline store waiting lists those that wait")
    done = ask(_settings(url), "POST", f"{TASKS}/{task_id}:cancel", query={"tenant": tenant})
    print(f"task {done['id']} is {done['state']}")


def export(url: str | None, tenant: str | None, file: str) -> None:
    """Write the logs and the documents as JSON lines."""
    settings = _settings(url)

    async def work(out: BinaryIO) -> None:
        async with _opened(settings.store, read_only=True) as store:
            async for lines in lines_of(store, __version__, tenant, _KINDS):
                out.write(lines)

    _to_file(file, lambda out: asyncio.run(work(out)))


def import_(url: str | None, file: str) -> None:
    """Write an export into a store and print how much."""
    settings = _settings(url)

    async def work(lines: BinaryIO) -> None:
        async with _opened(settings.store) as store:
            done = await restore(store, lines, _KINDS)
        print(
            f"imported   {done.tasks} tasks, {done.events} events, {done.documents} documents\n"
            f"skipped    {done.skipped}"
        )

    if file == "-":
        asyncio.run(work(sys.stdin.buffer))
        return
    try:
        with open(file, "rb") as lines:
            asyncio.run(work(lines))
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}") from None


@asynccontextmanager
async def _opened(url: str, *, read_only: bool = False) -> AsyncGenerator[Store]:
    store = store_from_url(url, read_only=read_only)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _age_ms(text: str | None, settings: Settings) -> int:
    if text is None:
        if settings.kept_s == 0:
            raise Misuse("the setting retention keeps tasks for ever: say --older-than, for example 7d")
        return round(settings.kept_s * 1000)
    return span_ms(text, "--older-than")


def _to_file(file: str, write: Callable[[BinaryIO], None]) -> None:
    if file == "-":
        try:
            write(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Whoever read has seen enough. Python must not try to flush once more on its way out.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        return
    try:
        # As private as the store.
        write_private(Path(file), write)
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror}") from None
