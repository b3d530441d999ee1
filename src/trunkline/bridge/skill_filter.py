"""The filter that says which skills become tools: by name and by tag."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec import Struct

from trunkline.bridge.tool import Tool
from trunkline.errors import Misuse

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
