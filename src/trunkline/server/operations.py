"""The operations of A2A, typed: a caller and a request in; a task, a message, a page or a subscription out.

No bytes and no HTTP in here: JSON-RPC, REST and whoever comes next encode what these give.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from trunkline import errors
from trunkline.clock import new_id
from trunkline.log.events import DISPATCH_KEY, PushTarget
from trunkline.log.fold import LIMITS, NOBODY, State
from trunkline.run.executor import Executor
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.run.tasks import not_found
from trunkline.server.caller import WRITE, Caller, answers_as, may_see, owns, permit, view
from trunkline.server.push_operations import PushOperations
from trunkline.server.streams import Subscription, direct_answer, read_place, resume
from trunkline.server.task_pages import TaskPages
from trunkline.store.records import Dedup
from trunkline.telemetry import traces
from trunkline.wire.types import ListQuery, Message, SendRequest, Task, TaskPage, TaskQuery
from trunkline.wire.writer import Dialect

# The first word of a run tells a task from a direct message; it comes within one commit.
FIRST_WORD_S = 5.0
# How often whoever waits for a rest is asked whether it is still let in.
LOOK_S = 1.0
UNAVAILABLE = "the store cannot take this now; send the same message again in a while"
# Gives the task that a caller's message has opened: of which agent is decided there. It may wait for so many
# seconds until that rests.
OpenTask = Callable[[Caller, SendRequest, Dedup | None, PushTarget | None, float], Awaitable[Feed]]


class Operations:
    """The operations of A2A with one agent of a runner: no task of another one is found.

    With None for the agent they are those of all, and `open_task` says which one has taken a message.
    """

    def __init__(
        self,
        runner: Runner,
        agent: str | None,
        *,
        wait_limit_s: float,
        streaming: bool,
        open_task: OpenTask | None = None,
    ) -> None:
        self._agent = agent
        self._open_task = open_task
        self._agents = None if agent is None else runner.names_of(agent)
        self._runner = runner
        self._tasks = runner.tasks
        self._wait_limit_s = wait_limit_s
        self._streaming = streaming
        self._pages = TaskPages(runner.tasks, self._agents)
        self.push = PushOperations(self._find)

    @property
    def pruned_before(self) -> int:
        """Tasks that ended before this moment may be gone from the store."""
        return self._tasks.pruned_before(self._agents)

    async def send(self, caller: Caller, request: SendRequest) -> Task | Message:
        """Take a message; gives the task at rest, or at once if so asked, or the message that answers it."""
        wait = caller.wait if request.wait is None else request.wait
        due = self._tasks.loop.time() + self._wait_limit_s
        feed, _ = await self._take(caller, request, wait=wait)
        traces.about(feed.state.task_id)
        state = feed.state
        if caller.extensions is not None:
            caller.extensions.settle(state.extensions)
        is_fresh = state.seq == state.opened
        receipt = view(caller.principal, state, request.history_length) if is_fresh and not wait else None
        if receipt is not None:
            await self._tasks.move(feed, FIRST_WORD_S)
        elif wait:
            await self._rest(caller, feed, due)
        if state.reply is not None and not state.flat and owns(caller.principal, state):
            return state.reply
        return receipt or view(caller.principal, state, request.history_length)

    async def _rest(self, caller: Caller, feed: Feed, due: float) -> None:
        """Wait for a rest until that moment, for as long as the caller is let in.

        Raises:
            Unauthenticated: its key was revoked meanwhile. The task goes on.
        """
        while not feed.state.resting and (left := due - self._tasks.loop.time()) > 0 and self._tasks.patient:
            await self._tasks.rest(feed, min(LOOK_S, left))
            if caller.lasting is not None and not caller.lasting():
                raise errors.Unauthenticated("the key is not known here")

    async def _take(self, caller: Caller, request: SendRequest, *, wait: bool) -> tuple[Feed, bool]:
        """The task that has taken the message, and whether it is a new one."""
        principal = caller.principal
        caller.check_tenant(request.tenant)
        dedup = caller.dedup(request)
        if not request.message.message_id:
            request = replace(request, message=replace(request.message, message_id=new_id()))
        if caller.correlation is not None:
            request = replace(request, correlation=caller.correlation)
        message, config = request.message, request.push
        try:
            if message.task_id:
                feed = await self._find_question(caller, TaskQuery(message.task_id))
                by = answers_as(principal, feed.state)
                # Clients send their config with every message: it stays one, and is its caller's alone.
                push = config and await self.push.inline(caller, config, feed.state.push, by)
                await self._runner.say(feed, message, dedup, push, by=by)
                return feed, False
            permit(principal, WRITE)
            if request.metadata and DISPATCH_KEY in request.metadata:
                # Whoever reads a log believes what it says of schedules and of other work.
                raise errors.InvalidParams(
                    "only a hub says by what its work was asked for; leave it out",
                    field=f"metadata.{DISPATCH_KEY}",
                )
            push = config and await self.push.inline(caller, config, NOBODY)
            return await self._open(caller, request, dedup, push, wait=wait), True
        except errors.Duplicate as earlier:
            if dedup is None or earlier.digest != dedup.digest:
                raise errors.InvalidParams(
                    "this id was used for another message; use a fresh one",
                    field="message.messageId",
                    conflict="DUPLICATE_ID",
                ) from None
            return await self._find_question(caller, TaskQuery(earlier.task_id)), False
        except errors.TaskFull:
            # A log spells some values longer than the body did: a body within its limit may not fit.
            raise errors.TooLarge(f"the message is larger than a whole task may be ({LIMITS})") from None
        except errors.StoreError as error:
            if error.damaged_task:
                raise
            raise errors.Unavailable(UNAVAILABLE) from error

    async def _open(
        self,
        caller: Caller,
        request: SendRequest,
        dedup: Dedup | None,
        push: PushTarget | None,
        *,
        wait: bool,
    ) -> Feed:
        """The task that a message opens, as soon as it is recorded, or when it has rested for a moment."""
        rest_s = min(LOOK_S, self._wait_limit_s) if wait else 0.0
        if self._open_task is not None:
            return await self._open_task(caller, request, dedup, push, rest_s)
        principal = caller.principal
        feed, opened = self._runner.submit(
            principal.tenant,
            principal.name,
            request,
            dedup,
            agent=self._agent or "",
            trace=caller.trace,
            push=push,
            extensions=None if caller.extensions is None else caller.extensions.named,
        )
        if wait:
            # One wake-up instead of two: the feed hears of a failed append as well.
            await self._tasks.rest(feed, rest_s)
        if not feed.state.seq:
            # A receipt, or the wait ended before the commit: nobody is told of a task that is not stored.
            await opened
        return feed

    async def get(self, caller: Caller, query: TaskQuery) -> Task:
        """A task as it stands."""
        feed = await self._find_question(caller, query)
        return view(caller.principal, feed.state, query.history_length)

    async def moved(self, caller: Caller, query: TaskQuery, limit_s: float) -> tuple[Task, bool]:
        """A task at rest, or when its log has moved, or after so long; and whether a further wait helps."""
        feed = await self._find_question(caller, query)
        if not feed.state.resting and self._tasks.patient:
            await self._tasks.move(feed, limit_s)
        return view(caller.principal, feed.state, query.history_length), self._tasks.patient

    async def _find_question(self, caller: Caller, query: TaskQuery) -> Feed:
        """A task of the caller's own, or one whose question it may answer."""
        return await self._find(caller, query, partial(may_see, caller.principal))

    async def _find(
        self, caller: Caller, query: TaskQuery, also: Callable[[State], bool] | None = None
    ) -> Feed:
        principal = caller.principal
        if query.tenant and query.tenant != principal.tenant:
            raise not_found(query.id)
        feed = await self._tasks.find(principal.tenant, principal.name, query.id, self._agents, also)
        traces.about(query.id)
        return feed

    async def submit(self, caller: Caller, request: SendRequest) -> Task:
        """Take a message; gives its task as soon as it is recorded, for those who poll."""
        feed, _ = await self._take(caller, request, wait=False)
        traces.about(feed.state.task_id)
        return view(caller.principal, feed.state)

    def executor(self, tenant: str) -> Executor | None:
        """Who does the work of a tenant; None where that depends on the task."""
        return None if self._agent is None else self._runner.agent(self._agent, tenant).executor

    async def cancel(self, caller: Caller, query: TaskQuery) -> Task:
        """Stop a task; gives the canceled task."""
        feed = await self._find(caller, query)
        try:
            await self._runner.cancel(feed, caller.principal.name)
        except errors.StoreError as error:
            if error.damaged_task:
                raise
            raise errors.Unavailable(UNAVAILABLE) from error
        return feed.state.task(query.history_length)

    async def list(self, caller: Caller, query: ListQuery) -> TaskPage:
        """A page of the caller's tasks, newest status first; of what asks also others', if it may answer."""
        caller.check_tenant(query.tenant)
        return await self._pages.read(caller.principal, query)

    async def stream(self, caller: Caller, request: SendRequest) -> Subscription:
        """Take a message and follow its task to the next rest."""
        self._check_streaming()
        if caller.last_event_id is not None:
            await self._check_place(caller, caller.last_event_id, request.message.task_id)
        feed, new = await self._take(caller, request, wait=False)
        traces.about(feed.state.task_id)
        if caller.extensions is not None:
            caller.extensions.settle(feed.state.extensions)
        if not owns(caller.principal, feed.state):
            # It may know what became of its answer, and nothing of how.
            await self._rest(caller, feed, self._tasks.loop.time() + self._wait_limit_s)
            return Subscription(feed, None, opening=view(caller.principal, feed.state))
        if feed.state.seq == feed.state.opened:
            await self._tasks.move(feed, FIRST_WORD_S)
        elif not new and (
            # A repeat of what has ended is answered alike whether its events are still in memory or not.
            caller.last_event_id or request.message.task_id or feed.state.over or feed.newer(0) is None
        ):
            return resume(feed, caller.last_event_id, through_questions=False)
        if (direct := direct_answer(feed)) is not None:
            return Subscription(feed, None, opening=direct)
        return Subscription(feed, 0)

    async def subscribe(self, caller: Caller, query: TaskQuery) -> Subscription:
        """Follow a task to its end, from now or from the last event the caller saw."""
        self._check_streaming()
        feed = await self._find(caller, query)
        if caller.last_event_id is None and feed.state.over and caller.dialect is Dialect.V1:
            raise errors.UnsupportedOperation(
                f"task {feed.state.task_id} has ended; get it, or resume with Last-Event-ID"
            )
        return resume(feed, caller.last_event_id, through_questions=True)

    async def _check_place(self, caller: Caller, place: str, task_id: str) -> None:
        """Judge a Last-Event-ID before the message is taken: a refusal says that nothing was.

        A place in a task that does not exist yet can only be a number; its stream begins at its start.
        """
        if task_id:
            read_place(place, (await self._find(caller, TaskQuery(task_id))).state.seq)
        else:
            read_place(place)

    def _check_streaming(self) -> None:
        if not self._streaming:
            raise errors.UnsupportedOperation("this agent does not stream; send and then get the task")
