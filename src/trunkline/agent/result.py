"""What a function may give back, and how it becomes artifacts and a verdict."""

from __future__ import annotations

import base64
import contextlib
from dataclasses import is_dataclass
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.agent.turn import ANSWER, Turn, VerdictGiven
from trunkline.agent.validation import read_content, read_json, read_text
from trunkline.errors import Misuse, TurnOver
from trunkline.log.events import Chunk, Replied, Status
from trunkline.run.executor import Verdict
from trunkline.wire.reports import report_part
from trunkline.wire.types import Artifact, Message, Metadata, Part, TaskState

Result = Any
_PLAIN = (dict, list, tuple, int, float, bool)


async def emit_piece(turn: Turn, piece: Result) -> None:
    """Record one value of a generator: text is written, anything else is an artifact of its own."""
    if isinstance(piece, str):
        await turn.write(piece)
    elif isinstance(piece, Artifact):
        await turn.record(Chunk(read_content("the skill returned", piece), last=True))
    else:
        await turn.record(Chunk(Artifact(turn.next_artifact_id(), parts=(part_of(piece),)), last=True))


async def complete(turn: Turn, result: Result) -> Verdict:
    """Record what the function gave back; the verdict that the task is completed."""
    extra = turn.report.wanted(success=True, duration_ms=turn.elapsed_ms)
    if isinstance(result, Message):
        message = read_content("the skill returned", result)
        if not turn.spoke:
            return Replied(_message_with(message, extra))
        await _close(turn, extra)
        return Status(TaskState.COMPLETED, message)
    if isinstance(result, str) and turn.written and (not result or result.startswith(turn.written)):
        # Nothing more, or the whole of what was written in part: nobody reads a word twice.
        await turn.write(result[len(turn.written) :])
        result = None
    if result is None:
        await _close(turn, extra)
    elif turn.written and not isinstance(result, str):
        # Shaped before the answer is closed: a result that cannot be must not find a success recorded.
        artifact = _artifact(turn.next_artifact_id(), turn, result)
        await _close(turn, extra)
        await turn.record(Chunk(artifact, last=True))
    else:
        # A text takes the place of what was written: what a function gives back is its result.
        await turn.record(Chunk(_artifact_with(turn, _artifact(ANSWER, turn, result), extra), last=True))
    return Status(TaskState.COMPLETED)


async def end_early(turn: Turn, given: VerdictGiven) -> Verdict:
    """Record an end that the author chose with `fail`, `reject` or `finish`, and give its verdict."""
    if given.state is TaskState.COMPLETED:
        await complete(turn, None)
    else:
        await record_failure(turn)
    return Status(given.state, turn.message(given.text))


async def record_failure(turn: Turn) -> None:
    """Record the report of a run before its exception becomes the verdict."""
    await _close(turn, turn.report.wanted(success=False, duration_ms=turn.elapsed_ms))


async def record_stop(turn: Turn) -> None:
    """Record the report of a run that is stopped from outside; its answer stays as it is."""
    if extra := turn.report.wanted(success=False, duration_ms=turn.elapsed_ms):
        # Ended or moved meanwhile: then another run speaks for the task, or nobody.
        with contextlib.suppress(TurnOver):
            await _close(turn, extra)


async def _close(turn: Turn, extra: Metadata) -> None:
    """End the written answer, if there is one, with the report of the run."""
    if extra:
        written = bool(turn.written)
        await turn.record(
            Chunk(_artifact_with(turn, Artifact(ANSWER), extra), append=written, last=True, closes=written)
        )
    elif turn.written:
        await turn.flush(last=True)


def _message_with(message: Message, extra: Metadata) -> Message:
    """A direct answer has no artifact, so what the run says of itself goes into its metadata."""
    if not extra:
        return message
    metadata = {**(message.metadata or {}), **extra}
    return msgspec.structs.replace(message, metadata=metadata, extensions=(*message.extensions, *extra))


def _artifact_with(turn: Turn, artifact: Artifact, extra: Metadata) -> Artifact:
    """An artifact with reports in its metadata, and as parts too if the caller named their extensions."""
    if not extra:
        return artifact
    named = turn.report.only is not None
    return msgspec.structs.replace(
        artifact,
        parts=(*artifact.parts, *[report_part(*one) for one in extra.items() if named]),
        metadata={**(artifact.metadata or {}), **extra},
        extensions=(*artifact.extensions, *extra),
    )


def _artifact(artifact_id: str, turn: Turn, result: Result) -> Artifact:
    if isinstance(result, Artifact):
        return read_content("the skill returned", result)
    return Artifact(artifact_id, name=turn.skill, parts=(part_of(result),))


def part_of(value: Result) -> Part:
    """One part for a value.

    Raises:
        Misuse: nothing on the wire stands for such a value.
    """
    if isinstance(value, str):
        return Part(text=read_text("what the skill returned", value))
    if isinstance(value, Part):
        return read_content("the skill returned", value)
    if isinstance(value, bytes):
        return Part(raw=base64.b64encode(value).decode(), media_type="application/octet-stream")
    if isinstance(value, (*_PLAIN, Struct)) or is_dataclass(value) or hasattr(value, "model_dump"):
        return Part(data=read_json("what the skill returned", cast("object", value)))
    raise Misuse(
        f"the skill returned {type(value).__name__}; "
        "give back text, bytes, data, a Part, an Artifact or a Message"
    )
