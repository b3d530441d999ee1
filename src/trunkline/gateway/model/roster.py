"""The agents that a model may ask, as it is told of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trunkline.fleet.catalogue.listed import Listed

_AGENTS, _SKILLS, _WORDS = 100, 5, 200


def roster(agents: Sequence[Listed], own: str) -> list[str]:
    """A line for each agent but the model itself, those that cannot work now marked; empty without any."""
    others = [one for one in agents if one.entry.name != own]
    rows = [_row(one) for one in others[:_AGENTS]]
    if len(others) > _AGENTS:
        rows.append(f"- and {len(others) - _AGENTS} more")
    head = "Agents that you may ask with the tool agent; they see nothing but your message:"
    return [head, *rows] if rows else []


def _row(listed: Listed) -> str:
    skills = [one.id for one in listed.skills]
    shown = ", ".join(skills[:_SKILLS]) + (", …" if len(skills) > _SKILLS else "")
    state = "" if listed.state == "ready" and listed.breaker != "open" else " [not available now]"
    return f"- {listed.entry.name}{state}: {listed.description[:_WORDS]}" + (f" ({shown})" if shown else "")
