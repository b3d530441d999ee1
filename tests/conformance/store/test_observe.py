"""Whoever counts is told of every group, on every store."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import AT, A, delta
from trunkline.errors import Conflict


def test_every_group_is_told_with_its_outcomes_and_its_time(run, store):
    heard = []
    store.observe(lambda outcomes, seconds: heard.append((list(outcomes), seconds)))

    async def case():
        await store.log.append(A, "t1", 0, [delta()], at=AT)
        with pytest.raises(Conflict):
            await store.log.append(A, "t1", 0, [delta()], at=AT)

    run(case())
    assert [type(outcome) for outcomes, _ in heard for outcome in outcomes] == [int, Conflict]
    assert all(0 <= seconds < 20 for _, seconds in heard)
