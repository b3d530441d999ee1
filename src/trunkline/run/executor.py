"""The seam between the runner and whoever does the work: a skill, later a peer, a flow, a model."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

from trunkline.clock import Ids
from trunkline.log.events import AnyEvent, Recorded, Replied, Status, Stepped
from trunkline.log.fold import State
from trunkline.wire.types import Message, SendRequest

Verdict = Status | Replied


def never() -> bool:
    """Whether something is so that never is."""
    return False


class OnCrash(Enum):
    """What becomes of a task whose process died while it ran."""

    FAIL = "fail"
    RESTART = "restart"
    RESUME = "resume"


class Again(Enum):
    """How an owner begins: with a new task, or with one that was begun before."""

    NO = "no"
    RESTART = "restart"
    RESUME = "resume"


class ChildTasks(Protocol):
    """The children of one task: other tasks of the same store that its executor has opened."""

    async def open(self, child: str, agent: str, request: SendRequest, *, is_new: bool = False) -> None:
        """Open a task of an agent under this id; nothing happens if that was done before.

        With `is_new` nobody looks for that first: of a parent that has just begun there can be none.

        Raises:
            Refused: the agent does not take the message, or is not carried here.
        """
        ...

    async def state(self, child: str) -> State:
        """A child as its log stands; read it, never change it.

        Raises:
            TaskNotFound: it is kept no longer.
        """
        ...

    async def answer(self, child: str, message: Message) -> None:
        """Say something to a child.

        Raises:
            Refused: it has ended, or waits for another answer.
        """
        ...

    async def cancel(self, child: str) -> None:
        """Have a child end, unless it has ended or is kept no longer."""
        ...


class Moment(Struct, frozen=True):
    """The end of a wait: `at` as it is recorded, in milliseconds since the epoch, and `ends` by the loop.

    A step of the time of day does not move `ends`.
    """

    at: int
    ends: float


# Looks whether a question has become moot elsewhere; gives after how many milliseconds to look again.
LookAgain = Callable[[], Awaitable[int]]
IsMoot = Callable[[], bool]


class Until(Protocol):
    """Waits until something is so, or for a moment: looked at whenever the log moves or `nudge` is called.

    `children` are those whose rest may make it so. Without `parks` the executor is kept meanwhile.
    """

    async def __call__(
        self,
        ready: Callable[[], bool],
        moment: Moment | None = None,
        children: Collection[str] = (),
        *,
        parks: bool = True,
    ) -> None:
        """Wait."""
        ...


class Work(Protocol):
    """One task in the hands of its executor. While it waits by one of these, it is never taken for silent."""

    ids: Ids
    tenant: str
    # The loop the executor runs on.
    loop: AbstractEventLoop
    # The task as recorded; read it, never change it.
    state: State
    # What was said in the same context before this task, oldest first.
    earlier: tuple[Message, ...]

    @property
    def elapsed_ms(self) -> int:
        """How long this executor has been running."""
        ...

    @property
    def children(self) -> ChildTasks:
        """The tasks that this one has others do."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the task is being ended from outside; not so where it only is let go of."""
        ...

    def hold(self, *, held: bool) -> None:
        """Keep a stop back from the executor for as long as it may take, or let it through again.

        For what must not be broken off, as it has an effect elsewhere that only its answer tells.

        Raises:
            TurnOver: one has come.
        """
        ...

    def put(self, event: AnyEvent) -> None:
        """Record an event without waiting for anything.

        Raises:
            TurnOver: the task has ended or moved; stop.
        """
        ...

    async def emit(self, event: AnyEvent) -> None:
        """Like `put`, but waits when too many events are not yet durable."""
        ...

    async def drain(self) -> None:
        """Wait until everything recorded so far is durable.

        Raises:
            TurnOver: some of it came too late; stop.
        """
        ...

    def recorded_step(self, place: int, name: str) -> Stepped | None:
        """The step of an earlier run that stands in place of this one; None if it is to be done.

        Raises:
            Misuse: the earlier run did another step at this place; the task fails, whatever comes.
        """
        ...

    async def ask(self, status: Status, is_moot: IsMoot = never, look: LookAgain | None = None) -> Message:
        """Interrupt the task with a question and wait for the caller's answer, unless that becomes moot.

        Answers that the log already holds are returned at once, in the order they were given. What makes it
        moot and no log tells, `look` sees: it is called now, and again at each moment that it gives.

        Raises:
            Unanswered: its deadline has passed.
            TimeoutError: the question is moot, or was withdrawn by an earlier run that waited no longer.
        """
        ...

    def moment(self, at: int, longest_ms: int) -> Moment:
        """Return the end of a wait until `at` (milliseconds since the epoch), as it was recorded.

        `longest_ms` is the full length of the wait: a clock that was set back before this process saw the
        wait adds no more than that.
        """
        ...

    def moment_in(self, rest_ms: int) -> Moment:
        """Return the end of a wait that begins now."""
        ...

    async def step_before(self, name: str, fits: Callable[[Message], bool]) -> tuple[Stepped | None, bool]:
        """The last step of this name in the newest earlier task of the context whose first message fits.

        Told beside it is whether the context is the principal's own. Without such a step it is where it has
        the id of a task of the principal; any other id was chosen by a caller, and others may choose it too.
        """
        ...

    @property
    def until(self) -> Until:
        """Waits until something is so, or for a moment."""
        ...

    def nudge(self) -> None:
        """Have whatever waits look again: something is so that no log tells."""
        ...

    async def records(self) -> Sequence[Recorded]:
        """The whole log of the task as it stands."""
        ...

    def mark_main(self) -> None:
        """Say that the asyncio task that calls this waits for the executor as a whole.

        As the one does in which a sync function's own thread waits. Without it only waits in the coroutine
        `run` itself are such that the executor may be dropped meanwhile and run again (`OnCrash.RESUME`).
        """
        ...


class Executor(Protocol):
    """Does the work of an agent."""

    # Whether somebody else does the work, so that a cancel has to reach them and nothing is lost by a crash
    # here. Such an executor reads in the log how far it is, and says nothing twice by itself.
    works_elsewhere: bool

    def admit(self, request: SendRequest) -> str:
        """The id of the skill that takes this message; asked before a task exists.

        Raises:
            Refused: no skill can; the reason names the field and the fix.
        """
        ...

    def named(self, name: str) -> str:
        """The id of the skill of this name; empty if the name is the agent's own.

        Raises:
            RouteNotFound: there is neither.
        """
        ...

    def on_crash(self, skill: str) -> OnCrash:
        """What to do with a task of this skill whose process died; a skill nobody knows fails."""
        ...

    async def run(self, work: Work) -> Verdict:
        """Work until a verdict; raising is failing."""
        ...

    async def close(self) -> None:
        """Let go of whatever is held; the runner has stopped."""
        ...
