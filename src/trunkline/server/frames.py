"""Log events → stream frames of a dialect, encoded once and reused by every reader of a feed."""

from __future__ import annotations

from collections.abc import Iterator

from trunkline.log.events import Chunk, Compacted, Delta, Recorded, Replied, Status, Submitted
from trunkline.log.fold import State, fold
from trunkline.run.feed import Feed
from trunkline.server.subscription import Subscription
from trunkline.wire.spellings import timestamp
from trunkline.wire.types import (
    RESTING,
    TERMINAL,
    Artifact,
    ArtifactUpdate,
    Message,
    Metadata,
    Part,
    StatusUpdate,
    TaskState,
    TaskStatus,
)
from trunkline.wire.writer import WRITERS, Dialect, Writer

NOTHING = b""
# A written answer that is longer closes with its last piece: readers have had all of it.
WHOLE_LIMIT = 256 << 10
NO_WHOLE = -1


def range_frames(feed: Feed, event: Compacted, dialect: Dialect) -> list[bytes]:
    """What stands for the pieces of artifacts that are no longer kept: the artifacts themselves."""
    frames = [whole(feed.state, artifact.artifact_id, WRITERS[dialect]) for artifact in event.artifacts]
    return [made for made in frames if made]


def frame(feed: Feed, recorded: Recorded, dialect: Dialect, whole_limit: int = WHOLE_LIMIT) -> bytes:
    """The frame of one event; empty for events that are not on the wire.

    The end of a written answer tells all of it, if that has at most `whole_limit` characters: some clients
    keep nothing but the frame with `lastChunk`.
    """
    key = (dialect, recorded.seq)
    made = feed.frames.get(key)
    if made is None:
        made = _encode(feed.state, recorded, dialect, whole_limit)
        if feed.readers > 1 and recorded.seq > feed.base:
            feed.frames[key] = made
    return made


def _encode(state: State, recorded: Recorded, dialect: Dialect, whole_limit: int) -> bytes:
    writer = WRITERS[dialect]
    match recorded.event:
        case Chunk() as event:
            if event.closes and _length(state, event.artifact.artifact_id) <= whole_limit:
                return whole(state, event.artifact.artifact_id, writer)
            update = ArtifactUpdate(state.task_id, state.context_id, event.artifact, event.append, event.last)
            return writer.artifact_frame(update)
        case Delta() as event:
            if event.last and _length(state, event.artifact_id) <= whole_limit:
                return whole(state, event.artifact_id, writer)
            artifact = Artifact(event.artifact_id, event.name, parts=(Part(text=event.text),))
            return writer.artifact_frame(
                ArtifactUpdate(state.task_id, state.context_id, artifact, event.append, event.last)
            )
        case Status() as event:
            status = TaskStatus(event.state, event.message, timestamp(recorded.at))
            return _status(state, status, writer, event.metadata)
        case Replied(message=message):
            return _status(state, TaskStatus(TaskState.COMPLETED, message, timestamp(recorded.at)), writer)
        case Submitted():
            return writer.task_frame(writer.task(fold(state.task_id, (recorded,)).task()))
        case _:
            return NOTHING


def _length(state: State, artifact_id: str) -> int:
    return sum([len(part.text or "") for part in state.artifacts.whole(artifact_id).parts])


def _status(state: State, status: TaskStatus, writer: Writer, metadata: Metadata | None = None) -> bytes:
    if (
        status.state in TERMINAL
        and writer is WRITERS[Dialect.V1]
        and (reports := state.artifacts.bare_reports())
    ):
        # Nothing in 1.0 holds them but the task, and of that a stream tells its status alone.
        metadata = {**(metadata or {}), **reports}
    update = StatusUpdate(state.task_id, state.context_id, status, metadata)
    return writer.status_frame(update, final=status.state in RESTING)


def whole(state: State, artifact_id: str, writer: Writer) -> bytes:
    """An artifact as it stands at its end, in one frame."""
    update = ArtifactUpdate(
        state.task_id, state.context_id, state.artifacts.whole(artifact_id), last_chunk=True
    )
    return writer.artifact_frame(update)


def opening_frames(given: Subscription, dialect: Dialect) -> Iterator[tuple[int | None, bytes]]:
    """What a stream opens with, and the seq that a reader resumes from; each is made when it is its turn.

    Of a task that has ended, also what the end of its stream would have been: artifacts and the last status.
    """
    writer, opening, state = WRITERS[dialect], given.opening, given.feed.state
    if isinstance(opening, Message):
        yield None, writer.message_frame(opening)
    elif opening is not None:
        yield given.opening_seq, writer.task_frame(writer.task(opening))
        if given.after is None:
            for artifact in opening.artifacts:
                if made := whole(state, artifact.artifact_id, writer):
                    yield None, made
            yield None, _status(state, opening.status, writer)
