"""`trunkline store …`: look at a store, bring it up to date, empty it of what is old, carry it elsewhere."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer
from msgspec import Struct
from msgspec.structs import replace

from trunkline import __version__
from trunkline.auth.key_store import KIND as KEY_KIND
from trunkline.auth.keys import StoredKey
from trunkline.cli.admin import TASKS, Operator, opened_store, settings_for, span_ms
from trunkline.cli.configuration import write_private
from trunkline.cli.parsing import Commands, StoreUrl
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.documents import ENTRY_KIND, OVERRIDE_KIND, KeptEntry, KeptOverride
from trunkline.fleet.ceremonies.ceremony_store import KIND as CEREMONY_KIND
from trunkline.fleet.ceremonies.ceremony_store import StoredCeremony
from trunkline.fleet.journal import KIND as JOURNAL_KIND
from trunkline.fleet.journal import Journal
from trunkline.flow.definition.document import WORKFLOW_ID_KIND, WORKFLOW_KIND
from trunkline.gateway.audit import KIND as AUDIT_KIND
from trunkline.gateway.audit import AuditRow
from trunkline.gateway.model.notes import NOTES, TODOS, Note
from trunkline.gateway.tenants import KIND as TENANT_KIND
from trunkline.gateway.tenants import Tenant
from trunkline.log.ids import is_task_id
from trunkline.server.admin import PREFIX, Prune, WaitingTask
from trunkline.store.backup import Shown, restore
from trunkline.store.backup import export as lines_of
from trunkline.store.base import Store
from trunkline.store.check import CheckReport
from trunkline.store.check import check as check_store
from trunkline.store.url import shown

commands = Commands()


def _whole(kind: Any) -> Shown:
    """Documents of a tenant, which leave as they are."""

    def whose(tenant: str, body: bytes) -> tuple[str, bytes]:
        msgspec.json.decode(body, type=kind)
        return tenant, body

    return whose


def _unsealed(tenant: str, body: bytes) -> tuple[str, bytes]:
    """An entry without its credentials, which do not leave the store even sealed."""
    kept = msgspec.json.decode(body, type=KeptEntry)
    return tenant, msgspec.json.encode(replace(kept, sealed="")) if kept.sealed else body


def _quoted(tenant: str, body: bytes) -> tuple[str, bytes]:
    """A document that is a text, as JSON."""
    return tenant, msgspec.json.encode(body.decode())


def _of(kind: type[Struct], member: str = "tenant") -> Shown:
    """Documents of all tenants, which are kept in one place: whose one is stands in it."""

    def whose(_tenant: str, body: bytes) -> tuple[str, bytes]:
        return getattr(msgspec.json.decode(body, type=kind), member), body

    return whose


# The documents that an export carries beside the logs.
_KINDS: dict[str, Shown] = {
    KEY_KIND: _of(StoredKey),
    TENANT_KIND: _of(Tenant, "id"),
    AUDIT_KIND: _of(AuditRow),
    ENTRY_KIND: _unsealed,
    OVERRIDE_KIND: _whole(KeptOverride),
    CEREMONY_KIND: _whole(StoredCeremony),
    JOURNAL_KIND: _whole(Journal),
    NOTES: _whole(tuple[Note, ...]),
    TODOS: _whole(tuple[Note, ...]),
    WORKFLOW_KIND: _whole(dict[str, Any]),
    WORKFLOW_ID_KIND: _quoted,
}


@commands.local("check")
def check(*, operator: Operator) -> None:
    """Read everything and say what is wrong; exit code 1 if anything is. Changes nothing."""

    async def work() -> CheckReport:
        async with opened_store(operator.settings, read_only=True) as opened:
            return await check_store(opened)

    report = asyncio.run(work())
    operator.print(report, _told(report))
    raise typer.Exit(1 if report.problems else 0)


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


@commands.local("migrate")
def migrate(*, store: StoreUrl = None) -> None:
    """Bring the schema up to date."""
    settings = settings_for(store)

    async def work() -> tuple[int, int]:
        async with opened_store(settings) as opened:
            return opened.migrated

    before, after = asyncio.run(work())
    told = "the schema is up to date" if before == after else f"schema {before} is now {after}"
    print(f"{shown(settings.store)}: {told}")


@commands.local("rebuild")
def rebuild(*, store: StoreUrl = None) -> None:
    """Write anew what lists show of each task, as its log has it: the mend where `check` says so."""
    settings = settings_for(store)

    async def work() -> int:
        # Only to see that there is a store: what is not there is not to be made.
        async with opened_store(settings, read_only=True):
            pass
        async with opened_store(settings) as opened:
            await _check_alone(opened)
            return await opened.heads.rebuild()

    print(f"{shown(settings.store)}: {asyncio.run(work())} tasks are listed as their logs have them")


@commands.local("prune")
def prune(
    *,
    store: StoreUrl = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="90s, 15m, 12h, 7d; the setting `retention` unless told."),
    ] = None,
) -> None:
    """Forget tasks that ended longer ago than that, and make the others small."""
    operator = Operator(store)
    if older_than is None and operator.settings.kept_s == 0:
        raise Misuse("the setting retention keeps tasks for ever: say --older-than, for example 7d")
    kept_ms = (
        round(operator.settings.kept_s * 1000) if older_than is None else span_ms(older_than, "--older-than")
    )
    done = operator.ask("POST", f"{PREFIX}store:prune", Prune(kept_ms))
    print(f"forgotten  {done['forgotten']}\ncompacted  {done['compacted']}")


@commands.local("waiting")
def waiting(
    *,
    operator: Operator,
    tenant: Annotated[str, typer.Option(help="Only what is this tenant's.")] = "",
) -> None:
    """List open tasks whose agent no running process carries."""
    found = list(operator.rows(TASKS, WaitingTask, waiting="1", tenant=tenant))
    origin = "(the agent at the origin)"
    rows = [f"{one.id}  {one.state:<14}  {one.agent or origin}  {one.tenant}" for one in found]
    operator.print(found, *rows, f"waiting  {len(found)}")


@commands.local("cancel")
def cancel(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="The id of a task that waits.")],
    *,
    store: StoreUrl = None,
    tenant: Annotated[str, typer.Option(help="The tenant that the task belongs to.")] = "default",
) -> None:
    """Cancel a task whose agent no running process carries."""
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the id of a task; trunkline store waiting lists those that wait")
    done = Operator(store).ask("POST", f"{TASKS}/{task_id}:cancel", tenant=tenant)
    print(f"task {done['id']} is {done['state']}")


@commands.local("export")
def export(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Where to; standard output unless told.")
    ] = "-",
    *,
    store: StoreUrl = None,
    tenant: Annotated[str | None, typer.Option(help="Only what is this tenant's.")] = None,
) -> None:
    """Write logs, keys (as digests) and what a hub keeps as JSON lines, also beside a server."""
    settings = settings_for(store)

    async def work(out: BinaryIO) -> None:
        async with opened_store(settings, read_only=True) as opened:
            async for lines in lines_of(opened, __version__, tenant, _KINDS):
                out.write(lines)

    _to_file(file, lambda out: asyncio.run(work(out)))


@commands.local("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An export; - for standard input.")],
    *,
    store: StoreUrl = None,
) -> None:
    """Write an export into a store; what is there already is skipped."""
    settings = settings_for(store)

    async def work(lines: BinaryIO) -> None:
        async with opened_store(settings) as opened:
            await _check_alone(opened)
            done = await restore(opened, lines, _KINDS, texts=(WORKFLOW_ID_KIND,))
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


async def _check_alone(store: Store) -> None:
    """Refuse a store that servers share now; one that is not shared could not have been opened."""
    living = [one.id for one in await store.nodes.list() if one.alive] if store.shared else []
    if living:
        raise Misuse(f"{len(living)} running servers use this store: stop them first, or name another store")


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
