"""A row of the history is written where something is other than before, whoever looks."""

from __future__ import annotations

from msgspec.structs import replace

from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.history import revised
from trunkline.fleet.catalogue.listed import CardFacts, list_entry
from trunkline.fleet.journal import Journal

ENTRY = read_entry({"name": "a", "url": "http://a.example", "headers": {"x": "canary"}}, "file")


def test_rows() -> None:
    first = list_entry(ENTRY, None, "", "")
    journal = revised(Journal(), first, 1)
    assert journal is not None and [row.kind for row in journal.rows] == ["added"]
    ready = list_entry(ENTRY, CardFacts(at=5, streaming=True), "", "")
    after = revised(journal, ready, 2)
    assert after is not None
    assert after.rows[-1].about == {"state": ["discovering", "ready"], "streaming": [False, True]}
    # Another process that starts, or another card that says the same, is nothing new.
    assert revised(after, first, 3) is None
    assert revised(after, replace(ready, card_at=9), 3) is None
    gone = revised(after, None, 4)
    assert gone is not None and gone.rows[-1].kind == "removed"
    assert revised(gone, None, 5) is None
    back = revised(gone, ready, 6)
    assert back is not None and back.rows[-1].kind == "added"
    assert "canary" not in repr(back)
