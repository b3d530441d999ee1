"""The questions of one executor, one at a time; the log holds what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import cast

from msgspec import Struct, field
from msgspec.structs import replace

from trunkline.clock import now_ms
from trunkline.errors import Unanswered
from trunkline.log.events import ANSWERED_BY, DISPATCH_KEY, REQUESTED_BY, AnswerRead, QuestionClosed, Status
from trunkline.log.fold import State
from trunkline.run.buffer import EventBuffer
from trunkline.run.executor import IsMoot, LookAgain, Work, never
from trunkline.run.node import HostedAgent
from trunkline.wire.question import OTHERS, asked_of_others
from trunkline.wire.types import Message, Metadata, TaskState


def bounded(status: Status, answer_s: float) -> Status:
    """A question that says itself until when it is open, or else is for so many seconds; 0 is for ever."""
    if status.deadline or not answer_s:
        return status
    return replace(status, deadline=now_ms() + round(answer_s * 1000))


def restriction_of(agent: HostedAgent | None, tenant: str, state: State) -> Metadata:
    """Return who requested a task, and whether others must answer its questions, as children inherit it.

    Its dispatch says the one, and its dispatch or its agent the other.
    """
    told = (state.metadata or {}).get(DISPATCH_KEY)
    dispatched = cast("Metadata", told) if isinstance(told, dict) else {}
    found = {name: dispatched[name] for name in (ANSWERED_BY, REQUESTED_BY) if name in dispatched}
    if agent is not None and agent.asks_others is not None and agent.asks_others(tenant):
        found[ANSWERED_BY] = OTHERS
    return found


def restricted(status: Status, agent: HostedAgent, tenant: str, state: State) -> Status:
    """Return a status whose question only those answer who may."""
    if status.state is not TaskState.INPUT_REQUIRED or status.message is None:
        return status
    if restriction_of(agent, tenant, state).get(ANSWERED_BY) != OTHERS:
        return status
    return replace(status, message=asked_of_others(status.message))


class Questions(Struct):
    """Asks the questions of an executor and waits for their answers.

    `work` is the task, `is_ours` says whether the executor still speaks for it, and `reopens` that the next
    question stands open since an earlier run.
    """

    _work: Work
    _buffer: EventBuffer
    _is_ours: Callable[[], bool]
    reopens: bool
    # Whether the executor waits for its caller now.
    asking: bool = False
    _asked: set[int] = set()
    # One question at a time: the answer to one must not be taken for the answer to another.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def open(self) -> bool:
        """Whether a question is being asked."""
        return self._lock.locked()

    async def ask(self, status: Status, is_moot: IsMoot, look: LookAgain | None) -> Message:
        """The answer to a question, from the log or from the caller; it is withdrawn when it is moot."""
        async with self._lock:
            # Counted before it is answered: the answer to one that is given up is never that to the next.
            state, place = self._work.state, self._place(status)
            self._asked.add(place)
            if place >= len(state.answers):
                try:
                    await self._ask(place, status, is_moot, look)
                except asyncio.CancelledError:
                    if self._is_ours():
                        self._close(place, withdrawn=True)
                    raise
            if place >= state.taken:
                # Before the executor does anything with it: until then a crash costs nothing.
                self._buffer.put_now(AnswerRead(place))
                await self._buffer.drain()
            found = state.answers[place]
        if isinstance(found, Message):
            return found
        raise TimeoutError if found.withdrawn else Unanswered("The question was not answered in time.")

    def _place(self, status: Status) -> int:
        """Which of the recorded questions this is, or the next one.

        What a child asks keeps its id, so that it is known whichever of several calls comes first when they
        are played again; all others are known by their order.
        """
        known, of_children = self._work.state.questions, self._work.state.of_children()
        named = "" if status.message is None else status.message.message_id
        free = (place for place in count() if place not in self._asked)
        if named in of_children:
            # A child may ask it again after another question. A new one has no answer yet.
            return next(place for place in free if place >= len(known) or known[place] == named)
        return next(place for place in free if place >= len(known) or known[place] not in of_children)

    def _is_open(self, status: Status) -> bool:
        """Whether the question stands open since an earlier run."""
        # It may have been answered while the run was played again up to the next question.
        reopens, self.reopens = self.reopens and self._work.state.interrupted, False
        asked, of_children = self._work.state.question, self._work.state.of_children()
        if not reopens or asked is None or status.message is None:
            return reopens
        ids = {asked.message_id, status.message.message_id}
        return len(ids) == 1 or ids.isdisjoint(of_children)

    async def _ask(self, place: int, status: Status, is_moot: IsMoot, look: LookAgain | None) -> None:
        """Wait until a question is answered, or it is recorded that its deadline has passed or it is moot."""
        work, state = self._work, self._work.state
        if not self._is_open(status):
            # Where somebody else may settle it, another process looks after this one has died.
            self._buffer.put_now(status if is_moot is never else replace(status, busy=True))
        await self._buffer.drain()
        # It is open for that long in all, counted from when it was asked.
        at = state.deadline
        deadline = None if at is None else work.moment(at, at - state.status_at)

        def is_over() -> bool:
            is_late = deadline is not None and deadline.ends <= work.loop.time()
            return place < len(state.answers) or is_late or is_moot()

        self.asking = True
        try:
            while not is_over():
                pause_ms = 0 if look is None else await look()
                moments = [] if deadline is None else [deadline]
                moments += [work.moment_in(pause_ms)] if pause_ms else []
                await work.until(is_over, min(moments, key=lambda one: one.ends, default=None))
        finally:
            self.asking = False
        if place == len(state.answers):
            self._close(place, withdrawn=is_moot())
            await self._buffer.drain()

    def _close(self, place: int, *, withdrawn: bool = False) -> None:
        self._buffer.put(QuestionClosed(place, withdrawn))
        self._buffer.put_now(Status(TaskState.WORKING))
