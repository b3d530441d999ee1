"""The executor whose tasks are the runs of workflows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from trunkline.errors import FlowInvalid, FlowRefused, InvalidParams, RouteNotFound, Unavailable
from trunkline.flow.definitions import PLACE, STEP, Loaded
from trunkline.flow.engine.children import OUTCOME
from trunkline.flow.engine.parts import FlowParts
from trunkline.flow.engine.replay import History
from trunkline.flow.engine.rows import VERSION
from trunkline.flow.engine.run import Run
from trunkline.flow.engine.run_messages import RunOrder, given_to, read_order
from trunkline.flow.engine.walk import Ended
from trunkline.log.events import AnyEvent, Chunk, FlowRow, FlowRows, Recorded, Status, Stepped, Submitted
from trunkline.run.executor import OnCrash, Verdict, Work, never
from trunkline.run.feed import Feed
from trunkline.wire.types import Artifact, Message, Part, Role, SendRequest, TaskState

log = logging.getLogger("trunkline.flow")
# How long a run waits before it asks again for a worker that checks its schemas.
RETRY_MS = 1000
# The skill of every run, and the artifact that holds what it gave to a caller over A2A.
SKILL, RESULT = "workflow", "result"
# The step, with its place, that records whether the operator provided the definition.
_PROVENANCE = PLACE + 1, "flow.by_operator"


# The workflow that an agent is, for a tenant.
OwnWorkflow = Callable[[str], Loaded | None]


class FlowExecutor:
    """Walks workflows: each run by the definition that its order names, or all by one of their own."""

    works_elsewhere = False

    def __init__(self, parts: FlowParts, own: OwnWorkflow | None = None, name: str = SKILL) -> None:
        self.parts = parts
        self._own = own
        self._name = name
        # That of an agent is listed under the agent's own name.
        self._skill = SKILL if own is None else name

    def admit(self, request: SendRequest) -> str:
        """Take every message where the workflow is its own, and else what names one."""
        if self._own is None and read_order(request.message) is None:
            raise InvalidParams("the message names no workflow", field="message.metadata")
        return self._skill

    def opening(self, tenant: str, first: Submitted) -> tuple[Stepped, ...]:
        """The definition of a new run: it stands in the run's own log, and goes with it."""
        if self._own is not None:
            loaded = self._own(tenant)
            return () if loaded is None else (loaded.step, _provenance(by_operator=loaded.by_operator))
        order = read_order(first.message)
        loaded = None if order is None else self.parts.definitions.held(tenant, order.definition)
        return () if loaded is None else (loaded.step,)

    async def legible(self, records: Sequence[Recorded]) -> bool:
        """Whether a run can be walked here: a newer version may have written its definition and its rows."""
        for one in records:
            if isinstance(one.event, FlowRows):
                return one.event.rows[0].payload.get("_version", VERSION) <= VERSION
            if isinstance(one.event, Stepped) and one.event.name == STEP:
                try:
                    await self.parts.definitions.load(one.event.result)
                except FlowRefused:
                    return False
        return True

    async def check_answer(self, feed: Feed, message: Message) -> None:
        """Check that a run can accept an answer; see `FlowPort.check_answer`."""
        if self.parts.check_answer is not None:
            await self.parts.check_answer(feed, message)

    def named(self, name: str) -> str:
        """The one skill, by its name or the agent's."""
        if name == self._name:
            return ""
        if name == self._skill:
            return name
        raise RouteNotFound(f"there is no agent or skill {name!r} here; there is {self._name}")

    def on_crash(self, skill: str) -> OnCrash:
        """Say that a run goes on from its rows."""
        del skill
        return OnCrash.RESUME

    async def close(self) -> None:
        """Do nothing: whoever made the parts closes them."""

    async def run(self, work: Work) -> Verdict:
        """Walk to the end."""
        state = work.state
        message = state.message
        given = given_to(message)
        order = read_order(message) if self._own is None else None
        events = await _events(work)
        rows = [row for event in events if isinstance(event, FlowRows) for row in event.rows]
        told = order is None
        loaded = await self._loaded(work, order, rows)
        try:
            await self._check(loaded, work)
        except FlowInvalid as refused:
            error = f"the definition is refused: {refused.message}"
            work.put(FlowRows((FlowRow("ExecutionFailed", {"error": error, "code": refused.code}),)))
            return _failed(work, error)
        if order is None:
            by_operator = self._is_by_operator(work, loaded)
            order = RunOrder(state.task_id, loaded.definition.hash, by_operator=by_operator, is_fixed=True)
        run = Run(self.parts, work, order, loaded, given=given, history=History(rows))
        run.meter.restore(events)
        ended = await run.go()
        run.meter.report(success=ended.ok)
        if told and ended.ok:
            work.put(_artifact(RESULT, ended.result))
        elif state.parent and order.depth:
            work.put(_artifact(OUTCOME, _outcome(ended, run.walk.state)))
        if ended.ok:
            return Status(TaskState.COMPLETED)
        return _failed(work, ended.error)

    async def _check(self, loaded: Loaded, work: Work) -> None:
        """Check that the schemas of a run compile; wait for a free worker, however many runs a start resumes.

        Raises:
            FlowInvalid: one is refused.
        """
        while True:
            try:
                return await self.parts.definitions.check(loaded, work.tenant)
            except Unavailable as busy:
                log.warning("flow.waiting task=%s reason=%a", work.state.task_id, busy.message)
                await work.until(never, work.moment_in(RETRY_MS), parks=False)

    async def _loaded(self, work: Work, order: RunOrder | None, rows: list[FlowRow]) -> Loaded:
        """The definition that a run was opened with."""
        definitions = self.parts.definitions
        step = work.recorded_step(PLACE, STEP)
        if step is not None:
            return await definitions.load(step.result)
        # Opened by a version that kept definitions beside the logs.
        begun = order.definition if order is not None else rows[0].payload.get("_hash") if rows else None
        loaded = await definitions.get(work.tenant, begun) if begun else await self._mine(work.tenant)
        work.put(loaded.step)
        return loaded

    def _is_by_operator(self, work: Work, loaded: Loaded) -> bool:
        """Return whether the operator provided the definition of a run of this agent."""
        step = work.recorded_step(*_PROVENANCE)
        if step is None:
            # A version opened the run that did not record it.
            now = None if self._own is None else self._own(work.tenant)
            given = now is not None and now.by_operator and now.definition.hash == loaded.definition.hash
            step = _provenance(by_operator=given)
            work.put(step)
        return step.result is True

    async def _mine(self, tenant: str) -> Loaded:
        loaded = None if self._own is None else self._own(tenant)
        if loaded is None:
            raise InvalidParams("there is no such workflow now", field="message.metadata")
        # Kept, as steps that are not of the opening go when the run has ended, and its rows may be read then.
        await self.parts.definitions.keep(tenant, loaded)
        return loaded


def _provenance(*, by_operator: bool) -> Stepped:
    return Stepped(*_PROVENANCE, by_operator)


def _failed(work: Work, error: str) -> Status:
    state, text = work.state, Part(text=error.encode(errors="replace").decode())
    said = Message(work.ids.new(), state.context_id, state.task_id, Role.AGENT, (text,))
    return Status(TaskState.FAILED, said)


async def _events(work: Work) -> list[AnyEvent]:
    if work.state.seq == work.state.opened:
        return []
    return [recorded.event for recorded in await work.records()]


def _artifact(name: str, data: Any) -> Chunk:
    return Chunk(Artifact(name, name=name, parts=(Part(data=data),)), last=True)


def _outcome(ended: Ended, state: dict[str, Any]) -> dict[str, Any]:
    if not ended.ok:
        return {"error": ended.error, **({"code": ended.code} if ended.code else {})}
    return {"finalState": state, **({} if ended.result is state else {"result": ended.result})}
