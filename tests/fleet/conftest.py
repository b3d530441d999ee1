"""Both databases."""

from __future__ import annotations

import pytest

from tests import postgres
from tests.fleet.stores import Replicas


@pytest.fixture(params=["memory", "postgres"])
def replicas(request: pytest.FixtureRequest) -> Replicas:
    if request.param == "memory":
        return Replicas("memory:")
    database: postgres.Database = request.getfixturevalue("postgres_database")
    database.empty()
    return Replicas(database.url)
