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
from msgspec.structs import replace

from trunkline import __version__
from trunkline.auth.key_store import API_KEYS
from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.cli.admin import TASKS, Operator, opened_store, settings_for, span_ms
from trunkline.cli.configuration import write_private
from trunkline.cli.parsing import Commands, StoreUrl
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.documents import ENTRIES, OVERRIDES
from trunkline.fleet.ceremonies.ceremony_store import CEREMONIES
from trunkline.fleet.journal import JOURNALS
from trunkline.flow.definition.document import WORKFLOW_IDS, WORKFLOWS
from trunkline.gateway.audit import AUDIT
from trunkline.gateway.documents import DOCUMENT_KINDS
from trunkline.gateway.model.notes import NOTES, TODOS
from trunkline.gateway.tenants import TENANTS
from trunkline.log.ids import is_task_id
from trunkline.server.admin import PREFIX, Prune, Repair, WaitingTask
from trunkline.store.backup import Shown, find_document, restore
from trunkline.store.backup import export as lines_of
from trunkline.store.base import Store
from trunkline.store.check import CheckReport
from trunkline.store.check import check as check_store
from trunkline.store.documents import DocumentKind
from trunkline.store.url import shown

commands = Commands()


def _whole(kind: DocumentKind[Any]) -> Shown:
    """Export documents of a tenant as they are."""

    def show(tenant: str, doc_id: str, body: bytes) -> tuple[str, bytes]:
        kind.read(doc_id, body)
        return tenant, body

    return show


def _unsealed(tenant: str, doc_id: str, body: bytes) -> tuple[str, bytes]:
    """Export an entry without its credentials, which do not leave the store even sealed."""
    kept = ENTRIES.read(doc_id, body)
    return tenant, msgspec.json.encode(replace(kept, sealed="")) if kept.sealed else body


def _quoted(tenant: str, doc_id: str, body: bytes) -> tuple[str, bytes]:
    """Export a document that is a text, as JSON."""
    return tenant, msgspec.json.encode(WORKFLOW_IDS.read(doc_id, body))


def _owned(kind: DocumentKind[Any], member: str = "tenant") -> Shown:
    """Export documents of the default tenant that name their owner in a member."""

    def show(_tenant: str, doc_id: str, body: bytes) -> tuple[str, bytes]:
        return getattr(kind.read(doc_id, body), member), body

    return show


# The documents that an export has in addition to the logs.
_EXPORTED: dict[str, Shown] = {
    API_KEYS.name: _owned(API_KEYS),
    TENANTS.name: _owned(TENANTS, "id"),
    AUDIT.name: _owned(AUDIT),
    ENTRIES.name: _unsealed,
    **{
        name: _whole(DOCUMENT_KINDS[name])
        for name in (OVERRIDES.name, CEREMONIES.name, JOURNALS.name, NOTES.name, TODOS.name, WORKFLOWS.name)
    },
    WORKFLOW_IDS.name: _quoted,
}
# Their bodies are no JSON in the store.
_TEXTS = (WORKFLOW_IDS.name,)


@commands.local("check")
def check(*, operator: Operator) -> None:
    """Check all logs and documents; exit code 1 if one is damaged. Changes nothing."""

    async def work() -> CheckReport:
        async with opened_store(operator.settings, read_only=True) as opened:
            return await check_store(opened, DOCUMENT_KINDS)

    report = asyncio.run(work())
    operator.print(report, _told(report))
    raise typer.Exit(1 if report.problems or report.damaged else 0)


def _told(report: CheckReport) -> str:
    states = ", ".join(f"{count} {state}" for state, count in sorted(report.tasks.items()))
    lines = [
        f"tasks     {sum(report.tasks.values())}{f' ({states})' if states else ''}",
        f"events    {report.events}",
        f"bytes     {report.bytes}",
        f"documents {report.documents}",
    ]
    if report.unread:
        lines.append(f"unread    {report.unread} (of kinds that a newer version wrote; kept and passed by)")
    lines += [
        f"problem   {f'task {one.task_id}: ' if one.task_id else ''}{one.text}" for one in report.problems
    ]
    lines += [f"damaged   {one.kind} {one.id} (tenant {one.tenant}): {one.reason}" for one in report.damaged]
    return "\n".join([*lines, f"problems  {len(report.problems) + len(report.damaged)}"])


@commands.local("repair")
def repair(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of the document.")],
    document: Annotated[str, typer.Argument(metavar="ID", help="The ID of the document.")],
    *,
    operator: Operator,
    tenant: Annotated[str, typer.Option(help="The tenant of the document.")] = DEFAULT_TENANT,
    export_file: Annotated[
        str, typer.Option("--from", metavar="FILE", help="Restore the document from this export.")
    ] = "",
) -> None:
    """Remove a damaged document that `store check` lists, or restore it from an export."""
    body = _exported(export_file, tenant, kind, document) if export_file else None
    done = operator.ask("POST", f"{PREFIX}documents:repair", Repair(tenant, kind, document, body))
    operator.print(done, f"{kind} {document} (tenant {tenant}): {done['done']}")


def _exported(file: str, tenant: str, kind: str, document: str) -> bytes:
    """Return the body of a document in an export."""
    try:
        with open(file, "rb") as lines:
            return find_document(lines, tenant, kind, document, _TEXTS)
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}") from None


@commands.local("migrate")
def migrate(*, store: StoreUrl = None) -> None:
    """Migrate the schema to this version."""
    settings = settings_for(store)

    async def work() -> tuple[int, int]:
        async with opened_store(settings) as opened:
            return opened.migrated

    before, after = asyncio.run(work())
    told = "the schema is up to date" if before == after else f"schema {before} is now {after}"
    print(f"{shown(settings.store)}: {told}")


@commands.local("rebuild")
def rebuild(*, store: StoreUrl = None) -> None:
    """Rebuild the list entries of all tasks from their logs, where `store check` advises it."""
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
        typer.Option(
            metavar="AGE", help="Age, such as 90s, 15m, 12h or 7d. Default: the setting `retention`."
        ),
    ] = None,
) -> None:
    """Delete tasks that ended longer ago than --older-than, and compact the others."""
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
    tenant: Annotated[str, typer.Option(help="Show only this tenant.")] = "",
) -> None:
    """List open tasks whose agent is not hosted by a running process."""
    found = list(operator.rows(TASKS, WaitingTask, waiting="1", tenant=tenant))
    origin = "(the agent at the origin)"
    rows = [f"{one.id}  {one.state:<14}  {one.agent or origin}  {one.tenant}" for one in found]
    operator.print(found, *rows, f"waiting  {len(found)}")


@commands.local("cancel")
def cancel(
    task_id: Annotated[str, typer.Argument(metavar="TASK", help="ID of a waiting task.")],
    *,
    store: StoreUrl = None,
    tenant: Annotated[str, typer.Option(help="Tenant of the task.")] = "default",
) -> None:
    """Cancel a task whose agent is not hosted by a running process."""
    if not is_task_id(task_id):
        raise Misuse(f"{task_id!r} is not the id of a task; trunkline store waiting lists those that wait")
    done = Operator(store).ask("POST", f"{TASKS}/{task_id}:cancel", tenant=tenant)
    print(f"task {done['id']} is {done['state']}")


@commands.local("export")
def export(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Target file. Default: standard output.")
    ] = "-",
    *,
    store: StoreUrl = None,
    tenant: Annotated[str | None, typer.Option(help="Show only this tenant.")] = None,
) -> None:
    """Export logs, key digests and the documents of a hub as JSON lines, also while a server runs.

    Damaged documents and tasks are left out and named on standard error; then the exit code is 1.
    """
    settings, left_out = settings_for(store), 0

    def report(reason: str) -> None:
        nonlocal left_out
        left_out += 1
        print(f"left out: {reason}", file=sys.stderr)

    async def work(out: BinaryIO) -> None:
        async with opened_store(settings, read_only=True) as opened:
            async for lines in lines_of(opened, __version__, tenant, _EXPORTED, left_out=report):
                out.write(lines)

    _to_file(file, lambda out: asyncio.run(work(out)))
    if left_out:
        raise typer.Exit(1)


@commands.local("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Export to read, or - for standard input.")],
    *,
    store: StoreUrl = None,
) -> None:
    """Import an export into a store; existing entries are skipped."""
    settings = settings_for(store)

    async def work(lines: BinaryIO) -> None:
        async with opened_store(settings) as opened:
            await _check_alone(opened)
            done = await restore(opened, lines, _EXPORTED, texts=_TEXTS)
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
