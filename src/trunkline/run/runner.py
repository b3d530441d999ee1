"""Starts, answers, cancels and recovers tasks; owns every executor that is at work in this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from trunkline.clock import Ids, now_ms
from trunkline.errors import (
    Conflict,
    Duplicate,
    StoreError,
    Unavailable,
)
from trunkline.log.decide import Release, Say
from trunkline.log.delegation import Notify
from trunkline.log.events import AnyEvent, PushTarget, Routed, Status, Submitted
from trunkline.log.fold import NEVER
from trunkline.run import hops
from trunkline.run.buffer import RETRY_S
from trunkline.run.canceling import Canceling
from trunkline.run.children import Children, OpenedTasks
from trunkline.run.executor import Again, OnCrash
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Limits, Node
from trunkline.run.owner import Owner
from trunkline.run.replication import Replication
from trunkline.run.retention import Retention
from trunkline.run.takeover import Takeover
from trunkline.store.base import Store
from trunkline.store.group_commit import Ack
from trunkline.store.records import Dedup, TaskRef
from trunkline.wire.question import answered_question
from trunkline.wire.types import Message, Part, Role, SendRequest, TaskState

log = logging.getLogger("trunkline.run")
BEAT_S = 1.0
# A database may still be at work on what it was given before the connection was lost.
LATE_S = 10.0
UNWIND_S = 1.0


class Runner:
    """The agents of one process and the tasks that their executors work on; the first is at the origin."""

    def __init__(
        self,
        store: Store,
        agents: Sequence[HostedAgent],
        ids: Ids,
        limits: Limits | None = None,
        *,
        dev: bool = False,
    ) -> None:
        self._node = Node(store, agents, ids, limits or Limits(), dev=dev)
        # The id under which this process claims tasks.
        self.node = self._node.id
        self.tasks = self._node.tasks
        self.ids = ids
        self.origin = agents[0].id
        self._store = store
        self._takeover = Takeover(self._node, self._begin)
        self._replication = Replication(self.tasks, self._takeover.call)
        self._retention = Retention(self.tasks, self._node.kept())
        self._owners: set[Owner] = set()
        # Agents that are carried no longer and still have tasks in work here.
        self._leaving: list[HostedAgent] = []
        self._canceling = Canceling(self._node, self._begin, self._takeover.call)
        self._children = Children(self._node, self._owners, self._canceling.cancel, self._takeover.call)
        self._node.children = partial(OpenedTasks, self)
        # Messages on their way to an executor; the end waits for them.
        self._arriving = 0

    def agent(self, agent: str, tenant: str = "") -> HostedAgent:
        """An agent that is carried here, by its id; that of a tenant, where others have another."""
        found = self._node.by_name.get(agent)
        if found is None or (found.serves and (found := self._node.find(tenant, agent)) is None):
            raise KeyError(f"agent {agent!r} is not carried here")
        return found

    def find_agent(self, agent: str, tenant: str) -> HostedAgent | None:
        """Return the agent that runs what a tenant has recorded under a name, if this process hosts it."""
        return self._node.find(tenant, agent)

    def names_of(self, agent: str) -> tuple[str, ...]:
        """The names under which the tasks of an agent are recorded: two for the one at the origin."""
        return self._node.names_of(agent)

    def keep_of(self, tenants: Callable[[], Mapping[str, float]]) -> None:
        """Keep the ended tasks of these tenants for so many seconds at most."""
        self._retention.keep_of(tenants)

    async def carry(
        self, agents: Sequence[HostedAgent], former: Sequence[tuple[tuple[str, ...], float]] = ()
    ) -> None:
        """Carry these agents from now on, the one at the origin first as before.

        What runs goes on with the agent that it was begun with. Open tasks of one that is carried no longer
        wait for it otherwise. Ended ones of `former` agents are kept for so many seconds, by their names.

        Raises:
            ValueError: another agent comes first.
            StoreError: the other nodes of the store do not hear of it; say it again.
        """
        node = self._node
        stay = {id(agent.executor) for agent in agents}
        gone = [agent for agent in node.agents if id(agent.executor) not in stay]
        node.carry(agents)
        self._retention.keep([*node.kept(), *former])
        self._leaving += gone
        await self._close_left()
        if node.joined:
            await node.join()
            self._takeover.call()

    async def _close_left(self) -> None:
        """Close the executors that are carried no longer, and that nothing is run by."""
        used = {id(owner.agent.executor) for owner in self._owners}
        left = [agent for agent in self._leaving if id(agent.executor) not in used]
        self._leaving = [agent for agent in self._leaving if id(agent.executor) in used]
        for agent in left:
            await agent.executor.close()

    async def start(self) -> None:
        """Join the store's nodes, take over what dead nodes left, and keep watch."""
        node = self._node
        await node.join()
        await self._takeover.read_clock()
        # Not awaited: a crash may have left thousands, and whoever calls now need not wait for them.
        self._takeover.call()
        node.spawn(self._watch())
        node.spawn(self._takeover.run())
        node.spawn(self._takeover.run_own())
        node.spawn(self._retention.run())
        node.spawn(self._children.run())
        if self._store.shared:
            node.spawn(self._replication.listen())
            node.spawn(self._replication.read())

    def drain(self) -> None:
        """Take nothing new from here on."""
        self._node.draining = True

    @property
    def draining(self) -> bool:
        """Whether the runner is going down."""
        return self._node.draining

    @property
    def ready(self) -> bool:
        """Whether the store took what it was last given, and more may come."""
        return not self.draining and not self.tasks.failing

    @property
    def takeovers(self) -> int:
        """How many tasks of dead nodes were taken over here."""
        return sum(self._takeover.takeovers.values())

    @property
    def recovered(self) -> dict[str, int]:
        """The same by what became of them: `no` did not run again."""
        return {again.value: count for again, count in self._takeover.takeovers.items()}

    @property
    def late(self) -> int:
        """How many events were refused because their task had ended or moved."""
        return self.tasks.late

    async def stop(self) -> None:
        """Take nothing new, let executors end for a while, then end them with a reason."""
        self.drain()
        if self._store.shared:
            # What is being sent is waited for: nobody could tell whether it arrived.
            sending = {one for one in self._owners if one.agent.executor.works_elsewhere and not one.idle}
            await self._release([one for one in self._movable() if one not in sending])
        await self._until(lambda: not self._arriving and self._settled(), self._node.limits.drain_s)
        moved = self._movable()
        for owner in self._owners.difference(moved):
            owner.stop_with("The server was stopped before the task ended.")
        await self._release(moved)
        await self._until(self._idle, self._node.limits.cancel_s + 1)
        for owner in list(self._owners):
            owner.abandon()
        await self._until(lambda: not self._owners, UNWIND_S)
        await self._node.end_background()
        for agent in (*self._node.agents, *self._leaving):
            await agent.executor.close()
        self._takeover.close()
        try:
            await self._store.nodes.leave(self.node)
        except StoreError as error:
            log.error("node.unsaid node=%s error=%s", self.node, error)

    def _movable(self) -> list[Owner]:
        """What another node, or this one after its next start, can go on with."""
        return [
            owner
            for owner in self._owners
            if owner.idle or owner.agent.executor.on_crash(owner.state.skill) is not OnCrash.FAIL
        ]

    async def _release(self, owners: list[Owner]) -> None:
        for owner in owners:
            owner.abandon()
        # Otherwise the next process would take this stop for a crash, which a question outlives in any case.
        some = [owner for owner in owners if self._store.shared or not owner.asking]
        released = (self.tasks.change(owner.feed, Release(self.node)) for owner in some)
        for outcome in await asyncio.gather(*released, return_exceptions=True):
            if isinstance(outcome, BaseException):
                # It is found when this node is gone.
                log.error("task.unreleased error=%s", outcome)

    def _settled(self) -> bool:
        """Whether nothing would be lost now; what others do is let go of, unless a skill waits for it."""
        if not self._store.shared:
            needed = {child for one in self._owners if not one.idle for child in one.awaited}
            for one in [one for one in self._owners if one.agent.executor.works_elsewhere and one.idle]:
                if one.state.task_id not in needed:
                    one.abandon()
        return self._idle()

    def _idle(self) -> bool:
        return all(owner.idle for owner in self._owners)

    async def _until(self, reached: Callable[[], bool], limit_s: float) -> None:
        deadline = self.tasks.loop.time() + limit_s
        # Once in the life of a process; an event would cost every task something.
        while not reached() and self.tasks.loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _check_open(self) -> None:
        if self._node.draining:
            raise Unavailable("the server is going down; nothing was recorded, try again")

    def _begin(self, feed: Feed, agent: HostedAgent, again: Again = Again.NO) -> None:
        # A context that is named after this task began with it.
        continues = feed.state.context_id != feed.state.task_id
        if self._takeover.timers:
            self._takeover.expect_no_more(TaskRef(feed.tenant, feed.state.task_id))
        owner = Owner(self._node, agent, feed, self._left, continues=continues, again=again)
        self._owners.add(owner)

    def _left(self, owner: Owner) -> None:
        self._owners.discard(owner)
        if self._leaving:
            self._node.spawn(self._close_left())
        state = owner.feed.state
        if state.over and self._node.moments:
            self._node.forget_moments(state.task_id)
        if state.wake_at is not None and state.wake_at < NEVER and not state.node:
            moment = self._node.moment(state, state.parked_until or state.wake_at, state.wake_at - now_ms())
            self._takeover.expect(TaskRef(owner.tenant, state.task_id), moment.ends)

    async def _resolve(self, feed: Feed) -> None:
        """Look whether an append whose fate is unknown was written: what is claimed by us must be run."""
        state = feed.state
        until = None
        while not self._node.draining:
            try:
                await self.tasks.refresh(feed)
                until = until or self.tasks.loop.time() + (LATE_S if self._store.shared else 0)
            except StoreError:
                until = None
            if not self.tasks.holds(feed):
                # Another attempt to open the task has begun, and runs it once that is written.
                return None
            if state.seq and state.node == self.node and not state.resting and feed.runner is None:
                agent = self.agent(state.agent, feed.tenant)
                is_new = state.seq == state.opened
                return self._begin(feed, agent, agent.unbegun if is_new else Again.RESUME)
            if until is not None and self.tasks.loop.time() >= until:
                return None
            await asyncio.sleep(RETRY_S)

    @property
    def running(self) -> int:
        """How many tasks are in work here."""
        return len(self._owners)

    def submit(
        self,
        tenant: str,
        principal: str,
        request: SendRequest,
        dedup: Dedup | None = None,
        *,
        agent: str,
        parent: str = "",
        task_id: str = "",
        trace: str = "",
        push: PushTarget | None = None,
        extensions: tuple[str, ...] | None = None,
        routed: Routed | None = None,
        claim: Dedup | None = None,
    ) -> tuple[Feed, Ack]:
        """Open a task of an agent; its executor starts when it is recorded, whoever still waits.

        `routed` is why that agent does it; a refusal ends the task. `claim` is recorded with the task.

        Raises:
            KeyError: the agent is not carried here.
            Refused: no skill takes the message, or its chain of agents ends here.
            Unavailable: the runner is stopping.
        """
        hosted, skill = self._admitted(tenant, agent, request, parent, routed)
        task_id = task_id or self.ids.new()
        context_id = request.message.context_id or task_id  # A new conversation has the ID of its first task.
        event = Submitted(
            message=_first(request.message, task_id, context_id),
            context_id=context_id,
            principal=principal,
            node=self.node,
            skill=skill,
            output_modes=request.accepted_output_modes,
            metadata=request.metadata,
            trace=trace,
            push=push,
            extensions=extensions,
            agent=agent,
            parent=parent,
            correlation=request.correlation,
            flat=request.flat,
        )
        feed = self.tasks.begin(tenant, task_id)
        key = self._own(dedup, agent) if routed is None else dedup  # One key, whoever is chosen.
        events, then = _opening(tenant, event, routed, hosted), partial(self._opened, feed, hosted)
        ack = self.tasks.append(feed, events, key, then, claim=claim)
        self._arriving += 1
        return feed, ack

    def _admitted(
        self, tenant: str, agent: str, request: SendRequest, parent: str, routed: Routed | None
    ) -> tuple[HostedAgent | None, str]:
        """Who runs a new task, and which skill of it; nobody runs what was refused."""
        # A parent is let come to its end when the runner goes down, and may need a child for that.
        if not parent:
            self._check_open()
        if routed is not None and routed.refusal:
            return None, routed.skill
        if request.metadata or request.message.metadata:
            hops.check(request, self._node.limits.bounds, now_ms())
        hosted = self.agent(agent, tenant)
        skill = hosted.executor.admit(request)
        return hosted, skill or ("" if routed is None else routed.skill)

    def _own(self, dedup: Dedup | None, agent: str) -> Dedup | None:
        """The key of a message to this agent: sent to two agents, one message id makes two tasks."""
        if dedup is None or agent in (self.origin, ""):
            # As it was before there were several, so that a repeat is known after an update too.
            return dedup
        return replace(dedup, key=f"{agent}\x1f{dedup.key}")

    def _opened(self, feed: Feed, agent: HostedAgent | None, error: StoreError | None) -> None:
        self._arriving -= 1
        if error is None:
            if agent is not None:
                self._begin(feed, agent)
            return
        feed.fail(error)
        if not isinstance(error, Conflict | Duplicate):
            self._node.spawn(self._resolve(feed))

    async def say(
        self,
        feed: Feed,
        message: Message,
        dedup: Dedup | None = None,
        push: PushTarget | None = None,
        *,
        by: str = "",
        relayed: bool = False,
    ) -> None:
        """Add a message; if the task waited for it and nobody runs it, resume it here.

        `by` is the principal that sent it, if it is not the owner of the task; `relayed` is for a parent that
        passes an answer down.

        Raises:
            Refused: the task has ended, belongs to another context, or does not ask what is answered.
            Unavailable: the runner is stopping.
        """
        # As for those that are opened: a parent may need the child's end to come to its own.
        if not feed.state.parent:
            self._check_open()
        self._arriving += 1
        await self._node.complete(self._say(feed, Say(message, push=push, by=by, relayed=relayed), dedup))

    async def _say(self, feed: Feed, command: Say, dedup: Dedup | None) -> None:
        try:
            await self._take(feed, command, dedup)
        finally:
            self._arriving -= 1

    async def _take(self, feed: Feed, command: Say, dedup: Dedup | None) -> None:
        state, message = feed.state, command.message
        said = replace(message, task_id=state.task_id, context_id=message.context_id or state.context_id)
        if dedup is not None and (state.over or answered_question(said)) and said in state.history:
            # A retry of what the task has taken; that it went on or ended since is no reason to refuse it.
            return
        elsewhere = feed.runner is None and state.interrupted and await self._node.lives_elsewhere(state.node)
        # Not if it asks only now: then whoever asked lives, or is found to be dead.
        agent = self._node.find(feed.tenant, state.agent)
        claims = feed.runner is None and state.interrupted and not elsewhere and agent is not None
        claim = self.node if claims else ""
        # An answer for a child was checked when its parent, which relays the question, accepted it.
        if agent is not None and agent.check_answer is not None and state.interrupted and not state.parent:
            await agent.check_answer(feed, said)
        try:
            command = replace(command, message=said, claim=claim)
            events = await self.tasks.change(feed, command, self._own(dedup, state.agent))
        except (Conflict, Duplicate):
            raise
        except StoreError:
            self._node.spawn(self._resolve(feed))
            raise
        if feed.runner is not None:
            return
        answered = any(isinstance(event, Status) for event in events)
        if answered and state.node == self.node and agent is not None:
            self._begin(feed, agent, Again.RESUME)
        elif answered or not state.node:
            # Also what was said to a parked task that asked for nothing: that made it due.
            self._takeover.call()

    async def notify(self, feed: Feed, notice: Notify) -> None:
        """Record what the agent elsewhere that does the work tells of it, and have the task hear that.

        Raises:
            StoreError: nothing was recorded.
        """
        await self.tasks.change(feed, notice)
        if not feed.state.node:
            self._takeover.call()

    async def cancel(self, feed: Feed, principal: str, reason: str = "") -> None:
        """Stop a task: cooperatively at first, in any case within the limit; the log keeps the reason.

        Raises:
            TaskNotCancelable: it has ended, or ended otherwise before it could be stopped.
        """
        await self._node.complete(self._canceling.cancel(feed, principal, reason))

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await self._store.nodes.beat(self.node)
                await self._takeover.read_clock()
                self.tasks.failing = False
            except StoreError as error:
                self.tasks.failing = True
                log.error("node.silent node=%s error=%s", self.node, error)
            time = self.tasks.loop.time()
            for owner in list(self._owners):
                if owner.asking:
                    continue
                if not owner.waiting and owner.heard_at < time - owner.agent.stall_s:
                    owner.stop_with("The skill was silent for too long and was stopped.")
                elif owner.waits.is_late:
                    owner.stop_with("The deadline that came with the message has passed.")


def _opening(
    tenant: str, first: Submitted, routed: Routed | None, hosted: HostedAgent | None
) -> tuple[AnyEvent, ...]:
    """The events that a task begins with; one that was refused ends with them."""
    steps = () if hosted is None or hosted.opening is None else hosted.opening(tenant, first)
    if routed is None:
        return (first, *steps)
    if not routed.refusal:
        return (first, routed, *steps)
    said = first.message
    why = Message(
        f"{said.task_id}:refused", said.context_id, said.task_id, Role.AGENT, (Part(text=routed.reason),)
    )
    return (first, routed, Status(TaskState.REJECTED, why))


def _first(said: Message, task_id: str, context_id: str) -> Message:
    """A message as the first of its task."""
    return Message(
        said.message_id,
        context_id,
        task_id,
        said.role,
        said.parts,
        said.metadata,
        said.extensions,
        said.reference_task_ids,
        said.extra,
    )
