"""Tests of workflows may be coroutines: each runs in a loop of its own, within a time."""

from __future__ import annotations

import asyncio
import inspect

import pytest

LONGEST_S = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(asyncio.wait_for(test(**wanted), LONGEST_S))
    return True
