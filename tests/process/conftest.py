"""A database for the processes of a test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests import postgres


@pytest.fixture(scope="session")
def _database() -> Iterator[postgres.Database]:
    if reason := postgres.why_none():
        pytest.skip(reason)
    made = postgres.database(f"process_{os.getpid()}")
    yield made
    made.drop()


@pytest.fixture
def pg(_database: postgres.Database) -> postgres.Database:
    """A database without tasks."""
    _database.empty()
    return _database
