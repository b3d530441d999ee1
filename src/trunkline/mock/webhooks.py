"""The webhooks of a mock: each change of status of a task is posted to whoever asked for it."""

from __future__ import annotations

import asyncio
import logging

from trunkline.errors import Unreachable
from trunkline.mock.playback import Playback
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.wire import push
from trunkline.wire.types import PushConfig

log = logging.getLogger("trunkline.mock")


class Post:
    """Posts in order, one task after the other; what nobody takes is logged and not tried again."""

    def __init__(self) -> None:
        # A mock is started by whoever tests, and what is told by it stands on the same machine.
        self._egress = Egress(loopback=True)
        self._last: dict[str, asyncio.Task[None]] = {}

    async def check(self, url: str) -> None:
        """Let an address pass if it could be called.

        Raises:
            Unreachable: it could not.
        """
        await self._egress.check(url)

    def tell(self, work: Playback) -> None:
        """Post the task as it stands."""
        for config, version in work.push.values():
            body = push.notification_body(work.task, version, whole=False)
            before = self._last.get(work.id)
            task = asyncio.get_running_loop().create_task(self._send(work.id, config, body, before))
            self._last[work.id] = task

    async def _send(
        self, task_id: str, config: PushConfig, body: bytes, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        headers = [("Content-Type", "application/json")]
        if config.token:
            headers.append(("X-A2A-Notification-Token", config.token))
        if config.scheme and config.credentials:
            headers.append(("Authorization", f"{config.scheme} {config.credentials}"))
        fetcher = Fetcher(self._egress)
        try:
            answer = await fetcher.post(config.url, body, headers)
            log.info("mock.pushed task=%s status=%d", task_id, answer.status)
        except Unreachable as error:
            log.warning("mock.push_failed task=%s why=%s", task_id, error)
        finally:
            # Not kept: nobody may be there to close it when the test is over.
            await fetcher.close()

    async def close(self) -> None:
        """Let go of what is on its way."""
        for task in self._last.values():
            task.cancel()
        if self._last:
            await asyncio.wait(self._last.values())
