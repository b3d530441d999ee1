"""The one agent that every transport speaks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.transport.world import WAYS, Way, World


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture(params=WAYS)
def any_way(request: pytest.FixtureRequest, world: World) -> Way:
    """Every transport there is."""
    return Way(world, request.param)


@pytest.fixture(params=[name for name in WAYS if name != "delegate"])
def way(request: pytest.FixtureRequest, world: World) -> Way:
    """Every transport of A2A."""
    return Way(world, request.param)


@pytest.fixture
def delegate(world: World) -> Way:
    return Way(world, "delegate")
