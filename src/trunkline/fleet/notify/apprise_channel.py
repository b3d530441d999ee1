"""A channel by apprise: mail, chats, telephones."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.fleet.notify.channel import Channel, ChannelSettings
from trunkline.fleet.notify.notice import ChannelMessage

_PROGRAM = Path(__file__).with_name("apprise_process.py")


class AppriseOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """A URL of apprise, or the variable that holds it."""

    url: str = ""
    url_env: str = ""


class AppriseChannel(Channel):
    """Sends messages to a URL of apprise."""

    def __init__(self, settings: ChannelSettings) -> None:
        """Take the settings.

        Raises:
            Misuse: apprise is not installed, or does not know such a URL.
        """
        options = settings.read_options(AppriseOptions)
        self._url = settings.read_secret(options.url_env) if options.url_env else options.url
        try:
            # Loaded only for receivers that need it, because loading takes long.
            import apprise
        except ModuleNotFoundError:
            raise Misuse("apprise is not installed: pip install 'trunkline[notify]'") from None
        # Its log lines would show more of the address than ours.
        logging.getLogger("apprise").propagate = False
        known: Any = apprise.Apprise()
        if not known.add(self._url):
            raise Misuse("apprise does not know such a URL")

    async def send(self, message: ChannelMessage) -> str:
        """Send a message by a process that ends when this is cancelled."""
        given = msgspec.json.encode([self._url, message.title, message.text])
        # Not by `-m`, which would load this package. Its output could show the address.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", _PROGRAM, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL
        )
        try:
            await process.communicate(given)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return "" if process.returncode == 0 else "refused"
