"""How a run waits: with its coroutine at first; later it is dropped, and begun again when it is due.

Its log makes up for the coroutine. But a time limit, or the tasks of a group, live in the coroutine alone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Collection
from math import ceil
from typing import TYPE_CHECKING

from trunkline.errors import StoreError
from trunkline.log.decide import Park
from trunkline.log.events import WaitBegun
from trunkline.run import hops
from trunkline.run.executor import Moment, OnCrash
from trunkline.run.node import Node

if TYPE_CHECKING:
    from trunkline.run.owner import Owner

log = logging.getLogger("trunkline.run")
# A wait without a moment looks at the log this often even if nobody says that it has moved.
LONGEST_WAIT_S = 3600.0
# A resumed executor that waits for longer says so in the log.
NOTE_AFTER_S = 0.05
# `asyncio.timeout` and groups; those of anyio are known by where their classes come from.
_LIMITS = (asyncio.Timeout, asyncio.TaskGroup)


class Waits:
    """The waits of one executor: after a while without its coroutine, where its log can play it again."""

    __slots__ = ("_main", "_node", "_owner", "_park_due", "_task", "children", "count", "parkable")

    def __init__(self, owner: Owner, node: Node, task: asyncio.Task[None]) -> None:
        self._owner = owner
        self._node = node
        self._task = self._main = task
        # Whether one may be parked after a while; whether that is now.
        self.parkable = self._park_due = False
        # How many there are now, and the tasks whose end is waited for.
        self.count = 0
        self.children: set[str] = set()

    def mark_main(self) -> None:
        """Take the asyncio task that calls this for the one in which the whole executor waits."""
        self._main = asyncio.current_task(self._owner.loop) or self._main

    async def until(
        self,
        ready: Callable[[], bool],
        moment: Moment | None = None,
        children: Collection[str] = (),
        *,
        parks: bool = True,
    ) -> None:
        """Wait until something is so, or for a moment. See `Work.until`."""

        def is_due() -> bool:
            return ready() or (moment is not None and moment.ends <= self._owner.loop.time())

        self._owner.check()
        # A parked task names one child; with several it is kept, and they are found by that.
        child = next(iter(children), "")
        timer = self._consider_parking_later() if parks and len(children) < 2 else None
        noting = self._note_later(moment) if parks else None
        self.children.update(children)
        self.count += 1
        self.parkable = self.parkable or timer is not None
        try:
            while not is_due():
                if self._park_due and timer is not None:
                    self._park_due = False
                    await self._park(is_due, moment, child)
                    timer = self._consider_parking_later()
                    continue
                left_s = LONGEST_WAIT_S if moment is None else moment.ends - self._owner.loop.time()
                await self._node.tasks.move(self._owner.feed, min(left_s, LONGEST_WAIT_S))
        finally:
            if noting is not None:
                noting.cancel()
            if timer is not None:
                timer.cancel()
                self._park_due = self.parkable = False
            self.count -= 1
            self.children.difference_update(children)
            self._owner.heard_at = self._owner.loop.time()

    def _note_later(self, moment: Moment | None) -> asyncio.TimerHandle | None:
        """Schedule the note that a resumed executor only waits, unless its log says so already."""
        owner = self._owner
        is_main = asyncio.current_task(owner.loop) is self._main
        says_so = owner.state.crashes.only_waits or owner.agent.executor.works_elsewhere
        if not is_main or not owner.resumed or says_so:
            return None
        return owner.loop.call_later(NOTE_AFTER_S, self._note, moment)

    def _note(self, moment: Moment | None) -> None:
        owner = self._owner
        # A question is waited for by the state of the task, and other tasks of a group may be at work.
        if not (owner.asking or owner.let_go or owner.open_steps or is_bounded(self._task)):
            owner.put(WaitBegun(0 if moment is None else moment.at))

    def _consider_parking_later(self) -> asyncio.TimerHandle | None:
        # Only the wait of the executor as a whole: what is asked inside a gather has siblings at work.
        if asyncio.current_task(self._owner.loop) is not self._main:
            return None
        if self._owner.agent.executor.on_crash(self._owner.feed.state.skill) is not OnCrash.RESUME:
            return None
        return self._owner.loop.call_later(self._node.limits.park_after_s, self._consider_parking)

    def _consider_parking(self) -> None:
        # By a timer: only while the executor is suspended can be seen in which blocks it stands.
        if self._owner.let_go or is_bounded(self._task):
            return
        # A step that is under way or has raised is not in the log: the next run would do it again though
        # nothing has crashed, and might then take another way than the recorded one.
        self._park_due = not self._owner.open_steps
        self._owner.feed.nudge()

    @property
    def is_late(self) -> bool:
        """Return whether the deadline of the task's chain has passed."""
        last = self._last_moment()
        return last is not None and last.ends <= self._owner.loop.time()

    def _last_moment(self) -> Moment | None:
        """Return the deadline of the task's chain, if it has one."""
        owner = self._owner
        at = hops.deadline(owner.state)
        return None if at is None else owner.moment(at, max(0, at - owner.state.created_at))

    async def _park(self, ready: Callable[[], bool], moment: Moment | None, child: str) -> None:
        """Let go of the task until it is due; returns if it is to go on here instead."""
        owner = self._owner
        last = None if owner.asking else self._last_moment()
        first = min([one for one in (moment, last) if one], key=lambda one: one.ends, default=None)
        try:
            await owner.drain()
            rest_ms = 0 if first is None else max(1, ceil((first.ends - owner.loop.time()) * 1000))
            park = Park(self._node.id, 0 if first is None else first.at, child, rest_ms)
            # When this is appended the task is nobody's: `Owner.moved` drops the executor.
            await self._node.tasks.change(owner.feed, park, unless=ready)
        except StoreError as error:
            # If it was written all the same, the next word finds that out; until then it just waits on.
            log.error("task.unparked task=%s error=%s", self._owner.feed.state.task_id, error)
        self._owner.check()


def is_bounded(task: asyncio.Task[None]) -> bool:
    """Whether a suspended task waits inside a time limit or a group, which no log keeps."""
    place: object = task.get_coro()
    while place is not None:
        # The exit of a `with` block that is open stands on the stack of its frame; nothing else knows of it.
        held = gc.get_referents(place)
        if any(_is_limit(getattr(one, "__self__", one)) for one in held):
            return True
        place = _awaited(place, held)
    return False


def _is_limit(held: object) -> bool:
    return isinstance(held, _LIMITS) or type(held).__module__.partition(".")[0] == "anyio"


def _awaited(place: object, held: list[object]) -> object:
    for name in ("cr_await", "ag_await", "gi_yieldfrom"):
        if (found := getattr(place, name, None)) is not None:
            return found
    # `async for` awaits an object that tells of its generator only to the garbage collector.
    return next((one for one in held if hasattr(one, "ag_await")), None)
