"""The operations on runs that every surface offers: start, status, resume, submit, signal, cancel, list.

A call is checked against the run as its log stands and leaves no trace if it is wrong. What it says goes to
the run as the answer to the question that the run waits with, so that of several the log takes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from msgspec import UNSET, Struct, UnsetType

from trunkline.errors import (
    Conflict,
    Duplicate,
    FlowRefused,
    Forbidden,
    InvalidParams,
    Refused,
    TaskNotCancelable,
)
from trunkline.flow.definition.checks import SchemaCheck
from trunkline.flow.definitions import Definitions, Loaded, beside
from trunkline.flow.engine.questions import answer_part, read_output
from trunkline.flow.engine.run_messages import (
    Awaited,
    Mode,
    RunOrder,
    RunQuestion,
    RunReply,
    check_mode,
    fixes_mode,
    given_to,
    order_of,
    read_awaited,
    read_reply,
    run_task_id,
)
from trunkline.flow.engine.view import RunView, ShownRow
from trunkline.flow.forms import ActivitySubmission
from trunkline.flow.listing import RunListQuery, list_runs
from trunkline.flow.results import (
    CANCELLED,
    RunPage,
    RunResult,
    RunStatus,
    asked_question,
    redacted,
    run_result,
    run_status,
)
from trunkline.flow.state import next_state, same_json
from trunkline.flow.submission import NOT_AWAITING, SUBMIT_INVALID, check_activity, read_outcome
from trunkline.log.events import FlowRows, Recorded
from trunkline.log.ids import is_task_id
from trunkline.net.places import TenantPlaces
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.store.records import Where
from trunkline.wire.question import QUESTION_CLOSED, Rejection, answered_question
from trunkline.wire.types import Correlation, Message, Part, SendRequest

# How long a call waits for the run to come to rest, unless it says otherwise.
WAIT_S = 60.0
RESUME_INVALID, SIGNAL_INVALID = "INVALID_RESUME_PAYLOAD", "SIGNAL_VALIDATION_ERROR"
NOT_FOUND, SIGNAL_NOT_AWAITING = "EXECUTION_NOT_FOUND", "SIGNAL_NOT_AWAITING"
LONGEST_ID = 512
# How many events of a run are read at a time; each may have hundreds of rows. A pause of so many times the
# length follows: others find the event loop free.
ROWS_PAGE, PAUSES = 4, 2
# A page of rows ends with the row that passes so many bytes.
PAGE_BYTES = 1 << 20
# How many tenants read long logs at a time, at most.
_TENANTS = 10_000
# The code of an answer with a wrong payload, by the code of one that the run does not await.
_INVALID = {NOT_AWAITING: SUBMIT_INVALID, SIGNAL_NOT_AWAITING: SIGNAL_INVALID}


class FlowCaller(Struct, frozen=True):
    """Who calls: the tenant whose runs these are, and by which name the log knows the caller."""

    tenant: str = "default"
    principal: str = "anonymous"
    # Who has asked for the runs that it may know of, where that are not all.
    owner: str | None = None
    # Whether an operator acts for a tenant that is not its own.
    by_operator: bool = False
    correlation: Correlation | None = None

    def knows(self, run: FoundRun) -> bool:
        """Whether it may know of a run."""
        return self.owner in (None, run.feed.state.principal)


Admitted = Callable[[FlowCaller], AbstractAsyncContextManager[None] | None]


class FoundRun(Struct, frozen=True):
    """A run that exists: its task, its rows as folded so far, and its definition."""

    feed: Feed
    view: RunView
    loaded: Loaded

    @property
    def about(self) -> Awaited | None:
        """The thing that the run waits for."""
        found = read_awaited(self.feed.state)
        return None if found is None else found[1]

    @property
    def question(self) -> str:
        """The id of the question by which it waits."""
        found = read_awaited(self.feed.state)
        return "" if found is None else found[0]

    @property
    def asked(self) -> RunQuestion | None:
        """The question that an interrupt or a delegated agent asks."""
        return asked_question(self.about, self.feed.state.question)

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.view.ended is not None and self.view.ended.name == "ExecutionCancelled"


class FlowPort:
    """The runs of a store, through the runner of this process; `agent` is the one whose tasks runs are."""

    def __init__(
        self,
        runner: Runner,
        definitions: Definitions,
        agent: str,
        *,
        also: tuple[str, ...] = (),
        wait_s: float = WAIT_S,
    ) -> None:
        self._runner = runner
        self._tasks = runner.tasks
        self.definitions = definitions
        self._agent = agent
        # Further agents whose tasks are runs: workflows that are agents of a catalogue.
        self.agents = (agent, *also)
        # Lets a caller have a run started while it is opened; None where nobody counts them.
        self.admitted: Admitted = lambda caller: None
        self._wait_s = wait_s
        self._readers = TenantPlaces(_TENANTS, 1)
        self._views: WeakKeyDictionary[Feed, tuple[RunView, Loaded]] = WeakKeyDictionary()
        # Those whose rows somebody follows, as far as they were told.
        self._followed: WeakKeyDictionary[Feed, RunView] = WeakKeyDictionary()
        self._starting: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def start(
        self,
        caller: FlowCaller,
        definition: object,
        given: dict[str, Any],
        *,
        execution_id: str = "",
        mode: Mode = "in_process",
        allow_existing: bool = False,
        wait_s: float | None = None,
    ) -> RunResult:
        """Start a run and wait until it rests.

        With `allow_existing`, a start that is repeated with an equal definition, input and mode returns the
        run that the first one opened.

        Raises:
            FlowRefused: the definition breaks a rule, or the execution ID belongs to another run.
            Refused: the caller may have no run, or not now.
        """
        loaded = await self._read(definition, "VALIDATION_ERROR")
        await self.definitions.check(loaded, caller.tenant)
        is_new = not execution_id.strip()
        execution_id = execution_id.strip() or self._runner.ids.new()
        if len(execution_id) > LONGEST_ID:
            raise FlowRefused("VALIDATION_ERROR", f"execution_id has at most {LONGEST_ID} characters")
        # One at a time: a feed that is begun for a task which is there already would hide that of the task.
        async with self._starting.setdefault((caller.tenant, execution_id), asyncio.Lock()):
            run = None if is_new else await self._find(caller.tenant, execution_id)
            if run is None:
                feed = await self._submit(caller, loaded, given, _order(caller, loaded, execution_id, mode))
                if feed is None and allow_existing:
                    # Another process was faster.
                    run = await self._find(caller.tenant, execution_id)
            else:
                feed = None
        if feed is not None:
            run = self._new_run(feed, execution_id, loaded, given)
        elif run is None or not allow_existing or not caller.knows(run):
            raise FlowRefused("DUPLICATE_EXECUTION_ID", f"there is a run {execution_id!r}; give another id")
        else:
            await self._check_same(run, loaded, given, mode)
        return await self._rested(run, wait_s)

    async def _submit(
        self, caller: FlowCaller, loaded: Loaded, given: dict[str, Any], order: RunOrder
    ) -> Feed | None:
        """Open the task of a run; None if another start was faster."""
        task_id = run_task_id(order.execution, caller.tenant)
        self.definitions.hold(caller.tenant, loaded)
        request = SendRequest(order.message(f"{task_id}:order", given), correlation=caller.correlation)
        async with self.admitted(caller) or nullcontext():
            feed, ack = self._runner.submit(
                caller.tenant, caller.principal, request, agent=self._agent, task_id=task_id
            )
            try:
                await ack
            except (Conflict, Duplicate):
                return None
        return feed

    async def status(self, caller: FlowCaller, execution_id: str) -> RunStatus:
        """The status of a run.

        Raises:
            FlowRefused: there is none.
        """
        run = await self._existing(caller, execution_id)
        return run_status(run.view, run.about, run.asked)

    async def result(self, caller: FlowCaller, execution_id: str, wait_s: float | None = None) -> RunResult:
        """A run when it rests, or when the wait is over.

        Raises:
            FlowRefused: there is none.
        """
        return await self._rested(await self._existing(caller, execution_id), wait_s)

    async def resume(
        self,
        caller: FlowCaller,
        execution_id: str,
        payload: dict[str, Any],
        *,
        definition: object = None,
        mode: Mode = "in_process",
        wait_s: float | None = None,
    ) -> RunResult:
        """Answer the interrupt at which a run waits, or the question of an agent that it delegates to.

        The payload is an object. An agent that asks for a text gets it from `{"text": …}`, and one whose
        schema allows no object gets the value of `{"value": …}`.

        Raises:
            FlowRefused: the run asks nothing, or the answer does not fit; the run stays as it was.
        """
        loaded = None if definition is None else await self._read(definition, RESUME_INVALID)
        run = await self._existing(caller, execution_id)
        if run.cancelled:
            raise FlowRefused(RESUME_INVALID, f"run {execution_id!r} was cancelled")
        self._check_hash(run, loaded, RESUME_INVALID)
        about, question = run.about, run.question
        if about is None or about.awaits not in ("interrupt", "agent"):
            raise FlowRefused(RESUME_INVALID, f"run {execution_id!r} does not wait at an interrupt")
        if about.fits is not None:
            fault = await self._find_fault(caller, about.fits, payload)
            if fault is not None:
                raise FlowRefused(RESUME_INVALID, f"the payload does not fit the resume_schema: {fault}")
        asked = None if about.awaits == "interrupt" else run.asked
        part = Part(data=payload) if asked is None else answer_part(asked.schema, payload)
        check_mode(caller.tenant, run.feed.state, mode, "in_process", RESUME_INVALID)
        message = RunReply(mode).message(self._runner.ids.new(), question, part)
        return await self._say(caller, run, message, RESUME_INVALID, wait_s)

    async def submit_activity(
        self,
        caller: FlowCaller,
        execution_id: str,
        node_id: str,
        outcome: ActivitySubmission,
        *,
        activity_id: str = "",
        definition: object = None,
        given: dict[str, Any] | None = None,
        span: dict[str, str] | None = None,
        mode: Mode = "host_mediated",
        wait_s: float | None = None,
    ) -> RunResult:
        """Submit the outcome of the activity that a run awaits.

        The activity is matched by its ID. Without one, it is matched by its node; a delegation also by its
        correlation ID, which all visits to a node share, so from the second visit on the ID is required.

        Raises:
            FlowRefused: the run awaits none or another one, or the outcome does not fit; the run stays as is.
        """
        loaded = None if definition is None else await self._read(definition, SUBMIT_INVALID)
        run = await self._find(caller.tenant, execution_id)
        if run is None or run.cancelled or not caller.knows(run):
            raise FlowRefused(NOT_AWAITING, f"no run {execution_id!r} waits for an activity")
        self._check_hash(run, loaded, SUBMIT_INVALID)
        about = run.about
        if about is None or about.awaits != "activity":
            raise FlowRefused(NOT_AWAITING, f"run {execution_id!r} does not wait for an activity")
        check_activity(about, execution_id, node_id, activity_id, span)
        check_mode(caller.tenant, run.feed.state, mode, "host_mediated", NOT_AWAITING)
        await self._check_input(run, given, SUBMIT_INVALID)
        reply, result = read_outcome(outcome, about, mode)
        if reply.ok and about.fits is not None:
            fault = await self._find_fault(caller, about.fits, result)
            if fault is not None:
                error = f"the result does not fit the output_schema: {fault}"
                reply, result = RunReply(mode, ok=False, error=error, code="OUTPUT_SCHEMA_VIOLATION"), {}
        message = reply.message(self._runner.ids.new(), run.question, Part(data=result))
        return await self._say(caller, run, message, NOT_AWAITING, wait_s)

    async def signal(
        self,
        caller: FlowCaller,
        execution_id: str,
        name: str,
        payload: dict[str, Any] | UnsetType = UNSET,
        *,
        definition: object = None,
        given: dict[str, Any] | None = None,
        mode: Mode = "in_process",
        wait_s: float | None = None,
    ) -> RunResult:
        """Deliver the signal that a run waits for.

        Raises:
            FlowRefused: it waits for none, or for another; it stays as it was.
        """
        loaded = None if definition is None else await self._read(definition, SIGNAL_INVALID)
        run = await self._existing(caller, execution_id)
        if run.cancelled:
            raise FlowRefused(SIGNAL_NOT_AWAITING, f"run {execution_id!r} was cancelled")
        self._check_hash(run, loaded, SIGNAL_INVALID)
        about, question = run.about, run.question
        if about is None or about.awaits != "signal":
            raise FlowRefused(SIGNAL_NOT_AWAITING, f"run {execution_id!r} does not wait for a signal")
        if name != about.signal_name:
            raise FlowRefused(
                "SIGNAL_NAME_MISMATCH",
                f"run {execution_id!r} waits for the signal {about.signal_name!r}, not for {name!r}",
            )
        await self._check_input(run, given, SIGNAL_INVALID)
        said = {} if isinstance(payload, UnsetType) else payload
        check_mode(caller.tenant, run.feed.state, mode, "in_process", SIGNAL_NOT_AWAITING)
        message = RunReply(mode).message(self._runner.ids.new(), question, Part(data=said))
        return await self._say(caller, run, message, SIGNAL_NOT_AWAITING, wait_s)

    async def cancel(self, caller: FlowCaller, execution_id: str, reason: str = "") -> RunResult:
        """Stop a run, and with it whatever it has others do.

        Raises:
            FlowRefused: there is none, or it has ended.
        """
        if not execution_id.strip():
            raise FlowRefused("CANCEL_VALIDATION_ERROR", "execution_id is missing")
        run = await self._existing(caller, execution_id)
        if not run.feed.state.over:
            try:
                await self._runner.cancel(run.feed, caller.principal, reason.strip())
            except TaskNotCancelable:
                # It was faster; how it ended is told below.
                pass
            await self._read_on(run)
        result = run_result(run.view, None)
        if result.status != CANCELLED:
            raise FlowRefused("CANCEL_NOT_ALLOWED", f"run {execution_id!r} has ended: {result.status}")
        return result

    async def list(self, caller: FlowCaller, query: RunListQuery) -> RunPage:
        """A page of runs, newest first; the lists of a tenant are read one after the other.

        Raises:
            FlowRefused: the cursor or a moment cannot be read.
        """
        where = Where(principal=caller.owner, agents=self.agents)
        async with self._readers.held(caller.tenant):
            return await list_runs(self._tasks, self.definitions, caller.tenant, where, query)

    async def rows(
        self,
        caller: FlowCaller,
        execution_id: str,
        *,
        from_seq: int = 1,
        to_seq: int | None = None,
        limit: int | None = None,
    ) -> list[ShownRow]:
        """Rows of a run by their numbers, as they may be shown.

        Raises:
            FlowRefused: there is no such run.
        """
        found: list[ShownRow] = []
        async with aclosing(self._every_row(caller, execution_id)) as rows:
            async for row in rows:
                if len(found) == limit or (to_seq is not None and row.seq > to_seq):
                    break
                if row.seq >= from_seq:
                    found.append((await _shown(row))[0])
        return found

    async def page(
        self, caller: FlowCaller, execution_id: str, from_seq: int, to_seq: int | None, limit: int
    ) -> tuple[list[ShownRow], int]:
        """Return rows of a run up to some bytes, at least one, and the number of the next row; 0 if none.

        Raises:
            FlowRefused: there is no such run.
        """
        found: list[ShownRow] = []
        left = PAGE_BYTES
        async with aclosing(self._every_row(caller, execution_id)) as rows:
            async for row in rows:
                if to_seq is not None and row.seq > to_seq:
                    break
                if len(found) == limit or (found and left <= 0):
                    return found, row.seq
                if row.seq >= from_seq:
                    shown, size = await _shown(row)
                    found.append(shown)
                    left -= size
        return found, 0

    async def news(self, caller: FlowCaller, execution_id: str, seen: int) -> tuple[list[ShownRow], bool]:
        """The rows behind those that were seen, once there are some, and whether no more will come.

        Raises:
            FlowRefused: there is no such run.
        """
        run = await self._existing(caller, execution_id)
        while run.view.count <= seen and run.view.ended is None:
            await self._tasks.move(run.feed, self._wait_s)
            await self._read_on(run)
        # Taken while it is read on: two that follow one run must not miss what the other has read.
        view = self._followed.pop(run.feed, None)
        if view is None or view.count != seen:
            view = RunView(execution_id, run.view.definition, given_to(run.feed.state.message))
        records = run.feed.newer(view.seq)
        every = view.read(await self._tasks.records(run.feed) if records is None else records)
        self._followed[run.feed] = view
        rows = [(await _shown(row))[0] for row in every if row.seq > seen]
        return rows, view.ended is not None

    async def checkpoint(self, caller: FlowCaller, execution_id: str) -> ShownRow | None:
        """The newest checkpoint of a run, if it has one.

        Raises:
            FlowRefused: there is no such run.
        """
        found = None
        async with aclosing(self._every_row(caller, execution_id)) as rows:
            async for row in rows:
                found = row if row.name == "CheckpointWritten" else found
        return None if found is None else (await _shown(found))[0]

    async def _every_row(self, caller: FlowCaller, execution_id: str) -> AsyncGenerator[ShownRow]:
        run = await self._existing(caller, execution_id)
        view = RunView(execution_id, run.view.definition, given_to(run.feed.state.message))
        async with aclosing(self._pages(run.feed, 0)) as pages:
            async for page in pages:
                for row in view.read(page):
                    yield row

    async def _pages(self, feed: Feed, after: int) -> AsyncGenerator[Sequence[Recorded]]:
        """Yield the log of a run behind a seq. One long log of each tenant is read at a time, with pauses."""
        if (records := feed.newer(after)) is not None:
            yield records
            return
        clock = asyncio.get_running_loop().time
        async with self._readers.held(feed.tenant):
            began = clock()
            async for page in self._tasks.pages(feed, after, ROWS_PAGE):
                yield page
                await asyncio.sleep((clock() - began) * PAUSES)
                began = clock()

    # Finding and reading runs.

    async def _read(self, definition: object, code: str) -> Loaded:
        if isinstance(definition, Loaded):
            return definition
        try:
            return await self.definitions.load(definition)
        except FlowRefused as refused:
            if code == "VALIDATION_ERROR":
                raise
            raise FlowRefused(code, refused.message, refused.details) from refused

    async def _existing(self, caller: FlowCaller, execution_id: str) -> FoundRun:
        run = await self._find(caller.tenant, execution_id)
        if run is None or not caller.knows(run):
            raise FlowRefused(NOT_FOUND, f"there is no run {execution_id[:LONGEST_ID]!r}")
        return run

    async def _find(self, tenant: str, execution_id: str) -> FoundRun | None:
        feed = await self._tasks.load(tenant, run_task_id(execution_id, tenant))
        if feed is None and is_task_id(execution_id):
            # A run that a caller over A2A has asked for is known by its task.
            feed = await self._tasks.load(tenant, execution_id)
        if feed is None or feed.state.agent not in self.agents or not feed.state.seq:
            return None
        known = self._views.get(feed)
        if known is not None:
            run = FoundRun(feed, *known)
        else:
            order, records = order_of(tenant, feed.state), await self._first_page(feed)
            hash = _recorded_hash(records) if order is None else order.definition
            loaded = await self.definitions.recorded(tenant, records, hash)
            run = self._new_run(feed, execution_id, loaded, given_to(feed.state.message))
            run.view.fold(records)
        await self._read_on(run)
        return run

    def _new_run(self, feed: Feed, execution_id: str, loaded: Loaded, given: dict[str, Any]) -> FoundRun:
        known = self._views[feed] = RunView(execution_id, loaded.definition, given), loaded
        return FoundRun(feed, *known)

    async def _read_on(self, run: FoundRun) -> None:
        """Take in what the log has grown by."""
        async with aclosing(self._pages(run.feed, run.view.seq)) as pages:
            async for page in pages:
                run.view.fold(page)

    async def _first_page(self, feed: Feed) -> list[Recorded]:
        """Return the events that a run begins with; its definition is among them."""
        if not feed.base:
            return feed.records
        return await anext(self._tasks.pages(feed, 0, ROWS_PAGE), list[Recorded]())

    async def _rested(self, run: FoundRun, wait_s: float | None) -> RunResult:
        await self._tasks.rest(run.feed, self._wait_s if wait_s is None else wait_s)
        await self._read_on(run)
        return run_result(run.view, run.about, run.asked)

    async def _say(
        self, caller: FlowCaller, run: FoundRun, message: Any, code: str, wait_s: float | None
    ) -> RunResult:
        state = run.feed.state
        by = "" if caller.principal == state.principal else caller.principal
        try:
            if state.parent:
                # The runner checks what is said to a run that nobody opened as a child.
                await self.check_answer(run.feed, message)
            await self._runner.say(run.feed, message, by=by)
        except Forbidden as refused:
            raise FlowRefused("AUTH_FORBIDDEN", refused.message) from refused
        except InvalidParams as wrong:
            is_closed = wrong.details.get("conflict") == QUESTION_CLOSED
            raise FlowRefused(code if is_closed else _INVALID.get(code, code), wrong.message) from wrong
        except Refused as refused:
            raise FlowRefused(code, refused.message) from refused
        return await self._rested(run, wait_s)

    async def check_answer(self, feed: Feed, message: Message) -> None:
        """Check that an answer fits the schema of an interrupt, and that the state fits its own with it.

        Raises:
            InvalidParams: it does not; the question stays open.
        """
        found = read_awaited(feed.state)
        if found is None or answered_question(message) not in ("", found[0]):
            return
        about, reply = found[1], read_reply(message)
        # An interrupt takes its payload from any reply.
        takes_effect = reply is None or (reply.ok and not reply.takes_over) or about.awaits != "activity"
        if about.awaits == "agent" or not takes_effect:
            return
        try:
            # The run that asks may be nested in this one.
            run = await self._find(feed.tenant, about.execution_id)
        except FlowRefused:
            # A newer version started the run. Only that version walks it.
            return
        overwrites = about.awaits == "interrupt"
        output = read_output(message, about.fits if overwrites else None)
        if run is None or isinstance(output, Rejection):
            return
        schemas = self.definitions.schemas
        if overwrites and about.fits is not None:
            fault = await schemas.find_fault(SchemaCheck(about.fits), output, feed.tenant)
            if fault is not None:
                raise InvalidParams(
                    f"the answer does not fit the resume_schema: {fault}", field="message.parts"
                )
        reducers = run.view.definition.reducers
        state = next_state(run.view.state, output, reducers, overwrites=overwrites)
        fault = await schemas.find_fault(run.loaded.check, state, feed.tenant)
        if fault is not None:
            text = f"the state of run {about.execution_id!r} would not fit its state_schema: {fault}"
            raise InvalidParams(text, field="message.parts")

    async def _find_fault(self, caller: FlowCaller, schema: dict[str, Any], value: object) -> str | None:
        """Return where a value does not fit a schema of a definition that was checked, or None."""
        return await self.definitions.schemas.find_fault(SchemaCheck(schema), value, caller.tenant)

    def _check_hash(self, run: FoundRun, loaded: Loaded | None, code: str) -> None:
        if loaded is not None and loaded.definition.hash != run.view.definition.hash:
            raise FlowRefused(code, "the definition is not the one that the run was started with")

    async def _check_input(self, run: FoundRun, given: dict[str, Any] | None, code: str) -> None:
        if given is not None and not await self._is_input(run, given):
            raise FlowRefused(code, "the input is not the one that the run was started with")

    async def _check_same(self, run: FoundRun, loaded: Loaded, given: dict[str, Any], mode: Mode) -> None:
        """Check that a start is equal to the one that opened the run.

        Raises:
            FlowRefused: the definition, the input or the mode differs.
        """
        order = order_of(run.feed.tenant, run.feed.state)
        different = {
            "definition": loaded.definition.hash != run.view.definition.hash,
            "input": not await self._is_input(run, given),
            "activity_execution_mode": mode != ("in_process" if order is None else order.mode),
        }
        names = [name for name, differs in different.items() if differs]
        if names:
            text = f"run {run.view.execution_id!r} was started with another {' and another '.join(names)}"
            raise FlowRefused(
                "DUPLICATE_EXECUTION_ID", f"{text}; choose another execution_id", {"different": names}
            )

    async def _is_input(self, run: FoundRun, given: dict[str, Any]) -> bool:
        """Return whether a run was started with this input; large ones of a tenant are compared in turn."""
        values = given, given_to(run.feed.state.message)
        async with self._readers.held(run.feed.tenant):
            return await beside(len(msgspec.json.encode(given)), lambda both: same_json(*both), values)


async def _shown(row: ShownRow) -> tuple[ShownRow, int]:
    """Return a row as it may be shown, and its bytes as JSON."""
    size = len(msgspec.json.encode(row.payload))
    return ShownRow(row.seq, row.at, row.name, await beside(size, redacted, row.payload)), size


def _recorded_hash(records: Sequence[Recorded]) -> str:
    for recorded in records:
        if isinstance(recorded.event, FlowRows):
            return recorded.event.rows[0].payload.get("_hash", "")
    return ""


def _order(caller: FlowCaller, loaded: Loaded, execution_id: str, mode: Mode) -> RunOrder:
    definition, by_operator = loaded.definition, loaded.by_operator or caller.by_operator
    return RunOrder(
        execution_id,
        definition.hash,
        mode,
        name=definition.name,
        by_operator=by_operator,
        is_fixed=fixes_mode(caller.tenant, by_operator=by_operator),
    )
