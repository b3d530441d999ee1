"""What an operator asks of the server itself: its deliveries, its settings and the nodes of its store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.auth.principal import Scope as AuthScope
from trunkline.config import OF_SITE, Secret, Settings
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import api_route
from trunkline.fleet.views import delivery_item
from trunkline.store.base import Store
from trunkline.store.url import shown
from trunkline.wire.spellings import timestamp

# What callers meet; the rest is of the operator's machine, as where the store is.
_OF_CALLS = OF_SITE | {
    "announce_ttl",
    "body_limit",
    "body_timeout",
    "card_refresh",
    "health_window",
    "hop_limit",
    "inbox_ttl",
    "keep_alive",
    "poll_interval",
    "public_url",
    "push",
    "push_retry",
    "push_timeout",
    "task_budget",
    "task_max_age",
}
Registered = Callable[[str], Collection[str]]


class DeliveryQuery(PageQuery, frozen=True, kw_only=True):
    """Which deliveries are meant; what is empty does not narrow."""

    task: str = ""
    state: Literal["", "pending", "done", "dead", "dropped"] = ""


class SettingItem(ApiStruct, frozen=True, kw_only=True):
    """A setting by the name that operators type; a secret only as one that is set."""

    name: str
    value: Any


class NodeItem(ApiStruct, frozen=True, kw_only=True):
    """A process that carries agents; `beatAt` is when it last said that it lives."""

    id: str
    agents: list[str]
    alive: bool
    beat_at: str


class ServerApi:
    """The operations of the API that show the server itself; `registered` are the agents of a tenant."""

    def __init__(self, store: Store, settings: Settings, origin: str, registered: Registered) -> None:
        self._store = store
        self._settings = settings
        self._origin = origin
        self._registered = registered

    @api_route("GET /deliveries", AuthScope.ADMIN)
    async def deliveries(self, call: ApiCall, asked: DeliveryQuery) -> ApiPage:
        """A page of deliveries, those of the newest tasks first."""
        found = await self._store.outbox.list(
            tenant=call.tenant,
            task_id=asked.task or None,
            state=asked.state or None,
            limit=asked.limit,
            after=asked.after,
        )
        following = found[-1].id if len(found) == asked.limit else None
        return ApiPage([delivery_item(one) for one in found], following)

    @api_route("GET /settings", AuthScope.ADMIN)
    async def settings(self, call: ApiCall) -> ApiPage:
        """Every setting of the server, without secrets; to other tenants those of calls."""
        values: dict[str, Any] = msgspec.to_builtins(self._settings, enc_hook=_hidden)
        values["store"] = shown(self._settings.store)
        if call.principal.tenant != DEFAULT_TENANT and AuthScope.OPERATOR not in call.principal.scopes:
            values = {name: value for name, value in values.items() if name in _OF_CALLS}
        return ApiPage([SettingItem(name=name, value=value) for name, value in values.items()])

    @api_route("GET /nodes", AuthScope.ADMIN)
    async def nodes(self, call: ApiCall) -> ApiPage:
        """The processes that carry agents, and whether each of them lives."""
        # Each with its agents by their ids: those of the tenant, to an operator all.
        sees_all = AuthScope.OPERATOR in call.principal.scopes
        known = {self._origin, *self._registered(call.tenant)}
        items: list[NodeItem] = []
        for one in await self._store.nodes.list():
            # That at the origin is there a second time, as '', for logs that name no agent.
            names = {agent or self._origin for agent in one.agents}
            agents = sorted(names if sees_all else names & known)
            items.append(NodeItem(id=one.id, agents=agents, alive=one.alive, beat_at=timestamp(one.beat)))
        return ApiPage(items)


def _hidden(value: object) -> str:
    if isinstance(value, Secret):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no value of a setting")
