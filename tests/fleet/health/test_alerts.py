"""An operator is told of what is above its limit, once per cooldown and store."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.fleet.health.given import NOW
from trunkline.fleet.health.alerts import AlertFigures, AlertLimits, AlertLog, alerts_of
from trunkline.store.url import store_from_url

CALM = AlertFigures(max_failure_rate_1h=0.5, daily_cost_usd=50.0, orphaned_skills=0)
BAD = AlertFigures(max_failure_rate_1h=0.51, daily_cost_usd=50.01, orphaned_skills=1)


def test_what_is_at_its_limit_is_not_above_it() -> None:
    assert alerts_of(CALM, AlertLimits()) == []
    assert [(one.kind, one.value, one.limit) for one in alerts_of(BAD, AlertLimits())] == [
        ("failure-rate", 0.51, 0.5),
        ("daily-cost", 50.01, 50.0),
        ("orphaned-skills", 1, 0),
    ]
    assert alerts_of(BAD, AlertLimits(failure_rate_1h=1.0, daily_cost_usd=100.0, orphaned_skills=1)) == []


def test_each_is_said_once_per_cooldown_whoever_sees_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = store_from_url("memory:")
        await store.open()
        logs = [AlertLog(store.docs, lambda tenant: AlertLimits()) for _ in range(2)]
        said = [
            [alert.kind for alert in await one.tell(tenant, found, NOW + minutes * 60_000)]
            for one, tenant, found, minutes in (
                (logs[0], "north", BAD, 0),
                (logs[1], "north", BAD, 1),
                (logs[1], "south", BAD, 1),
                (logs[0], "north", CALM, 14),
                (logs[1], "north", BAD, 14.9),
                (logs[1], "north", BAD, 15),
                # The clock was ahead until now.
                (logs[1], "north", BAD, -60),
            )
        ]
        everything = ["failure-rate", "daily-cost", "orphaned-skills"]
        assert said == [everything, [], everything, [], [], everything, everything]
        await store.close()

    asyncio.run(main())
    assert "fleet.alert tenant=north kind=daily-cost value=50.01 limit=50" in caplog.text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"cooldown": "soon"}', "cooldown"),
        ('{"failure_rate_1h": 2}', "failure_rate_1h"),
        ('{"costs": 1}', "costs"),
    ],
)
def test_limits_that_do_not_fit_are_refused(text: str, word: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=word):
        msgspec.json.decode(text, type=AlertLimits)
