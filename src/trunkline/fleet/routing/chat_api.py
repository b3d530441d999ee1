"""Conversations with one agent over the operator's API, and work that is handed over without waiting.

`done` closes a conversation: the message that says so is recorded in its task, what still asks or works in
the conversation once that one has come to rest is cancelled, and a further message is a conflict.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from trunkline.auth.principal import Scope as AuthScope
from trunkline.client.result import Result
from trunkline.errors import InvalidParams, PeerError, Refused, RouteNotFound, TaskNotCancelable, TaskNotFound
from trunkline.fleet.call import ApiCall, ApiStruct
from trunkline.fleet.route import api_route
from trunkline.fleet.routing.dispatch_api import DispatchApi, Name, Short, Text, message_of
from trunkline.fleet.routing.dispatcher import HUB, Dispatcher
from trunkline.fleet.routing.standings import CatalogueFleet
from trunkline.fleet.views import task_item
from trunkline.log.fold import State
from trunkline.peer.remote import correlation_of
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.store.records import Where
from trunkline.wire.codes import AGENT_NOT_FOUND
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import INTERRUPTED, TERMINAL, Metadata, TaskState

DONE_KEY = "trunkline.done"
CHAT = "chat"
WAIT_S = 30.0
_OPEN = (TaskState.SUBMITTED, TaskState.WORKING, *INTERRUPTED)
_LOOK = 50


class ChatForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said to an agent; `contextId` goes on with a conversation, `taskId` with what a task asks."""

    agent: Name
    message: Annotated[Text, Meta(min_length=1)]
    context_id: Short = ""
    task_id: Short = ""
    skill: Short = ""
    done: bool = False
    return_immediately: bool = False


class DelegateForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work that is handed over; `projectSlug` is kept with it."""

    agent: Name
    message: Annotated[Text, Meta(min_length=1)]
    skill: Short = ""
    project_slug: Short = ""


class ChatAnswer(ApiStruct, frozen=True, kw_only=True):
    """The answer or the question of an agent; while the agent works it is `pending` and has a `pollUrl`.

    The answer in a closed conversation has no `contextId` and no `taskId`.
    """

    agent: str
    task_state: str
    correlation_id: str
    response: str | None
    context_id: str = ""
    task_id: str = ""
    pending: bool = False
    poll_url: str = ""
    error: str = ""
    usage: Metadata | None = None
    duration_ms: int | None = None
    cost_usd: float | None = None
    confidence: float | None = None
    confidence_explanation: str = ""


class PollAnswer(ApiStruct, frozen=True, kw_only=True):
    """Whether a task has come to rest; one that nobody knows, or no longer knows, has not failed."""

    status: Literal["done", "pending", "unknown"]
    task_id: str
    reply: ChatAnswer | None = None


class DelegateAnswer(ApiStruct, frozen=True, kw_only=True):
    """The answer to a delegation: where its work is told of."""

    task_id: str
    context_id: str
    correlation_id: str
    poll_url: str


class ChatApi:
    """Conversations through the dispatcher of this process."""

    def __init__(
        self, runner: Runner, dispatcher: Dispatcher, fleet: CatalogueFleet, wait_s: float = WAIT_S
    ) -> None:
        self._runner = runner
        self._dispatcher = dispatcher
        self._fleet = fleet
        self._wait_s = wait_s
        self._work = DispatchApi(runner, dispatcher)

    @api_route("POST /a2a/chat", AuthScope.WRITE)
    async def chat(self, call: ApiCall, form: ChatForm) -> ChatAnswer:
        """Say something to an agent, and have its answer or where that will be.

        Raises:
            RouteNotFound: there is no such agent.
            TaskNotFound: there is no such task.
            InvalidParams: the conversation is closed, or with another agent, which may not have the skill.
            PeerError: the agent failed, or does not take it.
        """
        feed = await self.say(call, form)
        if not form.return_immediately:
            await self._runner.tasks.rest(feed, self._wait_s)
        answer = self._answer(feed.state)
        if form.done and feed.state.resting:
            await self._close(call, feed)
        if answer.error:
            raise self._refusal(call, form, answer)
        return answer

    async def say(self, call: ApiCall, form: ChatForm) -> Feed:
        """Say something to an agent, without waiting; gives its task.

        Raises:
            RouteNotFound: there is no such agent.
            TaskNotFound: there is no such task.
            InvalidParams: the conversation is closed, or with another agent.
        """
        self._check_agent(call, form.agent, form.skill)
        await self._check_open(call, form)
        said: dict[str, Any] = {DONE_KEY: True} if form.done else {}
        message = message_of(form.message, context_id=form.context_id, task_id=form.task_id, **said)
        if form.task_id:
            return await self._work.go_on(call, message)
        order = self._work.order(call, message, skill=self._skill(call, form), targets=(form.agent,))
        (made,) = await self._dispatcher.dispatch(order)
        return made.feed

    def _check_agent(self, call: ApiCall, name: str, skill: str) -> None:
        if self._fleet.find(call.tenant, name, skill) is None:
            raise RouteNotFound(f"there is no agent {name!r} here", missing=AGENT_NOT_FOUND)

    def _refusal(self, call: ApiCall, form: ChatForm | DelegateForm, answer: ChatAnswer) -> Refused:
        """The refusal of a message: the caller named a skill that the agent has not, or the agent refused."""
        found = self._fleet.find(call.tenant, form.agent, form.skill)
        skills = None if found is None else found.skills
        # Only then is it the caller's mistake; whatever else the agent says is the agent's.
        is_unknown = form.skill and skills is not None and form.skill not in skills
        if is_unknown and answer.task_state == plain_state(TaskState.REJECTED):
            return InvalidParams(answer.error, field="skill")
        return PeerError(answer.error, code=502)

    def _skill(self, call: ApiCall, form: ChatForm) -> str:
        if form.skill:
            return form.skill
        found = self._fleet.find(call.tenant, form.agent, CHAT)
        return CHAT if found is not None and found.skills is not None and CHAT in found.skills else ""

    async def _check_open(self, call: ApiCall, form: ChatForm) -> None:
        """Let pass what belongs to no conversation yet, or to one with this agent that is not closed."""
        if form.task_id:
            state = (await self._work.find(call, form.task_id)).state
            if state.agent != form.agent:
                raise InvalidParams(f"task {form.task_id} is not {form.agent}'s", field="agent")
            if form.context_id not in ("", state.context_id):
                raise InvalidParams(f"task {form.task_id} is of another conversation", field="contextId")
            states = [state]
        else:
            states = await self._states(call, form.context_id) if form.context_id else []
        if any([_is_done(state) for state in states]):
            raise InvalidParams(
                "the conversation was closed by done; begin another without contextId and taskId",
                field="contextId",
                conflict="CONTEXT_CLOSED",
            )

    async def _states(self, call: ApiCall, context_id: str) -> list[State]:
        where = Where(principal=call.principal.name, context_id=context_id)
        tasks = self._runner.tasks
        page = await tasks.store.heads.list(call.tenant, where, size=_LOOK)
        found = [await tasks.listed(call.tenant, head) for head in page.heads if head.agent != HUB]
        return [state for state in found if state is not None and not state.parent]

    async def _close(self, call: ApiCall, feed: Feed) -> None:
        """Cancel what is still open in the conversation of a task; a remote agent is told too."""
        for state in await self._states(call, feed.state.context_id):
            if state.state in _OPEN and state.agent == feed.state.agent:
                open_one = await self._runner.tasks.load(call.tenant, state.task_id)
                try:
                    if open_one is not None:
                        await self._runner.cancel(open_one, call.principal.name)
                except TaskNotCancelable:
                    # It has just ended by itself.
                    continue

    @api_route("GET /a2a/task/{id}", AuthScope.READ)
    async def poll(self, call: ApiCall) -> PollAnswer:
        """Whether a task has come to rest, and with what."""
        try:
            feed = await self._work.find(call, call.id)
        except TaskNotFound:
            return PollAnswer(status="unknown", task_id=call.id)
        reply = self._answer(feed.state)
        return PollAnswer(status="pending" if reply.pending else "done", task_id=call.id, reply=reply)

    @api_route("POST /a2a/delegate", AuthScope.WRITE)
    async def delegate(self, call: ApiCall, form: DelegateForm) -> DelegateAnswer:
        """Hand work over to an agent.

        Raises:
            RouteNotFound: there is no such agent.
            Refused: the agent does not take it.
        """
        self._check_agent(call, form.agent, form.skill)
        metadata = {"projectSlug": form.project_slug} if form.project_slug else None
        order = self._work.order(
            call, message_of(form.message), skill=form.skill, targets=(form.agent,), metadata=metadata
        )
        (made,) = await self._dispatcher.dispatch(order)
        state = made.feed.state
        if state.state is TaskState.REJECTED:
            raise self._refusal(call, form, self._answer(state))
        return DelegateAnswer(
            task_id=state.task_id,
            context_id=state.context_id,
            correlation_id=correlation_of(state),
            poll_url=_poll_url(state.task_id),
        )

    def _answer(self, state: State) -> ChatAnswer:
        item = task_item(state, self._runner.origin)
        result = Result(task=state.task(0))
        is_pending, is_done = not state.resting, _is_done(state)
        return ChatAnswer(
            agent=item.agent,
            task_state=plain_state(state.state),
            correlation_id=correlation_of(state),
            response=None if is_pending else item.text,
            context_id="" if is_done else item.context_id,
            task_id="" if is_done else item.task_id,
            pending=is_pending,
            poll_url=_poll_url(item.task_id) if is_pending else "",
            error=item.error or (f"the task is {item.state}" if _has_failed(state) else ""),
            usage=result.usage,
            duration_ms=state.status_at - state.created_at if state.state in TERMINAL else None,
            cost_usd=item.cost_usd,
            confidence=item.confidence,
            confidence_explanation=result.confidence_explanation,
        )


def _is_done(state: State) -> bool:
    return any([DONE_KEY in (message.metadata or {}) for message in state.history])


def _has_failed(state: State) -> bool:
    return state.state in (TaskState.FAILED, TaskState.REJECTED)


def _poll_url(task_id: str) -> str:
    return f"/api/a2a/task/{task_id}"
