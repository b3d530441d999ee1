"""Delegations to functions of this process, one for each agent ID; by the protocol `sdk` unless set."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

from trunkline.flow.activities.base import DelegateOrder, Outcome, failed
from trunkline.flow.delegates.mock import agent_id_of, derived_task, unsupported

DelegateFunction = Callable[[DelegateOrder], Any]


class FunctionDelegates:
    """Executes delegations by the function of the agent ID; one that is not `async` runs in a thread."""

    def __init__(self, functions: Mapping[str, DelegateFunction], protocol: str = "sdk") -> None:
        self._functions = dict(functions)
        self._protocol = protocol

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        if order.protocol != self._protocol:
            return unsupported(order)
        agent = agent_id_of(order)
        function = self._functions.get(agent)
        if function is None:
            return failed("DELEGATE_AGENT_NOT_FOUND", f"{order.node.id}: no function stands for {agent!r}")
        try:
            given = await _called(function, order)
        except Exception as error:  # noqa: BLE001 - it is told as the failure of the delegation
            text = f"{order.node.id}: {type(error).__name__}: {error}"[:1000]
            return failed("DELEGATE_PROTOCOL_ERROR", text)
        output = (
            cast("dict[str, Any]", given) if isinstance(given, dict) else {"delegate_status": "completed"}
        )
        return Outcome(
            ok=True,
            output=output,
            correlation=order.correlation,
            external_task=derived_task(self._protocol, order.correlation),
        )


async def _called(function: DelegateFunction, order: DelegateOrder) -> object:
    if inspect.iscoroutinefunction(function):
        return await function(order)
    given = await asyncio.to_thread(function, order)
    return await given if inspect.isawaitable(given) else given
