"""Stops tasks: by their executors at first, in any case within the limit.

Where the work is done elsewhere only an executor can say so there. If none is at work on the task, it is
claimed for that, whatever became of the node that had it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import TaskNotCancelable
from trunkline.log.decide import Cancel, ForceCancel
from trunkline.run.executor import Again
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Node
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import TaskState


class Canceling(Struct, frozen=True):
    """One node's way to stop tasks; `begin` runs an executor here, `due` looks for tasks that are due."""

    _node: Node
    _begin: Callable[[Feed, HostedAgent, Again], None]
    _due: Callable[[], None]

    async def cancel(self, feed: Feed, principal: str, reason: str = "") -> None:
        """Stop a task; the log keeps the reason.

        Raises:
            TaskNotCancelable: it has ended, or ended otherwise before it could be stopped.
        """
        node, state = self._node, feed.state
        agent, order = node.find(feed.tenant, state.agent), Cancel(principal, reason=reason)
        if agent is not None and agent.executor.works_elsewhere:
            await self._tell(feed, agent, replace(order, told=True))
        else:
            await node.tasks.change(feed, order)
            runs = feed.runner is not None or await node.lives_elsewhere(state.node)
            await node.tasks.end(feed, node.limits.cancel_s + 1 if runs else 0.0)
        if not state.over:
            await node.tasks.change(feed, ForceCancel())
        if state.state is not TaskState.CANCELED:
            raise TaskNotCancelable(
                f"task {state.task_id} was faster than the cancel: {plain_state(state.state)}"
            )

    async def _tell(self, feed: Feed, agent: HostedAgent, order: Cancel) -> None:
        """Have an executor tell whoever does the work."""
        runs = feed.runner is not None or await self._node.lives_elsewhere(feed.state.node)
        await self._order(feed, agent, order, claims=not runs)
        if not feed.state.over and feed.runner is None:
            # Whoever had it has died and not been missed so far, or was letting go of it.
            with contextlib.suppress(TaskNotCancelable):
                await self._order(feed, agent, order, claims=True)

    async def _order(self, feed: Feed, agent: HostedAgent, order: Cancel, *, claims: bool) -> None:
        node, state = self._node, feed.state
        if claims:
            order = replace(order, claim=node.id, before=state.node)
        await node.tasks.change(feed, order)
        if claims and state.node == node.id and feed.runner is None and not state.over:
            self._begin(feed, agent, Again.RESUME)
        else:
            self._due()
        await node.tasks.end(feed, node.limits.cancel_s + 1)
