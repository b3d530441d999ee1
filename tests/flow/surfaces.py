"""Definitions and servers for the tests of surfaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from trunkline.auth.principal import DEFAULT_TENANT, Principal
from trunkline.flow.client import FlowClient
from trunkline.flow.control import Control
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.flow.rest import FlowApi
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run.node import Limits

UNSIGNED = SignaturePolicy()
# What waits is dropped until it goes on, at once, so that nobody waits for it at the end.
PARKING = Limits(park_after_s=0.0)


def workflow(*nodes: dict[str, Any], name: str = "Small one", **more: Any) -> dict[str, Any]:
    """A chain of nodes between a start and an end."""
    chain = ["__start__", "start", *[one["id"] for one in nodes], "end"]
    return {
        "document": {
            "schema": "https://agent-workflow.dev/schemas/workflow-definition.json",
            "name": name,
            "version": "1.0.0",
        },
        "state_schema": {"type": "object"},
        "nodes": [{"id": "start", "type": "start"}, *nodes, {"id": "end", "type": "end"}],
        "edges": [{"source": a, "target": b} for a, b in zip(chain, chain[1:], strict=False)],
        **more,
    }


TOOL = {"id": "work", "type": "tool_call", "config": {"server": "s", "tool": "t"}}
ASK = {
    "id": "ask",
    "type": "interrupt",
    "config": {
        "prompt": "May it go out?",
        "resume_schema": {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}},
    },
}
SIGNAL = {"id": "hold", "type": "wait", "config": {"kind": "signal", "signal": "approved"}}
DELEGATE = {
    "id": "implement",
    "type": "agent_delegate",
    "config": {"agent_id": "coder", "protocol": "a2a", "input_mapping": {"task": "${ .task }"}},
}


class Door:
    """What a host does before a mounted application is called: it finds the route."""

    def __init__(self, api: FlowApi, tenant: str = DEFAULT_TENANT) -> None:
        self._mounts = api.mounts()
        self._principal = Principal(tenant, "anonymous")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        mount = next(one for one in self._mounts if path.startswith(one.prefix))
        route = mount.match(scope["method"], path)
        known = {"trunkline.principal": self._principal, "trunkline.route": route.pattern}
        await mount.app({**scope, "root_path": mount.prefix, **known}, receive, send)


@asynccontextmanager
async def served(flows: LocalFlows, tenant: str = DEFAULT_TENANT) -> AsyncGenerator[FlowClient]:
    """A client of flows over REST."""
    http_client = InProcessHttpClient(Door(FlowApi(lambda: flows.port, UNSIGNED), tenant))
    try:
        yield FlowClient("http://localhost", http_client)
    finally:
        await http_client.close()


def control(flows: LocalFlows, tenant: str = DEFAULT_TENANT) -> Control:
    """The operations of flows, without a surface."""
    return Control(flows.port, FlowCaller(tenant), UNSIGNED)
