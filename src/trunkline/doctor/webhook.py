"""A webhook on this machine for as long as a check lasts: takes notifications and keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trunkline.clock import random_bits
from trunkline.webhook.listener import IncomingWebhook, WebhookListener

_READ_S = 5.0
_CLOSE = {"Connection": "close"}


class NotificationProbe:
    """Listens at a port of its own. `host` is the name under which the agent reaches this machine."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.token = f"{random_bits(128):032x}"
        self.received: list[IncomingWebhook] = []
        self.url = ""
        self._path = f"/doctor/{random_bits(64):016x}"
        self._arrived = asyncio.Event()
        self._listener: WebhookListener | None = None

    async def open(self) -> None:
        """Listen on loopback, or on all addresses if the agent comes from elsewhere."""
        loop = asyncio.get_running_loop()

        def answer(webhook: IncomingWebhook) -> tuple[int, dict[str, str]]:
            # The path is this examination's secret: whoever else posts here is nobody's agent.
            if webhook.path != self._path:
                return 404, _CLOSE
            self.received.append(webhook)
            loop.call_soon_threadsafe(self._arrived.set)
            return 200, _CLOSE

        local = {"127.0.0.1": "127.0.0.1", "localhost": "127.0.0.1", "::1": "::1"}
        self._listener = WebhookListener(answer, local.get(self.host, ""), idle_s=_READ_S)
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.url = f"http://{host}:{self._listener.port}{self._path}"

    async def wait_for(self, wanted: Callable[[IncomingWebhook], bool], timeout_s: float) -> None:
        """Wait until a notification like this has come, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while not any(map(wanted, self.received)):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Stop the receiver of webhooks."""
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
