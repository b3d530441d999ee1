"""The executor of an agent made of skills: which one takes a message, how it is called, what becomes of it.

Async functions and generators run on the loop, sync ones in a thread. Whatever a function gives back becomes
artifacts and a verdict.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct

from trunkline.agent.binding import in_thread
from trunkline.agent.declaration import DriftMonitor
from trunkline.agent.dropped import DROPPED, record_dropped
from trunkline.agent.extensions import RunReport
from trunkline.agent.skill import FunctionKind, Skill
from trunkline.agent.sync_turn import SyncTurn
from trunkline.agent.turn import ANSWER, Turn, VerdictGiven
from trunkline.agent.validation import read_content, read_json, read_text
from trunkline.config import Settings
from trunkline.errors import CallFailed, InvalidParams, Misuse, Refused, RouteNotFound, TurnOver, Unanswered
from trunkline.log.events import Chunk, Replied, Status
from trunkline.peer.remote import Reachable
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.hops import Bounds
from trunkline.wire.reports import report_part
from trunkline.wire.types import COMPLETED, Artifact, Message, Metadata, Part, SendRequest, TaskState

log = logging.getLogger("trunkline.agent")
HINT = "skillHint"
_BINDING = ("skill", "skillId")
# Without a note of the call: it is awaited here, once for each piece of a streamed answer.
_write = inspect.unwrap(Turn.write)
# Whatever a function may give back.
Result = Any
_PLAIN = (dict, list, tuple, int, float, bool)


class SkillExecutor:
    """Runs the skills of one agent."""

    works_elsewhere = False

    def __init__(
        self,
        name: str,
        skills: Mapping[str, Skill],
        default: str,
        own: Settings,
        drift: DriftMonitor | None = None,
        *,
        bounds: Bounds | None = None,
        reachable: Reachable | None = None,
    ) -> None:
        self._name = name
        self._skills = skills
        self._default = default
        self._own = own
        self._bounds = bounds or Bounds()
        self._reachable = reachable
        self._drift = drift or DriftMonitor()
        record_dropped()

    def admit(self, request: SendRequest) -> str:
        """The id of the skill that takes this message: by name, by a typed data part, or the default."""
        message = request.message
        parts = message.parts
        plain = parts[0].text is not None if len(parts) == 1 else all([one.text is not None for one in parts])
        skill = (
            self._hinted(message.metadata, "message.metadata")
            or self._hinted(request.metadata, "metadata")
            or (None if plain else self._typed(message))
            or self._skills[self._default]
        )
        if plain and skill.takes_text:
            # Nearly every message is one, and there is no part of it that the skill could not read.
            return skill.id
        if self._own.unread_parts == "refuse":
            skill.check_media_types(message)
        skill.check(message)
        return skill.id

    def _hinted(self, metadata: Metadata | None, place: str) -> Skill | None:
        """The skill that metadata name: a hint may name one that is not here, any other name may not."""
        if not metadata:
            return None
        hint = metadata.get(HINT)
        for name in _BINDING:
            wanted = metadata.get(name)
            # Hubs repeat their hint as `skill`, whatever the agent has.
            if wanted is None or (name == "skill" and wanted == hint):
                continue
            if isinstance(wanted, str) and wanted in self._skills:
                return self._skills[wanted]
            listed = self._listed()
            near = get_close_matches(wanted[:64], listed, 1) if isinstance(wanted, str) else []
            known = f"this agent has {', '.join(listed) or 'none that it lists'}"
            meant = f"did you mean {near[0]!r}?" if near else known
            raise InvalidParams(f"there is no skill {wanted!r}; {meant}", field=f"{place}.{name}")
        if isinstance(hint, str) and hint in self._skills:
            return self._skills[hint]
        if hint is not None:
            log.info("skill.hint.unknown agent=%a hint=%a", self._name, str(hint)[:64])
        return None

    def _listed(self) -> list[str]:
        # Errors are read by whoever asks; what is not on the public card is not named to them either.
        return [name for name, skill in self._skills.items() if skill.public]

    def _typed(self, message: Message) -> Skill | None:
        if len(self._skills) == 1:
            return None
        typed = [skill for skill in self._skills.values() if skill.binding.model is not None]
        for skill in typed:
            try:
                skill.check_media_types(message)
                skill.check(message)
            except Refused:
                continue
            return skill
        # The only one that reads data says what is wrong with it; a skill that reads none could not.
        default = self._skills[self._default]
        unread = not any(default.reads(part) for part in message.parts)
        has_data = any(part.data is not UNSET for part in message.parts)
        return typed[0] if unread and has_data and len(typed) == 1 and typed[0].public else None

    def named(self, name: str) -> str:
        """The id of the skill of this name; empty if the name is the agent's own."""
        if name in self._skills:
            return name
        if name == self._name:
            return ""
        known = ", ".join([self._name, *self._listed()])
        raise RouteNotFound(f"there is no agent or skill {name!r} here; there are {known}")

    def on_crash(self, skill: str) -> OnCrash:
        """What becomes of a task of this skill whose process died."""
        known = self._skills.get(skill)
        return OnCrash.FAIL if known is None else known.on_crash

    async def close(self) -> None:
        """Skills hold nothing here."""

    async def run(self, work: Work) -> Verdict:
        """Call the skill that the task was admitted for."""
        skill = self._skills.get(work.state.skill)
        turn = Turn(work, work.state.skill, self._own, self._bounds, self._reachable)
        success = False
        DROPPED.set(turn.unawaited.dropped)
        try:
            if skill is None:
                turn.fail(f"This agent no longer has the skill {work.state.skill}.")
            result = await _call(skill, turn)
            if (lost := turn.lost_step or await turn.unawaited.find()) is not None:
                raise lost
            verdict = await complete(turn, result)
            success = True
            return verdict
        except (VerdictGiven, Unanswered, CallFailed, BaseExceptionGroup) as error:
            # A verdict given inside a task group comes wrapped in what it stopped.
            if (given := _verdict_given(error)) is not None:
                lost = turn.lost_step or await turn.unawaited.find()
                if lost is not None and given.state is not TaskState.FAILED:
                    await record_failure(turn)
                    raise lost from error
                verdict = await end_early(turn, given)
                success = given.state is TaskState.COMPLETED
                return verdict
            await record_failure(turn)
            raise
        except TurnOver:
            raise
        except asyncio.CancelledError:
            await record_stop(turn)
            raise
        except (Exception, SystemExit):
            await record_failure(turn)
            raise
        finally:
            if skill is not None and (turn.report is not None or skill.effects):
                self._drift.check(skill, turn.task_id, turn.report or RunReport(), success=success)


def _verdict_given(error: BaseException) -> VerdictGiven | None:
    if isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next((found for one in inside if (found := _verdict_given(one)) is not None), None)
    if isinstance(error, Unanswered | CallFailed):
        # The reason is one that its caller may read: it is what another agent said.
        return VerdictGiven(TaskState.FAILED, str(error))
    return error if isinstance(error, VerdictGiven) else None


async def _call(skill: Skill, turn: Turn) -> Result:
    """What the function gives back. A sync one runs in a thread of its own, with a turn whose calls block."""
    binding, function = skill.binding, skill.function
    values: dict[str, object] = {binding.text: turn.text} if binding.text else {}
    if binding.model is not None:
        values = binding.read(turn.request)
    blocking = SyncTurn(turn) if skill.kind is FunctionKind.SYNC else None
    if binding.turn:
        values[binding.turn] = blocking or turn
    if skill.kind is FunctionKind.COROUTINE:
        return await cast("Awaitable[Result]", function(**values))
    if blocking is None:
        return await _unfold(turn, function(**values))
    try:
        given = await in_thread(lambda: _call_here(partial(function, **values), turn, blocking))
    finally:
        blocking.release()
    return await _unfold(turn, given)


def _call_here(call: Callable[[], object], turn: Turn, blocking: SyncTurn) -> Result:
    """Run a sync function in the thread of this call."""
    blocking.enter()
    given = call()
    if not inspect.isgenerator(given):
        return cast("Result", given)
    for piece in cast("Iterator[Result]", given):
        blocking.block_on(emit_piece(turn, piece))
    return None


async def _unfold(turn: Turn, given: Result) -> Result:
    """What a function gave back, or what came of it: a wrapper may hide a coroutine or a generator."""
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterator):
        return given
    async for piece in cast("AsyncIterator[Result]", given):
        await emit_piece(turn, piece)
    return None


async def emit_piece(turn: Turn, piece: Result) -> None:
    """Record one value of a generator: text is written, anything else is an artifact of its own."""
    if isinstance(piece, str):
        await _write(turn, piece)
    elif isinstance(piece, Artifact):
        await turn.record(Chunk(read_content("the skill returned", piece), last=True))
    else:
        await turn.record(Chunk(Artifact(turn.next_artifact_id(), parts=(part_of(piece),)), last=True))


async def complete(turn: Turn, result: Result) -> Verdict:
    """Record what the function gave back; the verdict that the task is completed."""
    extra = await _reports(turn, success=True)
    if isinstance(result, Message):
        message = read_content("the skill returned", result)
        if not turn.spoke:
            return Replied(_message_with(message, extra))
        await _close(turn, extra)
        return Status(COMPLETED, message)
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
    return Status(COMPLETED)


async def end_early(turn: Turn, given: VerdictGiven) -> Verdict:
    """Record an end that the author chose with `fail`, `reject` or `finish`, and give its verdict."""
    if given.state is TaskState.COMPLETED:
        await complete(turn, None)
    else:
        await record_failure(turn)
    return Status(given.state, turn.message(given.text))


async def record_failure(turn: Turn) -> None:
    """Record the report of a run before its exception becomes the verdict."""
    await _close(turn, await _reports(turn, success=False))


async def record_stop(turn: Turn) -> None:
    """Record the report of a run that is stopped from outside; its answer stays as it is."""
    # Ended or moved meanwhile: then another run speaks for the task, or nobody.
    with contextlib.suppress(TurnOver):
        if extra := await _reports(turn, success=False):
            await _close(turn, extra)


async def _reports(turn: Turn, *, success: bool) -> Metadata:
    """What the run says of itself, as far as its caller wants it; most say nothing."""
    if turn.report is None:
        return {}
    wanted, untold = turn.report.sorted_out(success=success, duration_ms=turn.elapsed_ms)
    if untold:
        await turn.keep_untold(untold)
    return wanted


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
    named = turn.report is not None and turn.report.only is not None
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
