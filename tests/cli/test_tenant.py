"""`trunkline tenant …` on a store that no server has open: limits, settings and alerts of one tenant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run, trunkline

__all__ = ["trunkline"]
STORE = ("--store", "sqlite:///hub.db")


def ask(trunkline: Run, *words: str) -> Any:
    code, out, said = trunkline("tenant", *words, *STORE, "--json")
    assert code == 0, said
    return json.loads(out)


@pytest.mark.parametrize("tenant", ["acme", "default"])
def test_limits_that_a_command_does_not_name_stay(trunkline: Run, tenant: str) -> None:
    assert trunkline("keys", "create", "--owner", "ops", *STORE)[0] == 0
    ask(trunkline, "create", "acme")
    ask(trunkline, "limit", tenant, "--requests-per-minute", "3", "--concurrent-tasks", "1")
    limited = ask(trunkline, "limit", tenant, "--cost-per-day", "1")["quota"]
    assert limited == {"requests_per_minute": 3, "concurrent_tasks": 1, "cost_per_day": 1.0}
    # Both spellings of a name are accepted: the option's and that of the file.
    cleared = ask(trunkline, "limit", tenant, "--clear", "cost_per_day", "--clear", "concurrent-tasks")
    assert cleared["quota"] == {"requests_per_minute": 3}
    replaced = ask(trunkline, "limit", tenant, "--clear", "requests-per-minute", "--tokens-per-day", "5")
    assert replaced["quota"] == {"tokens_per_day": 5}
    assert ask(trunkline, "limit", tenant, "--none")["quota"] == {}


def test_settings_and_alerts_that_a_command_does_not_name_stay(trunkline: Run) -> None:
    assert trunkline("keys", "create", "--owner", "ops", *STORE)[0] == 0
    ask(trunkline, "create", "acme")
    ask(trunkline, "set", "acme", "--kind", "peer", "--retention", "1d")
    assert ask(trunkline, "set", "acme", "--tool", "step:a", "--clear", "kind")["settings"] == {
        "retention": "1d",
        "tools": ["step:a"],
    }
    ask(trunkline, "alert", "acme", "--daily-cost-usd", "10")
    alerts = ask(trunkline, "alert", "acme", "--failure-rate-1h", "0.2")["alerts"]
    assert alerts == {"failure_rate_1h": 0.2, "daily_cost_usd": 10.0}
    assert ask(trunkline, "alert", "acme", "--clear", "daily-cost-usd")["alerts"] == {"failure_rate_1h": 0.2}


def test_first_key_is_announced_as_the_end_of_access_without_one(trunkline: Run) -> None:
    assert trunkline("tenant", "create", "Early", *STORE)[0] == 2
    assert trunkline("store", "migrate", *STORE)[0] == 0
    _, _, first = trunkline("tenant", "create", "Acme", *STORE)
    assert "Warning: every caller of the hub needs a key from now on" in first
    assert "Next: trunkline keys create --owner me --store sqlite:///hub.db" in first
    assert trunkline("tenant", "create", "Bolt", *STORE)[2] == ""


def test_key_of_a_tenant_that_the_hub_lacks_is_a_warning(trunkline: Run) -> None:
    made = ("keys", "create", "--owner", "ann", *STORE)
    assert trunkline(*made, "--tenant", "anything")[2] == ""
    ask(trunkline, "create", "acme")
    assert trunkline(*made, "--tenant", "acme")[2] == ""
    assert "the hub has no tenant 'acmee'; did you mean 'acme'?" in trunkline(*made, "--tenant", "acmee")[2]


def test_a_name_that_cannot_be_cleared_is_refused_with_the_names(trunkline: Run) -> None:
    code, _, said = trunkline("tenant", "limit", "acme", "--clear", "cost-per-dy", *STORE)
    assert code == 2
    assert "--clear cost_per_dy: unknown name" in said and "cost_per_day" in said
    for words in (("limit", "acme"), ("limit", "acme", "--none", "--clear", "cost-per-day")):
        code, _, said = trunkline("tenant", *words, *STORE)
        assert code == 2 and "--clear NAME" in said
