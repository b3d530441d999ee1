"""Puts a task together from the frames of its stream, and tells what is new in each. Pure.

Frames may come twice, in the wrong order, or again as a snapshot after a break; what is told to the reader
is never told twice. Where the frames leave a doubt, `doubtful` says so: then the stored task is the truth.
"""

from __future__ import annotations

from itertools import groupby
from typing import Literal

from msgspec import UNSET, Struct, structs

from trunkline.client.result import Result, artifact_text, text_of
from trunkline.client.size_limit import LIMIT, PIECE, SizeLimit
from trunkline.client.transport import Frame
from trunkline.errors import Unreadable
from trunkline.wire.answers import Notice
from trunkline.wire.spellings import plain_task_id
from trunkline.wire.types import (
    INTERRUPTED,
    RESTING,
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
    described,
)

# A longer answer is not told by statuses.
_MAX_SPOKEN = 256 << 10

Kind = Literal["task", "message", "status", "artifact"]


class Update(Struct, frozen=True, gc=False):
    """One update of an answer, made of a frame. `text` holds only words that were not told before."""

    kind: Kind
    text: str
    state: TaskState | None
    notice: Notice
    id: str = ""


class PartialArtifact:
    """An artifact as far as it has come, and the words of it that were told."""

    __slots__ = ("_more", "artifact", "headless", "in_pieces", "length", "parts", "told")

    def __init__(self, artifact: Artifact, headless: bool) -> None:
        self.artifact = artifact
        # Its beginning came before all that is known here.
        self.headless = headless
        self.parts = [*artifact.parts]
        self.told = [artifact_text(artifact)]
        # Of those words: whether a text is the same is asked with every status.
        self.length = len(self.told[0])
        # What pieces say of it beside their parts.
        self._more: list[Artifact] = []
        self.in_pieces = False

    def whole(self) -> Artifact:
        """The artifact, with texts that came in pieces as one."""
        if not self.in_pieces:
            return self.artifact
        self.parts = _joined(self.parts)
        self.artifact, self._more = described(self.artifact, self._more), []
        return structs.replace(self.artifact, parts=tuple(self.parts))

    def replace(self, artifact: Artifact) -> str | None:
        """The words that are new in it; None if it contradicts what was told."""
        self.artifact = artifact
        self.parts = list(artifact.parts)
        self._more = []
        self.in_pieces = False
        text = artifact_text(artifact)
        told = "".join(self.told)
        self.told, self.length = [text], len(text)
        headless, self.headless = self.headless, False
        if headless and text.endswith(told):
            return ""
        return text[len(told) :] if text.startswith(told) else None

    def plainly(self, more: Artifact) -> str | None:
        """Append what is one text and nothing else; None if it is not."""
        parts, name = more.parts, more.name
        if len(parts) != 1 or more.metadata or more.extensions or (name and name != self.artifact.name):
            return None
        part = parts[0]
        text = part.text
        if text is None or part.metadata or part.extra or part.data is not UNSET:
            return None
        self.parts.append(part)
        self.told.append(text)
        self.length += len(text)
        return text

    def append(self, more: Artifact) -> str:
        """Add to it; the words that are new."""
        parts = more.parts
        self.parts.extend(parts)
        self.in_pieces = True
        text = (parts[0].text or "") if len(parts) == 1 else artifact_text(more)
        self.told.append(text)
        self.length += len(text)
        name = more.name or self.artifact.name
        if more.metadata or more.extensions or name != self.artifact.name:
            self._more.append(more)
            self.artifact = structs.replace(self.artifact, name=name)
        return text

    def is_told_by(self, text: str) -> bool:
        """Whether a text is that of the artifact so far."""
        return self.length == len(text) and "".join(self.told) == text


class Assembler:
    """All that is known of one answer so far."""

    def __init__(self, task_id: str = "", after: str = "") -> None:
        self.task_id = plain_task_id(task_id)
        self.context_id = ""
        self.status: TaskStatus | None = None
        self.message: Message | None = None
        # The parts of that message, which may come in pieces under one id.
        self._pieces: list[Part] = []
        # What to resume after: the newest id that came.
        self.last_id = after
        self.doubtful = False
        # More than a doubt: frames came too late, or some never did.
        self.damaged = False
        self._place = _number(after) if after else None
        # Whoever asks for what came after an event has the beginning already.
        self._is_rest = bool(after)
        # Whether the status came with the whole task.
        self._is_whole = False
        self._skipped = False
        self._seen: set[str] = set()
        # What is kept of it so far.
        self.size = SizeLimit()
        self._artifacts: dict[str, PartialArtifact] = {}
        # The artifact that the newest frame was a piece of, while all that is said of it in `more` holds.
        self.run: PartialArtifact | None = None
        self._history: tuple[Message, ...] = ()
        self._metadata: Metadata = {}
        # The newest text of a status, and all words that statuses have told: some agents tell their answer
        # so, each time from its beginning or piece by piece, before they give it as an artifact.
        self._status_text = self._spoken = ""

    @property
    def begun(self) -> bool:
        """Whether anything has come."""
        return self.status is not None or self.message is not None or bool(self._artifacts)

    @property
    def bare(self) -> bool:
        """Whether the task has made nothing, as far as is known."""
        return not self._artifacts

    @property
    def mute(self) -> bool:
        """Whether it has ended well and without a word, as far as updates told it: that is odd."""
        status = self.status
        if self._artifacts or self._is_whole or status is None or status.message is not None:
            return False
        return status.state is TaskState.COMPLETED

    @property
    def rests(self) -> bool:
        """Whether the agent has done what it can: it has ended, or asks something."""
        return self.message is not None or (self.status is not None and self.status.state in RESTING)

    @property
    def ended(self) -> bool:
        """Whether nothing can change any more."""
        return self.message is not None or (self.status is not None and self.status.state in TERMINAL)

    def result(self) -> Result | None:
        """The answer as far as it has come."""
        if self.message is not None:
            return Result(None, structs.replace(self.message, parts=tuple(self._pieces)))
        if not self.begun:
            return None
        status = self.status or TaskStatus(TaskState.WORKING)
        artifacts = tuple([one.whole() for one in self._artifacts.values()])
        metadata = {**self._metadata} or None
        return Result(Task(self.task_id, self.context_id, status, artifacts, self._history, metadata))

    def take(self, frame: Frame) -> tuple[Update, ...]:
        """What a frame brings: nothing if it has come before.

        Raises:
            Unreadable: it is about another task.
        """
        self.run = None
        notice, given = frame.notice, frame.id
        if given in self._seen:
            return ()
        if self.is_foreign(frame):
            raise Unreadable(f"the agent tells of another task in the stream of {self.task_id!a}")
        late = given != "" and self._count(given)
        answer = notice.answer
        if type(answer) is StatusUpdate:
            return self._status(answer, notice, given, late)
        if type(answer) is ArtifactUpdate:
            self.damaged = self.damaged or late
            return (self._artifact(answer, notice, given),)
        if type(answer) is Task:
            return self._task(answer, notice, given, late)
        assert type(answer) is Message
        before, self.message = self.message, answer
        if before is None or not answer.message_id or answer.message_id != before.message_id:
            self._pieces = []
        elif tuple(self._pieces) == answer.parts:
            # All that was said so far once more: a frame that came twice, or a stream that was begun again.
            return ()
        self._pieces.extend(answer.parts)
        self.size.take(Artifact(answer.message_id, parts=answer.parts), True)
        self.task_id = self.task_id or answer.task_id
        self.context_id = answer.context_id or self.context_id
        return (Update("message", self._unsaid(text_of(answer)), None, notice, given),)

    def is_foreign(self, frame: Frame) -> bool:
        """Whether a frame is about another task than those before it."""
        answer, known = frame.notice.answer, self.task_id
        # By type: none has a subclass, and that a struct is not of a class is found out slowly.
        if type(answer) is StatusUpdate or type(answer) is ArtifactUpdate:
            return known not in ("", answer.task_id)
        return type(answer) is Task and known not in ("", answer.id)

    def more(self, frame: Frame) -> Update | None:
        """What `take` would give, the short way, for what most frames are: the next piece of a text.

        None for any other frame, and for the first after a `pause`.
        """
        run, notice, given = self.run, frame.notice, frame.id
        update = notice.answer
        if run is None or type(update) is not ArtifactUpdate or not update.append:
            return None
        artifact, size, before = update.artifact, self.size, self._place
        if artifact.artifact_id != run.artifact.artifact_id or update.task_id != self.task_id:
            return None
        if before is None or given != str(before + 1) or given in self._seen or size.total > LIMIT:
            return None
        text = run.plainly(artifact)
        if text is None:
            return None
        self._seen.add(given)
        size.grow(artifact.artifact_id, text, given)
        self._place, self._skipped, self.last_id = before + 1, False, given
        return Update("artifact", text, None, notice, given)

    def pause(self) -> None:
        """Note that the next frame comes by another connection."""
        self.run = None

    def settle(self, task: Task) -> tuple[Update, ...]:
        """The stored task, which is the truth, unless the agent stores less than it says."""
        state = task.status.state
        if self.rests and state not in RESTING:
            return ()
        self.doubtful = self.damaged = False
        self.run = None
        before = self._known()
        self.status = task.status
        found = self._task(task, Notice(task, task.artifacts), "", False)
        is_news = self._known() != before or any([update.text for update in found])
        return found if is_news else ()

    def _known(self) -> tuple[TaskState | None, int]:
        return (None if self.status is None else self.status.state, len(self._artifacts))

    def _count(self, given: str) -> bool:
        """Note an id; true if it is older than the newest."""
        self._seen.add(given)
        self.size.total += PIECE + len(given)
        before = self._place
        if before is not None and given == str(before + 1):
            # Nearly always.
            self._place, self._skipped, self.last_id = before + 1, False, given
            return False
        place = _number(given)
        if place is None or before is None or place > before:
            # What is between may be nothing: not every event of a task is on the wire.
            self._skipped = place is not None and before is not None and place > before + 1
            self._place = place
            self.last_id = given
            return False
        self.doubtful = True
        return True

    def _artifact(self, update: ArtifactUpdate, notice: Notice, place: str) -> Update:
        artifact = update.artifact
        self.task_id = update.task_id
        self.context_id = self.context_id or update.context_id
        if self.ended:
            self.doubtful = True
        self.size.take(artifact, update.append)
        partial = self._artifacts.get(artifact.artifact_id)
        if partial is None:
            text = self._new(artifact, update.append and self._is_rest)
            # The beginning of it was missed.
            self.doubtful = self.doubtful or update.append
            self.damaged = self.damaged or update.append
        elif update.append:
            if not place:
                self.doubtful = True
            text = partial.append(artifact)
            if place and self._place is not None and not self.ended:
                self.run = partial
        else:
            new = partial.replace(artifact)
            text = artifact_text(artifact) if new is None else new
        return Update("artifact", text, None, notice, place)

    def _new(self, artifact: Artifact, headless: bool = False) -> str:
        """Keep an artifact that was not known; the words of it that statuses have not told."""
        partial = PartialArtifact(artifact, headless)
        self._artifacts[artifact.artifact_id] = partial
        return self._unsaid(partial.told[0])

    def _status(self, update: StatusUpdate, notice: Notice, place: str, late: bool) -> tuple[Update, ...]:
        self.task_id = update.task_id
        self.context_id = update.context_id or self.context_id
        beside = self._beside(update, notice.artifacts) if notice.artifacts else ()
        status, known = update.status, self.status
        # Nearly always it is news of a task that goes on.
        if (late or known is None or known.state in TERMINAL) and not self._believed(status, late):
            return beside
        state, message = status.state, status.message
        # Before an end it may be on its way.
        if self._skipped and state in RESTING:
            self.doubtful = True
        self.status = status
        self._is_whole = False
        if update.metadata:
            self._metadata.update(update.metadata)
            self.size.describe(update.metadata)
        text = "" if message is None else self._said(text_of(message))
        if state in INTERRUPTED:
            # What comes after a question may be the same again, and is news.
            self._status_text = self._spoken = ""
        told = Update("status", text, state, notice, place)
        return (*beside, told) if beside else (told,)

    def _beside(self, update: StatusUpdate, artifacts: tuple[Artifact, ...]) -> tuple[Update, ...]:
        """The updates by artifacts that came with a status."""
        told: list[Update] = []
        for artifact in artifacts:
            one = ArtifactUpdate(update.task_id, update.context_id, artifact)
            found = self._artifact(one, Notice(one, (artifact,)), "")
            if found.text or artifact_text(artifact) == "":
                told.append(found)
        return tuple(told)

    def _said(self, text: str) -> str:
        """The words of a status text that were not told before."""
        if not text or text == self._status_text:
            return ""
        if any([one.is_told_by(text) for one in self._artifacts.values()]):
            return ""
        new = self._unsaid(text)
        self._status_text = text
        self._spoken += new
        if len(self._spoken) > _MAX_SPOKEN:
            self._spoken = ""
        return new

    def _unsaid(self, text: str) -> str:
        """What is left of a text after the words that statuses have told, if it begins with them."""
        # Invariant: without a status text nothing was spoken.
        if not self._status_text:
            return text
        for known in (self._spoken, self._status_text):
            if known and text.startswith(known):
                return text[len(known) :]
        return text

    def _task(self, task: Task, notice: Notice, place: str, late: bool) -> tuple[Update, ...]:
        """A snapshot; what it lacks of what was told stays, and what it says otherwise is told whole."""
        status = task.status
        self.task_id = task.id
        self.context_id = task.context_id or self.context_id
        self._history = task.history or self._history
        if task.metadata:
            self._metadata = {**task.metadata}
        if self._believed(status, late):
            self.status = status
            self._is_whole = True
        text, others = "", ()
        if (task.artifacts or self._artifacts) and not late:
            text, others = self._made(task, place)
        message = status.message
        if message is not None and not text and not self._artifacts:
            text = self._said(text_of(message))
        return (Update("task", text, status.state, notice, place), *others)

    def _made(self, task: Task, place: str) -> tuple[str, list[Update]]:
        """The new words in the artifacts of a snapshot, and those artifacts that it tells otherwise."""
        news: list[str] = []
        others: list[Update] = []
        for artifact in task.artifacts:
            self.size.take(artifact)
            partial = self._artifacts.get(artifact.artifact_id)
            new = self._new(artifact) if partial is None else partial.replace(artifact)
            if new is None:
                again = ArtifactUpdate(task.id, task.context_id, artifact)
                text = artifact_text(artifact)
                others.append(Update("artifact", text, None, Notice(again, (artifact,)), place))
            # One that is new has a line of its own, with or without words.
            elif new or partial is None:
                news.append(new)
        self._arrange(task)
        return "\n".join(news), others

    def _arrange(self, task: Task) -> None:
        """The artifacts in the order of a snapshot; those that it lacks stay, after them."""
        known = self._artifacts
        order = [artifact.artifact_id for artifact in task.artifacts]
        if len(known) > len(order):
            self.doubtful = True
        if [*known][: len(order)] != order:
            placed = dict.fromkeys((*order, *known))
            self._artifacts = {one: known[one] for one in placed}

    def _believed(self, status: TaskStatus, late: bool) -> bool:
        """Whether a status is newer than the one that is known: an end is final."""
        known = self.status
        if known is None or late:
            return known is None
        if known.state in TERMINAL and status.state is not known.state:
            self.doubtful = True
            return False
        return True


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _joined(parts: list[Part]) -> list[Part]:
    """Texts that came in pieces, as one."""
    joined: list[Part] = []
    for is_text, alike in groupby(parts, _is_bare_text):
        run = list(alike)
        joined += [Part(text="".join([part.text or "" for part in run]))] if is_text else run
    return joined


def _is_bare_text(part: Part) -> bool:
    return part.text is not None and part == Part(text=part.text)
