"""The models that a hub offers: its agents, their skills, and the hub itself where it has a helm. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from trunkline.fleet.catalogue.listed import Listed


class ModelItem(Struct, frozen=True):
    """A model by its name; `created` is when the card of its agent came, in seconds."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True):
    """All models."""

    data: list[ModelItem]
    object: Literal["list"] = "list"


def models_of(listed: Sequence[Listed], hub: str, helm: str) -> list[ModelItem]:
    """The models of the agents that can be asked; the hub's own name stands for its helm."""
    able = {one.entry.name: one for one in listed if one.state not in ("disabled", "invalid")}
    found: list[ModelItem] = []
    if helm in able and hub not in able:
        found.append(ModelItem(hub, able[helm].card_at // 1000, hub))
    for name, one in able.items():
        created = one.card_at // 1000
        found.append(ModelItem(name, created, hub))
        found += [ModelItem(f"{name}/{skill.id}", created, hub) for skill in one.skills]
    return found
