"""Runs of workflows on an engine of their own, and runs that begin with rows that are given."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, cast

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.clock import now_ms
from trunkline.flow.activities.base import Activity, DelegateOrder, Outcome, failed
from trunkline.flow.engine.run_messages import RunOrder, run_task_id
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.log.events import FlowRow, FlowRows, Status, Stepped, Submitted
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.wire.types import TaskState

LIMIT_S = 60.0
CALLER = FlowCaller()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end within a limit."""

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await work

    asyncio.run(main())


async def seed(
    flows: LocalFlows,
    document: dict[str, Any],
    given: dict[str, Any],
    rows: Sequence[FlowRow],
    *,
    execution_id: str,
    mode: Any = "in_process",
    by_hash: bool = False,
    tenant: str = DEFAULT_TENANT,
    step: Stepped | None = None,
) -> None:
    """Have the log of a run end behind these rows, as if its process had died there; somebody takes it up.

    With `by_hash` as older versions wrote it, with its definition beside the log; with `step` as newer ones may.
    """
    engine, store = flows.engine, flows.store
    loaded = engine.definitions.read(document)
    if by_hash:
        await engine.definitions.keep(tenant, loaded)
    task_id = run_task_id(execution_id, tenant)
    message = RunOrder(execution_id, loaded.definition.hash, mode).message(f"{task_id}:order", given)
    # PostgreSQL looks but now and then for tasks of nodes that it has never heard of, and at once for nobody's.
    node = "" if store.shared else "dead"
    first = Submitted(message, task_id, "anonymous", node, "workflow", agent=engine.parts.agent)
    opening = [first] if by_hash else [first, step or loaded.step]
    events = [*opening, Status(TaskState.WORKING), *([FlowRows(tuple(rows))] if rows else [])]
    at = now_ms()
    head = head_after(State(task_id), events, at)
    await store.log.append(tenant, task_id, 0, events, at=at, head=head)
    flows.runner._takeover.call()  # pyright: ignore[reportPrivateUsage] - as a look that comes by itself


class Counting:
    """Does activities and delegations, and counts how often each node was asked for."""

    def __init__(self, outputs: dict[str, Any] | None = None, hold: Sequence[str] = ()) -> None:
        self.calls: dict[str, int] = {}
        self.of_run: dict[tuple[str, str], int] = {}
        self._outputs = outputs or {}
        self.held = {node: asyncio.Event() for node in hold}

    async def execute(self, activity: Activity) -> Outcome:
        """Give what is set for the node: an outcome, or the output of a success; of a list one each time."""
        return await self._do(activity.node.id, activity.execution_id)

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """As with activities."""
        return await self._do(order.node.id, order.execution_id)

    async def _do(self, node: str, execution: str) -> Outcome:
        self.calls[node] = self.calls.get(node, 0) + 1
        self.of_run[execution, node] = self.of_run.get((execution, node), 0) + 1
        if node in self.held:
            await self.held[node].wait()
        found: Any = self._outputs.get(node, {})
        if isinstance(found, list):
            several = cast("list[Any]", found)
            found = several[min(self.calls[node], len(several)) - 1]
        return found if isinstance(found, Outcome) else Outcome(ok=True, output=found)


class RejectingActivities:
    """Fails always: a replay that reaches it has done again what was recorded already."""

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        return failed("CONFORMANCE_ACTIVITY_PORT_INVOKED", f"{activity.node.id}: no activity was expected")


class RejectingDelegate:
    """Fails always: a replay that reaches it has called what was recorded already."""

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        return failed("CONFORMANCE_DELEGATE_PORT_INVOKED", f"{order.node.id}: no delegation was expected")
