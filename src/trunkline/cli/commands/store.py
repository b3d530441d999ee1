"""`trunkline store …`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.flags import StoreUrl

app = typer.Typer(no_args_is_help=True, help="Look after a store: check, migrate, prune, export, import.")


@app.command("check")
def store_check(
    *,
    store: StoreUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read everything and say what is wrong; exit code 1 if anything is. Changes nothing."""
    from trunkline.cli.store import check

    raise typer.Exit(check(store, as_json=as_json))


@app.command("migrate")
def store_migrate(*, store: StoreUrl = None) -> None:
    """Bring the schema up to date."""
    from trunkline.cli.store import migrate

    migrate(store)


@app.command("prune")
def store_prune(
    *,
    store: StoreUrl = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="90s, 15m, 12h, 7d; the setting `retention` unless told."),
    ] = None,
) -> None:
    """Forget tasks that ended longer ago than that, and make the others small."""
    from trunkline.cli.store import prune

    prune(store, older_than)


@app.command("export")
def store_export(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="Where to; standard output unless told.")
    ] = "-",
    *,
    store: StoreUrl = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's tasks.")] = None,
) -> None:
    """Write all logs as JSON lines, also beside a running server."""
    from trunkline.cli.store import export

    export(store, tenant, file)


@app.command("import")
def store_import(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="An export; - for standard input.")],
    *,
    store: StoreUrl = None,
) -> None:
    """Write the logs of an export into a store; what is there already is skipped."""
    from trunkline.cli.store import import_

    import_(store, file)
