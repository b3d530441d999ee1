"""An engine put together: its parts, the agent whose tasks its runs are, and the port to them."""

from __future__ import annotations

from typing import TypedDict

from trunkline.flow.activities.base import ActivityExecutor, AgentDelegates, DelegateExecutor
from trunkline.flow.activities.composite import StubActivities
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.definitions import Definitions, KnownWorkflows
from trunkline.flow.delegates.mock import MockDelegate
from trunkline.flow.engine.executor import FlowExecutor
from trunkline.flow.engine.parts import FlowParts, WorkflowRefs
from trunkline.flow.fetched import FetchedWorkflows
from trunkline.flow.jq.filters import Filters
from trunkline.flow.jq.pool import FilterLimits, WorkerPool
from trunkline.flow.jq.schemas import SchemaChecker
from trunkline.flow.port import WAIT_S, FlowPort
from trunkline.net.fetch import FetcherOf
from trunkline.run.node import HostedAgent
from trunkline.run.runner import Runner
from trunkline.run.spending import Meter
from trunkline.store.parts import Docs

# The agent whose tasks runs are; no author can take its id.
AGENT = "flow/runs"


class NodeExecutors(TypedDict, total=False):
    """The executors of activities and delegations; stubs and mocks where none is named."""

    activities: ActivityExecutor
    delegates: DelegateExecutor
    agents: AgentDelegates


class FlowEngine:
    """An engine on the documents of a store. `close` ends what it holds; its runs go on at the next start."""

    def __init__(self, docs: Docs, executors: NodeExecutors | None = None) -> None:
        executors = executors or {}
        self._pool = WorkerPool(FilterLimits())
        filters = Filters(self._pool)
        self.definitions = Definitions(docs, filters, SchemaChecker(self._pool))
        self.workflows = KnownWorkflows(self.definitions)
        self.parts = FlowParts(
            AGENT,
            definitions=self.definitions,
            filters=filters,
            activities=executors.get("activities") or StubActivities(),
            delegates=executors.get("delegates") or MockDelegate(),
            refs=self.workflows,
            agents=executors.get("agents"),
        )

    def hosted(self, stall_s: float = 900.0, retention_s: float = 0.0) -> HostedAgent:
        """The agent that a runner carries."""
        executor = FlowExecutor(self.parts)
        return HostedAgent(
            AGENT,
            executor,
            stall_s,
            retention_s,
            opening=executor.opening,
            legible=executor.legible,
            check_answer=executor.check_answer,
        )

    def fetch_by(
        self, fetcher_of: FetcherOf, signatures: SignaturePolicy, known: WorkflowRefs | None = None
    ) -> None:
        """Have references that are addresses fetched, where they are not `known`."""
        self.parts.refs = FetchedWorkflows(known or self.workflows, self.definitions, fetcher_of, signatures)

    def meter_by(self, meter: Meter) -> None:
        """Count model calls in quotas."""
        self.parts.meter = meter

    def port(self, runner: Runner, *, also: tuple[str, ...] = (), wait_s: float = WAIT_S) -> FlowPort:
        """The operations on runs, by a runner that carries the agent."""
        port = FlowPort(runner, self.definitions, AGENT, also=also, wait_s=wait_s)
        self.parts.check_answer = port.check_answer
        return port

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()
