"""Exchanges between a caller and an agent, turned into a scenario that replays them.

Ids of tasks, contexts and messages become placeholders, which the mock fills with its own. Nothing of a
request is kept but its message and the skill that it names: no header, no credential.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

from msgspec import UNSET
from msgspec.structs import asdict, replace

from trunkline.client.result import text_of
from trunkline.errors import PeerError, Refused
from trunkline.mock.faults import MockFault
from trunkline.mock.playback import CONTEXT, MESSAGE, TASK, grown, renamed
from trunkline.mock.scenario import (
    Binding,
    Content,
    Failure,
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedExtension,
    ScriptedFile,
    ScriptedPart,
    ScriptedSkill,
    ScriptedStep,
    State,
    Version,
    When,
    skill_of,
)
from trunkline.wire.answers import Notice
from trunkline.wire.codes import code_of
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import (
    RESTING,
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

_VERSIONS: tuple[Version, ...] = ("1.0", "0.3")
_BINDINGS: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")


class RecordedReply:
    """One message and the reply to it, as far as it was recorded."""

    def __init__(self, request: SendRequest, turn: int, earlier: RecordedReply | None) -> None:
        message = request.message
        self.task_id = message.task_id
        self.context_id = message.context_id
        self.resting = False
        self._message_id = message.message_id
        self._when = _when_of(message, skill_of(message, request.metadata), turn)
        self._steps: list[ScriptedStep] = []
        self._reply: Reply | None = None
        self._fault: MockFault | None = None
        # The answer came before the end, though the caller would have waited.
        self.receipt = False
        # What the task had before this message, as an earlier reply left it, is no part of this reply.
        self._known: dict[str, Artifact] = {} if earlier is None else dict(earlier._known)
        self._state: TaskStatus | None = None if earlier is None else earlier._state

    def add(self, notice: Notice, delay: float = 0) -> None:
        """Add what an answer or a frame of a stream tells of the task."""
        answer = notice.answer
        if isinstance(answer, Message):
            self.context_id = self.context_id or answer.context_id
            self._reply = Reply(message=_content(answer), metadata=answer.metadata)
            self.resting = True
            return
        if isinstance(answer, Task):
            answer = StatusUpdate(answer.id, answer.context_id, answer.status)
        self.task_id, self.context_id = answer.task_id, answer.context_id or self.context_id
        if isinstance(answer, ArtifactUpdate):
            self._add_chunk(answer, delay)
            return
        for artifact in notice.artifacts:
            if self._known.get(artifact.artifact_id) != artifact:
                self._known[artifact.artifact_id] = artifact
                self._steps.append(ScriptedStep(artifact=_scripted_artifact(artifact)))
        self._add_status(answer, delay)

    def set_refusal(self, refused: Refused) -> None:
        """Note that the agent refused the message."""
        code = refused.code if isinstance(refused, PeerError) else code_of(refused).rpc
        self._reply = Reply(error=Failure(code=code, message=refused.message))
        self.resting = True

    def set_http_status(self, status: int) -> None:
        """Note that the message was refused by HTTP alone."""
        self._fault = MockFault(do="status", status=status)
        self.resting = True

    def _add_chunk(self, update: ArtifactUpdate, delay: float) -> None:
        artifact = update.artifact
        self._known[artifact.artifact_id] = grown(self._known.get(artifact.artifact_id), update)
        step = ScriptedStep(
            artifact=_scripted_artifact(artifact),
            append=update.append,
            last=update.last_chunk,
            delay=delay,
            metadata=update.metadata,
        )
        self._steps.append(step)

    def _add_status(self, update: StatusUpdate, delay: float) -> None:
        status = update.status
        self.resting = status.state in RESTING
        if status.state is TaskState.SUBMITTED or self._state == status:
            return
        self._state = status
        say = None if status.message is None else _content(status.message)
        step = ScriptedStep(
            state=cast("State", plain_state(status.state)), say=say, delay=delay, metadata=update.metadata
        )
        self._steps.append(step)

    def rule(self) -> Rule:
        """The rule that replays this reply."""
        reply = self._reply or Reply(steps=tuple(self._steps), hold=not self._steps, receipt=self.receipt)
        ids = ((self.task_id, TASK), (self.context_id, CONTEXT), (self._message_id, MESSAGE))
        reply = renamed(reply, [(found, placeholder) for found, placeholder in ids if found])
        return Rule(when=self._when, reply=reply, faults=() if self._fault is None else (self._fault,))


class Recording:
    """The card and the replies of an agent, in the order of the messages."""

    def __init__(self, *, timing: bool = False) -> None:
        self.timing = timing
        self.card: PeerCard | None = None
        self._replies: list[RecordedReply] = []
        self._by_task: dict[str, RecordedReply] = {}
        self._turns: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many messages were recorded."""
        return len(self._replies)

    def start_reply(self, request: SendRequest) -> RecordedReply:
        """Record a message on its way to the agent, and begin its reply."""
        message = request.message
        earlier = self._by_task.get(message.task_id)
        context = message.context_id or (earlier.context_id if earlier is not None else "")
        recorded = RecordedReply(request, self._turns[context] + 1 if context else 1, earlier)
        self._replies.append(recorded)
        return recorded

    def finish_reply(self, recorded: RecordedReply) -> None:
        """Note that the answer to a message is over: from here on its task is known by its id."""
        self._turns[recorded.context_id] += 1
        if recorded.task_id:
            self._by_task[recorded.task_id] = recorded

    def add_later(self, notice: Notice, delay: float = 0) -> None:
        """Add what a get or a subscription tells of a task, to the reply that it belongs to."""
        answer = notice.answer
        recorded = self._by_task.get(answer.id if isinstance(answer, Task) else answer.task_id)
        if recorded is not None and not recorded.resting:
            recorded.add(notice, delay)

    def forget(self, task_id: str) -> None:
        """Stop recording a task that the caller cancels: what follows is no reply."""
        self._by_task.pop(task_id, None)

    def scenario(self) -> Scenario:
        """The scenario that replays all of it. A message that got several replies gets them in that order."""
        rules: list[Rule] = []
        for recorded in self._replies:
            rule = recorded.rule()
            same = [index for index, each in enumerate(rules) if each.when == rule.when]
            if any(rules[index].reply == rule.reply and rules[index].times is None for index in same):
                continue
            for index in same:
                rules[index] = replace(rules[index], times=rules[index].times or 1)
            rules.append(rule)
        # The first rule that fits is taken: those of a certain turn come before those of any.
        rules.sort(key=lambda rule: rule.when.turn is None)
        if self.card is None:
            return Scenario(rules=tuple(rules))
        deduplicates = any(each.uri == IDEMPOTENT_SEND for each in self.card.extensions)
        return Scenario(agent=_persona(self.card), rules=tuple(rules), deduplicates=deduplicates)


def _persona(card: PeerCard) -> Persona:
    """The agent as its card describes it, without its authentication: a replay asks for none."""
    majors = {one.version.split(".")[0] for one in card.interfaces}
    bindings = {one.binding for one in card.interfaces}
    return Persona(
        name=card.name,
        description=card.description,
        version=card.version,
        skills=tuple(ScriptedSkill(**asdict(skill)) for skill in card.skills),
        input_modes=card.default_input_modes,
        output_modes=card.default_output_modes,
        streaming=card.streaming,
        push=card.push,
        versions=tuple(known for known in _VERSIONS if known.split(".")[0] in majors) or ("0.3",),
        bindings=tuple(known for known in _BINDINGS if known in bindings) or ("JSONRPC",),
        extensions=tuple(
            ScriptedExtension(**asdict(each)) for each in card.extensions if each.uri != IDEMPOTENT_SEND
        ),
    )


def _when_of(message: Message, skill: str, turn: int) -> When:
    data = next((part.data for part in message.parts if part.data is not UNSET), UNSET)
    text = text_of(message) or (None if data is not UNSET else "")
    return When(skill=skill, text=text, data=data, turn=turn if turn > 1 else None)


def _scripted_artifact(artifact: Artifact) -> ScriptedArtifact:
    return ScriptedArtifact(
        id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=tuple(_scripted_part(part) for part in artifact.parts),
        metadata=artifact.metadata,
    )


def _content(message: Message) -> Content:
    parts = tuple(_scripted_part(part) for part in message.parts)
    if len(parts) == 1 and parts[0] == ScriptedPart(text=parts[0].text) and parts[0].text is not None:
        return parts[0].text
    return parts


def _scripted_part(part: Part) -> ScriptedPart:
    if part.text is None and part.data is UNSET:
        file = ScriptedFile(name=part.filename, media_type=part.media_type, base64=part.raw, url=part.url)
        return ScriptedPart(file=file, metadata=part.metadata)
    return ScriptedPart(text=part.text, data=part.data, media_type=part.media_type, metadata=part.metadata)
