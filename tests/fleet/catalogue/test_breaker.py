"""Five failures in a row open the breaker of an agent; a minute later one try decides."""

from __future__ import annotations

from trunkline.fleet.catalogue.breaker import FAILURES, PAUSE_MS, AgentBreaker

NOW = 1_000_000


def opened() -> AgentBreaker:
    found = AgentBreaker()
    for n in range(FAILURES):
        assert found.state(NOW) == "closed" and found.admits(NOW), n
        found = found.failed(NOW)
    return found


def test_it_opens_and_one_try_decides() -> None:
    found = opened()
    assert (found.state(NOW), found.admits(NOW)) == ("open", False)
    due = NOW + PAUSE_MS
    assert (found.state(due), found.admits(due)) == ("half-open", True)
    trying = found.tried(due)
    assert (trying.state(due), trying.admits(due)) == ("half-open", False)
    assert trying.failed(due).state(due) == "open" and not trying.failed(due).admits(due + PAUSE_MS - 1)
    assert trying.succeeded().state(due) == "closed"
    # A try that nobody told the end of does not keep the agent away for ever.
    assert trying.admits(due + PAUSE_MS)


def test_a_success_between_counts() -> None:
    found = AgentBreaker()
    for _ in range(3 * FAILURES):
        for _ in range(FAILURES - 1):
            found = found.failed(NOW)
        found = found.succeeded()
    assert found == AgentBreaker()


def test_late_failures_do_not_prolong_the_pause() -> None:
    found = opened()
    assert found.failed(NOW + 30_000) == found
    assert AgentBreaker().tried(NOW) == AgentBreaker()
