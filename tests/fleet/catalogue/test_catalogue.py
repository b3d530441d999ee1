"""What the catalogue lists for each tenant, and of what it tells."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.stepped_clock import DAY_MS, SteppedClock
from trunkline.fleet.catalogue import catalogue as catalogue_module
from trunkline.fleet.catalogue.breaker import FAILURES, PAUSE_MS
from trunkline.fleet.catalogue.catalogue import OF_FILES, Catalogue
from trunkline.fleet.catalogue.entry import Entry, EntrySkill, faulty_entry
from trunkline.fleet.catalogue.entry_reader import read_entry
from trunkline.fleet.catalogue.listed import CardFacts, Listed


def written(name: str, **members: object) -> Entry:
    return read_entry({"name": name, "url": f"http://{name}.example", **members}, "file")


def skill(name: str) -> EntrySkill:
    return EntrySkill(id=name, name=name)


class Clock:
    now = 1_000


def catalogue(*entries: Entry) -> tuple[Catalogue, Clock]:
    clock = Clock()
    made = Catalogue(lambda: clock.now)
    made.take_files(entries)
    return made, clock


def ids(made: Catalogue, name: str, tenant: str = "default") -> list[tuple[str, str]]:
    found = made.find(tenant, name)
    assert found is not None
    return [(one.id, one.source) for one in found.skills]


def test_states() -> None:
    made, _ = catalogue(
        written("a"), written("off", enabled=False), faulty_entry("broken", "file", "line 3: it is broken")
    )
    assert [(one.entry.name, one.state) for one in made.listed("default")] == [
        ("a", "discovering"), ("broken", "invalid"), ("off", "disabled"),
    ]  # fmt: skip
    key = (OF_FILES, "a")
    assert not made.is_settled
    made.fail(key, "nobody is there")
    # Heard of, if not well; the others never will be.
    assert made.is_settled
    found = made.find("default", "a")
    assert found is not None and (found.state, found.reason) == ("unreachable", "nobody is there")
    made.learn(key, CardFacts(at=5, streaming=True, push=True, versions=("1.0",)))
    found = made.find("default", "a")
    assert found is not None
    assert (found.state, found.reason, found.streaming, found.push) == ("ready", "", True, True)
    assert (found.card_at, found.versions) == (5, ("1.0",))
    made.fail(key, "gone")
    found = made.find("default", "a")
    assert found is not None and (found.state, found.streaming) == ("unreachable", True)


def test_hb_02_and_hb_03_skills_and_transport_follow_the_card_and_those_of_the_file_stay() -> None:
    made, _ = catalogue(written("a", skills=["draft"], streaming=True))
    found = made.find("default", "a")
    assert found is not None and found.streaming and not found.push
    assert ids(made, "a") == [("draft", "file")]
    key = (OF_FILES, "a")
    made.learn(key, CardFacts(at=1, skills=(skill("draft"), skill("edit"))))
    assert ids(made, "a") == [("draft", "file"), ("edit", "card")]
    assert [one.entry.name for one in made.with_skill("default", "edit")] == ["a"]
    found = made.find("default", "a")
    assert found is not None and not found.streaming
    made.learn(key, CardFacts(at=2, skills=(skill("chat"),)))
    assert ids(made, "a") == [("draft", "file"), ("chat", "card")]
    assert made.with_skill("default", "edit") == []
    assert [one.entry.name for one in made.with_skill("default", "chat")] == ["a"]


def test_tenants_see_their_own() -> None:
    shared, own = written("shared", tenants="all"), written("own", tenants=["north"])
    made, _ = catalogue(shared, own)
    made.take("south", "api", replace(written("api"), owner="api", tenants=("south",)))
    # The name of a file wins.
    made.take("south", "shared", replace(written("shared"), owner="api", tenants=("south",)))
    names = {tenant: [one.entry.name for one in made.listed(tenant)] for tenant in ("north", "south", "x")}
    assert names == {"north": ["own", "shared"], "south": ["api", "shared"], "x": ["shared"]}
    found = made.find("south", "shared")
    assert found is not None and found.entry.owner == "file"
    assert made.find("north", "api") is None


def test_tenants_do_not_see_the_faults_of_the_operators_files() -> None:
    made, _ = catalogue(written("a", tenants="all"), faulty_entry("b", "file", "line 3: x.py", ("*",)))
    made.fail((OF_FILES, "a"), "http://10.0.0.1 refused")
    for name, reason in (("a", "http://10.0.0.1 refused"), ("b", "line 3: x.py")):
        own, other = made.find("default", name), made.find("north", name)
        assert own is not None and other is not None
        assert (own.reason, other.state) == (reason, own.state)
        assert reason not in other.reason and other.full_reason == reason
    made.take("north", "c", replace(written("c"), owner="api", tenants=("north",)))
    made.fail(("north", "c"), "nobody is there")
    found = made.find("north", "c")
    assert found is not None and found.reason == "nobody is there"


def test_a_change_of_one_agent_leaves_the_others_of_its_tenant_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = catalogue(written("of-files", tenants="all"))
    for number in range(50):
        made.take("north", f"a{number:02}", written(f"a{number:02}", skills=["shared"]))
    assert len(made.with_skill("north", "shared")) == 50
    listed: list[str] = []
    list_entry = catalogue_module.list_entry

    def counted(entry: Entry, *rest: Any) -> Listed:
        listed.append(entry.name)
        return list_entry(entry, *rest)

    monkeypatch.setattr(catalogue_module, "list_entry", counted)
    made.take("north", "a20b", written("a20b", skills=["shared", "own"]))
    made.take("north", "a03", None)
    made.take("north", "a04", written("a04", skills=["own"]))
    made.learn(("north", "a04"), CardFacts(at=1, skills=(skill("carded"),)))
    own = [one.entry.name for one in made.with_skill("north", "own")]
    carded = [one.entry.name for one in made.with_skill("north", "carded")]
    shared = [one.entry.name for one in made.with_skill("north", "shared")]
    names = [one.entry.name for one in made.listed("north")]
    assert listed == ["a20b", "a04", "a04"]
    assert (own, carded) == (["a04", "a20b"], ["a04"])
    assert names == sorted({*shared, "a04", "of-files"})
    assert len(shared) == 49 and "a03" not in shared
    made.forget_view("north")
    assert [one.entry.name for one in made.listed("north")] == names
    assert [one.entry.name for one in made.with_skill("north", "shared")] == shared


def test_an_override_lasts_until_the_text_changes() -> None:
    made, _ = catalogue(written("a", tenants="all"))
    entry = made.entries()[OF_FILES, "a"]
    made.take_override("north", "a", "draining", entry.revision)
    north, south = made.find("north", "a"), made.find("south", "a")
    assert north is not None and south is not None
    assert (north.state, south.state) == ("disabled", "discovering")
    made.take_files([written("a", tenants="all", description="other")])
    found = made.find("north", "a")
    assert found is not None and found.state == "discovering"
    off = written("off", enabled=False)
    made.take_files([off])
    made.take_override("default", "off", "enabled", off.revision)
    found = made.find("default", "off")
    assert found is not None and found.state == "discovering"
    made.take_override("default", "off", "")
    found = made.find("default", "off")
    assert found is not None and found.state == "disabled"


def test_changes_are_told_once() -> None:
    made, _ = catalogue()
    told: list[tuple[str, bool, bool]] = []
    made.changed.append(lambda key, before, after: told.append((key[1], before is None, after is None)))
    made.take_files([written("a"), written("b")])
    made.take_files([written("a"), written("b", description="x")])
    made.take_files([written("a")])
    assert told == [("a", True, False), ("b", True, False), ("b", False, False), ("b", False, True)]
    made.listed("default")
    told.clear()
    made.learn((OF_FILES, "a"), CardFacts(at=1))
    made.learn((OF_FILES, "a"), CardFacts(at=2))
    assert told == [("a", False, False)]
    made.learn((OF_FILES, "nobody"), CardFacts(at=2))
    made.fail((OF_FILES, "nobody"), "gone")
    assert len(told) == 1


def test_another_address_is_another_agent() -> None:
    made, _ = catalogue(written("a"))
    made.learn((OF_FILES, "a"), CardFacts(at=1, skills=(skill("old"),)))
    made.take_files([written("a", description="still")])
    assert ids(made, "a") == [("old", "card")]
    made.take_files([written("a", url="http://elsewhere.example")])
    assert ids(made, "a") == []


def test_another_workflow_is_another_agent() -> None:
    entry = Entry(name="a", owner="file", kind="flow", workflow="flows/broken.yaml")
    made, _ = catalogue(entry)
    made.fail((OF_FILES, "a"), "broken.yaml: it has no nodes")
    made.take_files([replace(entry, workflow="flows/whole.yaml")])
    found = made.find("default", "a")
    assert found is not None and (found.state, found.reason) == ("discovering", "")


@pytest.mark.parametrize("step_ms", [-DAY_MS, DAY_MS])
def test_clock_that_is_set_neither_prolongs_nor_ends_the_pause_of_a_breaker(
    step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SteppedClock(monkeypatch)
    made = Catalogue()
    made.take_files([written("a")])
    for _ in range(FAILURES):
        made.take_outcome("default", "a", succeeded=False)
    clock.step(step_ms)
    clock.move(PAUSE_MS - 10_000)
    assert not made.admits("default", "a")
    clock.move(10_000)
    assert made.admits("default", "a")


def test_the_breaker_is_shown() -> None:
    made, clock = catalogue(written("a"), written("b"))
    for _ in range(FAILURES):
        assert made.breaker("default", "a").admits(clock.now)
        made.take_outcome("default", "a", succeeded=False)
    assert [one.breaker for one in made.listed("default")] == ["open", "closed"]
    clock.now += PAUSE_MS
    assert [one.breaker for one in made.listed("default")] == ["half-open", "closed"]
    made.take_try("default", "a")
    assert not made.breaker("default", "a").admits(clock.now)
    made.take_outcome("default", "a", succeeded=True)
    assert [one.breaker for one in made.listed("default")] == ["closed", "closed"]
    made.take_outcome("default", "nobody", succeeded=False)


def test_the_card_bytes_of_a_tenant_are_the_sum_of_the_cards_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalogue_module, "TENANT_CARD_BYTES", 100)
    made, _ = catalogue(written("filed"))

    def check_sums() -> None:
        sums: dict[str, int] = {}
        for (tenant, _), facts in made._facts.items():
            sums[tenant] = sums.get(tenant, 0) + facts.size
        assert made._card_bytes == sums

    for name in ("a", "b"):
        made.take("north", name, written(name))
    made.learn(("north", "a"), CardFacts(at=1, size=60))
    check_sums()
    b = ("north", "b")
    assert made.has_room(b, 40) and not made.has_room(b, 41)
    assert made.has_room(("south", "a"), 100) and made.has_room((OF_FILES, "filed"), 1000)
    # A card is compared with those of the other agents, and not with the one that it replaces.
    assert made.has_room(("north", "a"), 100)
    made.learn(("north", "a"), CardFacts(at=2, size=10))
    check_sums()
    assert made.has_room(b, 90)
    made.learn(b, CardFacts(at=2, size=90))
    made.learn(("north", "gone"), CardFacts(at=2, size=90))
    check_sums()
    made.take("north", "b", replace(written("b"), description="the same agent"))
    assert not made.has_room(("north", "a"), 11)
    made.take("north", "b", written("b", url="http://other.example"))
    check_sums()
    assert made.has_room(b, 90)
    made.learn(b, CardFacts(at=3, size=90))
    for name in ("a", "b"):
        made.take("north", name, None)
    check_sums()
    assert not made._card_bytes
