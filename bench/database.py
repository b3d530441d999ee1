"""The PostgreSQL that the benchmarks share: one server that fsyncs, a fresh database for each measurement.

`TRUNKLINE_TEST_PG=URL` names one that runs already. Otherwise its data lie in the temporary folder;
`TMPDIR` names another one where that is memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

from tests.postgres import GIVEN, Database, Server, why_none

__all__ = ["fresh", "start", "why_none"]

_numbers = itertools.count()


@cache
def start() -> str:
    """Run the server until this process ends, and give the URL of its superuser."""
    if GIVEN:
        return GIVEN
    server = Server(durable=True)
    server.start()
    return server.url()


@contextmanager
def fresh() -> Generator[str]:
    """The URL of an empty database, dropped at the end."""
    made = Database(start(), f"bench_{next(_numbers)}")
    try:
        yield made.url
    finally:
        made.drop()
