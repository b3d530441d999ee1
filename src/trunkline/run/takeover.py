"""Looks for tasks that nobody runs: orphans of a dead node, parked ones that are due, and our own.

Our own are those that this node has claimed without anybody here to run them: a commit that came after
everybody had given it up, or a log that was set back. An orphan goes on as its skill wants it, a parked
task where it was. The log decides who takes over: a
claim names the node before, and only one claim can follow its last word.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trunkline.clock import follow_server, now_ms, wait_event
from trunkline.errors import Conflict, StoreError, TurnOver
from trunkline.log.decide import Claim, Emit, ForceCancel, Release, decide
from trunkline.log.fold import NEVER, State
from trunkline.log.head import state_from
from trunkline.run.executor import Again, OnCrash
from trunkline.run.feed import Feed
from trunkline.run.node import HostedAgent, Node
from trunkline.store.group_commit import Ack
from trunkline.store.records import Orphan, TaskRef

log = logging.getLogger("trunkline.run")
SHARED_S = 0.15
ALONE_S = OWN_S = 5.0
# A clock that differs by less from one reading to the next was not set.
STEP_S = 1.0
PAGE = 1000
TOGETHER = 100
DIED = "The process that ran this task ended before the task did."
LEFT = "Whoever ran this task lost it before it ended."
DEADLY = (
    "The process that ran this task ended before the task did, also after it was begun again {} times "
    "without getting any further."
)


class Takeover:
    """One node's share in taking over; `begin` runs a task's executor here."""

    def __init__(self, node: Node, begin: Callable[[Feed, HostedAgent, Again], None]) -> None:
        self._node = node
        self._begin = begin
        self._store = node.tasks.store
        self._called = asyncio.Event()
        # Taken over in part, or perhaps: what is claimed by us is no orphan that anybody would find.
        self._unsure: set[Orphan] = set()
        # Let go by their nodes and not to be claimed by their heads alone: their logs have moved since.
        self._moved: set[Orphan] = set()
        # Claimed and not yet begun; after a failure the next round begins them.
        self._claimed: list[tuple[Feed, HostedAgent, Again]] = []
        # Found damaged, or written by a newer version: named once and left alone while this process lives.
        self._damaged: set[Orphan] = set()
        # What the last look found to be claimed by this node and not run here.
        self._unrun: set[Orphan] = set()
        # Parked tasks that are due whatever the clock shows, and timers for those that will be.
        self._due: set[TaskRef] = set()
        self.timers: dict[TaskRef, asyncio.TimerHandle] = {}
        # How far the store's time was ahead of the monotonic clock; None before it was first read.
        self._ahead_s: float | None = None
        self._is_misdated = True
        # How many tasks of dead nodes were taken over, by what was then done with them.
        self.takeovers = dict.fromkeys(Again, 0)

    def call(self) -> None:
        """Look now: somebody has reason to believe that a node is gone."""
        self._called.set()

    def expect(self, task: TaskRef, ends: float) -> None:
        """Take up a parked task at this time of the loop.

        Replicas of a shared store follow its clock instead: any of them may be the first to see the task.
        """
        self.expect_no_more(task)
        if not self._store.shared:
            self.timers[task] = self._node.tasks.loop.call_at(ends, self._has_come, task)

    def expect_no_more(self, task: TaskRef) -> None:
        """Drop the timer of a task that runs or ended."""
        if (timer := self.timers.pop(task, None)) is not None:
            timer.cancel()

    def _has_come(self, task: TaskRef) -> None:
        del self.timers[task]
        self._due.add(task)
        self.call()

    def close(self) -> None:
        """Drop all timers, and use this machine's clock again."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()
        if self._store.shared:
            follow_server(None)

    async def read_clock(self) -> None:
        """Follow the clock of a shared store; where it was set back, look for waits that it prolongs.

        Raises:
            StoreError: the store is away.
        """
        if not self._store.shared:
            return
        now = await self._store.clock.now()
        ahead_s = now / 1000 - self._node.tasks.loop.time()
        follow_server(now)
        if self._ahead_s is not None and ahead_s < self._ahead_s - STEP_S:
            log.warning("clock.set_back seconds=%.0f", self._ahead_s - ahead_s)
            self._is_misdated = True
            self.call()
        self._ahead_s = ahead_s

    async def _find_parked(self) -> None:
        """Find the tasks that were parked by an earlier process or an earlier clock.

        What is left of their waits is at most their full length. In a shared store, each wait that began in
        the future is taken up: its executor waits for the rest, and at most for the full length.
        """
        now, after = await self._store.clock.now(), ""
        since = now + round(STEP_S * 1000) if self._store.shared else -NEVER
        while page := await self._store.nodes.parked(since, PAGE, after):
            after = page[-1].task_id
            for one in page:
                if self._store.shared:
                    self._due.add(TaskRef(one.tenant, one.task_id))
                elif (task := TaskRef(one.tenant, one.task_id)) not in self.timers:
                    rest_ms = min(one.wake_at - now, one.wake_at - one.since)
                    self.expect(task, self._node.tasks.loop.time() + rest_ms / 1000)
        self._is_misdated = False

    async def _take_due(self) -> None:
        """Take up the parked tasks whose time has come; those of agents that are not here stay due."""
        due = list(self._due)
        for start in range(0, len(due), TOGETHER):
            some = due[start : start + TOGETHER]
            feeds = await self._node.tasks.load_all(some)
            waiting = {
                task: feed.state
                for task, feed in feeds.items()
                if feed.runner is None and feed.state.wake_at is not None and not feed.state.over
            }
            self._due.difference_update(set(some) - waiting.keys())
            await self._take_all(
                [
                    Orphan(task.tenant, task.task_id, state.node, state.agent)
                    for task, state in waiting.items()
                    if self._node.find(task.tenant, state.agent)
                ]
            )

    async def run(self) -> None:
        """Look for orphans again and again, for ever."""
        pause_s = SHARED_S if self._store.shared else ALONE_S
        unread = ""
        while True:
            await wait_event(self._called, pause_s)
            self._called.clear()
            try:
                await self.round()
                unread = ""
            except StoreError as error:
                # Once, not at every look while the database is away.
                if str(error) != unread:
                    unread = str(error)
                    log.error("orphans.unread error=%s", error)

    async def round(self) -> None:
        """Take over everything that is orphaned now."""
        if self._node.draining:
            # Among them is what we have just released, for others.
            return
        await self._take_all(list(self._unsure))
        if self._is_misdated:
            await self._find_parked()
        if self._due:
            await self._take_due()
        seen: set[Orphan] = set()
        moved, self._moved = self._moved, set()
        nodes, agents = self._store.nodes, self._node.names
        while True:
            # What is left alone stays on the first page, and must not keep the others from it.
            timed = self._store.shared
            page = await nodes.orphans(agents, PAGE + len(self._damaged), timed=timed)
            orphans = [one for one in page if self._is_news(one, seen)]
            if not orphans:
                return
            seen.update(orphans)
            # Replicas see the same list; each begins elsewhere, so that most claims have no rival.
            orphans.sort(key=lambda orphan: hash((orphan.task_id, self._node.id)))
            await self._claim_released([one for one in orphans if one not in moved])
            await self._take_all([one for one in orphans if one not in self._unsure | self._moved])
            claimed = [one for one in orphans if one in self._unsure]
            for start in range(0, len(claimed), TOGETHER):
                await self._take_all(claimed[start : start + TOGETHER])

    async def _claim_released(self, orphans: list[Orphan]) -> None:
        """Claim what other nodes let go by its heads alone: to read all the logs first takes long."""
        node = self._node
        for start in range(0, len(orphans), TOGETHER):
            some: list[Orphan] = []
            acks: list[Ack] = []
            for one in orphans[start : start + TOGETHER]:
                if one.released is None or one in self._unsure:
                    continue
                agent = node.find(one.tenant, one.agent)
                if node.draining or agent is None or agent.legible is not None:
                    continue
                feed = Feed(one.tenant, state_from(one.released))
                # Before it is written: from then on nobody but us would look for it.
                self._unsure.add(one)
                some.append(one)
                acks.append(node.tasks.append(feed, decide(feed.state, Claim(node.id, ""))))
            for one, outcome in zip(some, await asyncio.gather(*acks, return_exceptions=True), strict=True):
                if isinstance(outcome, Conflict):
                    # Another node was faster; or somebody spoke since, and the next look reads it first.
                    self._unsure.discard(one)
                    self._moved.add(one)

    async def run_own(self) -> None:
        """Look for our own that nobody runs again and again, for ever."""
        while True:
            await asyncio.sleep(OWN_S)
            try:
                await self.own_round()
            except StoreError as error:
                log.error("claimed.unread error=%s", error)

    async def own_round(self) -> None:
        """Take up what this node has claimed and nobody here runs, now and at the last look."""
        node, unrun, after = self._node, set[Orphan](), ""
        while page := await self._store.nodes.claimed(node.id, node.names, PAGE, after):
            after = page[-1].task_id
            unrun.update(one for one in page if not node.tasks.is_run(one.tenant, one.task_id))
        # Twice the same claim: what is just being begun is on its way from the store to its executor.
        again, self._unrun = unrun & self._unrun, unrun
        await self._take_all([one for one in again if one not in self._damaged])

    async def _take_all(self, orphans: list[Orphan]) -> None:
        for start in range(0, len(orphans), TOGETHER):
            # Together, so that they share a read and a commit: a crash may leave thousands.
            some = orphans[start : start + TOGETHER]
            feeds = await self._node.tasks.load_all([TaskRef(one.tenant, one.task_id) for one in some])
            await asyncio.gather(*(self._take(one, feeds) for one in some))
        # Not before all are claimed: an executor that runs would keep the next one waiting.
        claimed, self._claimed = self._claimed, []
        for feed, agent, again in claimed:
            state = feed.state
            if feed.runner is None and state.node == self._node.id and not state.over:
                self._begin(feed, agent, again)

    def _is_news(self, orphan: Orphan, seen: set[Orphan]) -> bool:
        # Whoever wakes from a long sleep finds itself among the dead; its own executors are still at work.
        return orphan not in seen and orphan not in self._damaged and orphan.node != self._node.id

    async def _take(self, orphan: Orphan, feeds: dict[TaskRef, Feed]) -> None:
        try:
            feed = feeds.get(TaskRef(orphan.tenant, orphan.task_id))
            # Alone if it could not be read with the others, so that the reason is told.
            feed = feed or await self._node.tasks.load(orphan.tenant, orphan.task_id)
            if feed is not None and await self._is_legible(orphan, feed):
                await self._take_over(orphan, feed)
        except StoreError as error:
            if error.damaged_task:
                log.error("task.damaged task=%s error=%s", orphan.task_id, error)
                self._damaged.add(orphan)
                self._unsure.discard(orphan)
                return
            log.error("task.unclaimed task=%s error=%s", orphan.task_id, error)
            self._unsure.add(orphan)
            return
        except TurnOver as over:
            log.info("task.late task=%s reason=%s", orphan.task_id, over)
        except Exception as error:  # noqa: BLE001 - one that is damaged must not keep the others
            log.error("task.unclaimed task=%s error=%s: %s", orphan.task_id, type(error).__name__, error)
        self._unsure.discard(orphan)

    async def _is_legible(self, orphan: Orphan, feed: Feed) -> bool:
        """Whether this version can go on with it; else it is left to a process that can."""
        agent = self._node.find(feed.tenant, feed.state.agent)
        if agent is None or agent.legible is None or orphan.node == self._node.id:
            return True
        if await agent.legible(await self._node.tasks.records(feed)):
            return True
        log.warning("task.illegible task=%s agent=%s", orphan.task_id, agent.id)
        self._damaged.add(orphan)
        return False

    async def _take_over(self, orphan: Orphan, feed: Feed) -> None:
        node, state = self._node, feed.state
        agent = node.find(feed.tenant, state.agent)
        if agent is None or node.draining:
            # It goes on when its agent is back, or elsewhere; not here, though we may just have claimed it.
            if orphan in self._unsure and self._is_idle(feed):
                await node.tasks.change(feed, Release(node.id))
            return
        wake_at, task = state.wake_at, TaskRef(feed.tenant, state.task_id)
        is_early = bool(wake_at) and (not self._store.shared or (wake_at or 0) > now_ms())
        if is_early and task not in self._due and orphan not in self._unsure:
            return
        self._due.discard(task)
        own = orphan.node == node.id
        # In the log, so that whatever its clock shows its executor knows that the moment has come.
        claim = Claim(node.id, orphan.node, due=bool(wake_at))
        claimed = () if own else await node.tasks.change(feed, claim)
        if not claimed and not ((own or orphan in self._unsure) and self._is_idle(feed)):
            return
        if own and state.seq == state.opened:
            # Nothing of it was begun.
            log.warning("task.unrun task=%s", state.task_id)
            self._claimed.append((feed, agent, agent.unbegun))
            return
        if wake_at is not None:
            # Only what can be played again is ever parked, whatever the skill says today.
            again = Again.RESUME
            log.info("task.woken task=%s", state.task_id)
        else:
            again = _again(state, agent.executor.on_crash(state.skill))
            self.takeovers[again] += not own
            name = "task.unrun" if own else "task.orphaned"
            log.warning(f"{name} task=%s node=%s again=%s", state.task_id, orphan.node, again.value)
        if state.cancel_requested and not agent.executor.works_elsewhere:
            await node.tasks.change(feed, ForceCancel())
        elif again is Again.NO:
            verdict = node.failed(state, LEFT if own else DIED)
            await node.tasks.change(feed, Emit(node.id, (verdict,)))
        elif state.crashes.takeovers > node.limits.takeovers and not agent.executor.works_elsewhere:
            # It may be what ends the processes, and would go on until none is left. What is done elsewhere
            # only waits here, however often its process dies meanwhile.
            log.error("task.deadly task=%s takeovers=%d", state.task_id, state.crashes.takeovers)
            verdict = node.failed(state, DEADLY.format(node.limits.takeovers))
            await node.tasks.change(feed, Emit(node.id, (verdict,)))
        else:
            self._claimed.append((feed, agent, again))

    def _is_idle(self, feed: Feed) -> bool:
        state = feed.state
        return state.node == self._node.id and not state.resting and feed.runner is None


def _again(state: State, on_crash: OnCrash) -> Again:
    if len(state.answers) > state.taken:
        # It waited when its node died, and was answered since: nothing was begun that could be done twice.
        return Again.RESUME
    return {OnCrash.RESTART: Again.RESTART, OnCrash.RESUME: Again.RESUME}.get(on_crash, Again.NO)
