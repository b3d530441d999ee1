"""The agents that are models, as agents of skills: one function answers for every skill of theirs."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from trunkline.agent.agent import Agent
from trunkline.agent.extensions import COST
from trunkline.agent.skill import SkillOptions
from trunkline.agent.turn import Turn
from trunkline.errors import Misuse
from trunkline.fleet.catalogue.entry import EntrySkill
from trunkline.fleet.catalogue.listed import CardFacts
from trunkline.fleet.catalogue.model_entry import CAPABILITIES, MODEL_ENTRY, ModelEntry
from trunkline.gateway.model.failures import reason_of
from trunkline.gateway.model.providers import entry_model
from trunkline.gateway.model.run import ModelRun, log
from trunkline.gateway.model.tools import ModelParts

_MODES = ("text/plain", "application/json")
# Which of them a model reads its profile says.
_FILES = ("text/*", "image/*", "audio/*", "video/*", "application/*")
_CHAT = EntrySkill(id="chat", name="Chat", description="Answers what it is asked.", tags=("text",))


def skill_of(capability: str) -> EntrySkill:
    """The skill that a card shows for a capability."""
    known, description = CAPABILITIES[capability]
    return EntrySkill(id=known, name=known, description=description, tags=(capability,))


def card_facts(entry: ModelEntry, at: int, files: tuple[str, ...] = ()) -> CardFacts:
    """What the card of an agent says by its entry: to chat with, and a skill for each capability.

    `files` are the media types beyond text that its model reads.
    """
    return CardFacts(
        at=at,
        description=entry.description,
        skills=(_CHAT, *[skill_of(one) for one in entry.capabilities]),
        streaming=True,
        versions=("1.0", "0.3"),
        input_modes=(*_MODES, *(files if entry.limits.file_bytes else ())),
    )


def model_agent(name: str, entry_of: Callable[[str], ModelEntry | None], parts: ModelParts) -> Agent:
    """The agent of a name for all tenants that have it; `entry_of` gives what it is to each of them."""
    agent = Agent(name, id=name, on_crash="resume", input_modes=(*_MODES, *_FILES), output_modes=_MODES)

    async def answer(turn: Turn) -> None:
        current = entry_of(turn.tenant)

        async def begun() -> ModelEntry | None:
            # Where a provider is and with which key is the operator's, and no matter of a log.
            return None if current is None else replace(current, base_url="", api_key_env="")

        entry = await turn.step(MODEL_ENTRY, begun)
        if entry is None:
            turn.reject("There is no such agent any more.")
        if current is not None and current.model == entry.model:
            entry = replace(entry, base_url=current.base_url, api_key_env=current.api_key_env)
        # Whose rule holds is not asked of the log either, which may be older than the rule.
        entry = replace(entry, foreign=current is None or current.foreign)
        egress = parts.egress(turn.tenant) if entry.foreign else None
        try:
            model = entry_model(parts.models, entry, entry.model, egress)
        except Misuse as error:
            log.error("model.unusable agent=%s error=%a", name, str(error))
            turn.fail(reason_of("unavailable"))
        await ModelRun(turn, name, entry, parts).run(model)

    for skill in (_CHAT, *[skill_of(one) for one in CAPABILITIES]):
        about = SkillOptions(
            id=skill.id, name=skill.name, description=skill.description, tags=skill.tags, emits=(COST,)
        )
        agent.skill(**about)(answer)
    return agent
