"""What a mock remembers: its tasks, who said what, which rule was hit. The operations read and move it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable

from msgspec import Struct
from msgspec.structs import replace

from trunkline import errors
from trunkline.clock import Ids
from trunkline.mock.faults import FaultSchedule, MockFault
from trunkline.mock.playback import Event, Playback
from trunkline.mock.quirks import Quirks, manner_of
from trunkline.mock.request import MockRequest
from trunkline.mock.rules import (
    HeardMessage,
    RuleHit,
    as_reply,
    check_rules,
    fits,
    missed,
    rule_name,
    skill_of,
)
from trunkline.mock.scenario import Failure, Reply, Scenario
from trunkline.wire.types import (
    RESTING,
    ListQuery,
    SendRequest,
    StatusUpdate,
    Task,
    TaskPage,
    TaskStatus,
)

log = logging.getLogger("trunkline.mock")
_NO_RULE = Reply(error=Failure(code=-32000, message="no rule of the mock fits, and it has no `otherwise`"))


class Cue(Struct, frozen=True):
    """A message that has come, and what is to be done about it."""

    heard: HeardMessage
    reply: Reply
    rule: str
    # The task that it goes on with.
    work: Playback | None = None
    place: int | None = None


class Begun(Struct, frozen=True):
    """Work under way: the task as it was when the message came, and after which event that was."""

    work: Playback
    task: Task
    seq: int


class MockState:
    """The tasks of one mock."""

    def __init__(self, scenario: Scenario, told: Callable[[Playback], None]) -> None:
        check_rules(scenario)
        self.scenario = scenario
        self.manner: Quirks = manner_of(scenario.dialect)
        self.works: dict[str, Playback] = {}
        self.runs: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.taken: list[tuple[HeardMessage, str, Playback]] = []
        self._told = told
        self._known: dict[str, Begun] = {}
        self._turns: Counter[str] = Counter()
        self._faults = [FaultSchedule(rule.faults, scenario.seed) for rule in scenario.rules]
        self._ids = Ids()

    def cue(self, request: SendRequest) -> Cue:
        """What a message is to be answered with; nothing is done yet.

        Raises:
            Refused: it names a task that is not there or takes no more messages.
        """
        message = request.message
        work = self.find(message.task_id) if message.task_id else None
        context = work.context_id if work is not None else message.context_id
        heard = HeardMessage(
            message, skill_of(message, request.metadata), self._turns[context] + 1 if context else 1
        )
        known = self._known.get(message.message_id)
        if known is not None and self.scenario.deduplicates:
            return Cue(heard, Reply(), "known")
        if work is not None:
            _check_open(work, message.context_id)
            if work.then is not None:
                return Cue(heard, as_reply(work.then), "then", work)
        for place, rule in enumerate(self.scenario.rules):
            name = rule_name(rule, place)
            if fits(rule.when, heard) and (rule.times is None or self.hits[name] < rule.times):
                return Cue(heard, as_reply(rule.reply), name, work, place=place)
        otherwise = self.scenario.otherwise
        return Cue(heard, _NO_RULE if otherwise is None else as_reply(otherwise), "", work)

    def faults(self, cue: Cue, asked: str, path: str) -> tuple[MockFault, ...]:
        """What goes wrong with this message by its rule."""
        return () if cue.place is None else self._faults[cue.place].due(asked, path)

    async def perform(self, cue: Cue) -> Begun:
        """Do what the rule says, or nothing if it has been done."""
        message = cue.heard.message
        known = self._known.get(message.message_id) if self.scenario.deduplicates else None
        if known is not None:
            log.info("mock.repeated message=%s task=%s", message.message_id, known.work.id)
            await known.work.begun.wait()
            return known
        work = cue.work or Playback(self._ids.new(), message.context_id or self._ids.new(), self._told)
        self.runs[message.message_id] += 1
        self._turns[work.context_id] += 1
        self.hits[cue.rule] += 1
        self.taken.append((cue.heard, cue.rule, work))
        if cue.rule:
            log.info("mock.hit rule=%r task=%s", cue.rule, work.id)
        else:
            log.warning(
                "mock.unmatched task=%s skill=%s text=%.64r", work.id, cue.heard.skill, cue.heard.text
            )
        seq = len(work.events)
        if cue.reply.message is None and cue.reply.error is None:
            work.hear(message)
            self.works[work.id] = work
        begun = self._known[message.message_id] = Begun(work, work.task, seq)
        await work.play(cue.reply, message, self.manner, self.scenario.delay)
        return begun

    def find(self, task_id: str) -> Playback:
        """A task.

        Raises:
            TaskNotFound: there is none.
        """
        if task_id not in self.works:
            raise errors.TaskNotFound(f"there is no task {task_id[:64]!r}", taskId=task_id[:64])
        return self.works[task_id]

    def list(self, query: ListQuery) -> TaskPage:
        """A page of tasks, newest status first."""
        found = [
            work
            for work in self.works.values()
            if (not query.context_id or work.context_id == query.context_id)
            and (query.status is None or work.task.status.state is query.status)
            and (query.status_timestamp_after is None or work.updated_ms >= query.status_timestamp_after)
        ]
        found.sort(key=lambda work: (work.updated_ms, work.id), reverse=True)
        if query.page_token and not query.page_token.isdigit():
            raise errors.InvalidParams("pageToken is not from this list", field="pageToken")
        first = int(query.page_token or 0)
        last = first + query.page_size
        tasks = [trimmed(work.task, query.history_length) for work in found[first:last]]
        if not query.include_artifacts:
            tasks = [replace(task, artifacts=()) for task in tasks]
        token = str(last) if last < len(found) else ""
        return TaskPage(tuple(tasks), token, query.page_size, len(found))

    def cancel(self, task_id: str) -> Task:
        """Stop a task.

        Raises:
            Refused: there is none, or it has ended.
        """
        work = self.find(task_id)
        if work.over:
            raise errors.TaskNotCancelable(f"task {task_id} has ended", taskId=task_id)
        work.cancel()
        return work.task

    async def frames(
        self, asked: MockRequest, work: Playback, seq: int, opening: Task | None, *, through: bool
    ) -> AsyncIterator[bytes]:
        """A task as a stream, after event `seq`; `through` goes on while it asks."""
        if opening is not None:
            first: Event = opening
            if not self.manner.opening:
                first = StatusUpdate(work.id, work.context_id, opening.status)
            yield asked.frame(seq, encoded(asked, first))
        while True:
            while seq < len(work.events):
                event = work.events[seq]
                seq += 1
                if not isinstance(event, Task) or self.manner.opening:
                    yield asked.frame(seq, encoded(asked, event))
            if work.over or (work.resting and not through):
                return
            await work.more(seq)

    def check(self) -> list[str]:
        """What was expected and has not happened, in words."""
        taken = [RuleHit(heard, rule, reply_text(work)) for heard, rule, work in self.taken]
        return [wrong for each in self.scenario.expect if (wrong := missed(each, taken))]

    def close(self) -> None:
        """Play nothing further."""
        for work in self.works.values():
            work.stop()


def encoded(asked: MockRequest, event: Event) -> bytes:
    """An event as its dialect has it."""
    writer = asked.writer()
    if isinstance(event, Task):
        return writer.task_frame(writer.task(event))
    if isinstance(event, StatusUpdate):
        return writer.status_frame(event, final=event.status.state in RESTING)
    return writer.artifact_frame(event)


def trimmed(task: Task, history_length: int | None) -> Task:
    """A task with the last messages of its history only."""
    if history_length is None:
        return task
    return replace(task, history=task.history[-history_length:] if history_length else ())


def reply_text(work: Playback) -> str:
    """All texts that a reply holds so far."""
    said: list[TaskStatus] = [each.status for each in work.events if isinstance(each, StatusUpdate)]
    messages = [status.message for status in said if status.message is not None]
    messages += [] if work.message is None else [work.message]
    parts = [part for message in messages for part in message.parts]
    parts += [part for artifact in work.task.artifacts for part in artifact.parts]
    return "\n".join(part.text for part in parts if part.text)


def _check_open(work: Playback, context_id: str) -> None:
    if context_id and context_id != work.context_id:
        raise errors.InvalidParams("contextId is not that of the task", field="message.contextId")
    if work.over:
        raise errors.UnsupportedOperation(f"task {work.id} has ended; send a new message without its id")
