"""`trunkline keys …`: make, list, revoke and replace API keys, and replace the key that signs webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trunkline.cli.admin import KEYS, ask, settings_for, span_ms
from trunkline.errors import Misuse
from trunkline.server.admin import PREFIX, KeyOrder, Rotation

_COLUMNS = ("id", "owner", "tenant", "scopes", "state", "created", "expires")


def create(
    url: str | None, owner: str, *, tenant: str, scopes: Sequence[str], expires: str | None, as_json: bool
) -> None:
    """Make a key and print it, this once."""
    lasts_ms = 0 if expires is None else span_ms(expires, "--expires")
    made = ask(settings_for(url), "POST", KEYS, KeyOrder(owner, tenant, tuple(scopes), lasts_ms))
    _print_made(made, as_json=as_json)
    if made["first"] and not as_json:
        print("This is the first key in this store: from now on callers must send one.")


def show(url: str | None, *, as_json: bool) -> None:
    """Print all keys, without anything of the keys themselves."""
    keys: list[dict[str, Any]] = ask(settings_for(url), "GET", KEYS)["keys"]
    if as_json:
        print(msgspec.json.encode(keys).decode())
        return
    rows = [_COLUMNS, *(tuple(_cell(key[name]) for name in _COLUMNS) for key in keys)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def revoke(url: str | None, key_id: str) -> None:
    """End a key at once."""
    key = ask(settings_for(url), "POST", f"{KEYS}/{_checked(key_id)}:revoke")
    print(f"key {key['id']} of {key['owner']} is revoked")


def rotate(url: str | None, key_id: str, grace: str, *, as_json: bool) -> None:
    """Give a key a new secret and print it, this once."""
    path = f"{KEYS}/{_checked(key_id)}:rotate"
    _print_made(
        ask(settings_for(url), "POST", path, Rotation(span_ms(grace, "--grace"))),
        as_json=as_json,
        more=f"The secret before opens for another {grace}.",
    )


def rotate_signing(url: str | None, *, as_json: bool) -> None:
    """Make a new key for the signatures of webhooks; the one before signs too for a day."""
    made = ask(settings_for(url), "POST", f"{PREFIX}signing:rotate")
    print(
        msgspec.json.encode(made).decode() if as_json else f"webhooks are signed with key {made['kid']} now"
    )


def _print_made(made: Any, *, as_json: bool, more: str = "") -> None:
    if as_json:
        print(msgspec.json.encode(made).decode())
        return
    key = made["key"]
    until = f", until {key['expires']}" if key["expires"] else ""
    print(f"key {key['id']} of {key['owner']} (tenant {key['tenant']}): {_cell(key['scopes'])}{until}")
    print(f"\n  {made['token']}\n")
    print("It is shown this once.")
    if more:
        print(more)


def _checked(key_id: str) -> str:
    if not key_id.isascii() or not key_id.isalnum():
        raise Misuse(f"{key_id!r} is not the id of a key; trunkline keys list shows them")
    return key_id


def _cell(value: str | list[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)
