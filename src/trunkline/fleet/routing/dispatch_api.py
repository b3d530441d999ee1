"""Work for the fleet over the operator's API: it is asked for, and who would do it or did is explained."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from trunkline.auth.principal import Scope as AuthScope
from trunkline.clock import new_id
from trunkline.errors import InvalidParams, Refused
from trunkline.fleet.call import ApiCall, ApiQuery, ApiStruct
from trunkline.fleet.route import api_route
from trunkline.fleet.routing.choose import Wish
from trunkline.fleet.routing.dispatcher import DEDUP_MS, TARGETS_LIMIT, Dispatcher, DispatchOrder
from trunkline.fleet.views import TaskItem, task_item
from trunkline.log.events import Routed
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.store.records import Dedup
from trunkline.wire.service_parameters import read_correlation
from trunkline.wire.types import Correlation, Message, Metadata, Part, Role

# No database can be asked for a text with a NUL in it, and headers have one line: `$` alone allows another.
_PRINTABLE = "^[^\\x00-\\x1f\\x7f]*$(?!\n)"
Short = Annotated[str, Meta(max_length=256, pattern=_PRINTABLE)]
Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=_PRINTABLE)]
Text = Annotated[str, Meta(max_length=1 << 20)]
_OPENING = 2
_encode = msgspec.json.Encoder(order="sorted").encode


class DispatchForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work that is asked for: of an agent, of several, or of whoever has the skill.

    With `taskId` the message goes on with that task. `metadata.subject` is what a cooldown is about, and
    `metadata.effectHint` names an effect ("domain:path" or a domain): agents that declare it rank higher.
    """

    message: Text = ""
    data: Any | UnsetType = UNSET
    skill: Short = ""
    agent: Short = ""
    targets: Annotated[list[Name], Meta(max_length=TARGETS_LIMIT)] = []
    context_id: Short = ""
    task_id: Short = ""
    correlation_id: Short = ""
    metadata: dict[str, Any] | None = None
    wait: Annotated[float, Meta(ge=0, le=300)] = 0.0


class DispatchAnswer(ApiStruct, frozen=True, kw_only=True):
    """The tasks that work became, one for each agent that was meant."""

    tasks: list[TaskItem]


class RouteQuery(ApiQuery, frozen=True, kw_only=True):
    """The query of `GET /api/route`: a request that is only tried out."""

    skill: str = ""
    effect: str = ""
    agent: str = ""
    context_id: str = ""


class RouteCandidate(ApiStruct, frozen=True, kw_only=True):
    """An agent that could do it: its score and what that is made of, or why it takes nothing now."""

    agent: str
    score: float
    parts: Mapping[str, Any]
    excluded: str = ""


class RouteAnswer(ApiStruct, frozen=True, kw_only=True):
    """The answer of `GET /api/route`: the agent that would be chosen and why, or the refusal."""

    winner: str = ""
    refusal: str = ""
    reason: str
    skill: str = ""
    candidates: list[RouteCandidate]


class DispatchApi:
    """The operations of the API on the dispatcher of this process."""

    def __init__(self, runner: Runner, dispatcher: Dispatcher) -> None:
        self._runner = runner
        self._dispatcher = dispatcher

    @api_route("POST /dispatch", AuthScope.WRITE)
    async def dispatch(self, call: ApiCall, form: DispatchForm) -> DispatchAnswer:
        """Have work done by an agent, by several, or by whoever has the skill.

        Raises:
            InvalidParams: the form contradicts itself, or its key stands for other work.
            Refused: the task or the agent does not take the message.
        """
        if form.agent and form.targets:
            raise InvalidParams("name one agent in agent, or several in targets, not both", field="targets")
        message = message_of(form.message, form.data, form.context_id, form.task_id)
        if form.task_id:
            if form.agent or form.targets or form.skill:
                raise InvalidParams("a task goes on with its own agent and skill", field="taskId")
            feeds = [await self.go_on(call, message)]
        else:
            targets = (form.agent,) if form.agent else tuple(form.targets)
            order = self.order(
                call,
                message,
                skill=form.skill,
                targets=targets,
                correlation_id=form.correlation_id,
                metadata=form.metadata,
            )
            feeds = [one.feed for one in await self._dispatcher.dispatch(order)]
        deadline = self._runner.tasks.loop.time() + form.wait
        for feed in feeds:
            left = deadline - self._runner.tasks.loop.time()
            if left > 0:
                await self._runner.tasks.rest(feed, left)
        return DispatchAnswer(tasks=[task_item(feed.state, self._runner.origin) for feed in feeds])

    def order(
        self,
        call: ApiCall,
        message: Message,
        *,
        skill: str,
        targets: tuple[str, ...],
        correlation_id: str = "",
        metadata: Metadata | None = None,
    ) -> DispatchOrder:
        """An order of a caller; its Idempotency-Key is known again."""
        dedup = None
        if call.key:
            what = (skill, targets, message.parts, message.context_id, metadata)
            digest = blake2b(_encode(what), digest_size=16).digest()
            dedup = Dedup(f"{call.principal.name}\x1fd\x1f{call.key}", digest, DEDUP_MS)
        subject = (metadata or {}).get("subject", "")
        correlation = read_correlation(dict(call.headers))
        if correlation_id:
            correlation = Correlation(correlation_id, "" if correlation is None else correlation.parent_id)
        return DispatchOrder(
            tenant=call.tenant,
            principal=call.principal.name,
            message=message,
            skill=skill,
            targets=targets,
            correlation_id=correlation_id,
            correlation=correlation,
            subject=subject if isinstance(subject, str) else "",
            metadata=metadata,
            dedup=dedup,
        )

    async def go_on(self, call: ApiCall, message: Message) -> Feed:
        """Say something more on a task of the caller's.

        Raises:
            TaskNotFound: there is none, or it is somebody else's.
            Refused: it takes nothing more.
        """
        feed = await self.find(call, message.task_id)
        try:
            await self._runner.say(feed, message)
        except Refused as refused:
            # The members of the message stand in the body itself here.
            refused.field = refused.field.removeprefix("message.")
            raise
        return feed

    async def find(self, call: ApiCall, task_id: str) -> Feed:
        """The feed of a task that the caller may see.

        Raises:
            TaskNotFound: there is none, or it is somebody else's: the answer is the same.
        """
        tasks, name = self._runner.tasks, call.principal.name
        return await tasks.find(call.tenant, name, task_id, None, lambda _: call.sees_all)

    @api_route("GET /route", AuthScope.READ)
    async def explain(self, call: ApiCall, asked: RouteQuery) -> RouteAnswer:
        """Who would be chosen for a skill, an agent's name or a conversation."""
        wish = Wish(skill=asked.skill, effect=asked.effect, target=asked.agent, key=new_id())
        made = await self._dispatcher.explain(call.tenant, call.principal.name, wish, asked.context_id)
        return _answer(made)

    @api_route("GET /tasks/{id}/route", AuthScope.READ)
    async def route(self, call: ApiCall) -> RouteAnswer:
        """Why a task is done by the agent that does it."""
        state = (await self.find(call, call.id)).state
        opening = await self._runner.tasks.store.log.read(call.tenant, state.task_id, 0, _OPENING)
        for recorded in opening:
            if isinstance(recorded.event, Routed):
                return _answer(recorded.event)
        agent = state.agent or self._runner.origin
        return RouteAnswer(winner=agent, reason=f"{agent} does it: it was sent there.", candidates=[])


def message_of(
    text: str, data: Any | UnsetType = UNSET, context_id: str = "", task_id: str = "", **metadata: Any
) -> Message:
    """A message of a caller of the API.

    Raises:
        InvalidParams: there is nothing in it.
    """
    parts = ((Part(text=text),) if text else ()) + (() if data is UNSET else (Part(data=data),))
    if not parts:
        raise InvalidParams("there is nothing to do without a message or data", field="message")
    return Message(new_id(), context_id, task_id, Role.USER, parts, metadata or None)


def _answer(made: Routed) -> RouteAnswer:
    candidates = [
        RouteCandidate(agent=one.agent, score=one.score, parts=one.parts, excluded=one.excluded)
        for one in made.candidates
    ]
    return RouteAnswer(
        winner=made.winner,
        refusal=made.refusal,
        reason=made.reason,
        skill=made.skill,
        candidates=candidates,
    )
