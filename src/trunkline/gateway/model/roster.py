"""The agents that a model may ask, as it is told of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.roster import ELSEWHERE, roster_line, roster_row

_AGENTS = 100
_HERE = "Agents that you may ask with the tool agent; they see nothing but your message:"


def told_of(agents: Sequence[Listed], own: str, tools: Collection[str]) -> list[str]:
    """A line for each agent but the model itself, those that cannot work now marked; empty without any.

    With the tool `agent` it may ask all of them, with `a2a` those elsewhere. Agents that are switched off are
    no agents to it.
    """
    known = others(agents, own)
    here = [one for one in known if one.entry.kind != "peer"]
    elsewhere = [one for one in known if one.entry.kind == "peer"]
    asked_by = " or ".join([f"the tool {name}" for name in ("agent", "a2a") if name in tools])
    return [
        *(_lines(_HERE, here) if "agent" in tools else ()),
        *(_lines(f"{ELSEWHERE} Ask them with {asked_by}:", elsewhere) if asked_by else ()),
    ]


def others(agents: Iterable[Listed], own: str) -> list[Listed]:
    """The agents but the one of this name, without those that are switched off."""
    return [one for one in agents if one.entry.name != own and one.state != "disabled"]


def _lines(head: str, agents: Sequence[Listed]) -> list[str]:
    rows = [roster_line(roster_row(one)) for one in agents[:_AGENTS]]
    if len(agents) > _AGENTS:
        rows.append(f"- and {len(agents) - _AGENTS} more")
    return [head, *rows] if rows else []
