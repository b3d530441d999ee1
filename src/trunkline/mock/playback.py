"""A reply played event by event, and the task that it makes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from trunkline.client.result import text_of
from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import (
    Content,
    Failure,
    Reply,
    ScriptedArtifact,
    ScriptedFile,
    ScriptedPart,
    ScriptedStep,
    State,
)
from trunkline.wire.spellings import state_named, timestamp
from trunkline.wire.types import (
    RESTING,
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Message,
    Part,
    PushConfig,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

Event = Task | StatusUpdate | ArtifactUpdate
# Placeholders in a reply, for the ids of the task that it makes.
TASK, CONTEXT, MESSAGE = "${task.id}", "${context.id}", "${message.id}"
_CHUNKS = "stream"


class Playback:
    """The reply to a message and to those that continue its task; a bare message or error is one without."""

    def __init__(self, task_id: str, context_id: str, on_status: Callable[[Playback], None]) -> None:
        self.id = task_id
        self.context_id = context_id
        self.events: list[Event] = []
        self.message: Message | None = None
        self.failure: Failure | None = None
        self.then: Reply | str | None = None
        # What is being played, and to whom; and what an earlier process was killed over.
        self.playing: tuple[Reply, Message] | None = None
        self.unplayed: tuple[Reply, Message] | None = None
        self.receipt = False
        self.updated_ms = now_ms()
        self.push: dict[str, tuple[PushConfig, str]] = {}
        self.task = Task(task_id, context_id, TaskStatus(TaskState.SUBMITTED, None, timestamp(now_ms())))
        self._on_status = on_status
        self._changed = asyncio.Event()
        # Set when it is known whether the reply is a task, a message or an error.
        self.started = asyncio.Event()
        self._playing: asyncio.Task[None] | None = None
        # The caller has answered its question, and the reply to that has not changed the status yet.
        self._answered = False
        self._count = 0

    @property
    def resting(self) -> bool:
        """Whether the task has ended or asks, or there is none."""
        bare = self.message is not None or self.failure is not None
        return bare or (self.task.status.state in RESTING and not self._answered)

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self.task.status.state in TERMINAL

    def add_message(self, message: Message) -> None:
        """Add a message of the caller to the history of the task."""
        message = replace(message, task_id=self.id, context_id=self.context_id)
        self.task = replace(self.task, history=(*self.task.history, message))
        if not self.events:
            self.events.append(self.task)
        else:
            self._answered = True

    async def play(self, reply: Reply, message: Message, quirks: Quirks, delay: float) -> None:
        """Play a reply. One without delays is over when this returns, any other goes on by itself."""
        ids = ((TASK, self.id), (CONTEXT, self.context_id), (MESSAGE, message.message_id))
        reply = renamed(reply, ids)
        self.then, self.receipt, self.playing = reply.then, reply.receipt, (reply, message)
        if reply.message is not None or reply.error is not None:
            await asyncio.sleep(delay + reply.delay)
            self.failure = reply.error
            if reply.message is not None:
                said = _message(reply.message, f"{self.id}-reply")
                self.message = replace(said, context_id=self.context_id, metadata=reply.metadata)
            self.started.set()
            return
        steps = steps_of(reply, message, quirks)
        if delay + sum(step.delay for step in steps) > 0:
            self._playing = asyncio.get_running_loop().create_task(self._play_steps(steps, delay))
        else:
            for step in steps:
                self.apply(step)
            self._answered = False
        self.started.set()

    def go_on(self, quirks: Quirks, delay: float) -> None:
        """Play again what an earlier process was killed over, if it was over anything."""
        if self.unplayed is not None:
            (reply, message), self.unplayed = self.unplayed, None
            self._playing = asyncio.get_running_loop().create_task(self.play(reply, message, quirks, delay))

    async def _play_steps(self, steps: tuple[ScriptedStep, ...], delay: float) -> None:
        await asyncio.sleep(delay)
        for step in steps:
            if step.delay:
                await asyncio.sleep(step.delay)
            self.apply(step)

    def apply(self, step: ScriptedStep) -> None:
        """Add the events of a step."""
        if step.artifact is not None:
            self._add_artifact(step, step.artifact)
        state = state_named(step.state or "")
        if state is not None:
            self._count += 1
            said = None if step.say is None else _message(step.say, f"{self.id}-{self._count}")
            self._set_status(state, said, step)
        self._changed.set()

    def cancel(self) -> None:
        """Stop playing, and cancel the task."""
        self.stop()
        self.apply(ScriptedStep(state="canceled"))

    def stop(self) -> None:
        """Stop playing; the task stays as it is."""
        if self._playing is not None:
            self._playing.cancel()

    async def more(self, seq: int) -> None:
        """Wait until there are more than `seq` events."""
        while len(self.events) <= seq:
            self._changed.clear()
            await self._changed.wait()

    async def rest(self) -> None:
        """Wait until the task has ended or asks."""
        while not self.resting:
            await self.more(len(self.events))

    def _add_artifact(self, step: ScriptedStep, scripted: ScriptedArtifact) -> None:
        artifact = _artifact(scripted, f"artifact-{len(self.task.artifacts) + 1}")
        update = ArtifactUpdate(self.id, self.context_id, artifact, step.append, step.last, step.metadata)
        self.events.append(update)
        known = {each.artifact_id: each for each in self.task.artifacts}
        known[artifact.artifact_id] = grown(known.get(artifact.artifact_id), update)
        self.task = replace(self.task, artifacts=tuple(known.values()))

    def _set_status(self, state: TaskState, said: Message | None, step: ScriptedStep) -> None:
        if said is not None:
            said = replace(said, task_id=self.id, context_id=self.context_id)
        self.updated_ms = now_ms()
        self._answered = False
        status = TaskStatus(state, said, timestamp(self.updated_ms))
        self.events.append(StatusUpdate(self.id, self.context_id, status, step.metadata))
        history = self.task.history if said is None else (*self.task.history, said)
        self.task = replace(self.task, status=status, history=history)
        self._on_status(self)


def renamed(reply: Reply, names: Sequence[tuple[str, str]]) -> Reply:
    """A reply with one text in place of another, wherever it occurs: ids for their placeholders, or back."""
    raw = found = msgspec.json.encode(reply)
    for before, after in names:
        found = found.replace(msgspec.json.encode(before)[1:-1], msgspec.json.encode(after)[1:-1])
    return reply if found == raw else msgspec.json.decode(found, type=Reply)


def steps_of(reply: Reply, message: Message, quirks: Quirks) -> tuple[ScriptedStep, ...]:
    """The steps of a reply, in order."""
    if reply.steps:
        first = replace(reply.steps[0], delay=reply.steps[0].delay + reply.delay)
        return (first, *reply.steps[1:])
    steps = [ScriptedStep(state="working")]
    steps += [ScriptedStep(state="working", say=word) for word in reply.progress]
    steps += _chunks(reply.stream, quirks)
    steps += [ScriptedStep(artifact=scripted) for scripted in _results(reply, message)]
    last = _ending(reply)
    steps += [] if last is None else [last]
    pauses = [reply.delay, *[reply.pause] * (len(steps) - 1)]
    return tuple(replace(step, delay=pause) for step, pause in zip(steps, pauses, strict=True))


def _chunks(chunks: tuple[str | ScriptedPart, ...], quirks: Quirks) -> list[ScriptedStep]:
    parts = [ScriptedPart(text=chunk) if isinstance(chunk, str) else chunk for chunk in chunks]
    steps: list[ScriptedStep] = []
    for index, part in enumerate(parts):
        artifact = ScriptedArtifact(id=f"artifact-{index}" if quirks.chunk_ids else _CHUNKS, parts=(part,))
        last = index == len(parts) - 1 and not quirks.whole and not quirks.chunk_ids
        steps.append(ScriptedStep(artifact=artifact, append=index > 0 or quirks.chunk_ids, last=last))
    if quirks.whole and parts and not quirks.chunk_ids:
        steps.append(ScriptedStep(artifact=ScriptedArtifact(id=_CHUNKS, parts=_whole(parts))))
    return steps


def _whole(parts: list[ScriptedPart]) -> tuple[ScriptedPart, ...]:
    if all(part.text is not None for part in parts):
        return (ScriptedPart(text="".join(part.text or "" for part in parts)),)
    return tuple(parts)


def _results(reply: Reply, message: Message) -> list[ScriptedArtifact]:
    results: list[ScriptedArtifact] = []
    if reply.echo:
        results.append(ScriptedArtifact(text=text_of(message)))
    if reply.text is not None:
        results.append(ScriptedArtifact(text=reply.text))
    if reply.data is not UNSET:
        results.append(ScriptedArtifact(data=reply.data))
    if reply.file is not None:
        results.append(ScriptedArtifact(file=reply.file, name=reply.file.name))
    return [*results, *reply.artifacts]


def _ending(reply: Reply) -> ScriptedStep | None:
    if reply.hold:
        return None
    endings: tuple[tuple[State, Content | None], ...] = (
        ("input-required", reply.ask),
        ("auth-required", reply.need_auth),
        ("failed", reply.fail),
        ("rejected", reply.reject),
        ("canceled", reply.cancel),
    )
    state, say = next((one for one in endings if one[1] is not None), ("completed", reply.say))
    return ScriptedStep(state=state, say=say, metadata=reply.metadata)


def _message(content: Content, message_id: str) -> Message:
    parts = (ScriptedPart(text=content),) if isinstance(content, str) else content
    return Message(message_id, role=Role.AGENT, parts=tuple(_part(part) for part in parts))


def _artifact(scripted: ScriptedArtifact, default_id: str) -> Artifact:
    parts = list(scripted.parts)
    if (scripted.text, scripted.file) != (None, None) or scripted.data is not UNSET:
        parts.insert(0, ScriptedPart(text=scripted.text, data=scripted.data, file=scripted.file))
    parts = tuple(_part(part) for part in parts)
    return Artifact(scripted.id or default_id, scripted.name, scripted.description, parts, scripted.metadata)


def _part(part: ScriptedPart) -> Part:
    if (part.text is not None) + (part.data is not UNSET) + (part.file is not None) != 1:
        raise Misuse("a part of a scenario has exactly one of text, data and file")
    if part.file is None:
        return Part(part.text, data=part.data, media_type=part.media_type, metadata=part.metadata)
    file = part.file
    return Part(
        raw=_raw(file),
        url=file.url,
        filename=file.name,
        media_type=file.media_type or part.media_type,
        metadata=part.metadata,
    )


def _raw(file: ScriptedFile) -> str | None:
    if sum(given is not None for given in (file.text, file.base64, file.url)) != 1:
        raise Misuse("a file of a scenario has exactly one of text, base64 and url")
    return file.base64 if file.text is None else base64.b64encode(file.text.encode()).decode()


def grown(known: Artifact | None, update: ArtifactUpdate) -> Artifact:
    """An artifact after an update; texts that meet become one, as for a stream's reader."""
    if known is None or not update.append:
        return update.artifact
    before, after = known.parts, update.artifact.parts
    if before and after and before[-1].text is not None and after[0].text is not None:
        met = replace(before[-1], text=before[-1].text + after[0].text)
        return replace(known, parts=(*before[:-1], met, *after[1:]))
    return replace(known, parts=(*before, *after))
