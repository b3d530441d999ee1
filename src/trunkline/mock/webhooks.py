"""The webhooks of a mock: push configs of its tasks, and the notifications of each change of status."""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from trunkline.errors import InvalidParams, TaskNotFound, Unreachable
from trunkline.mock.exchange import MockAnswer
from trunkline.mock.playback import Playback
from trunkline.mock.quirks import Quirks
from trunkline.mock.request import MockRequest
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.wire import push
from trunkline.wire.operations import Operation
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.service_parameters import Version
from trunkline.wire.types import PushConfig, PushQuery, PushRequest
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")


class MockWebhooks:
    """Keeps push configs and posts in order, task by task; what fails is logged and not tried again."""

    def __init__(self) -> None:
        # A mock is started by whoever tests, and its webhooks stand on the same machine.
        self._egress = Egress(loopback=True)
        self._last: dict[str, asyncio.Task[None]] = {}

    async def serve(
        self, request: MockRequest, params: PushRequest | PushQuery, playback: Playback, quirks: Quirks
    ) -> MockAnswer:
        """Make, read, list or delete a push config.

        Raises:
            Refused: its address cannot be called, or there is no such config.
        """
        if isinstance(params, PushRequest):
            await self.check(params.config, quirks)
            config = self.keep(playback, params.config, request)
            return request.result(write_config(playback.id, config, request.dialect))
        if request.operation is Operation.PUSH_LIST:
            configs = [config for config, _ in playback.push.values()]
            return request.result(write_configs(playback.id, configs, request.dialect))
        config_id = params.config_id or next(iter(playback.push), "")
        if config_id not in playback.push:
            raise TaskNotFound("there is no such push config")
        if request.operation is Operation.PUSH_GET:
            return request.result(write_config(playback.id, playback.push[config_id][0], request.dialect))
        del playback.push[config_id]
        return request.result(b"null" if request.rest is None else b"{}")

    async def check(self, config: PushConfig, quirks: Quirks) -> None:
        """Let a config pass if its address could be called, or nobody asks.

        Raises:
            InvalidParams: it could not.
        """
        if not quirks.trusting:
            try:
                await self._egress.check(config.url)
            except Unreachable as error:
                raise InvalidParams(f"url: {error}", field="url") from None

    def keep(self, playback: Playback, config: PushConfig, request: MockRequest) -> PushConfig:
        """Keep a config, under a new id unless it has one; notifications speak the version of its request."""
        config = replace(config, id=config.id or f"config-{len(playback.push) + 1}")
        version = Version.V1 if request.dialect is Dialect.V1 else Version.V03
        playback.push[config.id] = (config, version.value)
        return config

    def notify(self, playback: Playback) -> None:
        """Post the task as it stands to each of its webhooks."""
        for config, version in playback.push.values():
            body = push.notification_body(playback.task, version, whole=False)
            before = self._last.get(playback.id)
            task = asyncio.get_running_loop().create_task(self._send(playback.id, config, body, before))
            self._last[playback.id] = task

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
        """Cancel the deliveries that are under way."""
        for task in self._last.values():
            task.cancel()
        if self._last:
            await asyncio.wait(self._last.values())
        self._last.clear()
