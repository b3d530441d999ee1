"""This process as one of the store's nodes: the agents it carries, and its background tasks.

Owners, takeover and children share it with the runner; whoever holds it can append as this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from msgspec import Struct

from trunkline.clock import Ids, now_ms
from trunkline.log.events import Recorded, Status, Stepped, Submitted
from trunkline.log.fold import State
from trunkline.run.executor import Again, ChildTasks, Executor, Moment
from trunkline.run.feed import Feed
from trunkline.run.hops import Bounds
from trunkline.run.tasks import Tasks
from trunkline.store.base import Store
from trunkline.wire.types import Message, Part, Role, TaskState

log = logging.getLogger("trunkline.run")
# What goes on beside the requests of a process, to be begun; and the longest pause before it begins again.
BackgroundWork = Callable[[], Coroutine[Any, Any, None]]
LONGEST_PAUSE_S = 60.0
# The number of tasks whose waits are kept in memory, and of waits of one task.
WAITING_TASKS, MOMENTS = 50_000, 64


class Limits(Struct, frozen=True):
    """How patient a node is, in seconds and with tasks that end their nodes; how far one leads to others."""

    cancel_s: float = 5.0
    drain_s: float = 20.0
    # How long a run that can be played again may wait before it is dropped until it is due.
    park_after_s: float = 5.0
    # How often a task is begun again after a death before it fails, if it never gets any further.
    takeovers: int = 3
    bounds: Bounds = Bounds()


class HostedAgent(Struct, frozen=True):
    """An agent that this process carries, with what is its own: how long it may be silent, and is kept.

    `answer_s` is how long its questions are open that do not say so themselves; 0 is for ever. Steps of a
    tenant's new task that are known before it runs `opening` gives, to be recorded with its first message.
    Whether this version can go on from a log that another may have written, `legible` says. Where tenants
    have different agents of one id, `serves` says whose this one is. `check_answer` raises InvalidParams for
    an answer that the task cannot accept; the question then stays open. `asks_others` says whether only
    others than the requesting principal answer the questions of a tenant's tasks.
    """

    id: str
    executor: Executor
    stall_s: float = 900.0
    retention_s: float = 0.0
    answer_s: float = 0.0
    opening: Callable[[str, Submitted], tuple[Stepped, ...]] | None = None
    legible: Callable[[Sequence[Recorded]], Awaitable[bool]] | None = None
    serves: Callable[[str], bool] | None = None
    check_answer: Callable[[Feed, Message], Awaitable[None]] | None = None
    asks_others: Callable[[str], bool] | None = None
    # Whether the reply is on the last status of a task, too.
    final_message: bool = False

    @property
    def unbegun(self) -> Again:
        """How a task is run that nobody has begun: by its log, where that may say more than what is asked."""
        tells = self.executor.works_elsewhere or self.opening is not None
        return Again.RESUME if tells else Again.NO


class Node:
    """The id under which this process claims tasks, and everything that runs under it."""

    def __init__(
        self, store: Store, agents: Sequence[HostedAgent], ids: Ids, limits: Limits, *, dev: bool
    ) -> None:
        self.id = ids.new()
        self.ids = ids
        self.limits = limits
        self.dev = dev
        self.tasks = Tasks(store)
        self.agents = tuple(agents)
        # The agents by the names under which their tasks are recorded.
        self.by_name = _by_name(agents)
        # The children of a task of this node; set by whoever can open tasks.
        self.children: Callable[[Feed], ChildTasks]
        # Takes nothing new from the moment this is set.
        self.draining = False
        self._background: set[asyncio.Task[None]] = set()
        # The ends of waits, by task and recorded moment.
        self.moments: dict[str, dict[int, Moment]] = {}
        # Whether this node was announced to the others of the store.
        self.joined = False

    def carry(self, agents: Sequence[HostedAgent]) -> None:
        """Have these agents from now on, the same one at the origin.

        Raises:
            ValueError: another one comes first, to which old logs would then belong.
        """
        if agents[0].id != self.agents[0].id:
            raise ValueError(f"{agents[0].id!r} comes first in the place of {self.agents[0].id!r}")
        self.agents = tuple(agents)
        self.by_name = _by_name(agents)

    def find(self, tenant: str, name: str) -> HostedAgent | None:
        """The agent that runs what a tenant has recorded under a name."""
        found = self.by_name.get(name)
        if found is None or found.serves is None or found.serves(tenant):
            return found
        same = [one for one in self.agents if one.id == name]
        return next((one for one in same if one.serves is not None and one.serves(tenant)), None)

    def kept(self) -> list[tuple[tuple[str, ...], float]]:
        """For how many seconds ended tasks are kept, by the names under which they are recorded."""
        return [(self.names_of(agent.id), agent.retention_s) for agent in self.agents]

    async def join(self) -> None:
        """Announce this node and its agents to the others of the store."""
        self.joined = True
        await self.tasks.store.nodes.join(self.id, self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which tasks of the agents here are recorded."""
        return tuple(self.by_name)

    def names_of(self, agent: str) -> tuple[str, ...]:
        """The names under which tasks of one agent are recorded: two for the one at the origin."""
        return (agent, "") if agent == self.agents[0].id and agent else (agent,)

    def moment(self, task: State, at: int, longest_ms: int) -> Moment:
        """Return the end of a recorded wait of a task; within this process it stays the same.

        What is left is counted once, by the time of day, and is at most the full length of the wait.
        """
        known = self.moments.pop(task.task_id, {})
        # The task that was asked for last goes last, and so does its newest wait.
        self.moments[task.task_id] = known
        if at not in known:
            left_ms = max(0, min(at - max(now_ms(), task.came), longest_ms))
            known[at] = Moment(at, self.tasks.loop.time() + left_ms / 1000)
            while len(known) > MOMENTS:
                del known[next(iter(known))]
        while len(self.moments) > WAITING_TASKS:
            del self.moments[next(iter(self.moments))]
        return known[at]

    def forget_moments(self, task_id: str) -> None:
        """Drop the waits of a task that has ended."""
        self.moments.pop(task_id, None)

    async def lives_elsewhere(self, node: str) -> bool:
        """Whether this is another node that lives, as far as the store knows."""
        store = self.tasks.store
        return store.shared and node not in (self.id, "") and await store.nodes.alive(node)

    def failed(self, task: State, text: str) -> Status:
        """The end of a task that failed for this reason, in the words of its agent."""
        message = Message(
            message_id=self.ids.new(),
            context_id=task.context_id,
            task_id=task.task_id,
            role=Role.AGENT,
            # An exception's text may hold what no JSON can.
            parts=(Part(text=text.encode(errors="replace").decode()),),
        )
        return Status(TaskState.FAILED, message)

    def raised(self, task: State, error: BaseException) -> Status:
        """The end of a task whose executor raised; the log has the error under the reason that is told."""
        reason = self.ids.new()
        log.error("task.raised task=%s reason=%s", task.task_id, reason, exc_info=error)
        detail = f" {type(error).__name__}: {error}." if self.dev else ""
        return self.failed(task, f"The skill failed unexpectedly.{detail} Reason id {reason}.")

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something in the background until the runner stops."""
        task = self.tasks.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background.failed", exc_info=error)

    async def complete(self, work: Coroutine[None, None, None]) -> None:
        """Bring work to its end even if whoever asked for it goes away in the middle."""
        task = self.tasks.loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        await asyncio.shield(task)

    @property
    def ending(self) -> bool:
        """Whether all background work has ended or is being cancelled: with the runner, or with the loop."""
        return all([task.done() or task.cancelling() for task in self._background])

    async def end_background(self) -> None:
        """End everything that runs in the background."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


def _by_name(agents: Sequence[HostedAgent]) -> dict[str, HostedAgent]:
    # Logs that were written before agents had ids belong to the agent at the origin, the first one.
    return {"": agents[0], **{agent.id: agent for agent in agents}}


def error_of(task: asyncio.Task[None]) -> BaseException | None:
    """The error that a task ended with; none if it was cancelled."""
    try:
        return task.exception()
    except asyncio.CancelledError:  # Cancelled: the task that is asked, and not whoever asks
        # Asked all the same: until then a task keeps what cancelled it, which leads back to whoever holds
        # the task, a circle that stays until somebody collects garbage.
        return None


async def keep_running(work: BackgroundWork, first_pause_s: float = 1.0) -> None:
    """Run what goes on beside the requests; where it breaks, that is logged and it begins again."""
    loop, pause_s = asyncio.get_running_loop(), first_pause_s
    while True:
        began = loop.time()
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - logged; without it the process would lack a part and not know
            if loop.time() - began > LONGEST_PAUSE_S:
                # It went well for a while: this is another trouble.
                pause_s = first_pause_s
            log.error("background.failed again_s=%g", pause_s, exc_info=error)
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # It was to end, and nobody would say so again.
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
