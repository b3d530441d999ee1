"""One entry of the catalogue, valid or with its fault. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from trunkline.fleet.catalogue.model_entry import ModelEntry
from trunkline.peer.remote import Peer
from trunkline.wire.question import AnsweredBy

Owner = Literal["file", "api", "announce"]
Kind = Literal["peer", "skill", "flow", "model"]
EVERY_TENANT = "*"
# Names of ours: every agent, and the hub itself, whose tasks are those that nobody could be given.
RESERVED = frozenset({"all", "hub"})
NAME = re.compile(r"(?!\.*\Z)[A-Za-z0-9_.-]{1,64}")


class SkillEffect(Struct, frozen=True, kw_only=True):
    """A change of shared state that a skill declares on its agent's card; `confidence` is from 0 to 1."""

    domain: str
    path: str
    delta: float = 1.0
    confidence: float = 1.0

    @property
    def name(self) -> str:
        """The name by which a request asks for this effect."""
        return f"{self.domain}:{self.path}"


class EntrySkill(Struct, frozen=True, kw_only=True):
    """A skill of an agent."""

    id: str
    name: str
    description: str = ""
    tags: tuple[str, ...] = ()


class Entry(Struct, frozen=True, kw_only=True):
    """An agent of the catalogue as its owner wrote it; `cooldown_s` is by skill.

    A `reviewer` of operator has people asked what it asks, and not first the agent that asked for the work;
    `answered_by` others refuses answers of the principal that requested a task.
    One with a `fault` is kept to be seen, and never called. `streaming` is what is believed before the first
    card. `revision` is of the text that it was read from.
    """

    name: str
    owner: Owner
    kind: Kind = "peer"
    # The name on its card; the name of the entry if it is empty.
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    enabled: bool = True
    tenants: tuple[str, ...] = ("default",)
    skills: tuple[EntrySkill, ...] = ()
    peer: Peer | None = None
    imported: str = ""
    # A path below the workspace, or the id of a registered definition.
    workflow: str = ""
    model: ModelEntry | None = None
    streaming: bool = False
    concurrency: int | None = None
    reviewer: Literal["", "operator"] = ""
    answered_by: AnsweredBy = ""
    cooldown_s: Mapping[str, float] = field(default_factory=dict[str, float])
    fault: str = ""
    revision: str = ""
    # When it was changed last, in milliseconds; 0 of one that stands in a file.
    changed_at: int = 0
    # The key by which it was announced; empty of one that an operator wrote.
    announced_by: str = ""

    def serves(self, tenant: str) -> bool:
        """Whether the agents of a tenant include it."""
        return self.tenants == (EVERY_TENANT,) or tenant in self.tenants


def faulty_entry(name: str, owner: Owner, fault: str, tenants: tuple[str, ...] = ("default",)) -> Entry:
    """An entry that cannot be used, with the reason that its operator will read."""
    return Entry(name=name, owner=owner, tenants=tenants, fault=fault)
