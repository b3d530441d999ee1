"""The workflows of a host: an engine on its store, whoever does the work of nodes, and the REST API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

from trunkline.config import Settings, environment
from trunkline.flow.activities.base import (
    Activity,
    ActivityExecutor,
    DelegateExecutor,
    DelegateOrder,
    Outcome,
    failed,
)
from trunkline.flow.activities.steps import StepRegistry
from trunkline.flow.assembly import FlowEngine
from trunkline.flow.definition.document import Node
from trunkline.flow.definitions import STEP, Loaded
from trunkline.flow.delegates.mock import agent_id_of
from trunkline.flow.engine.executor import FlowExecutor, OwnWorkflow
from trunkline.flow.operator import MANIFEST, PREFIX, FlowExecutors, OperatorConfig, read_operator
from trunkline.flow.port import FlowPort
from trunkline.flow.rest import FlowApi
from trunkline.host import Host
from trunkline.hub.workflow_files import WorkflowFiles
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient
from trunkline.run.node import HostedAgent
from trunkline.run.spending import Meter

# Where an operator's own endpoints may be: they are the operator's word.
EVERYWHERE = ("0.0.0.0/0", "::/0")
# The code of an activity that the settings of the tenant do not allow.
NOT_ALLOWED = "ACTIVITY_NOT_ALLOWED"


def operator_config(
    manifest: str, steps: Collection[str], delegates: Sequence[str] = (), *, named: bool = False
) -> OperatorConfig:
    """Return the configuration of the operator: the environment, a manifest, modules of steps, delegates.

    A manifest that was `named` wins over the environment's and must exist; another may be missing.

    Raises:
        Misuse: something of it is wrong.
    """
    variables = {**environment(PREFIX), **environment(MANIFEST)}
    registry = StepRegistry(modules=steps) if steps else None
    variables |= environment("OPENAI_BASE_URL")
    return read_operator(
        variables,
        manifest=manifest if named else "",
        optional_manifest="" if named else manifest,
        steps=registry,
        delegates=delegates,
    )


def flows_of(settings: Settings, workspace: Path) -> HostFlows:
    """The workflows of a hub.

    Raises:
        Misuse: what the operator has set up is wrong.
    """
    config = operator_config(settings.mcp_manifest, settings.flow_steps, settings.flow_delegates)
    return HostFlows(config, workspace)


# Whether a tenant has an agent of a name.
HasAgent = Callable[[str, str], bool]


class WorkPolicy(Protocol):
    """The work that the runs of a tenant may have done."""

    def allows(self, tenant: str, kind: str) -> bool:
        """Return whether a tenant may have agents of a kind."""
        ...

    def allows_tool(self, tenant: str, tool: str) -> bool:
        """Return whether definitions of a tenant's own may use a tool, such as `mcp:files/read`."""
        ...


class EveryWork:
    """Allows every run everything."""

    def allows(self, tenant: str, kind: str) -> bool:
        """Return True."""
        del tenant, kind
        return True

    def allows_tool(self, tenant: str, tool: str) -> bool:
        """Return True."""
        del tenant, tool
        return True


class NamedAgents:
    """The agents whose work is a child task of a run, by their names."""

    def __init__(self, has: HasAgent) -> None:
        self._has = has

    def agent(self, tenant: str, agent_id: str) -> str | None:
        """The agent itself, if the tenant of the run has it."""
        return agent_id if self._has(tenant, agent_id) else None


class AllowedActivities:
    """Executes the activities that the policy of the run's tenant allows."""

    def __init__(self, activities: ActivityExecutor, policy: WorkPolicy, default_model: str) -> None:
        self._activities = activities
        self._policy = policy
        self._default_model = default_model

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        node, tenant = activity.node, activity.tenant
        if node.type == "llm_call" and not self._policy.allows(tenant, "model"):
            text = f"{node.id}: no models for this tenant: the operator sets kinds"
            return failed("COMPOSITE_EXECUTOR_NOT_CONFIGURED", text)
        tool = self._tool_of(node)
        if not activity.by_operator and not self._policy.allows_tool(tenant, tool):
            return failed(NOT_ALLOWED, f"{node.id}: {_denied(tenant, tool)}")
        return await self._activities.execute(activity)

    def _tool_of(self, node: Node) -> str:
        """Return the name by which the settings of a tenant list what a node uses."""
        match node.type:
            case "tool_call":
                return f"mcp:{_text(node, 'server')}/{_text(node, 'tool')}"
            case "step":
                return f"step:{_text(node, 'handler') or _text(node, 'code_ref')}"
            case _:
                return f"model:{_text(node, 'model') or self._default_model}"


class AllowedDelegates:
    """Performs the delegations outside the catalogue that the policy of the run's tenant allows."""

    def __init__(self, delegates: DelegateExecutor, policy: WorkPolicy) -> None:
        self._delegates = delegates
        self._policy = policy

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        tool = f"delegate:{agent_id_of(order)}"
        if not order.by_operator and not self._policy.allows_tool(order.tenant, tool):
            text = f"the catalogue has no agent {agent_id_of(order)!r} that takes work"
            # Whether the operator has a delegate of this name is not disclosed.
            text = f"{order.node.id}: {text}, and {_denied(order.tenant, tool)}"
            return failed("DELEGATE_AGENT_NOT_FOUND", text)
        return await self._delegates.delegate(order)


def _text(node: Node, name: str) -> str:
    """Return a member of a node's configuration as the executors read it, or an empty text."""
    value = node.config.get(name)
    return value.strip() if isinstance(value, str) else ""


def _denied(tenant: str, tool: str) -> str:
    return (
        f"workflows of tenant {tenant!r} may not use {tool!r}; an operator allows it with: "
        f"trunkline tenant set {tenant} --tool {tool!r}, and --tool for each tool that it keeps"
    )


class HostFlows:
    """The workflows of a host; they are put together anew with each store and runner."""

    # The step by which the log of a run is known.
    step = STEP

    def __init__(self, config: OperatorConfig, workspace: Path | None = None) -> None:
        self.config = config
        self._workspace = workspace
        self.api = FlowApi(lambda: self.port, config.signatures, self.resolve)

    def assemble(
        self, host: Host, has: HasAgent | None = None, policy: WorkPolicy | None = None
    ) -> HostedAgent:
        """Begin with a new store, and the agents of a catalogue if it has one; gives whose tasks runs are."""
        self._http_client = SocketHttpClient(Egress(networks=EVERYWHERE))
        policy = policy or EveryWork()
        model = "" if self.config.models is None else self.config.models.model
        self._executors = FlowExecutors(self.config, self._http_client, catalogue=has is not None)
        self._engine = FlowEngine(
            host.store.docs,
            {
                "activities": AllowedActivities(self._executors.activities, policy, model),
                "delegates": AllowedDelegates(self._executors.delegates, policy),
                "agents": NamedAgents(has or (lambda tenant, name: False)),
            },
        )
        self.files = WorkflowFiles(self._workspace or Path(), self._engine.definitions)
        self._known = self._engine.workflows if self._workspace is None else self.files
        # Whoever starts a run names the address: it obeys the rule of its tenant.
        self._engine.fetch_by(host.fetchers.find, self.config.signatures, self._known)
        self.port: FlowPort = self._engine.port(host.runner)
        return self._engine.hosted(host.settings.stall_limit, host.settings.kept_s)

    def meter_by(self, meter: Meter) -> None:
        """Count the model calls of runs in quotas."""
        self._engine.meter_by(meter)

    def executor(self, name: str, own: OwnWorkflow) -> FlowExecutor:
        """The executor of an agent that is one workflow."""
        if name not in self.port.agents:
            self.port.agents = (*self.port.agents, name)
        return FlowExecutor(self._engine.parts, own, name)

    async def resolve(self, tenant: str, workflow_id: str) -> Loaded:
        """The workflow of an id: of a file, or registered.

        Raises:
            FlowRefused: there is none.
        """
        return await self._known.resolve(tenant, workflow_id)

    def tell(self) -> None:
        """Write to the log who does what."""
        self._executors.tell()

    async def close(self) -> None:
        """Let go of everything that the engine holds."""
        await self._executors.close()
        await self._engine.close()
        await self._http_client.close()
