"""Tells a webhook how a run of a ceremony ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from trunkline.errors import Unreachable
from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.runs import CeremonyReport
from trunkline.net.fetch import Fetcher, FetcherOf

log = logging.getLogger("trunkline.fleet")
_HEADERS = [("Content-Type", "application/json")]
_SUCCESS = 200


class RunReports:
    """Posts reports: of what came by the API by the egress rule of its tenant, of what a file says anywhere.

    `variable` gives the value of a variable of the environment.
    """

    def __init__(self, guarded: FetcherOf, own: Fetcher, variable: Callable[[str], str | None]) -> None:
        self._guarded = guarded
        self._own = own
        self._variable = variable

    async def tell(self, one: Ceremony, report: CeremonyReport) -> bool:
        """Post a report; whether it was taken. One that nobody can be told of counts as told."""
        url, fetcher = self._address(one)
        if not url:
            named = one.notify_env or channel_variable(one.form.notify_channel)
            log.warning("ceremony.unreported ceremony=%s variable_unset=%s", one.id, named)
            return True
        headers = [*_HEADERS, ("Idempotency-Key", report.about["runId"])]
        try:
            response = await fetcher.post(url, msgspec.json.encode(_body(one, report)), headers)
        except Unreachable as error:
            log.warning("ceremony.unreported ceremony=%s error=%s", one.id, error)
            return False
        return response.status // 100 * 100 == _SUCCESS

    def _address(self, one: Ceremony) -> tuple[str, Fetcher]:
        """Where a report goes: a variable that the file names, then an address, then a channel's variable."""
        if one.notify_env:
            return self._variable(one.notify_env) or "", self._own
        if one.form.notify_webhook:
            return one.form.notify_webhook, self._own if one.owner == "file" else self._guarded(one.tenant)
        return self._variable(channel_variable(one.form.notify_channel)) or "", self._own


def channel_variable(channel: str) -> str:
    """Return the name of the variable that holds the address of a channel."""
    return f"DISCORD_WEBHOOK_{channel.upper().replace('-', '_')}"


def _body(one: Ceremony, report: CeremonyReport) -> dict[str, Any]:
    """A report; `content` is what a chat shows of it."""
    about = report.about
    content = f"{one.form.name}: {about['status']} (task {about['taskId']})"
    if "error" in about:
        content += f"\n{about['error']}"
    return {"content": content[:1850], "ceremonyId": one.id, "ceremonyName": one.form.name, **about}
