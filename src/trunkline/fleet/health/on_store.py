"""The health of a fleet right on a store, beside no server: what nobody has counted yet is counted here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trunkline.auth.principal import Principal
from trunkline.fleet.call import read_form, tenant_of
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.health.routes import FleetPageQuery
from trunkline.fleet.health.snapshot import snapshot
from trunkline.store.base import Store


async def health_on_store(
    store: Store, query: Mapping[str, str], window_s: float, *, principal: Principal
) -> bytes:
    """The answer of `GET /api/fleet/health`; every agent that did something is one of the fleet.

    Raises:
        Refused: it cannot be done as asked.
        StoreError: the store does not answer.
    """
    asked = read_form(query, FleetPageQuery)
    tenant = tenant_of(principal, asked.tenant)
    health = FleetHealth(store, origin="", window_s=window_s, registered=lambda _: ())
    records = await health.caught_up()
    agents = list(records.window(tenant))
    found = snapshot(records, tenant, agents, AlertLimits(), agent=asked.agent, skill=asked.skill)
    return msgspec.json.encode(found.cut(asked.limit, asked.after))
