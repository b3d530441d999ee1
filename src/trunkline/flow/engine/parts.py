"""What the engine is given to work with: definitions, filters, and whoever does the work of nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from trunkline.flow.activities.base import ActivityExecutor, AgentDelegates, DelegateExecutor
from trunkline.flow.definitions import Definitions, Loaded
from trunkline.flow.jq.pool import WorkerBudget
from trunkline.net.places import TenantPlaces
from trunkline.run.feed import Feed
from trunkline.run.spending import Meter, NoQuotas
from trunkline.wire.types import Message

AnswerCheck = Callable[[Feed, Message], Awaitable[None]]


def is_address(workflow_ref: str) -> bool:
    """Return whether a reference names a workflow by its URL."""
    return workflow_ref.startswith(("http://", "https://"))


class FilterValues(Protocol):
    """Whoever evaluates filters."""

    async def value(
        self, program: str, root: object, tenant: str = "", budget: WorkerBudget | None = None
    ) -> Any:
        """Return the value of a filter, in the turn of a tenant: null for none, an array for several.

        Raises:
            BudgetSpent: the run has used its time in workers.
            FilterFailed: it does not compile, or fails.
        """
        ...


class WorkflowRefs(Protocol):
    """Whoever knows workflows by the names that others call them by."""

    async def resolve(self, tenant: str, ref: str, *, by_operator: bool = False) -> Loaded:
        """The definition that a reference stands for, in a definition of the operator or of the tenant.

        Raises:
            FlowRefused: there is none, or it cannot be had.
        """
        ...


class FlowParts:
    """The parts of one engine; `agent` is the agent whose tasks nested runs are."""

    def __init__(
        self,
        agent: str,
        *,
        definitions: Definitions,
        filters: FilterValues,
        activities: ActivityExecutor,
        delegates: DelegateExecutor,
        refs: WorkflowRefs,
        agents: AgentDelegates | None = None,
    ) -> None:
        self.agent = agent
        self.definitions = definitions
        self.value = filters.value
        self.activities = activities
        self.delegates = delegates
        self.refs = refs
        self.agents = agents
        # The quotas that model calls count in.
        self.meter: Meter = NoQuotas()
        # Runs that walk without waiting have their turns one at a time.
        self.turns = TenantPlaces(1)
        # Refuses answers that a run cannot accept; set by the operations on runs.
        self.check_answer: AnswerCheck | None = None
