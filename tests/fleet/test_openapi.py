"""The description of the API names every route, and everything that it refers to is in it."""

from __future__ import annotations

import json
import re

from tests.fleet.office import agent
from trunkline.fleet.api import OperatorApi
from trunkline.fleet.mount import PREFIX, SCOPES
from trunkline.fleet.openapi import describe
from trunkline.host import Host


def test_every_route_is_described() -> None:
    routes = OperatorApi(Host([(agent(), {"store": "memory:"})])).routes
    told = describe([*routes.values()], PREFIX)
    found = {f"{verb.upper()} {path}" for path, verbs in told["paths"].items() for verb in verbs}
    assert found == {pattern.replace(" ", " /api") for pattern in SCOPES}
    referred = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(told)))
    assert referred <= set(told["components"]["schemas"])
    names = [one["name"] for one in told["paths"]["/api/tasks"]["get"]["parameters"]]
    assert {"agent", "skill", "state", "contextId", "since", "limit", "after", "tenant"} == set(names)
    assert set(told["components"]["schemas"]["Problem"]["properties"]) == {
        "status",
        "title",
        "detail",
        "code",
        "field",
    }
