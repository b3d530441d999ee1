"""The ways in which receivers are told: a webhook, signed like all of ours, or whatever apprise knows."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from trunkline.errors import Misuse, Unreachable
from trunkline.fleet.notify.notice import NoticeText
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.net.egress import target
from trunkline.net.fetch import Fetcher
from trunkline.net.webhook_signature import ID, SIGNATURE, TIMESTAMP
from trunkline.run.notification import Sign

log = logging.getLogger("trunkline.fleet")
_SUCCESS = 2
_APPRISE = Path(__file__).with_name("apprise_process.py")


class Channel(Protocol):
    """One way to tell one receiver."""

    async def tell(self, said: NoticeText) -> str:
        """Why it was not told; empty if it was. No secret is in it."""
        ...


class WebhookChannel:
    """Posts JSON; `content` is what a chat shows of it. Without `sign` nothing is signed."""

    def __init__(self, url: str, fetcher: Fetcher, sign: Sign | None, now_ms: Callable[[], int]) -> None:
        self._url = url
        self._fetcher = fetcher
        self._sign = sign
        self._now = now_ms

    async def tell(self, said: NoticeText) -> str:
        """Post it; any answer of success will do."""
        body = msgspec.json.encode({"content": said.chat, "id": said.id, **said.members})
        headers = [("Content-Type", "application/json"), (ID, said.id)]
        if self._sign is not None:
            moment = self._now() // 1000
            headers += [(TIMESTAMP, str(moment)), (SIGNATURE, self._sign(said.id, moment, body))]
        try:
            response = await self._fetcher.post(self._url, body, headers)
        except Unreachable as error:
            return error.reason
        return "" if response.status // 100 == _SUCCESS else f"status {response.status}"


def check_receivers(receivers: Sequence[NoticeReceiver], variable: Callable[[str], str | None]) -> None:
    """Let receivers pass that could be told.

    Raises:
        Misuse: two have one name, a variable is not set, or something is no address.
    """
    names = [one.name for one in receivers]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Misuse(f"notify: two receivers are called {twice[0]}; give one another name")
    for one in receivers:
        try:
            address = one.address(variable)
            if one.by_apprise:
                AppriseChannel(address)
            else:
                target(one.discord_api if one.discord else address)
        except (Misuse, Unreachable) as error:
            # Not the address: it may hold a secret.
            why = "its address cannot be called" if isinstance(error, Unreachable) else error
            raise Misuse(f"notify {one.name}: {why}") from None


class AppriseChannel:
    """Tells by a URL of apprise: mail, chats, telephones."""

    def __init__(self, url: str) -> None:
        """Take a URL.

        Raises:
            Misuse: apprise is not installed, or does not know such a URL.
        """
        try:
            # Only who needs it waits for the library to load.
            import apprise
        except ModuleNotFoundError:
            raise Misuse("apprise is not installed: pip install 'trunkline[notify]'") from None
        # Its lines would show more of the address than ours.
        logging.getLogger("apprise").propagate = False
        known: Any = apprise.Apprise()
        if not known.add(url):
            raise Misuse("apprise does not know such a URL")
        self._url = url

    async def tell(self, said: NoticeText) -> str:
        """Tell a notice by a process that ends when this is cancelled."""
        given = msgspec.json.encode([self._url, said.title, said.text])
        # Not by `-m`, which would load this package; what it writes could show the address.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", _APPRISE, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL
        )
        try:
            await process.communicate(given)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return "" if process.returncode == 0 else "refused"
