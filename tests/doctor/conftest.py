"""One loop and one sound agent per set of settings, shared by all examinations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.doctor.defects import KEY
from trunkline.config import Secret
from trunkline.demo import agent
from trunkline.doctor.run import DoctorReport
from trunkline.doctor.run import examine as run
from trunkline.doctor.subject import DoctorOptions
from trunkline.net.in_process import InProcessHttpClient

Sound = Callable[..., Any]
Examine = Callable[..., DoctorReport]


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture(scope="module")
def sound(runner: asyncio.Runner) -> Iterator[Sound]:
    """The demo agent with these settings, started."""
    stack = AsyncExitStack()
    made: dict[str, Any] = {}

    def get(**settings: Any) -> Any:
        key = repr(sorted(settings.items()))
        if key not in made:
            made[key] = agent.asgi(store="memory:", drain_limit=1, **settings)
            runner.run(stack.enter_async_context(made[key].lifespan()))
        return made[key]

    yield get
    runner.run(stack.aclose())


@pytest.fixture(scope="module")
def examine(runner: asyncio.Runner) -> Examine:
    """Examine an application in this process."""

    async def look(app: Any, url: str, options: DoctorOptions) -> DoctorReport:
        http_client = InProcessHttpClient(app, base="")
        try:
            async with asyncio.timeout(60):
                return await run(url, options, http_client)
        finally:
            await http_client.close()

    def get(app: Any, url: str = "http://localhost", *, keyed: bool = False, **options: Any) -> DoctorReport:
        credentials = (("X-API-Key", Secret(KEY)),) if keyed else ()
        return runner.run(look(app, url, DoctorOptions(credentials=credentials, **options)))

    return get
