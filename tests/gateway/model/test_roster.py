"""The agents that a model is told of."""

from __future__ import annotations

from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.listed import Listed, ListedSkill, ListedState
from trunkline.gateway.model.roster import roster


def agent(name: str, state: ListedState = "ready", skills: int = 0, description: str = "does") -> Listed:
    listed = tuple([ListedSkill(id=f"s{n}", name="s", source="card") for n in range(skills)])
    return Listed(entry=Entry(name=name, owner="api"), state=state, skills=listed, description=description)


def test_each_agent_has_a_line_and_those_that_cannot_work_are_marked() -> None:
    rows = roster([agent("me"), agent("a", skills=6), agent("b", "unreachable", description="x" * 999)], "me")
    assert rows[1:] == [
        "- a: does (s0, s1, s2, s3, s4, …)",
        f"- b [not available now]: {'x' * 200}",
    ]


def test_nobody_is_told_of_where_there_is_nobody_and_many_are_counted() -> None:
    assert roster([agent("me")], "me") == []
    assert roster([agent(f"a{n}") for n in range(130)], "me")[-1] == "- and 30 more"
