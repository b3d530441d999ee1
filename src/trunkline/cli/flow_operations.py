"""The runs of a store for the command line: right on the store, or through the server that has it open."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from trunkline.cli.admin import Operator, opened_store, server_beside, server_of
from trunkline.cli.admin_endpoint import AdminEndpoint
from trunkline.clock import Ids
from trunkline.config import Settings
from trunkline.errors import Misuse, StoreInUse
from trunkline.flow.assembly import FlowEngine
from trunkline.flow.client import FlowClient
from trunkline.flow.control import Control
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.local import LocalFlows
from trunkline.flow.operator import FlowExecutors, OperatorConfig
from trunkline.flow.port import FlowCaller, FlowPort
from trunkline.flow.rest import shown_row
from trunkline.hub.flows import EVERYWHERE, operator_config
from trunkline.hub.workspace import HUB
from trunkline.net.egress import Egress, target
from trunkline.net.http_client import SocketHttpClient
from trunkline.run.node import Limits
from trunkline.run.runner import Runner

McpConfig = Annotated[
    str, typer.Option(metavar="FILE", help="The manifest of MCP servers; mcp.json unless told.")
]
# What waits for somebody is let go of soon: the command is over then.
_LIMITS = Limits(park_after_s=0.05)


class StoreOperations:
    """Operations on workflow runs right on a store, as `FlowClient` has a server perform them."""

    def __init__(self, port: FlowPort, signatures: SignaturePolicy) -> None:
        self._port = port
        self._control = Control(port, FlowCaller(), signatures)

    async def call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Perform one of the seven operations of `Control` by its name; gives its answer."""
        return await self._control.call(operation, given)

    async def events(self, execution_id: str, from_seq: int = 1, limit: int = 100) -> dict[str, Any]:
        """A page of the rows of a run."""
        rows = await self._port.rows(FlowCaller(), execution_id, from_seq=from_seq, limit=limit + 1)
        told: dict[str, Any] = {"events": [shown_row(row) for row in rows[:limit]]}
        return {**told, "next_cursor": str(rows[limit].seq)} if len(rows) > limit else told


FlowOperations = StoreOperations | FlowClient


@asynccontextmanager
async def opened(operator: Operator, *, reads: bool, manifest: str = "") -> AsyncGenerator[FlowOperations]:
    """The runs of a store; what only `reads` makes nothing go on.

    Raises:
        Misuse: the store is in memory and something was to be found in it, or a hub is needed and not there.
    """
    settings = operator.settings
    async with AsyncExitStack() as stack:
        beside = server_beside(settings)
        if beside is not None:
            yield await _remote(stack, beside)
            return
        try:
            operations = await (_reading(stack, settings) if reads else _acting(stack, operator, manifest))
        except StoreInUse as busy:
            operations = await _remote(stack, server_of(settings, busy))
        yield operations


async def _reading(stack: AsyncExitStack, settings: Settings) -> FlowOperations:
    store = await stack.enter_async_context(opened_store(settings, read_only=True))
    engine = FlowEngine(store.docs)
    stack.push_async_callback(engine.close)
    return StoreOperations(engine.port(Runner(store, [engine.hosted()], Ids())), SignaturePolicy())


async def _acting(stack: AsyncExitStack, operator: Operator, manifest: str) -> FlowOperations:
    settings = operator.settings
    if (Path(operator.store or ".") / HUB).is_file():
        # Only the hub has the agents that its runs delegate to.
        raise Misuse(
            f"the hub of {operator.store or 'this folder'} does not run; start it with trunkline hub"
        )
    config = operator_of(settings, manifest)
    flows = await stack.enter_async_context(local_flows(settings.store, config))
    return StoreOperations(flows.port, config.signatures)


def operator_of(settings: Settings, manifest: str) -> OperatorConfig:
    """What the operator has set up; a manifest that is named wins over the one of the settings."""
    return operator_config(manifest or settings.mcp_manifest, settings.flow_steps, named=bool(manifest))


@asynccontextmanager
async def local_flows(store: str, config: OperatorConfig) -> AsyncGenerator[LocalFlows]:
    """An engine of this process on a store, with what the operator has set up."""
    http_client = SocketHttpClient(Egress(networks=EVERYWHERE))
    executors = FlowExecutors(config, http_client)
    try:
        flows = LocalFlows(
            store,
            limits=_LIMITS,
            signatures=config.signatures,
            activities=executors.activities,
            delegates=executors.delegates,
        )
        async with flows:
            yield flows
    finally:
        await executors.close()
        await http_client.close()


async def _remote(stack: AsyncExitStack, endpoint: AdminEndpoint) -> FlowOperations:
    http_client = SocketHttpClient(Egress(hosts=[target(endpoint.url).host]))
    stack.push_async_callback(http_client.close)
    return FlowClient(endpoint.url, http_client, (("host", endpoint.host), ("x-api-key", endpoint.token)))
