"""The operations of A2A on push configs, typed like the others."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from trunkline import errors
from trunkline.log.events import PushTarget
from trunkline.log.fold import NOBODY
from trunkline.net.resolver import on_behalf_of
from trunkline.run.feed import Feed
from trunkline.run.push_configs import PushConfigs
from trunkline.server.caller import Caller
from trunkline.wire.service_parameters import Version
from trunkline.wire.types import PushConfig, PushQuery, PushRequest, TaskQuery
from trunkline.wire.writer import Dialect

# Where the url of a config stands that comes with a message.
INLINE = {
    Dialect.V1: "configuration.taskPushNotificationConfig.url",
    Dialect.V03: "configuration.pushNotificationConfig.url",
    Dialect.V03_PROTO: "configuration.pushNotification.url",
}


class PushOperations(Struct, eq=False):
    """Sets, gets, lists and deletes the push configs of an agent's tasks."""

    # Finds a task of a caller.
    _find: Callable[[Caller, TaskQuery], Awaitable[Feed]]
    # Set once the store is open, if this agent pushes at all.
    configs: PushConfigs | None = None

    async def set(self, caller: Caller, request: PushRequest) -> PushConfig:
        """Have somebody told of a task from here on."""
        configs = self._pushing()
        feed = await self._find(caller, TaskQuery(request.task_id, tenant=request.tenant))
        target = await self.target(caller, request.config, "url")
        return await configs.set(feed, target, caller.principal.name)

    async def get(self, caller: Caller, query: PushQuery) -> PushConfig:
        """One push config of a task."""
        configs = self._of_named(caller, query)
        return await configs.get(await self._of_task(caller, query), query.config_id)

    async def list(self, caller: Caller, query: PushQuery) -> builtins.list[PushConfig]:
        """All push configs of a task."""
        configs = self._pushing()
        return await configs.list(await self._of_task(caller, query))

    async def delete(self, caller: Caller, query: PushQuery) -> None:
        """Tell a target nothing more; without an id, as 0.3 allows, none of them."""
        configs = self._of_named(caller, query)
        await configs.delete(await self._of_task(caller, query), query.config_id, caller.principal.name)

    async def target(
        self, caller: Caller, config: PushConfig, field: str, known: Mapping[str, PushTarget] = NOBODY
    ) -> PushTarget:
        """A config as the log keeps it; `field` is where its url stands in the request."""
        version = Version.V1 if caller.dialect is Dialect.V1 else Version.V03
        tenant = caller.principal.tenant
        with on_behalf_of(tenant, caller.principal.name):
            return await self._pushing().target(tenant, config, version.value, field, known)

    async def inline(
        self, caller: Caller, config: PushConfig, known: Mapping[str, PushTarget], by: str = ""
    ) -> PushTarget:
        """A config that came with a message; `by` is who sent it, if it may do nothing but answer.

        Raises:
            InvalidParams: who only answers sets no webhook.
        """
        field = INLINE[caller.dialect]
        if by:
            raise errors.InvalidParams(
                "who only answers sets no webhook of the task; send the answer without one",
                field=field.removesuffix(".url"),
            )
        return await self.target(caller, config, field, known)

    async def _of_task(self, caller: Caller, query: PushQuery) -> Feed:
        return await self._find(caller, TaskQuery(query.task_id, tenant=query.tenant))

    def _of_named(self, caller: Caller, query: PushQuery) -> PushConfigs:
        configs = self._pushing()
        if not query.config_id and caller.dialect is Dialect.V1:
            raise errors.InvalidParams("id is missing; name the config", field="id")
        return configs

    def _pushing(self) -> PushConfigs:
        if self.configs is None:
            raise errors.PushNotSupported("this agent sends no push notifications; poll or subscribe instead")
        return self.configs
