"""`trunkline keys …`: make, list, revoke and replace API keys, and replace the key that signs webhooks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trunkline.cli.admin import KEYS, ask, checked_id, settings_for, span_ms
from trunkline.cli.console import print_result
from trunkline.cli.parsing import Commands, ListedId, Several, StoreUrl
from trunkline.errors import Misuse
from trunkline.server.admin import PREFIX, KeyOrder, Rotation

commands = Commands()
_COLUMNS = ("id", "owner", "tenant", "scopes", "state", "created", "expires")


@commands.local("create")
def create(
    *,
    owner: Annotated[str, typer.Option(help="Whose tasks it opens; several keys may share an owner.")],
    tenant: Annotated[str, typer.Option(help="The tenant that the owner belongs to.")] = "default",
    scope: Annotated[
        Several,
        typer.Option(
            help="tasks:read, tasks:write, answer, announce, metrics or admin; repeatable; "
            "the first two unless told."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="AGE", help="90s, 15m, 12h, 90d; never unless told.")
    ] = None,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Make a key and print it once; only its digest is stored."""
    lasts_ms = 0 if expires is None else span_ms(expires, "--expires")
    made = ask(settings_for(store), "POST", KEYS, KeyOrder(owner, tenant, tuple(scope or ()), lasts_ms))
    first = "This is the first key in this store: from now on callers must send one."
    _print_made(made, *([first] if made["first"] else ()), as_json=as_json)


@commands.local("list")
def list_(*, store: StoreUrl = None, as_json: bool) -> None:
    """List all keys, revoked ones too."""
    keys: list[dict[str, Any]] = ask(settings_for(store), "GET", KEYS)["keys"]
    rows = [_COLUMNS, *(tuple(_cell(key[name]) for name in _COLUMNS) for key in keys)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    print_result(keys, *["  ".join(row).rstrip() for row in padded], as_json=as_json)


@commands.local("revoke")
def revoke(key_id: ListedId, *, store: StoreUrl = None) -> None:
    """End a key at once and for good."""
    key = ask(settings_for(store), "POST", f"{KEYS}/{_checked(key_id)}:revoke")
    print(f"key {key['id']} of {key['owner']} is revoked")


@commands.local("rotate")
def rotate(
    key_id: ListedId = "",
    *,
    grace: Annotated[
        str, typer.Option(metavar="AGE", help="How long the secret before still opens; 24h unless told.")
    ] = "",
    signing: Annotated[
        bool, typer.Option("--signing", help="Not a caller's key: the one that signs webhooks.")
    ] = False,
    store: StoreUrl = None,
    as_json: bool,
) -> None:
    """Give a key a new secret and print it once; its id, owner and scopes stay."""
    if bool(key_id) is signing:
        raise Misuse("name one key, or say --signing")
    if signing and grace:
        raise Misuse("--grace is for callers' keys; a signing key goes on for a day")
    if not signing:
        form = Rotation(span_ms(grace or "24h", "--grace"))
        made = ask(settings_for(store), "POST", f"{KEYS}/{_checked(key_id)}:rotate", form)
        _print_made(made, f"The secret before opens for another {grace or '24h'}.", as_json=as_json)
        return
    made = ask(settings_for(store), "POST", f"{PREFIX}signing:rotate")
    print_result(made, f"webhooks are signed with key {made['kid']} now", as_json=as_json)


def _print_made(made: Any, *more: str, as_json: bool) -> None:
    key = made["key"]
    until = f", until {key['expires']}" if key["expires"] else ""
    told = f"key {key['id']} of {key['owner']} (tenant {key['tenant']}): {_cell(key['scopes'])}{until}"
    lines = (told, f"\n  {made['token']}\n", "It is shown this once.", *more)
    print_result(made, *lines, as_json=as_json)


def _checked(key_id: str) -> str:
    return checked_id(key_id, "[A-Za-z0-9]+", "key", "keys list")


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
