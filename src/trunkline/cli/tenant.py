"""`trunkline tenant …`: make, list, disable, limit and delete tenants, on the store or through its hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

import msgspec

from trunkline.cli.admin import ask, settings_for
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.gateway.mounts import AUDIT, TENANTS

_PAGE = 200


class TenantCommands:
    """The commands on the tenants of a store, which print what they find as text or as JSON."""

    def __init__(self, url: str | None, *, as_json: bool = False) -> None:
        self._settings: Settings = settings_for(url)
        self._as_json = as_json

    def create(self, name: str) -> None:
        """Make a tenant and print its key, this once."""
        self._print_token(ask(self._settings, "POST", TENANTS, {"name": name}))

    def rotate(self, tenant: str) -> None:
        """Give a tenant a new admin key and print it, this once."""
        self._print_token(ask(self._settings, "POST", f"{_path(tenant)}:rotate"))

    def show_all(self) -> None:
        """Print the tenants by id."""
        found = list(self._each(TENANTS))
        if self._print_json(found):
            return
        for one in found:
            print(self._row(one))
        if not found:
            print("no tenants but the default one")

    def change(self, tenant: str, change: Mapping[str, Any]) -> None:
        """Disable, enable, limit or set a tenant."""
        changed = ask(self._settings, "PATCH", _path(tenant), change)
        if not self._print_json(changed):
            print(self._row(changed))

    def delete(self, tenant: str) -> None:
        """Delete a tenant."""
        gone = ask(self._settings, "DELETE", _path(tenant))
        if not self._print_json(gone):
            print(f"tenant {gone['id']} is deleted; its data goes with retention")

    def show_audit(self, limit: int) -> None:
        """Print what operators did, newest first."""
        found = list(islice(self._each(AUDIT), limit))
        if self._print_json(found):
            return
        for one in found:
            print(f"{one['at']}  {one['action']:<14}  {one['tenant']}  by {one['by']}")

    def _each(self, path: str) -> Iterator[dict[str, Any]]:
        query = {"limit": str(_PAGE), "after": ""}
        while True:
            page = ask(self._settings, "GET", path, query=query)
            yield from page["items"]
            if page["next"] is None:
                return
            query["after"] = page["next"]

    def _row(self, one: Mapping[str, Any]) -> str:
        limits = [f"{name} {value:.15g}" for name, value in one["quota"].items()]
        settings = [f"{name} {_listed(value)}" for name, value in one["settings"].items()]
        state = "disabled" if one["disabled"] else "enabled"
        return f"{one['id']}  {state:<8}  {one['createdAt']}  {'  '.join([*limits, *settings])}".rstrip()

    def _print_json(self, found: object) -> bool:
        if self._as_json:
            print(msgspec.json.encode(found).decode())
        return self._as_json

    def _print_token(self, made: Mapping[str, Any]) -> None:
        if not self._print_json(made):
            print(f"tenant {made['id']}: a key that may do everything of it\n\n  {made['token']}\n")
            print("It is shown this once.")


def _listed(value: object) -> str:
    several = cast("list[object]", value) if isinstance(value, list) else [value]
    return ",".join([str(one) for one in several])


def _path(tenant: str) -> str:
    if not tenant.isascii() or not all([sign.isalnum() or sign in "._-" for sign in tenant]):
        raise Misuse(f"{tenant!r} is not the id of a tenant; trunkline tenant list shows them")
    return f"{TENANTS}/{tenant}"
