"""What an operator asks of the server itself: its deliveries and its settings."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from trunkline.auth.principal import Scope as AuthScope
from trunkline.config import Secret, Settings
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import ApiRoute
from trunkline.fleet.views import delivery_item
from trunkline.store.base import Store
from trunkline.store.url import shown


class DeliveryQuery(PageQuery, frozen=True, kw_only=True):
    """Which deliveries are meant; what is empty does not narrow."""

    task: str = ""
    state: Literal["", "pending", "done", "dead", "dropped"] = ""


class SettingItem(ApiStruct, frozen=True, kw_only=True):
    """A setting by the name that operators type; a secret only as one that is set."""

    name: str
    value: Any


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


def server_routes(store: Store, settings: Settings) -> list[ApiRoute]:
    """The routes that show the server itself."""

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
    ]


def _hidden(value: object) -> str:
    if isinstance(value, Secret):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is no value of a setting")
