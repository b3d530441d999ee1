"""The state of a mock: its tasks, the messages that came, the rules that they hit, and its webhooks."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from trunkline import errors
from trunkline.client.result import text_of
from trunkline.clock import Ids
from trunkline.mock.exchange import MockAnswer, MockStream
from trunkline.mock.faults import Faults, FaultSchedule
from trunkline.mock.kept import KeptTasks
from trunkline.mock.playback import Event, Playback
from trunkline.mock.quirks import Quirks, quirks_of
from trunkline.mock.request import MockRequest
from trunkline.mock.scenario import (
    Failure,
    IncomingMessage,
    Reply,
    Scenario,
    as_reply,
    check_rules,
    described,
    fits,
    rule_name,
    skill_of,
)
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.wire.operations import Operation
from trunkline.wire.push import notification_body, write_config, write_configs
from trunkline.wire.service_parameters import Version
from trunkline.wire.types import (
    RESTING,
    ListQuery,
    PushConfig,
    PushQuery,
    PushRequest,
    Role,
    SendRequest,
    StatusUpdate,
    Task,
    TaskPage,
)
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.mock")
_NO_RULE = Reply(error=Failure(code=-32000, message="no rule of the mock fits, and it has no `otherwise`"))


class PlannedReply(Struct, frozen=True):
    """A message that has come, and the reply that it is to get."""

    incoming: IncomingMessage
    reply: Reply
    rule: str
    # The task that it continues.
    playback: Playback | None = None
    # Which of the rules it hit.
    index: int | None = None


class StartedReply(Struct, frozen=True):
    """A reply under way: the task as it was when the message came, and after which event that was."""

    playback: Playback
    task: Task
    seq: int


class MockState:
    """The tasks of one mock, and what was counted."""

    def __init__(
        self, scenario: Scenario, on_status: Callable[[Playback], None], kept: KeptTasks | None = None
    ) -> None:
        """Take who is told of each status, and a file from which earlier tasks are known."""
        check_rules(scenario)
        self.scenario = scenario
        self.quirks: Quirks = quirks_of(scenario.dialect)
        self.playbacks: dict[str, Playback] = {}
        self.runs: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self._received: list[tuple[IncomingMessage, str, Playback]] = []
        self._notify = on_status
        self._kept = kept
        self._known: dict[str, StartedReply] = {}
        self._turns: Counter[str] = Counter()
        self._faults = [FaultSchedule(rule.faults, scenario.seed) for rule in scenario.rules]
        self._ids = Ids()
        for playback in () if kept is None else kept.playbacks(scenario.name, self._on_status):
            self._take(playback)

    def _take(self, playback: Playback) -> None:
        """Know a task from before."""
        self.playbacks[playback.id] = playback
        for message in playback.task.history:
            if message.role is Role.USER:
                self._turns[playback.context_id] += 1
                self._known[message.message_id] = StartedReply(playback, playback.task, len(playback.events))

    def _on_status(self, playback: Playback) -> None:
        self._keep(playback)
        self._notify(playback)

    def _keep(self, playback: Playback) -> None:
        if self._kept is not None:
            self._kept.write(self.scenario.name, playback)

    def plan(self, send: SendRequest) -> PlannedReply:
        """Choose the reply to a message; nothing is done yet.

        Raises:
            Refused: it names a task that is not there or takes no more messages.
        """
        message = send.message
        playback = self.find(message.task_id) if message.task_id else None
        context = playback.context_id if playback is not None else message.context_id
        incoming = IncomingMessage(
            message, skill_of(message, send.metadata), self._turns[context] + 1 if context else 1
        )
        known = self._known.get(message.message_id)
        if known is not None and self.scenario.deduplicates:
            return PlannedReply(incoming, Reply(), "known")
        if playback is not None:
            _check_open(playback, message.context_id)
            if playback.then is not None:
                return PlannedReply(incoming, as_reply(playback.then), "then", playback)
        for index, rule in enumerate(self.scenario.rules):
            name = rule_name(rule, index)
            if fits(rule.when, incoming) and (rule.times is None or self.hits[name] < rule.times):
                return PlannedReply(incoming, as_reply(rule.reply), name, playback, index=index)
        otherwise = self.scenario.otherwise
        return PlannedReply(incoming, _NO_RULE if otherwise is None else as_reply(otherwise), "", playback)

    def faults(self, plan: PlannedReply, operation: str, path: str) -> Faults:
        """The faults that the rule of this message has due."""
        return () if plan.index is None else self._faults[plan.index].due(operation, path)

    async def perform(self, plan: PlannedReply) -> StartedReply:
        """Begin the planned reply, or find the one that was begun for the same message."""
        message = plan.incoming.message
        known = self._known.get(message.message_id) if self.scenario.deduplicates else None
        if known is not None:
            log.info("mock.repeated message=%s task=%s", message.message_id, known.playback.id)
            known.playback.go_on(self.quirks, self.scenario.delay)
            await known.playback.started.wait()
            return known
        playback = plan.playback or Playback(
            self._ids.new(), message.context_id or self._ids.new(), self._on_status
        )
        self.runs[message.message_id] += 1
        self._turns[playback.context_id] += 1
        self.hits[plan.rule] += 1
        self._received.append((plan.incoming, plan.rule, playback))
        if plan.reply is not _NO_RULE:
            log.info("mock.hit rule=%r task=%s", plan.rule or "otherwise", playback.id)
        else:
            unmatched = (playback.id, plan.incoming.skill, text_of(message))
            log.warning("mock.unmatched task=%s skill=%s text=%.64r", *unmatched)
        seq = len(playback.events)
        if plan.reply.message is None and plan.reply.error is None:
            playback.add_message(message)
            self.playbacks[playback.id] = playback
        started = self._known[message.message_id] = StartedReply(playback, playback.task, seq)
        await playback.play(plan.reply, message, self.quirks, self.scenario.delay)
        if playback.id in self.playbacks:
            self._keep(playback)
        return started

    def find(self, task_id: str) -> Playback:
        """The playback of a task.

        Raises:
            TaskNotFound: there is none.
        """
        found = self.playbacks.get(task_id)
        if found is None:
            raise errors.TaskNotFound(f"there is no task {task_id[:64]!r}", taskId=task_id[:64])
        found.go_on(self.quirks, self.scenario.delay)
        return found

    def list(self, query: ListQuery) -> TaskPage:
        """A page of tasks, newest status first."""
        found = [
            playback
            for playback in self.playbacks.values()
            if (not query.context_id or playback.context_id == query.context_id)
            and (query.status is None or playback.task.status.state is query.status)
            and (query.status_timestamp_after is None or playback.updated_ms >= query.status_timestamp_after)
        ]
        found.sort(key=lambda playback: (playback.updated_ms, playback.id), reverse=True)
        if query.page_token and not query.page_token.isdigit():
            raise errors.InvalidParams("pageToken is not from this list", field="pageToken")
        first = int(query.page_token or 0)
        last = first + query.page_size
        tasks = [trimmed(playback.task, query.history_length) for playback in found[first:last]]
        if not query.include_artifacts:
            tasks = [replace(task, artifacts=()) for task in tasks]
        token = str(last) if last < len(found) else ""
        return TaskPage(tuple(tasks), token, query.page_size, len(found))

    def cancel(self, task_id: str) -> Task:
        """Cancel a task.

        Raises:
            Refused: there is none, or it has ended.
        """
        playback = self.find(task_id)
        if playback.over:
            raise errors.TaskNotCancelable(f"task {task_id} has ended", taskId=task_id)
        playback.cancel()
        return playback.task

    async def frames(
        self, request: MockRequest, playback: Playback, seq: int, opening: Task | None, *, through: bool
    ) -> MockStream:
        """The events of a task after event `seq` as frames; `through` goes on while the task asks."""
        if opening is not None:
            first: Event = opening
            if not self.quirks.opening:
                first = StatusUpdate(playback.id, playback.context_id, opening.status)
            yield request.frame(seq, encoded(request, first))
        while True:
            while seq < len(playback.events):
                event = playback.events[seq]
                seq += 1
                if not isinstance(event, Task) or self.quirks.opening:
                    yield request.frame(seq, encoded(request, event))
            if playback.over or (playback.resting and not through):
                return
            await playback.more(seq)

    def check(self) -> list[str]:
        """The expectations that were not met, in words."""
        wrong: list[str] = []
        for expected in self.scenario.expect:
            came = sum(
                fits(expected.when, incoming)
                and expected.rule in ("", rule)
                and expected.replied in reply_text(playback)
                for incoming, rule, playback in self._received
            )
            least = expected.at_least if expected.count is None else expected.count
            if came < least or (expected.count is not None and came > least):
                wanted = f"at least {least}" if expected.count is None else str(least)
                wrong.append(f"expected {wanted} of {described(expected)}, and {came} came")
        return wrong

    def close(self) -> None:
        """Stop all replies that are being played."""
        for playback in self.playbacks.values():
            playback.stop()


def encoded(request: MockRequest, event: Event) -> bytes:
    """An event in the dialect of the request."""
    writer = request.writer()
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


def reply_text(playback: Playback) -> str:
    """All texts of a reply so far."""
    said = [each.status.message for each in playback.events if isinstance(each, StatusUpdate)]
    parts = [part for message in (*said, playback.message) if message is not None for part in message.parts]
    parts += [part for artifact in playback.task.artifacts for part in artifact.parts]
    return "\n".join(part.text for part in parts if part.text)


def _check_open(playback: Playback, context_id: str) -> None:
    if context_id and context_id != playback.context_id:
        raise errors.InvalidParams("contextId is not that of the task", field="message.contextId")
    if playback.over:
        raise errors.UnsupportedOperation(f"task {playback.id} has ended; send a new message without its id")


class MockWebhooks:
    """Keeps push configs and posts in order, task by task; what fails is logged and not tried again."""

    def __init__(self) -> None:
        # A mock is started by whoever tests, and its webhooks stand on the same machine.
        self._egress = Egress(loopback=True)
        self._last: dict[str, asyncio.Task[None]] = {}

    async def serve(
        self, request: MockRequest, params: PushRequest | PushQuery, playback: Playback, quirks: Quirks
    ) -> MockAnswer:
        """Make, read, list or delete a push config.

        Raises:
            Refused: its address cannot be called, or there is no such config.
        """
        if isinstance(params, PushRequest):
            await self.check(params.config, quirks)
            config = self.keep(playback, params.config, request)
            return request.result(write_config(playback.id, config, request.dialect))
        if request.operation is Operation.PUSH_LIST:
            configs = [config for config, _ in playback.push.values()]
            return request.result(write_configs(playback.id, configs, request.dialect))
        config_id = params.config_id or next(iter(playback.push), "")
        if config_id not in playback.push:
            raise errors.TaskNotFound("there is no such push config")
        if request.operation is Operation.PUSH_GET:
            return request.result(write_config(playback.id, playback.push[config_id][0], request.dialect))
        del playback.push[config_id]
        return request.result(b"null" if request.rest is None else b"{}")

    async def check(self, config: PushConfig, quirks: Quirks) -> None:
        """Let a config pass if its address could be called, or nobody asks.

        Raises:
            InvalidParams: it could not.
        """
        if not quirks.trusting:
            try:
                await self._egress.check(config.url)
            except errors.Unreachable as error:
                raise errors.InvalidParams(f"url: {error}", field="url") from None

    def keep(self, playback: Playback, config: PushConfig, request: MockRequest) -> PushConfig:
        """Keep a config, under a new id unless it has one; notifications speak the version of its request."""
        config = replace(config, id=config.id or f"config-{len(playback.push) + 1}")
        version = Version.V1 if request.dialect is Dialect.V1 else Version.V03
        playback.push[config.id] = (config, version.value)
        return config

    def notify(self, playback: Playback) -> None:
        """Post the task as it stands to each of its webhooks."""
        for config, version in playback.push.values():
            body = notification_body(playback.task, version, whole=False)
            before = self._last.get(playback.id)
            task = asyncio.get_running_loop().create_task(self._send(playback.id, config, body, before))
            self._last[playback.id] = task

    async def _send(
        self, task_id: str, config: PushConfig, body: bytes, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        headers = [("Content-Type", "application/json")]
        if config.token:
            headers.append(("X-A2A-Notification-Token", config.token))
        if config.scheme and config.credentials:
            headers.append(("Authorization", f"{config.scheme} {config.credentials}"))
        fetcher = Fetcher(self._egress)
        try:
            answer = await fetcher.post(config.url, body, headers)
            log.info("mock.pushed task=%s status=%d", task_id, answer.status)
        except errors.Unreachable as error:
            log.warning("mock.push_failed task=%s why=%s", task_id, error)
        finally:
            # Not kept: nobody may be there to close it when the test is over.
            await fetcher.close()

    async def close(self) -> None:
        """Cancel the deliveries that are under way."""
        for task in self._last.values():
            task.cancel()
        if self._last:
            await asyncio.wait(self._last.values())
        self._last.clear()
