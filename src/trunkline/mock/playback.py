"""The work of a mock: a reply played event by event, and the task that it makes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from trunkline.clock import now_ms
from trunkline.errors import Misuse
from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import (
    Content,
    Failure,
    Made,
    Piece,
    Reply,
    ScriptedFile,
    Step,
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
# What a reply may hold in their place.
TASK, CONTEXT, MESSAGE = b"${task.id}", b"${context.id}", b"${message.id}"
_CHUNKS = "stream"


class Playback:
    """What one message, and those that continue it, set off. Without a task it is a bare message or error."""

    def __init__(self, task_id: str, context_id: str, told: Callable[[Playback], None]) -> None:
        self.id = task_id
        self.context_id = context_id
        self.events: list[Event] = []
        self.message: Message | None = None
        self.failure: Failure | None = None
        self.then: Reply | str | None = None
        self.receipt = False
        self.updated_ms = now_ms()
        self.push: dict[str, tuple[PushConfig, str]] = {}
        self.task = Task(task_id, context_id, TaskStatus(TaskState.SUBMITTED, None, timestamp(now_ms())))
        self._told = told
        self._news = asyncio.Event()
        # Set when it is known what the first answer is.
        self.begun = asyncio.Event()
        self._playing: asyncio.Task[None] | None = None
        # It was answered, and its reply has not moved it yet.
        self._answered = False
        self._count = 0

    @property
    def resting(self) -> bool:
        """Whether it has ended or asks, or never was a task."""
        return self.bare or (self.task.status.state in RESTING and not self._answered)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.task.status.state in TERMINAL

    @property
    def bare(self) -> bool:
        """Whether it was answered without a task."""
        return self.message is not None or self.failure is not None

    def hear(self, message: Message) -> None:
        """A message of the caller's, which belongs to the history."""
        heard = replace(message, task_id=self.id, context_id=self.context_id)
        self.task = replace(self.task, history=(*self.task.history, heard))
        if not self.events:
            self.events.append(self.task)
        else:
            self._answered = True

    async def play(self, reply: Reply, message: Message, manner: Quirks, delay: float) -> None:
        """Begin a reply. One without delays is over when this returns, any other goes on by itself."""
        reply = self._filled(reply, message)
        self.then, self.receipt = reply.then, reply.receipt
        if reply.message is not None or reply.error is not None:
            await asyncio.sleep(delay + reply.delay)
            self.failure = reply.error
            if reply.message is not None:
                said = _said(reply.message, f"{self.id}-reply")
                self.message = replace(said, context_id=self.context_id, metadata=reply.metadata)
            self.begun.set()
            return
        steps = script(reply, message, manner)
        if delay + sum(step.delay for step in steps) > 0:
            self._playing = asyncio.get_running_loop().create_task(self._through(steps, delay))
        else:
            for step in steps:
                self.take(step)
            self._answered = False
        self.begun.set()

    def _filled(self, reply: Reply, message: Message) -> Reply:
        """The reply with the ids of this task where it has places for them."""
        raw = msgspec.json.encode(reply)
        if b"${" not in raw:
            return reply
        for place, found in ((TASK, self.id), (CONTEXT, self.context_id), (MESSAGE, message.message_id)):
            raw = raw.replace(place, msgspec.json.encode(found)[1:-1])
        return msgspec.json.decode(raw, type=Reply)

    async def _through(self, steps: tuple[Step, ...], delay: float) -> None:
        await asyncio.sleep(delay)
        for step in steps:
            if step.delay:
                await asyncio.sleep(step.delay)
            self.take(step)

    def take(self, step: Step) -> None:
        """One more event."""
        if step.artifact is not None:
            self._grow(step, step.artifact)
        state = state_named(step.state or "")
        if state is not None:
            self._count += 1
            said = None if step.say is None else _said(step.say, f"{self.id}-{self._count}")
            self._move(state, said, step)
        self._news.set()

    def cancel(self, said: str = "") -> None:
        """Stop it."""
        self.stop()
        self.take(Step(state="canceled", say=said or None))

    def stop(self) -> None:
        """Play no further."""
        if self._playing is not None:
            self._playing.cancel()

    async def more(self, seq: int) -> None:
        """Wait until there are more events than these."""
        while len(self.events) <= seq:
            self._news.clear()
            await self._news.wait()

    async def rest(self) -> None:
        """Wait until it has ended or asks."""
        while not self.resting:
            await self.more(len(self.events))

    def _grow(self, step: Step, made: Made) -> None:
        artifact = _artifact(made, f"artifact-{len(self.task.artifacts) + 1}")
        update = ArtifactUpdate(self.id, self.context_id, artifact, step.append, step.last, step.metadata)
        self.events.append(update)
        known = {each.artifact_id: each for each in self.task.artifacts}
        before = known.get(artifact.artifact_id)
        if step.append and before is not None:
            artifact = replace(before, parts=joined(before.parts, artifact.parts))
        known[artifact.artifact_id] = artifact
        self.task = replace(self.task, artifacts=tuple(known.values()))

    def _move(self, state: TaskState, said: Message | None, step: Step) -> None:
        if said is not None:
            said = replace(said, task_id=self.id, context_id=self.context_id)
        self.updated_ms = now_ms()
        self._answered = False
        status = TaskStatus(state, said, timestamp(self.updated_ms))
        self.events.append(StatusUpdate(self.id, self.context_id, status, step.metadata))
        history = self.task.history if said is None else (*self.task.history, said)
        self.task = replace(self.task, status=status, history=history)
        self._told(self)


def script(reply: Reply, message: Message, manner: Quirks) -> tuple[Step, ...]:
    """The events of a reply, in order."""
    if reply.steps:
        first = replace(reply.steps[0], delay=reply.steps[0].delay + reply.delay)
        return (first, *reply.steps[1:])
    steps = [Step(state="working")]
    steps += [Step(state="working", say=word) for word in reply.progress]
    steps += _chunks(reply.stream, manner)
    steps += [Step(artifact=made) for made in _results(reply, message)]
    last = _ending(reply)
    steps += [] if last is None else [last]
    pauses = [reply.delay, *[reply.pause] * (len(steps) - 1)]
    return tuple(replace(step, delay=pause) for step, pause in zip(steps, pauses, strict=True))


def _chunks(chunks: tuple[str | Piece, ...], manner: Quirks) -> list[Step]:
    pieces = [Piece(text=chunk) if isinstance(chunk, str) else chunk for chunk in chunks]
    if manner.chunk_ids:
        return [
            Step(artifact=Made(id=f"artifact-{place}", parts=(piece,)), append=True, last=False)
            for place, piece in enumerate(pieces)
        ]
    final = len(pieces) - 1
    steps = [
        Step(
            artifact=Made(id=_CHUNKS, parts=(piece,)),
            append=place > 0,
            last=place == final and not manner.whole,
        )
        for place, piece in enumerate(pieces)
    ]
    if manner.whole and pieces:
        steps.append(Step(artifact=Made(id=_CHUNKS, parts=_whole(pieces))))
    return steps


def _whole(pieces: list[Piece]) -> tuple[Piece, ...]:
    if all(piece.text is not None for piece in pieces):
        return (Piece(text="".join(piece.text or "" for piece in pieces)),)
    return tuple(pieces)


def _results(reply: Reply, message: Message) -> list[Made]:
    made: list[Made] = []
    if reply.echo:
        made.append(Made(text="".join(part.text or "" for part in message.parts)))
    if reply.text is not None:
        made.append(Made(text=reply.text))
    if reply.data is not UNSET:
        made.append(Made(data=reply.data))
    if reply.file is not None:
        made.append(Made(file=reply.file, name=reply.file.name))
    return [*made, *reply.artifacts]


def _ending(reply: Reply) -> Step | None:
    if reply.hold:
        return None
    if reply.ask is not None:
        return Step(state="input-required", say=reply.ask, metadata=reply.metadata)
    if reply.need_auth is not None:
        return Step(state="auth-required", say=reply.need_auth, metadata=reply.metadata)
    if reply.fail is not None:
        return Step(state="failed", say=reply.fail, metadata=reply.metadata)
    if reply.reject is not None:
        return Step(state="rejected", say=reply.reject, metadata=reply.metadata)
    if reply.cancel is not None:
        return Step(state="canceled", say=reply.cancel, metadata=reply.metadata)
    return Step(state="completed", say=reply.say, metadata=reply.metadata)


def _said(content: Content, message_id: str) -> Message:
    pieces = (Piece(text=content),) if isinstance(content, str) else content
    return Message(message_id, role=Role.AGENT, parts=tuple(_part(piece) for piece in pieces))


def _artifact(made: Made, default_id: str) -> Artifact:
    pieces = list(made.parts)
    if (made.text, made.file) != (None, None) or made.data is not UNSET:
        pieces.insert(0, Piece(text=made.text, data=made.data, file=made.file))
    parts = tuple(_part(piece) for piece in pieces)
    return Artifact(made.id or default_id, made.name, made.description, parts, made.metadata)


def _part(piece: Piece) -> Part:
    if (piece.text is not None) + (piece.data is not UNSET) + (piece.file is not None) != 1:
        raise Misuse("a part of a scenario has exactly one of text, data and file")
    if piece.file is None:
        return Part(piece.text, data=piece.data, media_type=piece.media_type, metadata=piece.metadata)
    file = piece.file
    return Part(
        raw=_raw(file),
        url=file.url,
        filename=file.name,
        media_type=file.media_type or piece.media_type,
        metadata=piece.metadata,
    )


def _raw(file: ScriptedFile) -> str | None:
    if sum(given is not None for given in (file.text, file.base64, file.url)) != 1:
        raise Misuse("a file of a scenario has exactly one of text, base64 and url")
    return file.base64 if file.text is None else base64.b64encode(file.text.encode()).decode()


def joined(before: tuple[Part, ...], after: tuple[Part, ...]) -> tuple[Part, ...]:
    """Texts that follow each other are one text, as whoever reads the stream puts them together."""
    if before and after and before[-1].text is not None and after[0].text is not None:
        return (*before[:-1], replace(before[-1], text=before[-1].text + after[0].text), *after[1:])
    return (*before, *after)
