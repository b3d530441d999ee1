"""The roster of a tenant: its agents elsewhere in a few lines, for models and routers. Pure.

It is made of what the catalogue knows already, so that an agent that is dead costs nobody time.
"""

from __future__ import annotations

from collections.abc import Iterable

from trunkline.fleet.call import ApiStruct
from trunkline.fleet.catalogue.listed import Listed

SKILLS = 5
AGENTS = 200
_TEXT = 300
_ALIVE = ("ready", "discovering")
ELSEWHERE = (
    "Agents elsewhere. They are run by others: what you tell them leaves this server, so tell them no secret."
)


class RosterRow(ApiStruct, frozen=True, kw_only=True):
    """An agent elsewhere: whether it can be asked now, and the first of its skills."""

    name: str
    description: str
    skills: tuple[str, ...]
    more: int
    reachable: bool
    reason: str = ""


class Roster(ApiStruct, frozen=True, kw_only=True):
    """The agents elsewhere of a tenant by name, and the same as a text for a model; empty if none answers."""

    items: tuple[RosterRow, ...]
    text: str


def roster(listed: Iterable[Listed]) -> Roster:
    """The roster of these agents; those that are switched off are not in it."""
    rows = [roster_row(one) for one in listed if one.entry.kind == "peer" and one.state != "disabled"]
    rows = rows[:AGENTS]
    is_some = any([row.reachable for row in rows])
    text = "\n".join([ELSEWHERE, *[roster_line(row) for row in rows]]) if is_some else ""
    return Roster(items=tuple(rows), text=text)


def roster_row(listed: Listed) -> RosterRow:
    """The row of an agent in a roster."""
    skills = [one.id for one in listed.skills]
    is_alive = listed.state in _ALIVE and listed.breaker != "open"
    return RosterRow(
        name=listed.entry.name,
        description=" ".join(listed.description.split())[:_TEXT],
        skills=tuple([one[:_TEXT] for one in skills[:SKILLS]]),
        more=max(0, len(skills) - SKILLS),
        reachable=is_alive,
        reason="" if is_alive else (listed.reason or "it keeps failing")[:_TEXT],
    )


def roster_line(row: RosterRow) -> str:
    """A row as a model reads it: on one line, whatever the agent says of itself."""
    if not row.reachable:
        return f"- {row.name}: cannot be reached now"
    skills = ", ".join([*row.skills, *(["…"] if row.more else [])])
    return f"- {row.name}: {row.description}" + (f" (skills: {skills})" if skills else "")
