"""Carries what a remote task says into the log of ours: its status, its artifacts, its last word.

Nothing is recorded twice: a snapshot that comes after a break is compared with what our log holds.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime

from msgspec.structs import replace

from trunkline.client.assembler import Update
from trunkline.client.result import Result, artifact_text
from trunkline.clock import now_ms
from trunkline.errors import TurnOver
from trunkline.log.events import Chunk, Delta, Status
from trunkline.log.fold import State
from trunkline.net.places import TenantPlaces
from trunkline.run.executor import Verdict, Work
from trunkline.wire.question import answered_question, question_metadata, read_question
from trunkline.wire.types import (
    COMPLETED,
    INTERRUPTED,
    TERMINAL,
    WORKING,
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
)

ANSWER = "answer"
# In the metadata of a question: its id at the remote agent.
ASKED_KEY = "trunkline.asked"
# How the keys begin by which we tell of tasks: no agent elsewhere says anything under one.
_OURS = "trunkline."
# Pieces of text are gathered: at first for this many characters or seconds, then more as the text grows, so
# that however long it is and however small its pieces are, it becomes some thousand events.
_CHARACTERS = 24
_SECONDS = 0.1
_PIECES = 1000
# An update that records nothing waits for no store, and a task may have any number of them. After so many in
# a row, a pause follows; the pauses of one tenant come one after the other.
IDLE_UPDATES = 64
_IDLE_PAUSE_S = 0.1
# Comments, repeated events and pieces of one character cost time by their number. For this many lines of a
# stream, whatever they hold, a pause of the same length follows.
PACED_LINES = 4096
# The last moment of the year 9999, in milliseconds since the epoch.
_LATEST_MS = 253_402_300_799_999


class Relay:
    """Says in a task of ours what a remote task says."""

    __slots__ = ("_held", "_holding", "_idle", "_known", "_lines", "_pauses", "_said", "_timer",
                 "_whole", "_work")  # fmt: skip

    def __init__(self, work: Work, pauses: TenantPlaces) -> None:
        """Take a task, and the places in which the agents of a tenant pause."""
        self._work = work
        self._pauses = pauses
        # How many updates in a row recorded nothing.
        self._idle = 0
        # How many lines of the stream came since the last pause.
        self._lines = 0
        # How long the texts are that our log holds, by artifact; of a new task it holds none.
        self._known: dict[str, int] = {}
        if work.state.seq != work.state.opened:
            for one in work.state.task().artifacts:
                self._known[one.artifact_id] = len(artifact_text(one))
        # Those that began here, each with the pieces of text that followed.
        self._whole: dict[str, tuple[Artifact, list[str]]] = {}
        self._said = work.state.status_message
        self._holding = ""
        self._held = ""
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, update: Update) -> None:
        """Record what an update brings, unless it is the last word: that is the verdict's."""
        self._idle += 1
        await self._record(update)
        if self._idle >= IDLE_UPDATES:
            self._idle = 0
            await self._pause(_IDLE_PAUSE_S)

    async def pace(self, lines: int) -> None:
        """Count the lines of the stream that came, and pause in proportion to them when they are many."""
        self._lines += lines
        if self._lines >= PACED_LINES:
            lines, self._lines = self._lines, 0
            await self._pause(_IDLE_PAUSE_S * lines / PACED_LINES)

    async def _pause(self, seconds: float) -> None:
        async with self._pauses.held(self._work.tenant):
            await asyncio.sleep(seconds)

    async def _record(self, update: Update) -> None:
        answer = update.notice.answer
        # By type: none has a subclass, and that a struct is not of a class is found out slowly.
        if type(answer) is ArtifactUpdate:
            name = answer.artifact.artifact_id
            grows = answer.append and name in self._known
            if not (grows and _is_plain(answer.artifact)):
                # A snapshot may have told it already.
                if answer.append or answer.last_chunk or not _same(self._told(name), answer.artifact):
                    await self._emit(Chunk(answer.artifact, append=grows, last=answer.last_chunk))
                return
            if name != self._holding:
                await self.flush()
                self._holding = name
            if (delta := self._text(update.text, last=answer.last_chunk)) is not None:
                await self._work.emit(delta)
        elif type(answer) is StatusUpdate:
            if answer.status.message is not None and answer.status.state is WORKING:
                await self._status(answer.status.message, answer.metadata)
        elif type(answer) is Task and answer.artifacts and answer.status.state not in TERMINAL:
            # After a break: what came meanwhile belongs before what comes now.
            await self.settle(Result(answer))

    async def settle(self, result: Result) -> None:
        """Record what of a whole answer our log does not hold."""
        if self._held:
            await self.flush()
        task = result.task
        if task is None:
            return
        for artifact in task.artifacts:
            if not _same(self._told(artifact.artifact_id), artifact):
                await self._complete(task, ended=result.ended)
                break
        if task.status.state is WORKING:
            await self._status(task.status.message, None)

    async def _complete(self, task: Task, *, ended: bool) -> None:
        """Compare the artifacts of a task with those of our log, and record what that lacks."""
        await self._work.drain()
        known = {one.artifact_id: one for one in self._work.state.task().artifacts}
        for artifact in task.artifacts:
            ours = known.get(artifact.artifact_id)
            if not (_same(ours, artifact) or (not ended and _is_ahead(ours, artifact))):
                await self._emit(Chunk(artifact, last=ended))

    async def verdict(self, result: Result) -> Verdict:
        """The end of a remote task as the end of ours."""
        await self.settle(result)
        task = result.task
        if task is None:
            said = result.message or Message("")
            answer = Artifact(ANSWER, parts=said.parts, metadata=said.metadata, extensions=said.extensions)
            await self._emit(Chunk(answer, last=True))
            return Status(COMPLETED)
        if task.metadata and (reports := _reports(task.metadata)):
            answer = Artifact(ANSWER, metadata=reports, extensions=tuple(reports))
            await self._emit(Chunk(answer, append=ANSWER in self._known, last=True))
        said = task.status.message
        return Status(task.status.state, None if said is None else self.own(said))

    def question(self, result: Result) -> Status:
        """What a remote agent asks, as a question of our task with the same words and the same schema."""
        asked = result.task.status.message if result.task is not None else None
        wanted = "wants a login" if result.state is TaskState.AUTH_REQUIRED else "asks for more"
        parts = asked.parts if asked is not None and asked.parts else (Part(text=f"The agent {wanted}."),)
        question_id = self._work.ids.new()
        own = self.own(Message(question_id, parts=parts, metadata=None if asked is None else asked.metadata))
        metadata = {
            **(own.metadata or {}),
            **question_metadata(question_id),
            # So that the answer names it there too, whoever then sends it.
            ASKED_KEY: "" if asked is None else answered_question(asked),
        }
        message = replace(own, metadata=metadata)
        return Status(result.state, message, deadline=deadline_of(message))

    def own(self, message: Message) -> Message:
        """A message of a remote agent as one of our task."""
        state = self._work.state
        return Message(
            message_id=message.message_id or self._work.ids.new(),
            context_id=state.context_id,
            task_id=state.task_id,
            # Whatever it says: it is none of its caller's words.
            role=Role.AGENT,
            parts=message.parts,
            metadata=_told_by_agent(message.metadata),
            extensions=message.extensions,
        )

    async def flush(self) -> None:
        """Record the text that is held; waits when too much is not yet durable."""
        if self._held:
            await self._work.emit(self._grow())

    def _text(self, text: str, *, last: bool) -> Delta | None:
        """What is to be recorded now that more of a text has come; None while it is held."""
        self._held += text
        self._idle = 0 if text else self._idle
        size = len(self._held)
        if last or (size >= _CHARACTERS and size * _PIECES >= self._known[self._holding]):
            return self._grow(last=last)
        if size and self._timer is None:
            self._timer = self._work.loop.call_later(_SECONDS, self._due)
        return None

    def _due(self) -> None:
        # A task that has ended is no news for a timer.
        with contextlib.suppress(TurnOver):
            self._work.put(self._grow())

    async def _emit(self, chunk: Chunk) -> None:
        if self._held:
            await self.flush()
        self._idle = 0
        name = chunk.artifact.artifact_id
        length = len(artifact_text(chunk.artifact))
        self._known[name] = length + (self._known.get(name, 0) if chunk.append else 0)
        if chunk.append:
            # What the two become together only the log says.
            self._whole.pop(name, None)
        else:
            self._whole[name] = chunk.artifact, []
        await self._work.emit(chunk)

    def _grow(self, *, last: bool = False) -> Delta:
        """The text that is held, as a piece of its artifact; with `last` no more of it comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._held = self._held, ""
        self._known[self._holding] += len(text)
        if (whole := self._whole.get(self._holding)) is not None:
            whole[1].append(text)
        return Delta(self._holding, text, last=last)

    def _told(self, name: str) -> Artifact | None:
        """An artifact as it was told here from its beginning to now; None where only the log knows it."""
        whole = self._whole.get(name)
        if whole is None or not whole[1]:
            return None if whole is None else whole[0]
        artifact, pieces = whole
        return replace(artifact, parts=(*artifact.parts, Part(text="".join(pieces))))

    async def _status(self, message: Message | None, metadata: Metadata | None) -> None:
        if message is None or (self._said is not None and self._said.parts == message.parts):
            return
        await self.flush()
        self._idle = 0
        self._said = message
        await self._work.emit(Status(WORKING, self.own(message), _told_by_agent(metadata)))


def _told_by_agent(metadata: Metadata | None) -> Metadata | None:
    """The metadata of a remote agent without what only we may say of a task."""
    if not metadata:
        return metadata
    return {key: value for key, value in metadata.items() if not key.startswith(_OURS)}


def _is_plain(artifact: Artifact) -> bool:
    """Whether a piece of an artifact is text and nothing else."""
    if artifact.metadata or artifact.extensions:
        return False
    return all([part.text is not None and part == Part(part.text) for part in artifact.parts])


def _same(ours: Artifact | None, theirs: Artifact) -> bool:
    """Whether our log holds an artifact, however its texts were cut into pieces."""
    if ours is theirs:
        return True
    if ours is None or (ours.name, ours.metadata) != (theirs.name, theirs.metadata):
        return False
    if artifact_text(ours) != artifact_text(theirs):
        return False
    return _others(ours) == _others(theirs)


def _is_ahead(ours: Artifact | None, theirs: Artifact) -> bool:
    """Whether our log holds an artifact and more of its text: an agent may keep less than it streams."""
    if ours is None or _others(ours) != _others(theirs):
        return False
    return artifact_text(ours).startswith(artifact_text(theirs))


def _others(artifact: Artifact) -> list[Part]:
    return [part for part in artifact.parts if part.text is None]


def _reports(metadata: Metadata) -> Metadata:
    """What a task says of its run under the address of an extension; the rest is its caller's own."""
    return {key: value for key, value in metadata.items() if "://" in key}


def is_bounded_there(state: State, place: int) -> bool:
    """Whether the agent that asked the question at this place closes it itself when its time is over."""
    asked = [one for one in state.history if one.message_id in state.questions[place : place + 1]]
    return any([deadline_of(one) for one in asked])


def is_overdue(result: Result, by_s: float = 0.0) -> bool:
    """Whether an agent asks what it will close now, so that nobody need be asked any more."""
    asked = result.task.status.message if result.task is not None and result.state in INTERRUPTED else None
    return asked is not None and 0 < deadline_of(asked) <= now_ms() - by_s * 1000


def deadline_of(message: Message) -> int:
    """When a question is closed without an answer, in milliseconds since the epoch; 0 if it does not say."""
    try:
        told = round(datetime.fromisoformat(read_question(message).deadline).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    # A zone may lead out of the years that can be told; and before the epoch it is over, not open for ever.
    return min(max(told, 1), _LATEST_MS)
