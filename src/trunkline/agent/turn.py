"""One call of a skill: what it was told, and everything it may say.

A turn only records. Whether its words still count is the log's business; when they do not,
`TurnOver` ends the function.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import deepcopy
from datetime import datetime
from functools import partial, update_wrapper
from itertools import count
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.extensions import Change, RunReport, Usage
from trunkline.agent.step import TOOL_TIMEOUT_S, McpTools, encoded, fitted, perform
from trunkline.agent.validation import (
    LONGEST_S,
    given_answer,
    moment_of,
    read_back,
    read_flag,
    read_metadata,
    read_part,
    read_parts,
    read_text,
    typed_question,
)
from trunkline.clock import now_ms
from trunkline.config import Settings
from trunkline.errors import Misuse, TurnOver
from trunkline.log.events import AnyEvent, Chunk, Delta, Status, Stepped
from trunkline.peer.remote import Calling, Reachable, correlation_of
from trunkline.run.executor import Work, never
from trunkline.run.hops import Bounds, Grants
from trunkline.run.spending import Meter, ModelSpending
from trunkline.telemetry import traces
from trunkline.wire.question import OTHERS, AnsweredBy, Question, question_metadata
from trunkline.wire.reports import SPENT, UNTOLD
from trunkline.wire.types import Artifact, Message, Metadata, Part, Role, TaskState

if TYPE_CHECKING:
    from trunkline.client.message import Content
    from trunkline.client.result import Result

ANSWER = "answer"
# The name under which the moment of a sleep is recorded as a step.
SLEEP = "sleep"
P = ParamSpec("P")
T = TypeVar("T")
# `inspect.currentframe` is this, and slower.
_get_frame = sys._getframe  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
# The first place of the costs of model calls, behind those of all other steps.
_SPENT_PLACE = 1 << 20
# More calls than these are not noted while none of them has been started.
_MAX_CALLS = 64
# This one calls a turn for the author; the author's line is that of its own caller.
_MCP_CALL = McpTools.call.__code__
# A coroutine, the name of its method, and the code and the instruction that made the call. A tuple, because
# one is made for each call of a turn.
_Call = tuple[Any, str, CodeType, int]


def _is_unstarted(call: _Call) -> bool:
    coroutine = call[0]
    return not (coroutine.cr_frame is None or coroutine.cr_running or coroutine.cr_suspended)


def _line_of(code: CodeType, instruction: int) -> int:
    return [*code.co_positions()][instruction // 2][0] or code.co_firstlineno


class UnawaitedCalls:
    """The calls of one turn that may not have been started, and the coroutines that its skill dropped."""

    __slots__ = ("_earlier", "dropped", "last")

    def __init__(self) -> None:
        self.dropped: list[str] = []
        self.last: _Call | None = None
        self._earlier: list[_Call] = []

    def keep(self, call: _Call) -> None:
        """Keep a call that had not ended when the next one was made."""
        if len(self._earlier) >= _MAX_CALLS:
            self._earlier = [one for one in self._earlier if _is_unstarted(one)]
        if len(self._earlier) < _MAX_CALLS:
            self._earlier.append(call)

    def note_step(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Note a call of `step`, which is the caller of this function."""
        caller = _get_frame(2)
        if caller.f_code is _MCP_CALL:
            caller = _get_frame(3)
        if self.last is not None:
            self.keep(self.last)
        self.last = coroutine, "step", caller.f_code, caller.f_lasti

    def _unstarted(self) -> list[_Call]:
        calls = self._earlier if self.last is None else [*self._earlier, self.last]
        return [one for one in calls if _is_unstarted(one)]

    async def find(self) -> Misuse | None:
        """Return the error for the calls and coroutines that nothing has started, if there are any."""
        for _ in range(2):
            if not self._unstarted():
                break
            # A task that was created for a call starts it in one of the next two iterations of the loop.
            await asyncio.sleep(0)
        found = self._unstarted()
        for one in found:
            one[0].close()
        count = len(found) + len(self.dropped)
        more = f" (and {count - 1} more)" if count > 1 else ""
        if not found:
            text = f"was never awaited{more}, so it did nothing; await it"
            return Misuse(f"{self.dropped[0]} {text}") if self.dropped else None
        _, name, code, instruction = found[0]
        return Misuse(
            f"turn.{name}(…) at {code.co_filename}:{_line_of(code, instruction)} was never awaited{more}, "
            f"so it did nothing; write await turn.{name}(…)"
        )


class _NotedMethod:
    """An async method of a turn that notes each of its calls."""

    def __init__(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        update_wrapper(self, method)
        self._method, self._name = method, method.__name__
        # With these, `inspect` still takes the method for a coroutine function. Frameworks ask that of a
        # callback before they await it.
        function = cast("Any", method)
        self.__code__ = function.__code__
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__

    def __get__(self, turn: Any, owner: type | None = None) -> Any:
        return self if turn is None else MethodType(self, turn)

    def __call__(self, turn: Any, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine = self._method(turn, *args, **kwargs)
        # Without further functions, because every piece of a streamed answer passes here.
        caller = _get_frame(1)
        calls: UnawaitedCalls = turn.unawaited
        last = calls.last
        # Nearly every skill awaits one call before it makes the next.
        if last is not None and last[0].cr_frame is not None:
            calls.keep(last)
        calls.last = coroutine, self._name, caller.f_code, caller.f_lasti
        return coroutine


def noted(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Note each call of an async method of a turn, so that one that is never awaited fails the task."""
    return cast("Callable[P, Coroutine[Any, Any, T]]", _NotedMethod(method))


class VerdictGiven(BaseException):
    """Ends a skill with the verdict its author chose. No Exception, so a broad except does not eat it."""

    def __init__(self, state: TaskState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class Turn:
    """A skill's view of its task."""

    __slots__ = (
        "_begun", "_count", "_grants", "_held", "_own", "_places", "_reachable", "_spent", "_spoke", "_timer",
        "_work", "_written", "answer_name", "lost_step", "raised", "report", "skill", "unawaited",
    )  # fmt: skip

    def __init__(
        self, work: Work, skill: str, own: Settings, bounds: Bounds, reachable: Reachable | None = None
    ) -> None:
        self.skill = skill
        # What the written answer is called as an artifact.
        self.answer_name = ""
        self._grants = Grants(bounds)
        self._reachable = reachable
        # What the run says of itself; most say nothing.
        self.report: RunReport | None = None
        self._work = work
        self._own = own
        self._written: list[str] = []
        self._held = ""
        self._begun = False
        self._spoke = False
        self._timer: asyncio.TimerHandle | None = None
        self._count = 0
        # Taken from in one step of the interpreter: the threads of a sync skill may come to it together.
        self._places = count()
        self._spent = count(_SPENT_PLACE)
        # The questions of children that the skill was given as exceptions, by child.
        self.raised: dict[str, str] = {}
        # Why a step that was done is not recorded: a second run would do it again, so no skill may succeed
        # by catching it.
        self.lost_step: Misuse | None = None
        self.unawaited = UnawaitedCalls()

    @property
    def task_id(self) -> str:
        """The id of the task."""
        return self._work.state.task_id

    @property
    def context_id(self) -> str:
        """The id of the conversation the task belongs to."""
        return self._work.state.context_id

    @property
    def tenant(self) -> str:
        """The tenant whose task it is."""
        return self._work.tenant

    @property
    def caller(self) -> str:
        """The principal who opened the task."""
        return self._work.state.principal

    @property
    def request(self) -> Message:
        """The message that opened the task."""
        # Copies, here and below: an author may change them, and the task is what was said.
        return deepcopy(self._work.state.message)

    @property
    def metadata(self) -> Metadata:
        """The metadata of the request, with the message's own on top."""
        return deepcopy({**(self._work.state.metadata or {}), **(self._work.state.message.metadata or {})})

    @property
    def output_modes(self) -> tuple[str, ...]:
        """The media types the caller said it accepts; empty means any."""
        return self._work.state.output_modes

    @property
    def text(self) -> str:
        """All text parts of the request, a line each."""
        return self._work.state.message.text

    @property
    def data(self) -> list[object]:
        """The values of all data parts of the request."""
        return [part.data for part in self.request.parts if part.data is not msgspec.UNSET]

    @property
    def files(self) -> list[Part]:
        """All file parts of the request, by content (`raw`, base64) or by address (`url`)."""
        return [part for part in self.request.parts if part.raw is not None or part.url is not None]

    @property
    def history(self) -> tuple[Message, ...]:
        """The conversation so far: earlier tasks of the context, then this one."""
        return deepcopy((*self._work.earlier, *self._work.state.history))

    @property
    def traceparent(self) -> str:
        """The W3C header for requests on behalf of this task; empty if it is part of no trace."""
        return traces.traceparent(self._work.state.trace)

    @property
    def correlation_id(self) -> str:
        """The `X-Correlation-Id` that the task was opened with, or the ID of the task."""
        return correlation_of(self._work.state)

    @property
    def parent_id(self) -> str:
        """The task that called this one, or the `X-Parent-Id` of the request; empty without either."""
        given = self._work.state.correlation
        return self._work.state.parent or ("" if given is None else given.parent_id)

    def chain(self) -> Metadata:
        """For a message to another agent, under `trunkline.chain` in its metadata; a new one for each.

        Raises:
            Refused: the chain of agents is too long, has made as many tasks as it may, or costs too much.
        """
        return self._grants.take(self._work.state)

    @property
    def cost_left(self) -> float | None:
        """What the task and those it calls may still cost, in dollars; None if its caller set no bound."""
        return self._grants.cost_left(self._work.state)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop the turn lives on."""
        return self._work.loop

    @property
    def elapsed_ms(self) -> int:
        """How long the run has taken so far."""
        return self._work.elapsed_ms

    @property
    def spoke(self) -> bool:
        """Whether anything was said on the task so far; a direct answer must be the first word."""
        return self._spoke

    @property
    def written(self) -> str:
        """Everything written so far."""
        return "".join(self._written)

    @noted
    async def write(self, text: str) -> None:
        """Add text to the answer; readers get it as a delta."""
        if not text:
            return
        text = read_text("text", text)
        first = not self._written
        self._written.append(text)
        self._held += text
        # The first piece goes out at once.
        if first or len(self._held) >= self._own.coalesce_characters or not self._own.coalesce_milliseconds:
            await self._flush()
        elif self._timer is None:
            self._timer = self._work.loop.call_later(self._own.coalesce_milliseconds / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        text, self._held = self._held, ""
        if text:
            # A task that has ended is no news for a timer; the function hears of it at its next word.
            with contextlib.suppress(TurnOver):
                self._work.put(Delta(ANSWER, text))

    @noted
    async def flush(self, *, last: bool = False) -> None:
        """Send held text now."""
        await self._flush(last=last)

    async def _flush(self, *, last: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._held = self._held, ""
        if text or last:
            append = self._begun
            self._begun = self._spoke = True
            await self._work.emit(Delta(ANSWER, text, append, last, "" if append else self.answer_name))

    @noted
    async def status(self, text: str, metadata: Metadata | None = None) -> None:
        """Say what is going on; it stays on the task until the next word."""
        message = self._message(read_parts("text", text), None)
        await self._record(Status(TaskState.WORKING, message, read_metadata("metadata", metadata)))

    @noted
    async def artifact(
        self,
        *,
        text: str | None = None,
        data: object = msgspec.UNSET,
        file: bytes | str | None = None,
        name: str = "",
        filename: str = "",
        media_type: str = "",
        description: str = "",
        artifact_id: str = "",
        append: bool = False,
        last: bool | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """Emit a result as it is; `file` is bytes or a URL. Gives its id, to append to it later.

        Raises:
            Misuse: an argument is of another type, is not JSON or is nested too deep.
        """
        part = read_part(text, data, file, filename, media_type)
        name, description = read_text("name", name), read_text("description", description)
        metadata, artifact_id = read_metadata("metadata", metadata), read_text("artifact_id", artifact_id)
        one_shot = not artifact_id and not read_flag("append", append)
        last = one_shot if last is None else read_flag("last", last)
        artifact_id = artifact_id or self.next_artifact_id()
        await self._record(Chunk(Artifact(artifact_id, name, description, (part,), metadata), append, last))
        return artifact_id

    def next_artifact_id(self) -> str:
        """The id of the next artifact; counted, so that a run that is played again gives the same."""
        self._count += 1
        return f"artifact-{self._count}"

    @noted
    async def emit(self, event: Status | Delta | Chunk) -> None:
        """Record an event that an author made, after any held text.

        Raises:
            Misuse: it could not be read back, or is of a kind that is not a skill's to say.
        """
        if not isinstance(event, Status | Delta | Chunk):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"event is a Status, Delta or Chunk, not {type(event).__name__}")
        await self._record(read_back("event is", event))

    @noted
    async def record(self, event: AnyEvent) -> None:
        """Record an event that is known to read back, after any held text."""
        await self._record(event)

    async def _record(self, event: AnyEvent) -> None:
        if self._held:
            await self._flush()
        self._spoke = True
        await self._work.emit(event)

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[None, None, T]: ...

    @overload
    def step(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[None, None, T]: ...

    def step(self, name: str, function: AuthorFunction, /, *args: object, **kwargs: object) -> Any:
        """Do something once: its result is recorded, and given back if the function is run again.

        Raises:
            Misuse: the result is not JSON, or another step is recorded here.
        """
        # Counted here and not when it is awaited, so that steps begun together keep their places.
        step = self._step(self.next_step(name), name, function, partial(perform, function, *args, **kwargs))
        self.unawaited.note_step(step)
        return step

    async def _step(
        self, place: int, name: str, function: AuthorFunction, do: Callable[[], Awaitable[object]]
    ) -> object:
        stepped = await self.recall(place, name)
        if stepped is not None:
            return fitted(name, stepped.result, function)
        return await self.keep(place, name, function, await do())

    def next_step(self, name: str) -> int:
        """The place of the next step."""
        if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse('a step needs a name: turn.step("name", function, ...)')
        read_text("name", name)
        return next(self._places)

    async def recall(self, place: int, name: str) -> Stepped | None:
        """What an earlier run has recorded of a step."""
        return self._work.recorded_step(place, name)

    async def keep(self, place: int, name: str, function: AuthorFunction, result: object) -> object:
        """Record what a step gave; once this returns it is durable."""
        try:
            body = encoded(name, result)
            given = fitted(name, msgspec.json.decode(body), function)
        except Misuse as misuse:
            self.lost_step = misuse
            raise
        await self._flush()
        # Read twice: what the author is given may be changed, and what is recorded must not be.
        await self._work.emit(Stepped(place, name, msgspec.json.decode(body)))
        await self._work.drain()
        return given

    async def keep_untold(self, reports: Metadata) -> None:
        """Record the reports that the caller did not request; health and quotas count them."""
        place = self.next_step(UNTOLD)
        if await self.recall(place, UNTOLD) is None:
            await self._work.emit(Stepped(place, UNTOLD, reports))

    async def keep_spent(self, call: ModelSpending, meter: Meter) -> None:
        """Record the cost of a model call and count it in quotas, unless an earlier run did."""
        place = next(self._spent)
        if await self.recall(place, SPENT) is None:
            with meter.counting(self.tenant, self.caller, call):
                await self._work.emit(Stepped(place, SPENT, call.body))
                await self._work.drain()

    @noted
    async def call(self, target: str, content: Content | None = None, /, **said: Unpack[Calling]) -> Result:
        """Have another agent do something: at an address, by its name among `peers`, or one of this host.

        It is a child of this task, recorded before it is begun: a run that is resumed goes on with the same
        one. What it asks is asked of our caller; with `questions="raise"` the code gets it, and answers with
        `task=`. `context` goes on with an earlier conversation.

        Raises:
            CallFailed: it was not done, and `result` says how far it came; or the chain of agents is too
                long, or has made as many tasks as it may.
        """
        # An agent that calls nobody starts without it.
        from trunkline.peer.call import AgentCall

        call = AgentCall(self._work, self, self._reachable or Reachable(), target, said)
        await self._flush()
        return await call.run(content)

    def mcp(self, server: str, *, timeout: float = TOOL_TIMEOUT_S) -> McpTools:
        """The tools of an MCP server of the operator's `mcp.json`; each call of one is a step."""
        return McpTools(self, None if self._reachable is None else self._reachable.tools, server, timeout)

    @noted
    async def sleep(self, seconds: float) -> None:
        """Wait, for days if need be: the moment is recorded, so that a run that is resumed keeps it.

        Raises:
            Misuse: that is no time to wait.
        """
        if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_S:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Misuse(f"a sleep takes 0 to {LONGEST_S} seconds, not {seconds!r}")

        async def moment() -> int:
            return now_ms() + round(seconds * 1000)

        until = await self._step(self.next_step(SLEEP), SLEEP, int, moment)
        await self._flush()
        await self._work.until(never, self._work.moment(cast("int", until), round(seconds * 1000)))

    async def wait_as_main(self, work: Coroutine[None, None, object]) -> object:
        """Wait for a call that a sync function's own thread has made."""
        self._work.mark_main()
        return await work

    def message(self, content: str | Part | list[Part], metadata: Metadata | None = None) -> Message:
        """A message of the agent; returned from a skill before any output it is the direct answer."""
        return self._message(read_parts("content", content), read_metadata("metadata", metadata))

    def _message(self, parts: tuple[Part, ...], metadata: Metadata | None, message_id: str = "") -> Message:
        return Message(
            message_id=message_id or self._work.ids.new(),
            context_id=self.context_id,
            task_id=self.task_id,
            role=Role.AGENT,
            parts=parts,
            metadata=metadata,
        )

    @overload
    async def ask(
        self,
        question: str,
        *,
        choices: Sequence[str] = (),
        deadline: float | datetime | None = None,
        answered_by: AnsweredBy = "",
    ) -> str: ...

    @overload
    async def ask(
        self,
        question: str,
        *,
        schema: Metadata,
        deadline: float | datetime | None = None,
        answered_by: AnsweredBy = "",
    ) -> Any: ...

    @noted
    async def ask(
        self,
        question: str,
        *,
        choices: Sequence[str] = (),
        schema: Metadata | None = None,
        deadline: float | datetime | None = None,
        answered_by: AnsweredBy = "",
    ) -> Any:
        """Ask and wait; return the text of the answer, one of the `choices`, or data that fits the `schema`.

        Without a `deadline` (seconds from now, or a datetime) the wait has no end. The answer is checked when
        it is given: one that does not fit is refused, and the question stays open. With
        `answered_by="others"` an answer of the principal that requested the task is refused too.

        Raises:
            Unanswered: the deadline has passed, or the answer declines. It ends the task as failed, with
                that reason, unless it is caught.
        """
        parts, due = read_parts("question", question), moment_of(deadline)
        wanted = typed_question(question, choices, schema, due)
        if (part := wanted.part()) is not None:
            parts = (*parts, part)
        answer = await self._interrupt(TaskState.INPUT_REQUIRED, parts, due, answered_by)
        return given_answer(wanted, answer)

    @noted
    async def ask_message(self, question: str, *, answered_by: AnsweredBy = "") -> Message:
        """Ask and wait without end; return the whole message that answers. See `ask`."""
        parts = read_parts("question", question)
        return await self._interrupt(TaskState.INPUT_REQUIRED, parts, answered_by=answered_by)

    @noted
    async def need_auth(self, what: str) -> Message:
        """Say which authorization is missing and wait for the next message, of the caller or the inbox.

        Raises:
            Unanswered: who was asked declines: a login that is refused must not be taken for one.
        """
        said = await self._interrupt(TaskState.AUTH_REQUIRED, read_parts("what", what))
        given_answer(Question(""), said)
        return said

    async def _interrupt(
        self, state: TaskState, parts: tuple[Part, ...], deadline: int = 0, answered_by: AnsweredBy = ""
    ) -> Message:
        if answered_by not in ("", OTHERS):
            raise Misuse(f'answered_by is "others" or empty, not {answered_by!r}')
        await self._flush()
        self._spoke = True
        question_id = self._work.ids.new()
        message = self._message(parts, question_metadata(question_id, answered_by), message_id=question_id)
        return deepcopy(await self._work.ask(Status(state, message, deadline=deadline)))

    def reject(self, reason: str) -> NoReturn:
        """Refuse the task; this ends the function."""
        raise VerdictGiven(TaskState.REJECTED, read_text("reason", reason))

    def fail(self, reason: str) -> NoReturn:
        """End as failed with a reason the caller may read."""
        raise VerdictGiven(TaskState.FAILED, read_text("reason", reason))

    def finish(self, closing: str) -> NoReturn:
        """End as completed with a closing word beside the artifacts; this ends the function."""
        raise VerdictGiven(TaskState.COMPLETED, read_text("closing", closing))

    def _reports(self) -> RunReport:
        self.report = self.report or RunReport(self._work.state.extensions)
        return self.report

    def usage(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cache_creation_input_tokens: int = 0,
        cache_read_input_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        """Add to what the run has used; reported as `cost-v1`."""
        self._reports().add_usage(
            Usage(input_tokens, output_tokens, cache_creation_input_tokens, cache_read_input_tokens, cost_usd)
        )
        self._grants.spent += cost_usd or 0.0

    def confidence(self, value: float, explanation: str = "") -> None:
        """Say how sure the answer is; clamped to 0..1, reported as `confidence-v1`."""
        self._reports().set_confidence(value, explanation)

    def effect(self, domain: str, path: str, value: object = 1, op: str = "inc") -> None:
        """Record a change of shared state; reported as `worldstate-delta-v1` when the run succeeds."""
        self._reports().add_change(Change(domain, path, value, op))
