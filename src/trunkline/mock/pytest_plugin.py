"""The pytest plugin: `a2a_mock`, `a2a_agent` and `a2a_client`. No network, no model.

It is loaded in every pytest run of whoever has Trunkline installed, so it loads nothing before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from trunkline.agent.agent import Agent
    from trunkline.client.sync import SyncClient
    from trunkline.mock.in_process import InProcessAgent, InProcessMock, Script, Target


@pytest.fixture
def a2a_mock() -> Iterator[Callable[..., InProcessMock]]:
    """Makes mock agents in this process, from a scenario, rules, one reply or a YAML file.

    What a scenario expects is verified when the test is over.
    """
    from trunkline.mock.in_process import InProcessMock

    with ExitStack() as made:

        def make(script: Script) -> InProcessMock:
            mock = InProcessMock(script)
            # Comes after the close: what is put on the stack first is done last.
            made.callback(mock.verify)
            return made.enter_context(closing(mock))

        yield make


@pytest.fixture
def a2a_agent() -> Iterator[Callable[..., InProcessAgent]]:
    """Serves an `Agent` in this process, with a store in memory; settings may follow it."""
    from trunkline.mock.in_process import InProcessAgent

    with ExitStack() as made:

        def make(agent: Agent, **settings: object) -> InProcessAgent:
            return made.enter_context(closing(InProcessAgent(agent, **settings)))

        yield make


@pytest.fixture
def a2a_client() -> Iterator[Callable[..., SyncClient]]:
    """Makes clients for tests without an event loop: to a mock, an agent, a scenario or a URL.

    In a test with a loop, `mock.client()` and `agent.client()` make the asynchronous one.
    """
    from trunkline.mock.in_process import connect

    with ExitStack() as made:

        def make(target: Target, **options: Any) -> SyncClient:
            return made.enter_context(closing(connect(target, **options)))

        yield make
