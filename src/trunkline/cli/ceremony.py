"""`trunkline ceremony …`: what a hub does by schedule, through the hub that has the store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from trunkline.cli.admin import ask, settings_for
from trunkline.cli.console import one_line, print_field
from trunkline.config import Settings
from trunkline.errors import Misuse
from trunkline.fleet.ceremonies.ceremony import CEREMONY_ID

CEREMONIES = "/api/ceremonies"
_PAGE = 200
_FIELDS = {
    "id": "id", "name": "name", "owner": "owner", "state": "state", "reason": "reason",
    "schedule": "schedule", "timezone": "timezone", "skill": "skill", "targets": "targets",
    "createdBy": "created by", "description": "description", "message": "message", "data": "data",
    "overlap": "overlap", "misfire": "misfire", "jitterMs": "jitter (ms)", "timeoutMs": "timeout (ms)",
    "notifyChannel": "channel", "notifyWebhook": "webhook", "nextFires": "next fires",
}  # fmt: skip


class CeremonyCommands:
    """The commands on the ceremonies of a tenant, which print what they find as text or as JSON."""

    def __init__(self, url: str | None, tenant: str, *, as_json: bool) -> None:
        self._settings: Settings = settings_for(url)
        self._tenant = tenant
        self._as_json = as_json

    def show_all(self, limit: int) -> None:
        """Print ceremonies by id."""
        found = list(islice(self._each(CEREMONIES), limit))
        if self._print_json(found):
            return
        for one in found:
            fires = one["nextFires"]
            planned = one.get("reason") or f"{one['schedule']}  {fires[0] if fires else '-'}"
            print(f"{one['id']}  {one['state']}  {planned}  {one_line(one['name'])}".rstrip())
        if not found:
            print("no ceremonies")

    def show(self, ceremony_id: str) -> None:
        """Print all that is known of a ceremony.

        Raises:
            Misuse: there is none.
        """
        found = next((one for one in self._each(CEREMONIES) if one["id"] == ceremony_id), None)
        if found is None:
            raise Misuse(f"there is no ceremony {ceremony_id!r}; trunkline ceremony list shows them")
        if self._print_json(found):
            return
        for name, label in _FIELDS.items():
            value = found.get(name) or ""
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            if text:
                print_field(label, text)

    def create(self, form: dict[str, Any]) -> None:
        """Have a ceremony kept."""
        made = self._post("create", form)
        if not self._print_json(made):
            print(f"ceremony {made['id']} is kept: {_next(made)}")

    def update(self, ceremony_id: str, changes: dict[str, Any]) -> None:
        """Have members of a ceremony changed."""
        made = self._post(f"{_named(ceremony_id)}/update", changes)
        if not self._print_json(made):
            print(f"ceremony {made['id']} is {made['state']}: {_next(made)}")

    def run(self, ceremony_id: str) -> None:
        """Have a run begin now."""
        started = self._post(f"{_named(ceremony_id)}/run", {})
        if not self._print_json(started):
            print(f"run {started['runId']} has begun: task {started['taskId']}")

    def show_runs(self, ceremony_id: str, limit: int) -> None:
        """Print the runs of a ceremony, newest first; also what was skipped or missed."""
        path = f"{CEREMONIES}/{_named(ceremony_id)}/runs"
        found = list(islice(self._each(path, skipped="true"), limit))
        if self._print_json(found):
            return
        for one in found:
            begun = one.get("startedAt") or one.get("plannedAt") or one["since"]
            what = one.get("runId") or one.get("reason") or f"{one['count']} times"
            print(f"{begun}  {one['status']}  {what}  {one.get('taskId', '')}".rstrip())
        if not found:
            print("no runs")

    def _post(self, path: str, form: dict[str, Any]) -> Any:
        return ask(self._settings, "POST", f"{CEREMONIES}/{path}", form, query={"tenant": self._tenant})

    def _each(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        asked = {"tenant": self._tenant, "limit": str(_PAGE), "after": "", **query}
        while True:
            page = ask(self._settings, "GET", path, query=asked)
            yield from page["items"]
            if page["next"] is None:
                return
            asked["after"] = page["next"]

    def _print_json(self, found: object) -> bool:
        if self._as_json:
            print(msgspec.json.encode(found).decode())
        return self._as_json


def _next(one: dict[str, Any]) -> str:
    fires = one["nextFires"]
    return f"next {fires[0]}" if fires else "nothing is planned"


def _named(ceremony_id: str) -> str:
    if CEREMONY_ID.fullmatch(ceremony_id) is None:
        raise Misuse(f"{ceremony_id!r} is not the id of a ceremony; trunkline ceremony list shows them")
    return ceremony_id
