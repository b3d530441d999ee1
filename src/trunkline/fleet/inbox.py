"""The questions of a tenant's tasks in one place, and their answers, whoever gives them.

That a task wants somebody to log in somewhere is a question too; the task may then go on without an answer.
The question of a child is not among them: it is asked by its parent too, or answered by it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from trunkline.auth.principal import Scope as AuthScope
from trunkline.clock import new_id
from trunkline.errors import InvalidParams
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.route import api_route
from trunkline.fleet.task_lists import TaskLists
from trunkline.log.events import AnyEvent, FollowUp, QuestionClosed, Recorded, Status
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.run.tasks import Tasks, not_found
from trunkline.store.records import ASKING, Where
from trunkline.wire.question import (
    Rejection,
    is_for_others,
    is_question_part,
    question_metadata,
    read_answer,
    read_question,
)
from trunkline.wire.spellings import plain_state, timestamp
from trunkline.wire.types import INTERRUPTED, TERMINAL, Message, Metadata, Part, Role, TaskState

# Which member each decision takes.
_MEMBERS = {"accept": "", "edit": "data", "respond": "text", "reject": "text"}
Say = Callable[[Feed, Message, str], Awaitable[None]]
Decision = Literal["accept", "edit", "respond", "reject"]


class InboxQuery(PageQuery, frozen=True, kw_only=True):
    """Which questions are meant."""

    state: Literal["open", "closed"] = "open"


class AnswerForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer: which question it is for (the open one unless told), and what is decided."""

    decision: Decision
    question: str = ""
    text: str = ""
    data: Any | UnsetType = UNSET


class InboxItem(ApiStruct, frozen=True, kw_only=True):
    """A question; `proposal` is what the decision `accept` answers. Of a closed one also how it ended.

    `state` is the one its task is in while it asks: `auth-required` where it wants somebody to log in. With
    `others_only` the principal that requested the task may not answer.
    """

    task_id: str
    context_id: str
    agent: str
    skill: str
    principal: str
    state: Literal["input-required", "auth-required"]
    question: str
    text: str
    schema: Metadata | None = None
    choices: list[str] = []
    proposal: Any | UnsetType = UNSET
    deadline: str = ""
    others_only: bool = False
    asked_at: str
    closed_at: str = ""
    outcome: Literal["", "answered", "rejected", "expired", "withdrawn"] = ""
    answered_by: str = ""


class AnswerTaken(ApiStruct, frozen=True, kw_only=True):
    """An answer that was recorded, and where its task stands."""

    task_id: str
    question: str
    decision: Decision
    answered_by: str
    state: str


class AskedQuestion(Struct, frozen=True):
    """A question as the log has it: its message, the state of its task, and from when to when it is open."""

    message: Message
    state: TaskState
    at: int
    deadline: int | None


class Inbox:
    """The questions of a store; `say` tells a task its answer, `origin` is whose tasks name no agent."""

    def __init__(self, tasks: Tasks, say: Say, origin: str = "") -> None:
        self._tasks = tasks
        self._say = say
        self.origin = origin
        self._lists = TaskLists(tasks)

    @api_route("GET /inbox", AuthScope.ANSWER)
    async def list(self, call: ApiCall, asked: InboxQuery) -> ApiPage:
        """A page of the questions that are open, or of those that are closed."""

        async def made(state: State) -> InboxItem | None:
            if asked.state == "open":
                return self.question(state)
            return None if state.parent else await self._closed(call.tenant, state)

        where = Where(state=ASKING if asked.state == "open" else None)
        return await self._lists.page(call.tenant, where, asked, made, f"{asked.state} questions")

    async def state(self, tenant: str, task_id: str) -> State | None:
        """The state of a task, if there is one."""
        feed = await self._tasks.load(tenant, task_id)
        return None if feed is None else feed.state

    async def asking(self, tenant: str, task_id: str) -> State | None:
        """The state of a task that asks people something now; None of all others."""
        state = await self.state(tenant, task_id)
        return None if state is None or self.question(state) is None else state

    def question(self, state: State) -> InboxItem | None:
        """The open question of a task; None if it asks nothing, or its parent asks it too."""
        asked = state.question
        if asked is None or state.parent:
            return None
        return self._item(state, AskedQuestion(asked, state.state, state.status_at, state.deadline))

    async def _closed(self, tenant: str, state: State) -> InboxItem | None:
        # The question of a task that was canceled meanwhile has no end of its own.
        has_asked = state.questions or state.state is TaskState.CANCELED
        feed = await self._tasks.load(tenant, state.task_id) if has_asked else None
        return None if feed is None else self._last_closed(state, await self._tasks.records(feed))

    def _last_closed(self, state: State, records: Sequence[Recorded]) -> InboxItem | None:
        asked: AskedQuestion | None = None
        closed: tuple[AskedQuestion, Recorded] | None = None
        for one in records:
            event = one.event
            known = "" if closed is None else closed[0].message.message_id
            is_open = asked is not None and known != asked.message.message_id
            ends = is_open and isinstance(event, Status) and event.state in TERMINAL
            if asked is not None and (ends or isinstance(event, FollowUp | QuestionClosed)):
                closed = asked, one
            elif isinstance(event, Status):
                said = event.message if event.state in INTERRUPTED else None
                asked = None if said is None else AskedQuestion(said, event.state, one.at, event.deadline)
        if closed is None:
            return None
        # Of the last alone: to hold an answer against its schema takes long, and a task may have thousands.
        question, end = closed
        return self._item(
            state,
            question,
            closed_at=timestamp(end.at),
            outcome=_outcome(question.message, end.event),
            answered_by=(end.event.by or state.principal) if isinstance(end.event, FollowUp) else "",
        )

    def _item(self, state: State, asked: AskedQuestion, **closed: Any) -> InboxItem:
        question = read_question(asked.message)
        return InboxItem(
            task_id=state.task_id,
            context_id=state.context_id,
            agent=state.agent or self.origin,
            skill=state.skill,
            principal=state.principal,
            state="auth-required" if asked.state is TaskState.AUTH_REQUIRED else "input-required",
            question=asked.message.message_id,
            text=question.text,
            schema=question.schema,
            choices=[*question.choices],
            proposal=_proposal(asked.message),
            deadline=timestamp(asked.deadline) if asked.deadline else question.deadline,
            others_only=is_for_others(asked.message),
            asked_at=timestamp(asked.at),
            **closed,
        )

    @api_route("POST /inbox/{id}", AuthScope.ANSWER)
    async def answer(self, call: ApiCall, form: AnswerForm) -> AnswerTaken:
        """Answer the question of a task.

        Raises:
            TaskNotFound: there is no such task, or it never asked anything.
            InvalidParams: the answer does not fit; or the question is not open, which is a conflict.
        """
        feed = await self._tasks.load(call.tenant, call.id)
        if feed is None:
            raise not_found(call.id)
        state, asked = feed.state, feed.state.question
        if not state.interrupted and await self._closed(call.tenant, state) is None:
            raise not_found(call.id)
        if asked is None or form.question not in ("", asked.message_id):
            raise InvalidParams(
                f"task {state.task_id} does not ask this now; the inbox shows what is asked",
                field="question",
                conflict="QUESTION_CLOSED",
            )
        message = Message(
            message_id=new_id(),
            context_id=state.context_id,
            task_id=state.task_id,
            role=Role.USER,
            parts=(answer_part(form, asked),),
            metadata=question_metadata(asked.message_id),
        )
        try:
            await self._say(feed, message, call.principal.name)
        except InvalidParams as refused:
            # The caller wrote no message: what is wrong with ours is named by the member it came from.
            field = "question" if "conflict" in refused.details else refused.field.partition("].")[2]
            raise InvalidParams(refused.message, field=field, **refused.details) from None
        return AnswerTaken(
            task_id=state.task_id,
            question=asked.message_id,
            decision=form.decision,
            answered_by=call.principal.name,
            state=plain_state(state.state),
        )


def inbox_of(runner: Runner) -> Inbox:
    """The inbox of the tasks that a runner carries: whoever waits for an answer goes on with it."""

    async def say(feed: Feed, message: Message, by: str) -> None:
        await runner.say(feed, message, by=by)

    return Inbox(runner.tasks, say, runner.origin)


def answer_part(form: AnswerForm, asked: Message) -> Part:
    """The part of a message that tells a task of a decision.

    Raises:
        InvalidParams: a member is missing, or there is one that the decision does not take.
    """
    wanted = _MEMBERS[form.decision]
    given = {"text": form.text != "", "data": form.data is not UNSET}
    for name, is_given in given.items():
        if is_given and name != wanted:
            raise InvalidParams(f"the decision {form.decision} takes no {name}", field=name)
    if form.decision == "reject":
        return Part(data={"rejected": True, "text": form.text})
    if wanted and not given[wanted]:
        raise InvalidParams(f"the decision {form.decision} needs {wanted}", field=wanted)
    if form.decision == "respond":
        return Part(text=form.text)
    data = form.data if form.decision == "edit" else _proposal(asked)
    if data is UNSET:
        raise InvalidParams("nothing is proposed that could be accepted", field="decision")
    return Part(data=data)


def _proposal(asked: Message) -> Any | UnsetType:
    """The data that a question proposes: its own data part, else the default of its schema."""
    for part in asked.parts:
        if part.data is not UNSET and not is_question_part(part):
            return part.data
    schema = read_question(asked).schema or {}
    return schema.get("default", UNSET)


def _outcome(asked: Message, event: AnyEvent) -> str:
    if not isinstance(event, FollowUp):
        return "expired" if isinstance(event, QuestionClosed) and not event.withdrawn else "withdrawn"
    try:
        answer = read_answer(read_question(asked), event.message)
    except InvalidParams:
        # Of a log that was written before answers were checked.
        return "answered"
    return "rejected" if isinstance(answer, Rejection) else "answered"
