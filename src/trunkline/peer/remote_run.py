"""Has a remote agent do the work of a task, and goes on with the same remote task after a crash.

What is sent is recorded before it is sent, and the ids of the remote task as soon as they are known. So
whoever takes the task over knows what was said to whom, and only in one moment does not know whether it
arrived: between the two. Then it is sent again to an agent that knows a message when it comes twice, and
to no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from trunkline.client.assembler import Update
from trunkline.client.client import Capabilities, Client
from trunkline.client.message import Sending
from trunkline.client.result import Result, text_of
from trunkline.client.stream import Stream
from trunkline.clock import now_ms
from trunkline.errors import (
    InvalidParams,
    PushNotSupported,
    Refused,
    TaskNotFound,
    TimedOut,
    TrunklineError,
    TurnOver,
    Unanswered,
    Uncertain,
    Unreachable,
    Unreadable,
    UnsupportedOperation,
)
from trunkline.log.events import Status, Stepped
from trunkline.net.egress import shown
from trunkline.peer.absence import AWAY_KEY, SILENT, absence_of, is_away, is_silent, is_unsent
from trunkline.peer.callbacks import Following
from trunkline.peer.failure import UNANSWERED, UNCERTAIN, explain
from trunkline.peer.hearing import LoginWatch
from trunkline.peer.relay import ASKED_KEY, Relay, is_bounded_there, is_overdue
from trunkline.peer.remote import (
    CALLS,
    Peer,
    Target,
    correlation_of,
    is_address,
    passed_on,
    spoken,
)
from trunkline.peer.steps import SENT, TAKEN, RemoteTask, Sent, context_known
from trunkline.run import hops
from trunkline.run.executor import Moment, Verdict, Work
from trunkline.telemetry.traces import traceparent
from trunkline.wire.question import QUESTION_CLOSED, question_metadata
from trunkline.wire.types import (
    INTERRUPTED,
    RESTING,
    TERMINAL,
    Message,
    PushConfig,
    Role,
    TaskState,
)

log = logging.getLogger("trunkline.peer")
# Pauses between looks at a task whose agent has no streams, or is away; the setting bounds the former.
FIRST_PAUSE_S, SLOWER, LONGEST_PAUSE_S = 1.0, 0.1, 300.0
# How long one look may take, and how long an agent may ask what it should have closed.
LOOK_S, OVERDUE_S = 10.0, 60.0
# What an agent may say that does not take a push config, having taken nothing.
PUSH_REFUSALS = (PushNotSupported, InvalidParams, UnsupportedOperation)
LOST_TIMES = 3
CANCEL_S = 4.0
AGAIN, NOT_AGAIN = "send again", "leave it"
NOBODY_ANSWERED = "Nobody answered the agent's question in time."
LOST = "The message to {} was sent and its answer lost: the agent may be doing the work, or not."


class RemoteRun:
    """One run of such a task: a message, perhaps questions and answers, and an end."""

    def __init__(
        self,
        work: Work,
        target: Target,
        peer: Peer,
        client: Client,
        *,
        following: Following,
        polls: asyncio.Semaphore,
        missed: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        # Called when the agent is found to be away.
        self._missed = missed
        self._following = following
        self._polls = polls
        self._target = target
        # An address may hold a secret; whoever asked for the work reads only where it is.
        # A listed agent that is down comes back. An address in code may be mistyped: its call fails at once.
        self._is_listed = not is_address(target.target)
        self._name = target.target if self._is_listed else shown(target.target)
        self._peer = peer
        self._client = client
        self._relay = Relay(work, self._following.pauses)
        self._remote = RemoteTask(context=target.context)
        # Whether the message that was sent last has become a task, or part of one.
        self._is_taken = False
        # A message of which only the agent knows whether it has arrived, in a task that is being ended.
        self._doubt: tuple[int, Sent, Message] | None = None
        self._login: LoginWatch | None = None

    async def run(self) -> Verdict:
        """Work until a verdict; a stop is passed on."""
        try:
            return await self._concluded()
        except (asyncio.CancelledError, TurnOver):
            if self._work.stopped:
                await self._cancel()
            raise

    async def _concluded(self) -> Verdict:
        work = self._work
        try:
            return await self._converse()
        except (Refused, Unreachable, Unreadable) as error:
            await self._relay.flush()
            if is_silent(error):
                await self._cancel()
            why = explain(error, has_task=bool(self._remote.task))
            log.warning("peer.failed task=%s reason=%s error=%a", work.state.task_id, why.reason, str(error))
            return spoken(work, TaskState.FAILED, f"{self._name} {why.words}", why.reason)

    async def _converse(self) -> Verdict:
        work, place = self._work, 0
        message: Message | None = work.state.message
        while True:
            if place < len(work.state.answers):
                # Asked and answered before a crash: all that counts is whose task it is.
                self._recall(place)
                question = Status(TaskState.INPUT_REQUIRED)
            elif work.state.state is TaskState.AUTH_REQUIRED and not work.stopped:
                # Asked before this run and not answered since: it stands, and is looked at.
                self._recall(place)
                question = Status(TaskState.AUTH_REQUIRED)
            elif work.stopped:
                # By what came before this run.
                step = work.recorded_step(2 * place, SENT)
                if not self._recall(place) and step is not None and message is not None:
                    self._doubt = place, convert(step.result, Sent), message
                raise TurnOver(f"task {work.state.task_id} is being ended")
            else:
                result = await self._exchange(place, message)
                if result is not None and result.state not in INTERRUPTED:
                    return await self._relay.verdict(result)
                if result is None and self._peer.uncertain == "fail":
                    return spoken(work, TaskState.FAILED, f"uncertain: {LOST.format(self._name)}", UNCERTAIN)
                question = await self._question(result)
            self._login = self._watch(question)
            try:
                answer = await work.ask(question, self._is_moot, self._login)
            except (Unanswered, TimeoutError) as error:
                if isinstance(error, Unanswered) and not is_bounded_there(work.state, place):
                    await self._cancel()
                    return spoken(work, TaskState.FAILED, NOBODY_ANSWERED, UNANSWERED)
                # It closes there by the same deadline, or has ended; what the agent then does is followed.
                answer = None
            if answer is None or not self._remote.lost:
                message = answer
            elif text_of(answer).strip().lower() != AGAIN:
                return spoken(work, TaskState.FAILED, f"uncertain: {LOST.format(self._name)}", UNCERTAIN)
            place += 1

    async def _question(self, result: Result | None) -> Status:
        if result is not None:
            await self._relay.settle(result)
            return self._relay.question(result)
        asked = f"{LOST.format(self._name)} Answer {AGAIN!r} or {NOT_AGAIN!r}."
        return spoken(self._work, TaskState.INPUT_REQUIRED, asked)

    def _watch(self, question: Status) -> LoginWatch | None:
        """What sees that somebody has logged in there: an agent without push tells nobody."""
        if question.state is not TaskState.AUTH_REQUIRED or not self._remote.task:
            return None
        # One that stands since an earlier run has no words here, and is looked at first.
        is_new = question.message is not None
        return LoginWatch(self._look, lambda: self._pause_ms(self._following.poll_s), is_new=is_new)

    def _is_moot(self) -> bool:
        return self._told() is not None or (self._login is not None and self._login.goes_on)

    def _recall(self, place: int) -> bool:
        """Read in the log whose task it became; whether that is there."""
        taken = self._work.recorded_step(2 * place + 1, TAKEN)
        if taken is not None:
            found = convert(taken.result, RemoteTask)
            # A message that was lost tells nothing of a task that is known from the one before.
            self._remote = replace(self._remote, lost=True) if found.lost else found
        return taken is not None

    async def _exchange(self, place: int, message: Message | None) -> Result | None:
        """Send a message and follow its task until it rests; None if nobody knows whether it arrived."""
        work = self._work
        step, is_taken = work.recorded_step(2 * place, SENT), self._recall(place)
        if is_taken:
            return None if self._remote.lost else await self._follow()
        if message is None:
            # Nobody answered: there is nothing to send, and the agent goes on by itself.
            await self._record(2 * place, SENT, Sent("", ""))
            await self._record(2 * place + 1, TAKEN, self._remote)
            return await self._follow()
        self._is_taken = False
        if not self._remote.context:
            self._remote = replace(self._remote, context=await context_known(self._work, self._target))
        waits = self._is_listed or step is not None or bool(self._remote.task)
        capabilities = self._client.known_capabilities or await self._capabilities(waits=waits)
        # A call of a skill was counted where it was made.
        counted = not place and not work.state.agent.endswith(CALLS)
        new = Sent(work.ids.new(), capabilities.interface, counted)
        sent = new if step is None else convert(step.result, Sent)
        try:
            if step is None:
                await self._record(2 * place, SENT, sent)
            elif not capabilities.deduplicates:
                raise Uncertain("the process ended while it was sent", reason="sent", message_id=sent.message)
            return await self._insist(place, sent, message, capabilities)
        except Uncertain as error:
            if (told := self._told()) is not None:
                self._learn(told)
                return told if told.artifacts else await self._follow()
            log.warning("peer.uncertain task=%s error=%a", work.state.task_id, str(error))
            self._remote = replace(self._remote, lost=True)
            await self._record(2 * place + 1, TAKEN, self._remote)
            return None

    async def _capabilities(self, *, waits: bool) -> Capabilities:
        """Return the agent's capabilities; with `waits`, wait until the agent can be reached."""
        while True:
            try:
                return await self._client.capabilities()
            except (Unreachable, Refused) as error:
                if not (waits and is_away(error)):
                    raise
                await self._away(error)

    async def _insist(self, place: int, sent: Sent, message: Message, known: Capabilities) -> Result:
        """Send, again and again where that is safe: the agent may have taken it before it went away."""
        while True:
            try:
                return await self._send(place, sent, message, known)
            except (Unreachable, Refused) as error:
                self._work.hold(held=False)
                if isinstance(error, Refused) and error.details.get("conflict") == QUESTION_CLOSED:
                    # Answered by somebody else or closed there: what the agent does then is followed.
                    await self._record(2 * place + 1, TAKEN, self._remote)
                    return await self._follow()
                is_safe = is_unsent(error) and (self._is_listed or self._remote.task)
                may_repeat = self._is_taken or known.deduplicates or is_safe
                if isinstance(error, Uncertain) or not (is_away(error) and may_repeat):
                    raise
                await self._away(error)
            if self._is_taken:
                return await self._follow()

    async def _send(self, place: int, sent: Sent, message: Message, known: Capabilities) -> Result:
        push, work, callbacks = None, self._work, self._following.callbacks
        if known.push and not self._remote.task and callbacks is not None:
            push = callbacks.config(self._peer, work.tenant, work.state.task_id)
        try:
            return await self._say(place, sent, message, known, push)
        except PUSH_REFUSALS as refused:
            if push is None or callbacks is None or self._is_taken:
                raise
            # It may not call back to where we are; then it is looked at, and so are those that follow.
            log.warning("peer.push_refused task=%s error=%a", work.state.task_id, str(refused))
            callbacks.note_refusal(self._peer)
        try:
            return await self._say(place, sent, message, known, None)
        except Refused:
            if not self._is_taken:
                callbacks.forget_refusal(self._peer)
            raise

    async def _say(
        self, place: int, sent: Sent, message: Message, known: Capabilities, push: PushConfig | None
    ) -> Result:
        content, said = self._composed(place, sent, message, push)
        # A stop before its first answer would leave a task there that nobody here knows.
        self._work.hold(held=not self._remote.task and (known.streaming or known.reads_tasks))
        if known.streaming:
            reading = self._read(self._client.stream(content, **said), place)
            return await self._following.hearings.read(reading, self._end_told) or await self._poll()
        # Its task is known at once where it can be looked at later: a crash meanwhile leaves no doubt.
        result = await self._client.send(content, wait=not known.reads_tasks, **said)
        await self._take(place, result.task_id if result.task is not None else "", result.context_id)
        await self._relay.settle(result)
        return result if result.state in RESTING else await self._poll()

    def _composed(
        self, place: int, sent: Sent, message: Message, push: PushConfig | None = None
    ) -> tuple[Message, Sending]:
        said = Sending(
            message_id=sent.message,
            task_id=self._remote.task,
            context_id=self._remote.context,
            skill=self._target.skill,
            correlation_id=correlation_of(self._work.state),
            parent_id=self._work.state.task_id,
            traceparent=traceparent(self._work.state.trace),
            push=push,
        )
        metadata = hops.relayed(self._work.state) if sent.counted else passed_on(message.metadata)
        if place and (asked := self._asked(place)):
            metadata = {**(metadata or {}), **question_metadata(asked)}
        return Message("", role=Role.USER, parts=message.parts, metadata=metadata), said

    def _asked(self, place: int) -> str:
        """The id by which the agent knows the question that a message answers; empty if it names none."""
        questions = set(self._work.state.questions[:place])
        asked = [one.metadata or {} for one in self._work.state.history if one.message_id in questions]
        return next((one[ASKED_KEY] for one in reversed(asked) if ASKED_KEY in one), "")

    async def _read(self, stream: Stream, place: int = -1) -> Result:
        """Carry over what a stream brings, to its end; `place` is that of the message it answers."""
        state, relay = self._work.state, self._relay
        stream.pace_by(relay.pace)
        async with stream:
            async for first in stream:
                if place >= 0:
                    await self._take(place, stream.task_id, stream.context_id)
                    place = -1
                if state.status_message is not None:
                    await self._back()
                update: Update | None = first
                # What came with it needs no wait.
                while update is not None:
                    await relay.take(update)
                    update = stream.at_hand()
            return await stream.finish()

    async def _take(self, place: int, task: str, context: str) -> None:
        if task:
            self._remote = RemoteTask(task, context or self._remote.context)
            self._is_taken = True
        self._work.hold(held=False)
        if not task:
            # Answered with a message: there is nothing that could be gone on with.
            return
        # On its way at once, together with whatever else has come already; nobody need wait for it.
        await self._work.emit(Stepped(2 * place + 1, TAKEN, to_builtins(self._remote)))

    async def _record(self, place: int, name: str, what: Struct) -> None:
        await self._work.emit(Stepped(place, name, to_builtins(what)))
        await self._work.drain()

    async def _follow(self) -> Result:
        """Go on with a remote task that was begun before, until it rests."""
        while True:
            try:
                if not (await self._capabilities(waits=True)).streaming:
                    return await self._poll()
                stream = self._client.subscribe(self._remote.task, through_questions=False)
                result = await self._following.hearings.read(self._read(stream), self._end_told)
                return await self._poll() if result is None or is_overdue(result) else result
            except (Unreachable, Refused) as error:
                if not is_away(error):
                    raise
                await self._away(error)

    async def _end_told(self) -> None:
        """Wait until a webhook has told of the end, or the agent was silent too long."""
        while self._told() is None:
            self._check_silence()
            await self._work.until(self._is_end_told, self._silence())

    def _is_end_told(self) -> bool:
        # Each word begins a silence, whose end follows the monotonic clock once it is known here.
        self._silence()
        return self._told() is not None

    def _told(self) -> Result | None:
        """The remote task as a webhook has told of its end; without a task where that is to be asked for."""
        notice = self._work.state.notice
        if notice is None or notice.state not in TERMINAL:
            return None
        named = {self._remote.task, "" if notice.task is None else notice.task.id} - {""}
        # Of one task, whichever of the two knows its id.
        return Result(notice.task) if len(named) == 1 else None

    def _learn(self, told: Result | None) -> None:
        """Take the id of the remote task from its webhook, where nothing else has told it."""
        if told is not None and not self._remote.task:
            self._remote = RemoteTask(told.task_id, self._remote.context)

    async def _poll(self) -> Result:
        """Look at a remote task now and then, or when a webhook tells of it, until it rests."""
        lost = 0
        while True:
            heard, told = self._work.state.notices, self._told()
            if told is not None and told.artifacts:
                return told
            self._learn(told)
            try:
                result = await self._look()
            except (Unreachable, Refused) as error:
                if told is not None and told.task is not None:
                    return told
                lost += 1
                if not isinstance(error, TaskNotFound) or lost == LOST_TIMES:
                    raise
                # Without being parked: whoever comes after would count from the beginning.
                await asyncio.sleep(min(FIRST_PAUSE_S, self._following.poll_s))
                continue
            lost = 0
            await self._back()
            await self._relay.settle(result)
            if result.state in RESTING and not is_overdue(result):
                return result
            if told is not None and told.task is not None:
                # Its own word, which came by a webhook; its list of tasks may lag behind.
                return told
            self._check_silence(result)
            await self._pause(heard, self._following.poll_s)

    async def _look(self) -> Result:
        """One look at the remote task, which may not take long, and few together at one agent."""
        async with self._polls:
            limit = asyncio.timeout(LOOK_S)
            try:
                async with limit:
                    return await self._client.get(self._remote.task)
            except TimeoutError:
                if not limit.expired():
                    raise
                raise TimedOut(f"no answer within {LOOK_S:g} seconds", reason="total") from None

    def _silence(self) -> Moment:
        """Return when the agent will have been silent for too long, counted from its last word."""
        longest_ms = round(self._following.silence_s * 1000)
        return self._work.moment(self._work.state.active_at + longest_ms, longest_ms)

    def _check_silence(self, asking: Result | None = None) -> None:
        """Give an agent up that has said nothing for too long, or asks for ever what it should have closed.

        Raises:
            TimedOut: it is to be.
        """
        if self._silence().ends <= self._work.loop.time():
            raise TimedOut(f"it said nothing for {self._following.silence_s:g} seconds", reason=SILENT)
        if asking is not None and is_overdue(asking, OVERDUE_S):
            raise TimedOut("it still asks what could be answered until some time ago only", reason=SILENT)

    async def _back(self) -> None:
        """Say that an agent is there again: how long it is away is counted from the next time on."""
        if self._is_away():
            await self._work.emit(Status(TaskState.WORKING))
            await self._work.drain()

    def _is_away(self) -> bool:
        known = self._work.state.status_message
        return known is not None and AWAY_KEY in (known.metadata or {})

    async def _away(self, error: TrunklineError) -> None:
        """Wait for an agent that cannot be reached now; whoever reads the task sees that.

        Raises:
            TrunklineError: it has been away for too long.
        """
        state = self._work.state
        if not self._is_away():
            log.warning("peer.away task=%s error=%a", state.task_id, str(error))
            self._missed()
            said = spoken(self._work, TaskState.WORKING, f"{self._name} {absence_of(error)}; the task waits.")
            message = replace(cast("Message", said.message), metadata={AWAY_KEY: True})
            await self._relay.flush()
            await self._work.emit(replace(said, message=message))
            await self._work.drain()
        if self._silence().ends <= self._work.loop.time():
            raise error
        await self._pause(state.notices)

    async def _pause(self, heard: int, longest_s: float = LONGEST_PAUSE_S) -> None:
        work, state = self._work, self._work.state
        await work.until(lambda: state.notices > heard, work.moment_in(self._pause_ms(longest_s)))

    def _pause_ms(self, longest_s: float) -> int:
        # Longer as time goes on, by what the log says: a wait that it bridges begins anew when it is played.
        seconds = max((now_ms() - self._work.state.active_at) / 1000 * SLOWER, FIRST_PAUSE_S)
        return round(min(seconds, longest_s) * 1000)

    async def _cancel(self) -> None:
        """Stop the remote task too; whether that succeeds, ours is stopped."""
        try:
            async with asyncio.timeout(CANCEL_S):
                if self._doubt is not None and not self._remote.task:
                    await self._find(*self._doubt)
                if self._remote.task:
                    await self._client.cancel(self._remote.task)
        except (TrunklineError, TimeoutError) as error:
            log.warning("peer.not_canceled task=%s error=%a", self._work.state.task_id, str(error))

    async def _find(self, place: int, sent: Sent, message: Message) -> None:
        """Find out what a message became, from an agent that knows it when it comes twice."""
        if (await self._client.capabilities()).deduplicates:
            context = self._remote.context or await context_known(self._work, self._target)
            self._remote = RemoteTask(context=context)
            content, said = self._composed(place, sent, message)
            found = await self._client.send(content, wait=False, **said)
            self._remote = RemoteTask("" if found.task is None else found.task_id, context)
