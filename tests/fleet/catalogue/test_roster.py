"""The roster: few lines, the dead marked, nothing where nobody answers."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.fleet.catalogue.entry import Entry, EntrySkill
from trunkline.fleet.catalogue.listed import Listed, list_entry
from trunkline.fleet.catalogue.roster import SKILLS, roster
from trunkline.peer.remote import Peer

PEER = Peer(url="https://a.example")


def listed(name: str, *, failure: str = "", skills: int = 1, **members: object) -> Listed:
    made = tuple([EntrySkill(id=f"s{number}", name="S") for number in range(skills)])
    entry = Entry(name=name, owner="file", peer=PEER, description=f"About\n{name}.", skills=made)
    return list_entry(replace(entry, **members), None, failure, "")


def test_the_dead_are_marked_and_the_others_listed() -> None:
    found = roster(
        [
            listed("alive", skills=SKILLS + 2),
            listed("dead", failure="nobody answers"),
            listed("off", enabled=False),
        ]
    )
    assert [(row.name, row.reachable, row.more) for row in found.items] == [
        ("alive", True, 2),
        ("dead", False, 0),
    ]
    head, alive, dead = found.text.splitlines()
    assert "leaves this server" in head
    assert alive == "- alive: About alive. (skills: s0, s1, s2, s3, s4, …)"
    assert dead == "- dead: cannot be reached now"


def test_there_is_no_text_where_nobody_answers() -> None:
    assert roster([listed("dead", failure="nobody answers")]).text == ""
    local = listed("here", kind="skill", peer=None, imported="a:b")
    assert roster([local]).items == ()
