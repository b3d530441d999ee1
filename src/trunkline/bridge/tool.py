"""One skill of one agent as a tool, in the shapes that models and their frameworks read."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from trunkline.bridge.legible import legible
from trunkline.bridge.schema import Inputs, Schema, inputs_of, output_of
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard

# As much as OpenAI takes.
DESCRIPTION_LIMIT = 1024
TITLE_LIMIT = 200


class Tool(Struct, frozen=True, kw_only=True):
    """A skill that a model can call. `agent` and `skill` are whose it is."""

    name: str
    title: str
    description: str
    agent: str
    skill: str
    tags: tuple[str, ...]
    inputs: Inputs
    output_schema: Schema

    @property
    def input_schema(self) -> Schema:
        """What it takes, as a JSON schema."""
        return self.inputs.schema

    def openai(self) -> dict[str, Any]:
        """As chat completions read it."""
        about = {"name": self.name, "description": self.description, "parameters": self.input_schema}
        return {"type": "function", "function": about}

    def openai_responses(self) -> dict[str, Any]:
        """As OpenAI's Responses API reads it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
            # Strict schemas know no optional members.
            "strict": False,
        }

    def anthropic(self) -> dict[str, Any]:
        """As Anthropic's Messages API reads it."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}

    def mcp(self) -> dict[str, Any]:
        """As MCP's `tools/list` gives it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": {"openWorldHint": True},
        }


def make_tool(name: str, agent: str, skill: Skill, card: PeerCard) -> Tool:
    """The tool of a skill."""
    about = legible(skill.description.strip() or skill.name or skill.id or agent, DESCRIPTION_LIMIT) or name
    return Tool(
        name=name,
        title=legible(skill.name or skill.id or agent, TITLE_LIMIT),
        description=about,
        agent=agent,
        skill=skill.id,
        tags=tuple(skill.tags),
        inputs=inputs_of(skill, card),
        output_schema=output_of(skill, card),
    )
