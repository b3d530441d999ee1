"""What the choice sees of a catalogue: who is excluded, whose skills are known, and how agents did."""

from __future__ import annotations

from msgspec import Struct

from tests.fleet.catalogue.test_catalogue import catalogue, skill, written
from trunkline.fleet.catalogue.breaker import FAILURES, PAUSE_MS
from trunkline.fleet.catalogue.catalogue import OF_FILES
from trunkline.fleet.catalogue.entry import faulty_entry
from trunkline.fleet.catalogue.listed import CardFacts
from trunkline.fleet.routing.choose import weight
from trunkline.fleet.routing.standings import CatalogueFleet


class Known(Struct, frozen=True):
    total: int
    success_rate: float | None
    p50_ms: int | None
    cost_usd: float


class Book:
    """The health of one agent."""

    def of(self, tenant: str, agent: str, skill: str = "") -> Known:
        known = (tenant, agent, skill) == ("default", "ann", "draft")
        return Known(8, 0.5, 3000, 2.0) if known else Known(0, None, None, 0.0)

    def sureness(self, tenant: str, agent: str, skill: str = "") -> tuple[int, float]:
        return (6, 0.8) if agent == "ann" else (0, 0.0)


def test_health_makes_weights_and_tracks() -> None:
    made, _ = catalogue(
        written("ann", skills=["draft"], concurrency=3, cooldown={"draft": 30}), written("ben")
    )
    fleet = CatalogueFleet(made, Book())
    (ann,) = fleet.with_skill("default", "draft")
    assert (ann.success_rate, ann.cost_usd, ann.latency_ms) == (0.5, 0.5, 3000)
    assert weight(ann) == 0.5 / 1.5
    assert (ann.track.runs, ann.track.confidence_runs, ann.track.confidence) == (8, 6, 0.8)
    assert (ann.concurrency, ann.cooldown_s) == (3, 30.0)
    ben = fleet.find("default", "ben", "draft")
    assert ben is not None and (ben.success_rate, weight(ben), ben.skills) == (None, 1.0, None)
    made.learn((OF_FILES, "ben"), CardFacts(at=1, skills=(skill("chat"),)))
    ben = fleet.find("default", "ben", "chat")
    assert ben is not None and ben.skills == {"chat"}
    assert fleet.find("default", "nobody", "") is None
    assert fleet.find("south", "ann", "") is None


def test_who_takes_nothing_is_excluded_with_the_reason() -> None:
    made, clock = catalogue(
        written("ann"), written("off", enabled=False), faulty_entry("broken", "file", "line 3: it is broken")
    )
    fleet = CatalogueFleet(made)

    def excluded(name: str) -> str:
        found = fleet.find("default", name, "")
        assert found is not None
        return found.excluded

    assert excluded("ann") == ""
    assert excluded("off") == "it is disabled (its entry says enabled: false)"
    assert excluded("broken") == "it is invalid (line 3: it is broken)"
    for _ in range(FAILURES):
        made.take_outcome("default", "ann", succeeded=False)
    assert "breaker" in excluded("ann")
    passing = {
        name: standing.is_passing for name in ("ann", "off") if (standing := fleet.find("default", name, ""))
    }
    assert passing == {"ann": True, "off": False}
    clock.now += PAUSE_MS
    assert excluded("ann") == ""
    # One piece of work may try it, and no other until that has ended.
    fleet.tell_try("default", "ann")
    assert "breaker" in excluded("ann")
    made.take_outcome("default", "ann", succeeded=True)
    assert excluded("ann") == ""


def test_agent_whose_card_cannot_be_read_is_unreachable() -> None:
    made, _ = catalogue(written("ann"))
    fleet = CatalogueFleet(made)
    made.fail((OF_FILES, "ann"), "nobody answers there")
    found = fleet.find("default", "ann", "")
    assert found is not None and (found.is_unreachable, found.excluded) == (True, "")


def test_what_was_said_of_the_health_of_an_agent_holds_for_a_second() -> None:
    made, _ = catalogue(written("ann", skills=["draft"]))
    now, book = [0], Book()
    fleet = CatalogueFleet(made, book, now=lambda: now[0])

    def rate() -> float | None:
        found = fleet.find("default", "ann", "draft")
        assert found is not None
        return found.success_rate

    assert rate() == 0.5
    book.of = lambda tenant, agent, skill="": Known(9, 1.0, 3000, 2.0)
    now[0] = 999
    assert rate() == 0.5
    now[0] = 1000
    assert rate() == 1.0
