"""The child tasks of a run: agents that it delegates to, and workflows that are nested in it."""

from __future__ import annotations

from typing import Any, cast

from msgspec import to_builtins
from msgspec.structs import replace

from trunkline.client.result import Result
from trunkline.errors import Refused, TaskNotFound
from trunkline.flow.engine.effects import Delegate, Done
from trunkline.flow.engine.run_messages import own, run_task_id
from trunkline.log.events import QuestionClosed, Status
from trunkline.log.fold import State
from trunkline.peer.remote import CALL_KEY, Target
from trunkline.run import hops
from trunkline.run.executor import Work
from trunkline.wire.question import question_metadata
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Message, Metadata, Part, Role, SendRequest, Task, TaskState

# The artifact by which a nested run tells its parent how it ended.
OUTCOME = "run"
_WORDS = ("task", "message", "text", "prompt")


class ChildRun:
    """One child, and what of its questions was heard."""

    __slots__ = ("_heard", "_work", "id", "nested", "question", "status")

    def __init__(self, work: Work, child: str, *, nested: bool) -> None:
        self.id = child
        self.nested = nested
        self._work = work
        self._heard = 0
        # What it asks now that its parent's caller is to be asked.
        self.question = ""
        self.status: Status | None = None

    async def open(self, agent: str, request: SendRequest, *, is_new: bool) -> Done | None:
        """Open it, unless that was done before; gives how it ended if it was refused."""
        state = self._work.state
        if self.id in state.ended_children or self.id in state.child_questions:
            return None
        try:
            await self._work.children.open(self.id, agent, request, is_new=is_new)
        except Refused as refused:
            # Nested runs are those of the engine itself: what there can be is another run of that id.
            duplicate = refused.details.get("reason", "DUPLICATE_EXECUTION_ID")
            code = duplicate if self.nested else "DELEGATE_AGENT_NOT_FOUND"
            return Done(ok=False, error=refused.message, code=code)
        return None

    @property
    def has_news(self) -> bool:
        """Whether it has ended, or asked something that was not heard."""
        return self._work.state.has_rested(self.id, self._heard)

    async def look(self) -> State | None:
        """Look at it; gives it as it stands if it has ended, and else knows what it asks."""
        state = self._work.state
        self._heard = len(state.child_questions.get(self.id, ()))
        try:
            known = await self._work.children.state(self.id)
        except TaskNotFound:
            known = State(self.id)
        if self.id in state.ended_children:
            return known
        self.question, self.status = "", None
        if (asked := known.question) is None:
            return None
        outcomes = [
            said
            for name, said in zip(state.questions, state.answers, strict=False)
            if name == asked.message_id
        ]
        if outcomes and not _is_withdrawn(outcomes[-1]):
            # Answered here before a crash; it may not have heard of that.
            if isinstance(outcomes[-1], Message):
                await self.answer(asked.message_id, outcomes[-1])
            return None
        self.question = asked.message_id
        self.status = Status(known.state, own(asked, state), deadline=known.deadline or 0)
        return None

    def asks(self, question: str) -> bool:
        """Whether it asks this."""
        return self.question == question

    async def answer(self, question: str, said: Message) -> None:
        """Pass down what was answered."""
        self.question, self.status = "", None
        metadata = {**(said.metadata or {}), **question_metadata(question)}
        message = Message(said.message_id, role=said.role, parts=said.parts, metadata=metadata)
        try:
            await self._work.children.answer(self.id, message)
        except Refused:
            # Answered by somebody else, or ended: then it goes on without this.
            return

    async def cancel(self) -> None:
        """Have it end."""
        await self._work.children.cancel(self.id)


def _is_withdrawn(outcome: Message | QuestionClosed) -> bool:
    """Return whether a question was given up for another one, after which the child may ask it again."""
    return isinstance(outcome, QuestionClosed) and outcome.withdrawn


def child_id(effect: Delegate, tenant: str) -> str:
    """The id of the task that an attempt at a delegation is."""
    return run_task_id(f"{effect.correlation}\x1f{effect.visit}\x1f{effect.attempt}", tenant)


def agent_request(child: str, effect: Delegate, state: State, spent: float) -> SendRequest:
    """What an agent is sent: the words of the input, if there are any, and the whole of it as data."""
    given = effect.input
    words = next((given[name] for name in _WORDS if isinstance(given.get(name), str)), "")
    parts = (*([Part(text=words)] if words else []), Part(data=given))
    metadata: Metadata = {
        hops.KEY: hops.grants_after(state, effect.calls, spent).take(state),
        CALL_KEY: to_builtins(Target(effect.node.config["agent_id"])),
    }
    return SendRequest(Message(f"{child}:order", role=Role.USER, parts=parts, metadata=metadata))


def read_done(known: State) -> Done:
    """How a delegation to an agent ended."""
    task = known.task(history_length=0)
    if task.status.state is not TaskState.COMPLETED:
        said = task.status.message
        text = "" if said is None else said.text
        error = text or f"task {known.task_id} ended as {plain_state(task.status.state)}"
        return Done(ok=False, error=error, code="A2A_TASK_FAILED")
    return Done(ok=True, output=_output(task), external_task=known.task_id)


def _output(task: Task) -> dict[str, Any]:
    result = Result(task)
    if (value := result.data) is not None:
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}
    return {"text": result.text} if result.text else {"delegate_status": "completed"}


def nested_done(known: State) -> Done:
    """How a nested run ended, as it told its parent."""
    task = known.task(history_length=0)
    told: Any = next(
        (one.parts[0].data for one in task.artifacts if one.artifact_id == OUTCOME and one.parts), None
    )
    if isinstance(told, dict):
        outcome = cast("dict[str, Any]", told)
        if "error" in outcome:
            return Done(ok=False, error=outcome["error"], code=outcome.get("code", ""))
        final = outcome.get("finalState", {})
        return Done(ok=True, output=final, result=outcome.get("result", final))
    failed = read_done(known)
    return replace(failed, ok=False, code="", error=failed.error or "the nested run left no result")
