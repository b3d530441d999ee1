"""`trunkline keys …`: make, list, revoke and replace API keys, and replace the key that signs webhooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any

import typer

from trunkline.auth.principal import DEFAULT_TENANT, SCOPES
from trunkline.cli.admin import KEYS, Operator, checked_id, span_ms
from trunkline.cli.console import print_notice
from trunkline.cli.parsing import Commands, ListedId, Several, StoreUrl
from trunkline.errors import Misuse
from trunkline.gateway.mounts import TENANTS
from trunkline.server.admin import PREFIX, KeyOrder, Rotation

commands = Commands()
_ID = re.compile("[A-Za-z0-9]+")
_checked = partial(checked_id, _ID.fullmatch, "key", "keys list")
_COLUMNS = ("id", "owner", "tenant", "scopes", "state", "created", "expires")


@commands.local("create")
def create(
    *,
    owner: Annotated[
        str, typer.Option(help="Owner of the tasks that the key may access; several keys may share an owner.")
    ],
    tenant: Annotated[str, typer.Option(help="Tenant of the owner.")] = "default",
    scope: Annotated[
        Several,
        typer.Option(help="Scope, such as answer or admin; repeatable. Default: tasks:read and tasks:write."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Lifetime, such as 90s, 15m, 12h or 90d. Default: unlimited."),
    ] = None,
    operator: Operator,
) -> None:
    """Create a key and print it once; only its digest is stored."""
    _check_scopes(scope or ())
    lasts_ms = 0 if expires is None else span_ms(expires, "--expires")
    made = operator.ask("POST", KEYS, KeyOrder(owner, tenant, tuple(scope or ()), lasts_ms))
    first = "This is the first key in this store: from now on callers must send one."
    _print_made(operator, made, *([first] if made["first"] else ()))
    tenants = [] if tenant == DEFAULT_TENANT else [one["id"] for one in operator.each(TENANTS)]
    if tenants and tenant not in tenants:
        near = get_close_matches(tenant, tenants, 1)
        meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(tenants)}"
        print_notice("Warning", f"the hub has no tenant {tenant!r}{meant}")


@commands.local("list")
def list_(*, operator: Operator) -> None:
    """List all keys, including revoked ones."""
    keys: list[dict[str, Any]] = operator.ask("GET", KEYS)["keys"]
    rows = [_COLUMNS, *(tuple(_cell(key[name]) for name in _COLUMNS) for key in keys)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    operator.print(keys, *["  ".join(row).rstrip() for row in padded])


@commands.local("revoke")
def revoke(key_id: ListedId, *, store: StoreUrl = None) -> None:
    """Revoke a key permanently."""
    key = Operator(store).ask("POST", f"{KEYS}/{_checked(key_id)}:revoke")
    print(f"key {key['id']} of {key['owner']} is revoked")


@commands.local("rotate")
def rotate(
    key_id: ListedId = "",
    *,
    grace: Annotated[
        str,
        typer.Option(metavar="AGE", help="Time for which the previous secret remains valid. Default: 24h."),
    ] = "",
    signing: Annotated[
        bool, typer.Option("--signing", help="Rotate the key that signs webhooks instead of a caller's key.")
    ] = False,
    operator: Operator,
) -> None:
    """Replace the secret of a key and print it once; its ID, owner and scopes stay."""
    if bool(key_id) is signing:
        raise Misuse("name one key, or say --signing")
    if signing and grace:
        raise Misuse("--grace is for callers' keys; a signing key goes on for a day")
    if not signing:
        form = Rotation(span_ms(grace or "24h", "--grace"))
        made = operator.ask("POST", f"{KEYS}/{_checked(key_id)}:rotate", form)
        _print_made(operator, made, f"The secret before opens for another {grace or '24h'}.")
        return
    made = operator.ask("POST", f"{PREFIX}signing:rotate")
    operator.print(made, f"webhooks are signed with key {made['kid']} now")


def _check_scopes(scopes: Sequence[str]) -> None:
    """Raise Misuse, with the closest scopes as its hint, if one does not exist."""
    unknown = [one for one in scopes if one not in SCOPES]
    if unknown:
        closest = [(get_close_matches(one, SCOPES, 1) or [*SCOPES])[0] for one in scopes]
        raise Misuse(
            f"there is no scope {unknown[0]!r}: choose {', '.join(SCOPES)}",
            hint=" ".join(f"--scope {one}" for one in closest),
        )


def _print_made(operator: Operator, made: Any, *more: str) -> None:
    key = made["key"]
    until = f", until {key['expires']}" if key["expires"] else ""
    told = f"key {key['id']} of {key['owner']} (tenant {key['tenant']}): {_cell(key['scopes'])}{until}"
    operator.print(made, told, f"\n  {made['token']}\n", "It is shown this once.", *more)


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
