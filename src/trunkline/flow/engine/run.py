"""One run: sees to what its walk needs, records its rows, and waits where nothing can be done.

Everything that takes long is either an asyncio task of this process, begun again after a crash unless its
result is recorded; or a task of the store, which has its own log; or a question, which its caller answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import msgspec

from trunkline.clock import now_ms
from trunkline.errors import FlowRefused, Misuse, TaskNotFound, UnsupportedOperation
from trunkline.flow.activities.base import Activity, DelegateOrder, Outcome, output_of
from trunkline.flow.definition.checks import SchemaCheck
from trunkline.flow.definition.document import LONGEST_MS, Node
from trunkline.flow.definitions import Loaded
from trunkline.flow.engine.children import ChildRun, agent_request, child_id, nested_done, read_done
from trunkline.flow.engine.effects import (
    Ask,
    CheckState,
    Delegate,
    Done,
    Evaluate,
    Nest,
    Perform,
    RecordRows,
    Sleep,
)
from trunkline.flow.engine.metering import STOPPING, RunMeter
from trunkline.flow.engine.nodes import way
from trunkline.flow.engine.parts import FlowParts, is_address
from trunkline.flow.engine.questions import answered, awaited, question, relayed
from trunkline.flow.engine.replay import History
from trunkline.flow.engine.rows import SUBMITTED
from trunkline.flow.engine.run_messages import (
    DEPTH_LIMIT,
    Mode,
    RunOrder,
    fixes_mode,
    mode_of,
    read_reply,
    run_task_id,
)
from trunkline.flow.engine.view import RUN_TOO_LARGE
from trunkline.flow.engine.walk import Ended, Lane, NodeFailed, Walk, spanned
from trunkline.flow.jq.pool import BudgetSpent, FilterFailed, WorkerBudget
from trunkline.log.events import AnswerRead, FlowRow, FlowRows, QuestionClosed, Status
from trunkline.log.fold import BYTES_LIMIT, EVENTS_LIMIT, LIMITS, NEVER
from trunkline.run import hops
from trunkline.run.executor import Moment, Work
from trunkline.wire.types import Message, SendRequest, TaskState

# Left of a task's limit for the rows that say that it was reached.
_SPARE_BYTES, _SPARE_EVENTS = 4 << 20, 64
# How many nodes a run may come to: a way round in a circle ends there, if nothing else ends it.
NODES_LIMIT = 50_000
# And how many of its `parallel` nodes may be open at once, each within another: each holds a few KB.
FORKS_LIMIT = 5000
# Processor time that the filters and schemas of a run may use in workers. A restart of the hub begins anew.
WORKER_S = 60.0
# How many rows are recorded at a time, and the pause between two turns of all runs.
MANY_ROWS, PAUSE_S = 128, 0.003
# A child that ends within this time costs its parent one append less: its rows go with those of the end.
LINGER_MS = 50
_WORKING = Status(TaskState.WORKING)
_RESULTS = frozenset({"ActivityCompleted", "ActivityFailed", "SubworkflowCompleted"})


class Run:
    """A run in the hands of its executor."""

    def __init__(
        self,
        parts: FlowParts,
        work: Work,
        order: RunOrder,
        loaded: Loaded,
        *,
        given: dict[str, Any],
        history: History,
    ) -> None:
        self._parts = parts
        self._work = work
        self._history = history
        self._order = order
        self._state = state = work.state
        self._mode: Mode = mode_of(state, order)
        self._is_new = state.seq == state.opened
        self.walk = Walk(
            order.execution,
            loaded.definition,
            given,
            check=loaded.check.find_fault,
            clock=now_ms,
            history=history,
        )
        self._check = loaded.check
        self._budget = WorkerBudget(WORKER_S)
        self.meter = RunMeter(work, parts.meter, self.walk)
        self._tasks: dict[Lane, asyncio.Task[Done]] = {}
        self._moments: dict[Lane, Moment] = {}
        self._children: dict[Lane, ChildRun] = {}
        # What is asked of the caller, by the ids of the questions; and the one that is open.
        self._asks: dict[str, Lane] = {}
        self._open = "" if state.question is None else state.question.message_id
        self._taken = state.taken
        self._takes: list[int] = []
        # Whether all results are durable.
        self._is_kept = True
        # Whether the rows say that no activity is open here, and the delegations on which only others work.
        self._waits = state.crashes.only_waits
        self._polled: set[Lane] = set()

    async def go(self) -> Ended:
        """Walk to the end, however long that takes."""
        walk = self.walk
        walk.begin(way(walk))
        try:
            while True:
                lane = walk.next()
                if walk.dropped:
                    await self._drop()
                if walk.ended is not None:
                    break
                if lane is not None:
                    await self._see_to(lane)
                elif not await self._settle_one():
                    await self._rest()
            self._record()
            return walk.ended
        finally:
            # The cancelled tasks go on only after the end of the run is written.
            self.meter.charge_open()
            for task in self._tasks.values():
                task.cancel()
            walk.let_go()

    # Beginning what a lane needs.

    async def _see_to(self, lane: Lane) -> None:
        match lane.effect:
            case Evaluate() as wanted:
                await self._evaluate(lane, wanted)
            case CheckState(state=state):
                await self._check_state(lane, state)
            case RecordRows():
                await self._turn(lane)
            case Sleep(due=due, length_ms=length_ms):
                longest_ms = NEVER if length_ms is None else length_ms
                self._moments[lane] = moment = self._work.moment(due, longest_ms)
                self.walk.wait(lane)
                if moment.ends <= self._work.loop.time():
                    await self._come_due(lane)
            case Perform() | Delegate() if self._mode == "host_mediated":
                # One at a time: the next branch begins when the host has submitted this one.
                self.walk.held = True
                self._expect_word(lane)
            case Perform() as effect:
                await self._begin(lane, self._perform(effect))
            case Delegate() as effect:
                await self._delegate(lane, effect)
            case Nest() as effect:
                await self._nest(lane, effect)
            case _:
                self._expect_word(lane)

    async def _turn(self, lane: Lane) -> None:
        """Let others go on, and record the rows if there are many."""
        walk = self.walk
        if len(walk.rows) >= MANY_ROWS or walk.is_heavy:
            self._record(waits=self._waits)
            await self._work.drain()
            walk.unrecorded = 0
        # One run at a time passes here, and rests: however many walk in circles, others find the loop free.
        async with self._parts.turns.held(self._work.tenant):
            await asyncio.sleep(PAUSE_S)
        if walk.ended is not None:
            return
        if walk.nodes > NODES_LIMIT:
            walk.abort(f"a run comes to at most {NODES_LIMIT} nodes", RUN_TOO_LARGE)
        elif walk.forks > FORKS_LIMIT:
            walk.abort(f"a run has at most {FORKS_LIMIT} parallel nodes open at once", RUN_TOO_LARGE)
        else:
            walk.answer(lane, None)

    def _expect_word(self, lane: Lane) -> None:
        self._asks[self._question_id(lane)] = lane
        self.walk.wait(lane)

    def _question_id(self, lane: Lane) -> str:
        effect = cast("Perform | Delegate | Ask", lane.effect)
        attempt = 1 if isinstance(effect, Ask) else effect.attempt
        return f"{self._state.task_id}.{effect.node.id}.{effect.visit}.{attempt}"

    async def _evaluate(self, lane: Lane, wanted: Evaluate) -> None:
        try:
            value = await self._parts.value(wanted.program, wanted.root, self._work.tenant, self._charged())
        except BudgetSpent as spent:
            self.walk.abort(str(spent), RUN_TOO_LARGE)
        except FilterFailed as error:
            self.walk.refuse(lane, ValueError(str(error)))
        else:
            self.walk.answer(lane, value)

    async def _check_state(self, lane: Lane, state: dict[str, Any]) -> None:
        schemas = self._parts.definitions.schemas
        try:
            fault = await schemas.find_fault(self._check, state, self._work.tenant, self._charged())
        except BudgetSpent as spent:
            self.walk.abort(str(spent), RUN_TOO_LARGE)
        else:
            self.walk.answer(lane, fault)

    def _charged(self) -> WorkerBudget | None:
        """Return the budget of what is new; what a restart repeats was charged before."""
        return self._budget if self._history.over else None

    async def _begin(self, lane: Lane, work: Any) -> None:
        """Begin work of this process; what needs no time is there at once."""
        try:
            await self._keep_results(begins=lane not in self._polled)
        except BaseException:
            work.close()
            raise
        task = self._work.loop.create_task(work)
        self._tasks[lane] = task
        self.walk.wait(lane)
        await asyncio.sleep(0)
        if task.done():
            self._finish(lane)
        else:
            task.add_done_callback(self._nudge)

    async def _keep_results(self, *, begins: bool) -> None:
        """Make earlier results durable, so that a crash does not repeat them.

        If an activity of this process `begins` while the log says that the run waits, record that first.
        """
        begins = begins and self._waits
        if begins or any(row.name in _RESULTS for row in self.walk.rows):
            self._record(waits=self._waits and not begins)
        if begins or not self._is_kept:
            await self._work.drain()
            self._is_kept = True

    def _is_at_work(self) -> bool:
        """Return whether an activity is open in this process; what others do is only polled here."""
        return not self._tasks.keys() <= self._polled

    def _nudge(self, task: asyncio.Task[Done]) -> None:
        del task
        self._work.nudge()

    async def _perform(self, effect: Perform) -> Done:
        node = effect.node
        activity = Activity(
            self._order.execution,
            node,
            effect.state,
            node.timeout_ms,
            effect.attempt,
            self._work.tenant,
            self._order.by_operator,
            self._check_value,
            self.meter,
        )
        outcome = await self._within(self._parts.activities.execute(activity), node.timeout_ms)
        if node.type == "llm_call" and outcome.code == "LLM_OUTPUT_VALIDATION_FAILED":
            outcome = msgspec.structs.replace(outcome, code="OUTPUT_SCHEMA_VIOLATION")
        return _done(outcome)

    async def _check_value(self, check: SchemaCheck, value: object) -> str | None:
        """Return where a value does not fit a schema of the definition, at the expense of the run."""
        schemas = self._parts.definitions.schemas
        return await schemas.find_fault(check, value, self._work.tenant, self._budget)

    async def _within(self, work: Any, limit_ms: int | None) -> Outcome:
        limit = asyncio.timeout(None if limit_ms is None else limit_ms / 1000)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            return Outcome(ok=False, error=f"it took longer than {limit_ms} ms", code="TIMEOUT")

    async def _delegate(self, lane: Lane, effect: Delegate) -> None:
        node, child = effect.node, child_id(effect, self._work.tenant)
        if await self._is_opened(child):
            self._follow(lane, ChildRun(self._work, child, nested=False))
        elif (agent := self._agent_of(effect)) is None:
            order = self._plain_order(lane, effect)
            if order.external_task:
                self._polled.add(lane)
            await self._begin(lane, self._plain_call(order))
            return
        else:
            try:
                request = agent_request(child, effect, self._state, self.meter.spent.cost_usd)
            except UnsupportedOperation as refused:
                error, code = refused.message, refused.details["reason"]
                self.walk.answer(lane, Done(ok=False, error=error, code=code))
                return
            await self._open_child(lane, child, agent, request, nested=False)
        if effect.until and lane in self._children:
            length_ms = min(cast("int", node.timeout_ms), LONGEST_MS)
            self._moments[lane] = self._work.moment(effect.until, length_ms)

    def _agent_of(self, effect: Delegate) -> str | None:
        """Return the agent of a delegation; None for a plain call, such as one that was submitted before."""
        agents = self._parts.agents
        if agents is None or self._history.external_task(effect):
            return None
        return agents.agent(self._work.tenant, effect.node.config["agent_id"])

    async def _is_opened(self, child: str) -> bool:
        """Return whether the run opened a child before it was parked or its process died.

        Such a child is followed to its end, whatever became of its agent, its definition or the budget since.
        """
        if self._is_new:
            return False
        if child in self._state.ended_children or child in self._state.child_questions:
            return True
        try:
            return (await self._work.children.state(child)).parent == self._state.task_id
        except TaskNotFound:
            return False

    def _plain_order(self, lane: Lane, effect: Delegate) -> DelegateOrder:
        node = effect.node
        return DelegateOrder(
            self._order.execution,
            node,
            effect.state,
            effect.input,
            node.config["protocol"],
            effect.correlation,
            node.timeout_ms,
            effect.attempt,
            self._work.tenant,
            effect.visit,
            self._history.external_task(effect),
            partial(self._record_submission, lane, effect),
            self._order.by_operator,
            partial(self._polled.add, lane),
        )

    async def _record_submission(self, lane: Lane, effect: Delegate, external_task: str) -> None:
        """Make the ID of an external task durable: after a crash, the run polls that task.

        Raises:
            Misuse: the run has ended.
        """
        told = {
            "nodeId": effect.node.id,
            "attempt": effect.attempt,
            "delegateCorrelationId": effect.correlation,
            "externalTaskId": external_task,
            "_visit": effect.visit,
            **spanned(effect.span),
        }
        if self.walk.ended is None:
            self._polled.add(lane)
            self.walk.rows.append(FlowRow(SUBMITTED, told))
            self._record(waits=not self._is_at_work())
        if self.walk.ended is not None:
            raise Misuse(f"run {self._order.execution!r} has ended")
        await self._work.drain()

    async def _plain_call(self, order: DelegateOrder) -> Done:
        return _done(await self._within(self._parts.delegates.delegate(order), order.timeout_ms))

    async def _nest(self, lane: Lane, effect: Nest) -> None:
        config, parts = effect.node.config, self._parts
        child = run_task_id(effect.child, self._work.tenant)
        if await self._is_opened(child):
            self._follow(lane, ChildRun(self._work, child, nested=True))
            return
        try:
            if self._order.depth >= DEPTH_LIMIT:
                raise FlowRefused("SUBWORKFLOW_TOO_DEEP", f"runs are nested at most {DEPTH_LIMIT} deep")
            loaded = await parts.refs.resolve(
                self._work.tenant, config["workflow_ref"], by_operator=self._order.by_operator
            )
            pinned = config.get("version_pin")
            if pinned is not None and pinned != loaded.definition.hash:
                raise FlowRefused(
                    "VALIDATION_ERROR",
                    f"{config['workflow_ref']} is not the version that version_pin names: its hash is "
                    f"{loaded.definition.hash}",
                )
            parts.definitions.hold(self._work.tenant, loaded)
        except FlowRefused as error:
            self.walk.answer(lane, Done(ok=False, error=error.message, code=error.code))
            return
        depth, nested = self._order.depth + 1, loaded.definition
        # What an operator's definition names by an address, the operator provided.
        by_operator = loaded.by_operator or (self._order.by_operator and is_address(config["workflow_ref"]))
        order = RunOrder(
            effect.child,
            nested.hash,
            self._mode,
            depth,
            nested.name,
            by_operator,
            self._order.is_fixed or fixes_mode(self._work.tenant, by_operator=by_operator),
        )
        message = order.message(f"{child}:order", effect.input)
        # A chain that begins anew with each nested run would never come to its end.
        chain = hops.handed_on(self._state, effect.calls, self.meter.spent.cost_usd)
        metadata = {**(message.metadata or {}), **chain}
        message = msgspec.structs.replace(message, metadata=metadata)
        await self._open_child(lane, child, parts.agent, SendRequest(message), nested=True)

    async def _open_child(
        self, lane: Lane, child: str, agent: str, request: SendRequest, *, nested: bool
    ) -> None:
        run = ChildRun(self._work, child, nested=nested)
        # The id of a nested run follows from that of its parent: somebody may have started one under it.
        refusal = await run.open(agent, request, is_new=self._is_new and not nested)
        if refusal is not None:
            self.walk.answer(lane, refusal)
            return
        self._follow(lane, run)

    def _follow(self, lane: Lane, child: ChildRun) -> None:
        self._children[lane] = child
        self.walk.wait(lane)

    # Taking what has come.

    async def _settle_one(self) -> bool:
        """Give a lane what has come for it; whether anything had."""
        if len(self._state.answers) > self._taken:
            await self._hear()
            return True
        for lane, task in self._tasks.items():
            if task.done():
                self._finish(lane)
                return True
        for lane, child in self._children.items():
            if child.has_news:
                await self._look_at(lane, child)
                return True
        now = self._work.loop.time()
        for lane, moment in self._moments.items():
            if moment.ends <= now:
                await self._come_due(lane)
                return True
        return False

    def _finish(self, lane: Lane) -> None:
        task = self._tasks.pop(lane)
        self._polled.discard(lane)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            done = task.result()
            if done.code in STOPPING:
                self.walk.abort(done.error, done.code)
            else:
                self.walk.answer(lane, done)
            return
        text = f"its executor raised {type(error).__name__}: {error}"
        self.walk.refuse(lane, NodeFailed("orchestration_error", text))

    async def _look_at(self, lane: Lane, child: ChildRun) -> None:
        known = await child.look()
        if known is None:
            return
        del self._children[lane]
        self._moments.pop(lane, None)
        self.walk.answer(lane, nested_done(known) if child.nested else read_done(known))

    async def _come_due(self, lane: Lane) -> None:
        del self._moments[lane]
        if isinstance(lane.effect, Sleep):
            self.walk.answer(lane, None)
            return
        child = self._children.pop(lane)
        await child.cancel()
        limit_ms = cast("Delegate", lane.effect).node.timeout_ms
        self.walk.answer(lane, Done(ok=False, error=f"it took longer than {limit_ms} ms", code="TIMEOUT"))

    async def _hear(self) -> None:
        """Take up the next answer."""
        state, place = self._state, self._taken
        self._taken += 1
        said, asked = state.answers[place], state.questions[place]
        if asked == self._open:
            self._open = ""
        if isinstance(said, QuestionClosed):
            return
        self._takes.append(place)
        reply = read_reply(said)
        if reply is not None and not self._order.is_fixed:
            self._mode = reply.mode
        lane = self._asks.pop(asked, None)
        if lane is None:
            await self._pass_down(asked, said)
            return
        self.walk.held = any(isinstance(one.effect, Perform | Delegate) for one in self._asks.values())
        if reply is not None and reply.takes_over:
            self.walk.waiting.remove(lane)
            await self._see_to(lane)
            return
        try:
            value = answered(lane, said)
            if isinstance(lane.effect, Ask):
                await self._check_payload(lane.effect.node, value)
        except NodeFailed as refused:
            self.walk.refuse(lane, refused)
        else:
            self.walk.answer(lane, value)

    async def _check_payload(self, node: Node, payload: object) -> None:
        """Check the answer to an interrupt, which a parent that is no workflow passes down unchecked.

        Raises:
            NodeFailed: it does not fit the `resume_schema`.
        """
        schema = node.config.get("resume_schema")
        if schema is None:
            return
        schemas = self._parts.definitions.schemas
        fault = await schemas.find_fault(SchemaCheck(schema), payload, self._work.tenant)
        if fault is not None:
            text = f"the payload does not fit the resume_schema: {fault}"
            raise NodeFailed("resume_not_allowed", text, node.id)

    async def _pass_down(self, asked: str, said: Message) -> None:
        for child in list(self._children.values()):
            if child.asks(asked):
                await child.answer(asked, said)

    # Recording, asking, waiting.

    def _record(self, *, waits: bool = False) -> None:
        """Record the new rows and the answers that were taken up.

        `waits` says in the log that no activity of this run is open in this process.
        """
        walk, work = self.walk, self._work
        if walk.rows or waits != self._waits:
            state = self._state
            if walk.ended is None and (
                state.size > BYTES_LIMIT - _SPARE_BYTES or state.seq > EVENTS_LIMIT - _SPARE_EVENTS
            ):
                walk.abort(f"the run has reached the limit of a task ({LIMITS})", RUN_TOO_LARGE)
            rows, walk.rows = tuple(walk.rows), []
            self._is_kept = self._is_kept and not any(row.name in _RESULTS for row in rows)
            self._waits = waits and walk.ended is None
            work.put(FlowRows(rows, self._waits))
        # With the rows of what was heard: until they are written, a crash lets it be heard again.
        for place in self._takes:
            work.put(AnswerRead(place))
        self._takes.clear()

    async def _rest(self) -> None:
        """Wait until something has come, for whichever lane."""
        waits = [child.id for child in self._children.values()]
        if waits and self._may_linger():
            await self._work.until(self._is_ready, self._work.moment_in(LINGER_MS), waits, parks=False)
            if self._is_ready():
                return
        self._record(waits=not self._is_at_work())
        if self.walk.ended is not None:
            return
        self._ask()
        moment = min(self._moments.values(), key=lambda one: one.ends, default=None)
        await self._work.until(self._is_ready, moment, waits, parks=not self._tasks)

    def _may_linger(self) -> bool:
        """Whether the rows may wait: all lanes wait for children, which no crash has opened twice."""
        rows = self.walk.rows
        if not rows or self._tasks or self._asks or self._takes or self._open:
            return False
        return not any(row.name in _RESULTS for row in rows)

    def _is_ready(self) -> bool:
        return (
            len(self._state.answers) > self._taken
            or any(task.done() for task in self._tasks.values())
            or any(child.has_news for child in self._children.values())
        )

    def _wanted(self) -> Iterator[tuple[str, Status]]:
        """The questions for the caller: those of nodes, then those of children."""
        for asked, lane in self._asks.items():
            yield asked, question(asked, awaited(lane, self._order.execution), lane, self._state)
        for lane, child in self._children.items():
            if child.status is not None:
                yield child.question, relayed(child.status, lane, self._order.execution)

    def _ask(self) -> None:
        """Have the first question open that there is, and none that nobody needs answered."""
        wanted = dict(self._wanted())
        if self._open in wanted:
            return
        if self._open:
            self._work.put(QuestionClosed(len(self._state.answers), withdrawn=True))
            self._work.put(_WORKING)
            self._open = ""
        for asked, status in wanted.items():
            # Other branches go on beside the question, and a child may be answered by somebody else.
            is_busy = bool(self._tasks or self._moments or self._children)
            self._work.put(msgspec.structs.replace(status, busy=is_busy))
            self._open = asked
            return

    async def _drop(self) -> None:
        """Let go of what branches that were cancelled needed."""
        dropped, self.walk.dropped = self.walk.dropped, []
        for lane in dropped:
            self._moments.pop(lane, None)
            if (task := self._tasks.pop(lane, None)) is not None:
                self._polled.discard(lane)
                task.cancel()
            if (child := self._children.pop(lane, None)) is not None:
                await child.cancel()
        self._asks = {asked: lane for asked, lane in self._asks.items() if lane not in dropped}
        self.walk.held = any(isinstance(one.effect, Perform | Delegate) for one in self._asks.values())


def _done(outcome: Outcome) -> Done:
    """The outcome of an executor as the walk takes it.

    Raises:
        Misuse: what it gave is no JSON.
    """
    try:
        output = msgspec.json.decode(msgspec.json.encode(output_of(outcome.output)))
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"what an activity gives must be JSON: {error}") from None
    return Done(
        ok=outcome.ok,
        output=output if outcome.ok else {},
        error=outcome.error,
        code=outcome.code,
        external_task=outcome.external_task,
    )
