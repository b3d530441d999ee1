"""What the door knows of the operator's API is what the API does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.fleet.office import Office, agent, office
from trunkline.auth.principal import Scope
from trunkline.fleet.api import OperatorApi
from trunkline.fleet.call import ApiCall
from trunkline.fleet.mount import SCOPES
from trunkline.fleet.route import ApiRoute
from trunkline.host import Host


def test_every_route_has_its_scope() -> None:
    routes = OperatorApi(Host([(agent(), {"store": "memory:"})])).routes
    assert {one.pattern: one.scope for one in routes.values()} == SCOPES


def test_routes_can_be_added() -> None:
    async def act(call: ApiCall, _query: Any, _form: Any) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"name": call.id}

    route = ApiRoute(
        pattern="POST /things/{name}", scope=Scope.ADMIN, summary="Name a thing.", act=act, answer=dict
    )

    async def work(at: Office) -> None:
        assert (await at.ask("root", "POST", "/api/things/one")).status_code == 404
        at.application.host.api.add([route])
        assert (await at.ask("alice", "POST", "/api/things/one")).status_code == 403
        assert (await at.ask("root", "POST", "/api/things/one")).json() == {"name": "one"}
        told = await at.get("root", "/api/openapi.json")
        named = told["paths"]["/api/things/{name}"]["post"]["parameters"][0]
        assert (named["name"], named["in"]) == ("name", "path")
        assert "/api/tasks" in json.dumps(told)

    office(work)
