"""What was heard between a caller and an agent, turned into a scenario that replays it.

Ids of tasks, contexts and messages become placeholders, which the mock fills with its own. Nothing of a
request is kept but its message and the skill that it names: no header, no credential.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from trunkline.errors import PeerError, Refused
from trunkline.mock.faults import MockFault
from trunkline.mock.playback import CONTEXT, MESSAGE, TASK, joined
from trunkline.mock.rules import skill_of
from trunkline.mock.scenario import (
    Ability,
    Binding,
    Content,
    Extra,
    Failure,
    Made,
    Persona,
    Piece,
    Reply,
    Rule,
    Scenario,
    ScriptedFile,
    State,
    Step,
    Version,
    When,
)
from trunkline.wire.answers import Notice
from trunkline.wire.codes import code_of
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.service_parameters import IDEMPOTENT_SEND
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

_STATES: dict[TaskState, State] = {
    TaskState.SUBMITTED: "submitted",
    TaskState.WORKING: "working",
    TaskState.COMPLETED: "completed",
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "canceled",
    TaskState.INPUT_REQUIRED: "input-required",
    TaskState.REJECTED: "rejected",
    TaskState.AUTH_REQUIRED: "auth-required",
}
_VERSIONS: tuple[Version, ...] = ("1.0", "0.3")
_BINDINGS: tuple[Binding, ...] = ("JSONRPC", "HTTP+JSON")


class Take:
    """One message and what came of it, as far as it was heard."""

    def __init__(self, request: SendRequest, turn: int) -> None:
        message = request.message
        self.task_id = message.task_id
        self.context_id = message.context_id
        self.resting = False
        self._message_id = message.message_id
        self._when = _meant(message, skill_of(message, request.metadata), turn)
        self._steps: list[Step] = []
        self._reply: Reply | None = None
        self._fault: MockFault | None = None
        self._receipt = False
        # What the task was before this message is not what this message made.
        self._known: dict[str, Artifact] = {}
        self._state: TaskStatus | None = None

    def begin(self, earlier: Take) -> None:
        """It goes on with the task of an earlier one."""
        self._known, self._state = dict(earlier._known), earlier._state

    def hear(self, notice: Notice, delay: float = 0) -> None:
        """Something that the agent said of it."""
        answer = notice.answer
        if isinstance(answer, Message):
            self.context_id = self.context_id or answer.context_id
            self._reply = Reply(message=_content(answer), metadata=answer.metadata)
            self.resting = True
            return
        if isinstance(answer, Task):
            self.task_id, self.context_id = answer.id, answer.context_id or self.context_id
            self._hear_task(answer, delay)
            return
        self.task_id, self.context_id = answer.task_id, answer.context_id or self.context_id
        if isinstance(answer, ArtifactUpdate):
            self._grow(answer, delay)
            return
        for artifact in notice.artifacts:
            self._make(artifact)
        self._move(answer, delay)

    def hear_receipt(self) -> None:
        """It was answered before it was done, though the caller would have waited."""
        self._receipt = True

    def hear_refusal(self, refused: Refused) -> None:
        """The agent refused it."""
        code = refused.code if isinstance(refused, PeerError) else code_of(refused).rpc
        self._reply = Reply(error=Failure(code=code, message=refused.message))
        self.resting = True

    def hear_status(self, status: int) -> None:
        """HTTP itself refused it."""
        self._fault = MockFault(do="status", status=status)
        self.resting = True

    def _hear_task(self, task: Task, delay: float) -> None:
        for artifact in task.artifacts:
            self._make(artifact)
        self._move(StatusUpdate(task.id, task.context_id, task.status), delay)

    def _make(self, artifact: Artifact) -> None:
        if self._known.get(artifact.artifact_id) != artifact:
            self._known[artifact.artifact_id] = artifact
            self._steps.append(Step(artifact=_made(artifact)))

    def _grow(self, update: ArtifactUpdate, delay: float) -> None:
        artifact, append = update.artifact, update.append
        before = self._known.get(artifact.artifact_id)
        whole = artifact
        if append and before is not None:
            whole = replace(before, parts=joined(before.parts, artifact.parts))
        self._known[artifact.artifact_id] = whole
        self._steps.append(
            Step(
                artifact=_made(artifact),
                append=append,
                last=update.last_chunk,
                delay=delay,
                metadata=update.metadata,
            )
        )

    def _move(self, update: StatusUpdate, delay: float) -> None:
        status = update.status
        self.resting = status.state in RESTING
        if status.state is TaskState.SUBMITTED or self._state == status:
            return
        self._state = status
        said = None if status.message is None else _content(status.message)
        step = Step(state=_STATES[status.state], say=said, delay=delay, metadata=update.metadata)
        self._steps.append(step)

    def rule(self) -> Rule:
        """The rule that says the same again."""
        reply = self._reply or Reply(steps=tuple(self._steps), hold=not self._steps, receipt=self._receipt)
        raw = msgspec.json.encode(reply)
        for found, place in (
            (self.task_id, TASK),
            (self.context_id, CONTEXT),
            (self._message_id, MESSAGE),
        ):
            if found:
                raw = raw.replace(msgspec.json.encode(found)[1:-1], place)
        reply = msgspec.json.decode(raw, type=Reply)
        return Rule(when=self._when, reply=reply, faults=() if self._fault is None else (self._fault,))


class Recording:
    """All that was heard, in order."""

    def __init__(self, *, timing: bool = False) -> None:
        self.timing = timing
        self._card: PeerCard | None = None
        self._takes: list[Take] = []
        self._by_task: dict[str, Take] = {}
        self._turns: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many messages were heard."""
        return len(self._takes)

    def hear_card(self, card: PeerCard) -> None:
        """The agent's card."""
        self._card = card

    def hear_request(self, request: SendRequest) -> Take:
        """A message on its way to the agent."""
        message = request.message
        earlier = self._by_task.get(message.task_id)
        context = message.context_id or (earlier.context_id if earlier is not None else "")
        take = Take(request, self._turns[context] + 1 if context else 1)
        if earlier is not None:
            take.begin(earlier)
        self._takes.append(take)
        return take

    def settle(self, take: Take) -> None:
        """Its answer is over: from here on the task is known by its id."""
        self._turns[take.context_id] += 1
        if take.task_id:
            self._by_task[take.task_id] = take

    def hear_later(self, notice: Notice, delay: float = 0) -> None:
        """What was said of a task by other ways than the answer to its message: get, subscribe."""
        answer = notice.answer
        task_id = answer.id if isinstance(answer, Task) else answer.task_id
        take = self._by_task.get(task_id)
        if take is not None and not take.resting:
            take.hear(notice, delay)

    def forget(self, task_id: str) -> None:
        """The caller cancels this task: what follows is the caller's doing and no reply."""
        self._by_task.pop(task_id, None)

    def scenario(self) -> Scenario:
        """The scenario that says all of it again. The same message with another reply is told in its turn."""
        rules: list[Rule] = []
        for take in self._takes:
            rule = take.rule()
            same = [place for place, each in enumerate(rules) if each.when == rule.when]
            if any(rules[place].reply == rule.reply and rules[place].times is None for place in same):
                continue
            for place in same:
                rules[place] = replace(rules[place], times=rules[place].times or 1)
            rules.append(rule)
        # Those of a certain turn are asked before those of any.
        rules.sort(key=lambda rule: rule.when.turn is None)
        persona = Persona() if self._card is None else _persona(self._card)
        deduplicates = IDEMPOTENT_SEND in _uris(self._card)
        return Scenario(agent=persona, rules=tuple(rules), deduplicates=deduplicates)


def _uris(card: PeerCard | None) -> list[str]:
    return [] if card is None else [each.uri for each in card.extensions]


def _persona(card: PeerCard) -> Persona:
    """The agent as its card tells, without what it asks callers to show: a replay asks for nothing."""
    spoken = {one.version.split(".")[0] for one in card.interfaces}
    versions: list[Version] = [known for known in _VERSIONS if known.split(".")[0] in spoken]
    bound = {one.binding for one in card.interfaces}
    bindings: list[Binding] = [known for known in _BINDINGS if known in bound]
    return Persona(
        name=card.name,
        description=card.description,
        version=card.version,
        skills=tuple(
            Ability(
                id=skill.id,
                name=skill.name,
                description=skill.description,
                tags=skill.tags,
                examples=skill.examples,
                input_modes=skill.input_modes,
                output_modes=skill.output_modes,
            )
            for skill in card.skills
        ),
        input_modes=card.default_input_modes,
        output_modes=card.default_output_modes,
        streaming=card.streaming,
        push=card.push,
        versions=tuple(versions) or ("0.3",),
        bindings=tuple(bindings) or ("JSONRPC",),
        extensions=tuple(
            Extra(uri=each.uri, description=each.description, required=each.required, params=each.params)
            for each in card.extensions
            if each.uri != IDEMPOTENT_SEND
        ),
    )


def _meant(message: Message, skill: str, turn: int) -> When:
    text = "".join(part.text or "" for part in message.parts)
    values = [part.data for part in message.parts if part.data is not UNSET]
    return When(
        skill=skill,
        text=text if text or not values else None,
        data=values[0] if values else UNSET,
        turn=turn if turn > 1 else None,
    )


def _made(artifact: Artifact) -> Made:
    return Made(
        id=artifact.artifact_id,
        name=artifact.name,
        description=artifact.description,
        parts=tuple(_piece(part) for part in artifact.parts),
        metadata=artifact.metadata,
    )


def _content(message: Message) -> Content:
    pieces = tuple(_piece(part) for part in message.parts)
    if len(pieces) == 1 and pieces[0] == Piece(text=pieces[0].text) and pieces[0].text is not None:
        return pieces[0].text
    return pieces


def _piece(part: Part) -> Piece:
    if part.text is not None:
        return Piece(text=part.text, media_type=part.media_type, metadata=part.metadata)
    if part.data is not UNSET:
        return Piece(data=part.data, media_type=part.media_type, metadata=part.metadata)
    file = ScriptedFile(name=part.filename, media_type=part.media_type, base64=part.raw, url=part.url)
    return Piece(file=file, metadata=part.metadata)
