"""The executor of an agent made of skills: which one takes a message, and how it is run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import cast

from msgspec import UNSET

from trunkline.agent.declaration import DriftMonitor
from trunkline.agent.result import complete, end_early, record_failure, record_stop
from trunkline.agent.skill import Skill
from trunkline.agent.turn import Coalesce, Turn, VerdictGiven
from trunkline.config import Settings
from trunkline.errors import CallFailed, InvalidParams, Refused, RouteNotFound, TurnOver, Unanswered
from trunkline.peer.remote import Reachable
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.hops import Bounds
from trunkline.wire.types import Message, Metadata, SendRequest, TaskState

log = logging.getLogger("trunkline.agent")
HINT = "skillHint"
_BINDING = ("skill", "skillId")


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
        self._coalesce = Coalesce(own.coalesce_characters, own.coalesce_milliseconds)
        self._reads_all = own.unread_parts == "refuse"
        self._bounds = bounds or Bounds()
        self._reachable = reachable
        self._drift = drift or DriftMonitor()

    def admit(self, request: SendRequest) -> str:
        """The id of the skill that takes this message: by name, by a typed data part, or the default."""
        message = request.message
        skill = (
            self._hinted(message.metadata, "message.metadata")
            or self._hinted(request.metadata, "metadata")
            or self._typed(message)
            or self._skills[self._default]
        )
        if self._reads_all:
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
            known = ", ".join(self._listed()) or "none that it lists"
            raise InvalidParams(
                f"there is no skill {wanted!r}; this agent has {known}", field=f"{place}.{name}"
            )
        if isinstance(hint, str) and hint in self._skills:
            return self._skills[hint]
        if hint is not None:
            log.info("skill.hint.unknown agent=%a hint=%a", self._name, str(hint)[:64])
        return None

    def _listed(self) -> list[str]:
        # Errors are read by whoever asks; what is not on the public card is not named to them either.
        return [name for name, skill in self._skills.items() if skill.public]

    def _typed(self, message: Message) -> Skill | None:
        parts = message.parts
        plain = parts[0].text is not None if len(parts) == 1 else all([one.text is not None for one in parts])
        if plain or len(self._skills) == 1:
            return None
        typed = [skill for skill in self._skills.values() if skill.binding.typed]
        for skill in typed:
            try:
                skill.check_media_types(message)
                skill.check(message)
            except Refused:
                continue
            return skill
        # The only one that reads data says what is wrong with it; a skill that reads none could not.
        default = self._skills[self._default]
        unread = not any(default.reads(part) for part in parts)
        has_data = any(part.data is not UNSET for part in parts)
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
        turn = Turn(work, work.state.skill, self._coalesce, self._bounds, self._reachable)
        success = False
        try:
            if skill is None:
                turn.fail(f"This agent no longer has the skill {work.state.skill}.")
            result = await skill.call(turn)
            if turn.lost_step is not None:
                raise turn.lost_step
            verdict = await complete(turn, result)
            success = True
            return verdict
        except (VerdictGiven, Unanswered, BaseExceptionGroup) as error:
            # A verdict given inside a task group comes wrapped in what it stopped.
            if (given := _verdict_given(error)) is not None:
                if turn.lost_step is not None and given.state is not TaskState.FAILED:
                    await record_failure(turn)
                    raise turn.lost_step from error
                verdict = await end_early(turn, given)
                success = given.state is TaskState.COMPLETED
                return verdict
            await record_failure(turn)
            raise
        except TurnOver:
            raise
        except CallFailed as failed:
            # The reason is one that its caller may read: it is what another agent said.
            return await end_early(turn, VerdictGiven(TaskState.FAILED, str(failed)))
        except asyncio.CancelledError:
            await record_stop(turn)
            raise
        except (Exception, SystemExit):
            await record_failure(turn)
            raise
        finally:
            if skill is not None and (turn.report.has_content or skill.effects):
                self._drift.check(skill, turn.task_id, turn.report, success=success)


def _verdict_given(error: BaseException) -> VerdictGiven | None:
    if isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next((found for one in inside if (found := _verdict_given(one)) is not None), None)
    if isinstance(error, Unanswered):
        return VerdictGiven(TaskState.FAILED, str(error))
    return error if isinstance(error, VerdictGiven) else None
