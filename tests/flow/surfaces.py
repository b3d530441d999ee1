"""Definitions and servers for the tests of surfaces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client

from trunkline.auth.principal import CALLER, DEFAULT_TENANT, Principal
from trunkline.errors import FlowRefused, RouteNotFound
from trunkline.flow.client import FlowClient
from trunkline.flow.codes import details_of, error_body, write_refusal
from trunkline.flow.control import Control
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.local import LocalFlows
from trunkline.flow.mcp_server import FlowTools
from trunkline.flow.port import FlowCaller
from trunkline.flow.rest import FlowApi, slug
from trunkline.net.in_process import InProcessHttpClient
from trunkline.run.node import Limits

UNSIGNED = SignaturePolicy()
# What waits is dropped until it goes on, at once, so that nobody waits for it at the end.
PARKING = Limits(park_after_s=0.0)
Call = Callable[[str, dict[str, Any]], Awaitable[tuple[str, dict[str, Any]]]]
SURFACES = ["library", "mcp", "rest"]


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
        self._principal = Principal(tenant, "anonymous", CALLER)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        mount = next(one for one in self._mounts if path.startswith(one.prefix))
        try:
            route = mount.match(scope["method"], path)
        except RouteNotFound as refused:
            status, body, _ = write_refusal(refused)
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        known = {"trunkline.principal": self._principal, "trunkline.route": route.pattern}
        await mount.app({**scope, "root_path": mount.prefix, **known}, receive, send)


@asynccontextmanager
async def served(
    flows: LocalFlows, tenant: str = DEFAULT_TENANT, signatures: SignaturePolicy = UNSIGNED
) -> AsyncGenerator[FlowClient]:
    """A client of flows over REST."""
    http_client = InProcessHttpClient(Door(FlowApi(lambda: flows.port, signatures), tenant))
    try:
        yield FlowClient("http://localhost", http_client)
    finally:
        await http_client.close()


def control(
    flows: LocalFlows, tenant: str = DEFAULT_TENANT, signatures: SignaturePolicy = UNSIGNED
) -> Control:
    """The operations of flows, without a surface."""
    return Control(flows.port, FlowCaller(tenant), signatures)


@asynccontextmanager
async def surface(
    name: str, flows: LocalFlows, signatures: SignaturePolicy = UNSIGNED
) -> AsyncGenerator[Call]:
    """Calls by a surface, each with its code if it failed; each surface has a tenant of its own name."""
    plain = control(flows, name, signatures)
    if name == "library":
        yield lambda operation, given: _coded(plain.call(operation, given))
    elif name == "mcp":
        async with Client(FlowTools(plain).server()) as tools:
            yield lambda operation, given: _by_tool(tools, operation, given)
    else:
        async with served(flows, name, signatures) as client:
            yield lambda operation, given: _coded(_over_rest(client, operation, given))


async def _coded(answer: Awaitable[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    try:
        found = await answer
    except FlowRefused as refused:
        return refused.code, error_body(refused.code, refused.message, details_of(refused))
    return (found.get("code") or "ENGINE_FAILURE") if found.get("status") == "failed" else "", found


async def _by_tool(tools: Client, operation: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    found = await tools.call_tool(f"workflow_{operation}", given)
    told: dict[str, Any] = found.structured_content or {}
    return told["error"]["code"] if found.is_error else "", told


async def _over_rest(client: FlowClient, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    """Call an operation; a run is started by a registered definition, as by a host that has none in its hands."""
    if operation != "start":
        return await client.call(operation, given)
    definition = given["definition"]
    try:
        await client.register(definition)
    except FlowRefused as known:
        if known.code != "DUPLICATE_WORKFLOW_ID":
            raise
    rest = {name: value for name, value in given.items() if name != "definition"}
    return await client.start(slug(definition["document"]["name"]), rest)


def snake(members: dict[str, Any]) -> dict[str, Any]:
    """An outcome or a span of a vector, as surfaces spell its members."""
    words = {"delegateCorrelationId": "delegate_correlation_id", "externalTaskId": "external_task_id"}
    words |= {"parallelNodeId": "parallel_node_id", "joinTargetId": "join_target_id"}
    words |= {"branchName": "branch_name", "branchEntryNodeId": "branch_entry_node_id"}
    return {words.get(name, name): value for name, value in members.items()}
