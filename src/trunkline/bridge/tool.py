"""One skill of one agent as a tool: its name, and the shapes that models and their frameworks read.

A tool is called `a2a__<agent>__<skill>`; an agent without skills is `a2a__<agent>`. A name depends on the
agents and their skills, never on the order in which they are given: it is the same today and after a
restart. It fits what every model takes: 64 characters of `[a-z0-9_]`.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from trunkline.bridge.schema import Inputs, Schema, inputs_of, output_of, sanitize
from trunkline.errors import Misuse
from trunkline.wire.card import Skill
from trunkline.wire.peer_card import PeerCard

# As much as OpenAI takes.
DESCRIPTION_LIMIT = 1024
TITLE_LIMIT = 200
NAME_LIMIT = 64
_DIGEST_LENGTH = 8
_OTHER = re.compile("[^a-z0-9]+")
_PREFIX = re.compile("[a-zA-Z0-9_-]{0,24}")


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
        """The tool's arguments, as a JSON schema."""
        return self.inputs.schema

    def openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's chat completions."""
        about = {"name": self.name, "description": self.description, "parameters": self.input_schema}
        return {"type": "function", "function": about}

    def openai_responses(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's Responses API."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.input_schema,
            # Strict schemas know no optional members.
            "strict": False,
        }

    def anthropic(self) -> dict[str, Any]:
        """The tool in the form of Anthropic's Messages API."""
        return {"name": self.name, "description": self.description, "input_schema": self.input_schema}

    def mcp(self) -> dict[str, Any]:
        """The tool in the form of MCP's `tools/list`."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": {"openWorldHint": True},
        }


def make_tool(name: str, agent: str, skill: Skill, card: PeerCard) -> Tool:
    """Make the tool of a skill."""
    about = sanitize(skill.description.strip() or skill.name or skill.id or agent, DESCRIPTION_LIMIT) or name
    return Tool(
        name=name,
        title=sanitize(skill.name or skill.id or agent, TITLE_LIMIT),
        description=about,
        agent=agent,
        skill=skill.id,
        tags=tuple(skill.tags),
        inputs=inputs_of(skill, card),
        output_schema=output_of(skill, card),
    )


class SkillAddress(Struct, frozen=True):
    """The skill behind a tool: the agent by name and by address, and the skill's id."""

    agent: str
    url: str
    skill: str

    @property
    def digest(self) -> str:
        """A digest that tells a tool from one of the same name at another agent."""
        told = "\n".join((self.url, self.agent, self.skill))
        return sha256(told.encode()).hexdigest()[:_DIGEST_LENGTH]


def slug(name: str) -> str:
    """A name in small letters, digits and single underscores; one that has none of them gives its digest."""
    folded = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return (
        _OTHER.sub("_", folded.lower()).strip("_") or "x" + sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    )


def tool_names(skills: Sequence[SkillAddress], prefix: str = "a2a") -> tuple[str, ...]:
    """The names of tools, in the order of their skills.

    Raises:
        Misuse: the prefix does not fit, or the same skill of the same agent is given twice.
    """
    if not _PREFIX.fullmatch(prefix):
        raise Misuse(f"prefix is at most 24 of the characters a-z, A-Z, 0-9, _ and -, not {prefix!r}")
    front = f"{prefix}__" if prefix else ""
    bare = [front + "__".join(map(slug, filter(None, (one.agent or "agent", one.skill)))) for one in skills]
    shared = Counter(bare)
    names = [
        _with_digest(name, address.digest) if shared[name] > 1 or len(name) > NAME_LIMIT else name
        for name, address in zip(bare, skills, strict=True)
    ]
    for name, count in Counter(names).items():
        if count > 1:
            twice = skills[names.index(name)]
            raise Misuse(
                f"skill {twice.skill!r} of agent {twice.agent!r} at {twice.url} is given {count} times; "
                "give the agents as a mapping from a name of your own to each"
            )
    return tuple(names)


def _with_digest(name: str, digest: str) -> str:
    return f"{name[: NAME_LIMIT - _DIGEST_LENGTH - 1].rstrip('_')}_{digest}"


log = logging.getLogger("trunkline.bridge")


class SkillFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which of an agent's skills are offered.

    An entry is the id of a skill, the name of a tool, or the beginning of one with `*` behind it. Without
    `allow` all are allowed; `deny` wins over it. Of `tags` a skill needs one.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def takes(self, tool: Tool) -> bool:
        """Whether a tool is offered."""
        if self.tags and not set(self.tags) & set(tool.tags):
            return False
        if self.allow and not any(_matches(entry, tool) for entry in self.allow):
            return False
        return not any(_matches(entry, tool) for entry in self.deny)

    def warn(self, tools: Sequence[Tool]) -> None:
        """Say which entries fit nothing: a mistyped one lets too much through, or too little."""
        for entry in (*self.allow, *self.deny):
            if not any(_matches(entry, tool) for tool in tools):
                log.warning("tools.no_such_skill entry=%r known=%r", entry, ",".join(t.skill for t in tools))


def skill_filter(allow: Iterable[str], deny: Iterable[str], tags: Iterable[str]) -> SkillFilter:
    """A filter from lists.

    Raises:
        Misuse: one of them is a text, which would be read as a list of letters.
    """
    for name, given in (("allow", allow), ("deny", deny), ("tags", tags)):
        if isinstance(given, str):
            raise Misuse(f"{name} is a list: {name}=[{given!r}]")
    return SkillFilter(tuple(allow), tuple(deny), tuple(tags))


def _matches(entry: str, tool: Tool) -> bool:
    if entry.endswith("*"):
        return tool.skill.startswith(entry[:-1]) or tool.name.startswith(entry[:-1])
    return entry in (tool.skill, tool.name)
