"""`trunkline keys …`."""

from __future__ import annotations

from typing import Annotated

import typer

from trunkline.cli.commands.flags import AsJson, StoreUrl

app = typer.Typer(no_args_is_help=True, help="The keys that callers send: create, list, revoke, rotate.")


@app.command("create")
def keys_create(
    *,
    owner: Annotated[str, typer.Option(help="Whose tasks it opens; several keys may share an owner.")],
    tenant: Annotated[str, typer.Option(help="The tenant that the owner belongs to.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="tasks:read, tasks:write, metrics or admin; repeatable; the first two unless told."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="AGE", help="90s, 15m, 12h, 90d; never unless told.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it once; only its digest is stored."""
    from trunkline.cli.keys import create

    create(store, owner, tenant=tenant, scopes=scope or (), expires=expires, as_json=as_json)


@app.command("list")
def keys_list(*, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List all keys, revoked ones too."""
    from trunkline.cli.keys import show

    show(store, as_json=as_json)


@app.command("revoke")
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")],
    *,
    store: StoreUrl = None,
) -> None:
    """End a key at once and for good."""
    from trunkline.cli.keys import revoke

    revoke(store, key_id)


@app.command("rotate")
def keys_rotate(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")] = "",
    *,
    grace: Annotated[
        str, typer.Option(metavar="AGE", help="How long the secret before still opens; 24h unless told.")
    ] = "",
    signing: Annotated[
        bool, typer.Option("--signing", help="Not a caller's key: the one that signs webhooks.")
    ] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Give a key a new secret and print it once; its id, owner and scopes stay."""
    from trunkline.cli.keys import rotate, rotate_signing

    if bool(key_id) is signing:
        raise typer.BadParameter("name one key, or say --signing")
    if signing and grace:
        raise typer.BadParameter("--grace is for callers' keys; a signing key goes on for a day")
    if signing:
        rotate_signing(store, as_json=as_json)
    else:
        rotate(store, key_id, grace or "24h", as_json=as_json)
