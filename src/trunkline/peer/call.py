"""A call of another agent from inside a skill: a child task, opened, waited for and read.

The child is a task of this store: of an agent that this process carries, or one whose executor has a remote
agent do the work. So a call outlives crashes as every task does, is cancelled with its parent, and asks as
every task does.
"""

from __future__ import annotations

from typing import Protocol, cast

import msgspec
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from trunkline.client.message import Content, compose
from trunkline.client.result import Result, text_of
from trunkline.clock import now_ms
from trunkline.errors import CallFailed, Misuse, Refused, TaskNotFound, Unanswered
from trunkline.log.events import Status, Stepped
from trunkline.log.fold import State
from trunkline.peer.remote import CALL_KEY, Calling, Reachable, Target
from trunkline.run import hops
from trunkline.run.executor import Work
from trunkline.wire.question import question_metadata
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import INTERRUPTED, Message, Metadata, Part, SendRequest, Task, TaskState

CALL, RESULT = "call", "call.result"
LONGEST_S = 366 * 24 * 3600


class Steps(Protocol):
    """Where a skill's run stands among its steps, and what it may hand on to others."""

    def next_step(self, name: str) -> int:
        """The place of the next step."""
        ...

    def chain(self) -> Metadata:
        """The chain of agents as the called one is told of it."""
        ...

    @property
    def raised(self) -> dict[str, str]:
        """The question of each child that the skill was given last, to be answered by another call."""
        ...


class PlannedCall(Struct, frozen=True):
    """A call as it is recorded before its child exists."""

    child: str
    message: str


class AgentCall:
    """One call, at its two places among the steps of a run: where it began, and what it gave."""

    def __init__(self, work: Work, steps: Steps, reachable: Reachable, target: str, said: Calling) -> None:
        self._work = work
        self._raised = steps.raised
        self._target = target
        self._said = _checked(said)
        # Both now, and the chain too, so that calls that are begun together keep theirs when played again.
        self._places = steps.next_step(CALL), steps.next_step(RESULT)
        try:
            self._agent = reachable.agent(target)
        except Misuse:
            # What has begun goes on: its child may wait for an agent that this process does not carry.
            if work.recorded_step(self._places[0], CALL) is None:
                raise
            self._agent = target
        self._is_remote = self._agent == reachable.remote
        skill = said.get("skill", "")
        lacks = skill and not self._is_remote and reachable.lacks(work.tenant, self._agent, skill)
        self._lacking = skill if lacks else ""
        try:
            self._chain = steps.chain()
        except Refused as refused:
            raise CallFailed(f"{target} is not called: {refused.message}") from refused

    async def run(self, content: Content | None) -> Result:
        """Have it done, however long that takes.

        Raises:
            CallFailed: it was not; `state` and `result` say more.
        """
        content = _content(content, self._said)
        planned = await self._begin()
        message = self._message(content, planned)
        state, children = self._work.state, self._work.children
        try:
            if self._said.get("task"):
                await self._answer(planned, message)
            elif planned.child not in state.ended_children and planned.child not in state.child_questions:
                if self._lacking and await self._known(planned.child) is None:
                    raise CallFailed(f"{self._target} is not called: it has no skill {self._lacking!r}")
                # Only then it may have to be opened: one that has ended may be kept no longer.
                await children.open(planned.child, self._agent, SendRequest(message))
            await self._rest(planned)
        except Refused as refused:
            raise CallFailed(f"{self._target} does not take it: {refused.message}") from refused
        result = Result(await self._ended(planned.child))
        if not result.ok:
            said = text_of(result.task.status.message if result.task else None) or result.text
            raise CallFailed(
                f"{self._target} ended as {plain_state(result.state)}: {said or 'without a word'}", result
            )
        return result

    async def _rest(self, planned: PlannedCall) -> None:
        """Wait for the end of the child; what it asks meanwhile is asked of our own caller."""
        state, child, heard = self._work.state, planned.child, 0
        while True:
            await self._work.until(lambda heard=heard: state.has_rested(child, heard), children=(child,))
            # First what it asked: what was asked of our caller before a crash is asked again, in its order.
            asked = state.child_questions.get(child, ())
            if heard == len(asked):
                return
            heard += 1
            await self._ask(child, asked[heard - 1], heard)

    async def _ask(self, child: str, question: str, heard: int) -> None:
        work = self._work
        known = await self._known(child)
        is_open = _asks(known, question)
        if self._said.get("questions") == "raise":
            result = Result(await self._outcome(known, is_open=is_open))
            if result.task is not None and result.state in INTERRUPTED:
                self._raised[child] = (
                    "" if (asked := result.task.status.message) is None else asked.message_id
                )
                raise CallFailed(f"{self._target} asks: {result.question}", result)
            return
        if known is not None and is_open:
            status = Status(known.state, self._own(known.question), deadline=known.deadline or 0)
        elif _times_asked(work.state, question) >= self._times_told(child, question, heard):
            status = Status(TaskState.INPUT_REQUIRED, Message(question))
        else:
            # Answered by somebody else, or closed, before it could be asked here.
            return
        try:
            answer = await work.ask(status, lambda: work.state.has_rested(child, heard))
        except (Unanswered, TimeoutError):
            # The child hears of that by its own deadline, or has gone on without an answer of ours.
            return
        if is_open:
            await self._pass_down(child, question, answer)

    def _times_told(self, child: str, question: str, heard: int) -> int:
        """Return how often a child had asked a question when it asked for the time that is heard now."""
        return self._work.state.child_questions[child][:heard].count(question)

    def _own(self, asked: Message | None) -> Message:
        state = self._work.state
        return replace(cast("Message", asked), task_id=state.task_id, context_id=state.context_id)

    async def _pass_down(self, child: str, question: str, answer: Message) -> None:
        metadata = {**(answer.metadata or {}), **question_metadata(question)}
        message = Message(answer.message_id, role=answer.role, parts=answer.parts, metadata=metadata)
        try:
            await self._work.children.answer(child, message)
        except Refused:
            # Somebody else may have answered it, or it may have ended: then the child goes on without this.
            if _asks(await self._known(child), question):
                raise

    async def _begin(self) -> PlannedCall:
        work, place = self._work, self._places[0]
        step = work.recorded_step(place, CALL)
        if step is not None:
            return convert(step.result, PlannedCall)
        planned = PlannedCall(self._said.get("task") or work.ids.new(), work.ids.new())
        await work.emit(Stepped(place, CALL, to_builtins(planned)))
        await work.drain()
        return planned

    def _message(self, content: Content, planned: PlannedCall) -> Message:
        chain, seconds = self._chain, self._said.get("timeout")
        skill, context = self._said.get("skill", ""), self._said.get("context", "")
        if seconds is not None:
            until = now_ms() + round(seconds * 1000)
            chain = {**chain, "deadline": min(until, chain.get("deadline", until))}
        metadata: Metadata = {hops.KEY: chain}
        if self._is_remote:
            target = Target(self._target, skill, context)
            metadata[CALL_KEY] = to_builtins(target)
            composed = compose(content, {"message_id": planned.message})
        else:
            composed = compose(
                content, {"message_id": planned.message, "skill": skill, "context_id": context}
            )
        message = composed.message
        return replace(message, metadata={**(message.metadata or {}), **metadata})

    async def _ended(self, child: str) -> Task:
        task = await self._outcome(await self._known(child), is_open=True)
        if task is None:
            raise CallFailed(f"{self._target} has ended, and its task {child} is kept no longer")
        return task

    async def _known(self, child: str) -> State | None:
        """A child as its log stands; None if it is kept no longer."""
        try:
            return await self._work.children.state(child)
        except TaskNotFound:
            return None

    async def _outcome(self, known: State | None, *, is_open: bool) -> Task | None:
        """What the call gives: as it is recorded, else as the child stands, unless that is nothing to give.

        Recorded, as a child may be forgotten sooner than its parent and goes on where it has asked.
        """
        work, place = self._work, self._places[1]
        step = work.recorded_step(place, RESULT)
        if step is not None:
            return convert(step.result, Task)
        if known is None or not is_open:
            return None
        task = known.task(history_length=0)
        await work.emit(Stepped(place, RESULT, to_builtins(task)))
        await work.drain()
        return task

    async def _answer(self, planned: PlannedCall, message: Message) -> None:
        """Go on with an earlier call by answering what it asked, unless that was done before a crash."""
        children, child = self._work.children, planned.child
        if child in self._work.state.ended_children and await self._known(child) is None:
            # It has ended since, and what it gave is recorded.
            return
        known = await children.state(child)
        if known.parent != self._work.state.task_id:
            raise Misuse(f"task {child} is no call of this task")
        if question := self._raised.pop(child, ""):
            # That one and no other: it may have been closed since, and the child may ask something else.
            message = replace(message, metadata={**(message.metadata or {}), **question_metadata(question)})
        try:
            if not _has_heard(known, message):
                await children.answer(child, message)
        except Refused:
            if not _has_heard(await children.state(child), message):
                raise


def _asks(known: State | None, question: str) -> bool:
    return known is not None and known.question is not None and known.question.message_id == question


def _times_asked(state: State, question: str) -> int:
    """Return how often a task has asked its own caller a question."""
    return state.questions.count(question) + _asks(state, question)


def _has_heard(known: State, message: Message) -> bool:
    return any(one.message_id == message.message_id for one in known.history)


def _checked(said: Calling) -> Calling:
    for name in ("skill", "context", "task"):
        if not isinstance(given := said.get(name, ""), str):
            raise Misuse(f"{name} is text, not {given!r}")
    if (questions := said.get("questions", "ask")) not in ("ask", "raise"):
        raise Misuse(f"questions is 'ask' or 'raise', not {questions!r}")
    seconds = said.get("timeout")
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds <= LONGEST_S):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Misuse(f"timeout takes seconds, at most {LONGEST_S}, not {seconds!r}")
    if unknown := said.keys() - Calling.__annotations__.keys():
        raise Misuse(f"a call takes {', '.join(Calling.__annotations__)}, not {', '.join(sorted(unknown))}")
    return said


def _content(content: Content | None, said: Calling) -> Content:
    if content is not None and "data" not in said:
        return content
    if content is not None or "data" not in said:
        raise Misuse("a call takes a text, parts or a message, or else data=")
    try:
        return Part(data=msgspec.json.decode(msgspec.json.encode(said["data"])))
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"data= cannot be sent: {error}") from None
