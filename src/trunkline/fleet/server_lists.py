"""What an operator asks of the server itself: its deliveries, its settings and the nodes of its store."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from trunkline.auth.principal import Scope as AuthScope
from trunkline.config import Secret, Settings
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import ApiRoute
from trunkline.fleet.views import delivery_item
from trunkline.store.base import Store
from trunkline.store.url import shown
from trunkline.wire.spellings import timestamp

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


async def list_nodes(store: Store, call: ApiCall, origin: str, registered: Registered) -> ApiPage:
    """The nodes of the store, each with its agents by their ids: those of the tenant, to an operator all."""
    sees_all = AuthScope.OPERATOR in call.principal.scopes
    known = {origin, *registered(call.tenant)}
    items: list[NodeItem] = []
    for one in await store.nodes.list():
        # That at the origin is there a second time, as '', for logs that name no agent.
        names = {agent or origin for agent in one.agents}
        agents = sorted(names if sees_all else names & known)
        items.append(NodeItem(id=one.id, agents=agents, alive=one.alive, beat_at=timestamp(one.beat)))
    return ApiPage(items)


async def list_deliveries(store: Store, call: ApiCall, asked: DeliveryQuery) -> ApiPage:
    """A page of the deliveries of a tenant, those of the newest tasks first."""
    found = await store.outbox.list(
        tenant=call.tenant,
        task_id=asked.task or None,
        state=asked.state or None,
        limit=asked.limit,
        after=asked.after,
    )
    following = found[-1].id if len(found) == asked.limit else None
    return ApiPage([delivery_item(one) for one in found], following)


def list_settings(settings: Settings) -> ApiPage:
    """Every setting of the host with its value, and no secret."""
    values: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=_hidden)
    values["store"] = shown(settings.store)
    return ApiPage([SettingItem(name=name, value=value) for name, value in values.items()])


def server_routes(store: Store, settings: Settings, origin: str, registered: Registered) -> list[ApiRoute]:
    """The routes that show the server itself; `registered` are the agents of a tenant."""

    async def shown_settings() -> ApiPage:
        return list_settings(settings)

    return [
        ApiRoute(
            pattern="GET /deliveries",
            scope=AuthScope.ADMIN,
            summary="A page of deliveries, those of the newest tasks first.",
            act=lambda call, query, _: list_deliveries(store, call, query),
            answer=ApiPage,
            query=DeliveryQuery,
        ),
        ApiRoute(
            pattern="GET /settings",
            scope=AuthScope.ADMIN,
            summary="Every setting of the server, without secrets.",
            act=lambda _call, _query, _form: shown_settings(),
            answer=ApiPage,
        ),
        ApiRoute(
            pattern="GET /nodes",
            scope=AuthScope.ADMIN,
            summary="The processes that carry agents, and whether each of them lives.",
            act=lambda call, _query, _form: list_nodes(store, call, origin, registered),
            answer=ApiPage,
        ),
    ]


def _hidden(value: object) -> str:
    if isinstance(value, Secret):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no value of a setting")
