"""Reports how the runs of ceremonies ended, to webhooks and channels."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from trunkline.errors import Unreachable
from trunkline.fleet.ceremonies.ceremony import Ceremony
from trunkline.fleet.ceremonies.runs import CeremonyReport
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.net.fetch import Fetcher, FetcherOf

log = logging.getLogger("trunkline.fleet")
_HEADERS = [("Content-Type", "application/json")]
_SUCCESS = 200
# Sends a message to a channel by its name or ID; returns what went wrong; None: no such channel.
Post = Callable[[str, ChannelMessage], Awaitable[str | None]]


async def no_channel(place: str, message: ChannelMessage) -> str | None:
    """Return None: there are no channels."""
    del place, message
    return None


class RunReports:
    """Sends reports to webhooks and channels.

    The address of a ceremony from the API obeys the egress rule of its tenant; the address of a file does
    not. `variable` returns the value of an environment variable.
    """

    def __init__(
        self,
        guarded: FetcherOf,
        own: Fetcher,
        variable: Callable[[str], str | None],
        post: Post = no_channel,
    ) -> None:
        self._guarded = guarded
        self._own = own
        self._variable = variable
        self._post = post

    async def tell(self, one: Ceremony, report: CeremonyReport) -> bool:
        """Send a report; return whether it was accepted. A report without any address counts as accepted."""
        url, fetcher = self._address(one)
        if not url:
            return await self._tell_channel(one, report)
        headers = [*_HEADERS, ("Idempotency-Key", report.about["runId"])]
        try:
            response = await fetcher.post(url, msgspec.json.encode(_body(one, report)), headers)
        except Unreachable as error:
            log.warning("ceremony.unreported ceremony=%s error=%s", one.id, error)
            return False
        return response.status // 100 * 100 == _SUCCESS

    async def _tell_channel(self, one: Ceremony, report: CeremonyReport) -> bool:
        channel = one.form.notify_channel
        trouble = None if one.notify_env else await self._post(channel, _message(one, report))
        if trouble is None:
            named = one.notify_env or channel_variable(channel)
            log.warning("ceremony.unreported ceremony=%s variable_unset=%s", one.id, named)
        elif trouble:
            log.warning("ceremony.unreported ceremony=%s channel=%s reason=%s", one.id, channel, trouble)
        return not trouble

    def _address(self, one: Ceremony) -> tuple[str, Fetcher]:
        """Return the URL for a report: by the file's variable, of the form, or by the channel's variable."""
        if one.notify_env:
            return self._variable(one.notify_env) or "", self._own
        if one.form.notify_webhook:
            return one.form.notify_webhook, self._own if one.owner == "file" else self._guarded(one.tenant)
        return self._variable(channel_variable(one.form.notify_channel)) or "", self._own


def channel_variable(channel: str) -> str:
    """Return the name of the variable that holds the address of a channel."""
    return f"DISCORD_WEBHOOK_{channel.upper().replace('-', '_')}"


def _message(one: Ceremony, report: CeremonyReport) -> ChannelMessage:
    about = report.about
    members = {"type": "ceremony.report", "ceremonyId": one.id, "ceremonyName": one.form.name, **about}
    title = f"{one.form.name}: {about['status']} (task {about['taskId']})"
    # The ID is that of the run: a channel that has the message does not show it again.
    return ChannelMessage(about["runId"], title, about.get("error", ""), members)


def _body(one: Ceremony, report: CeremonyReport) -> dict[str, Any]:
    """Return the body for a webhook; `content` is what a chat shows of it."""
    message = _message(one, report)
    members = {name: value for name, value in message.members.items() if name != "type"}
    return {"content": message.chat, **members}
