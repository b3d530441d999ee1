"""Steps: Python functions, by the name that a workflow gives them or as `module:function`."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from trunkline.flow.activities.base import Activity, Outcome, failed, output_of

log = logging.getLogger("trunkline.flow")
StepFunction = Callable[["StepContext"], Any]


class StepContext(Struct, frozen=True):
    """The argument of a step function: the run, the node and the state."""

    execution_id: str
    node_id: str
    config: dict[str, Any]
    state: dict[str, Any]
    attempt: int = 1
    timeout_ms: int | None = None


class StepRegistry:
    """Functions by the name that nodes have in `handler` or `code_ref`.

    A function gives an object, any other value, or an `Outcome`; it may be `async`. One that is not runs in
    a thread, so that it holds up nobody. Functions named as `module:function` are imported only from modules
    that the operator has allowed: a definition may come from anybody.
    """

    def __init__(
        self, functions: Mapping[str, StepFunction] | None = None, *, modules: Collection[str] = ()
    ) -> None:
        self._functions = dict(functions or {})
        self._modules = frozenset(modules)

    def add(self, name: str, function: StepFunction) -> None:
        """Have a function do the steps of this name."""
        self._functions[name] = function

    def fixed(self, name: str, output: dict[str, Any]) -> None:
        """Have the steps of this name give the same output always."""
        self._functions[name] = lambda _: output

    def has(self, name: str) -> bool:
        """Return whether a function has this name, without an import."""
        return name in self._functions

    def find(self, name: str) -> StepFunction | None:
        """The function of this name, imported if need be."""
        found = self._functions.get(name)
        if found is None:
            module, colon, attribute = name.partition(":")
            if colon and self.allows(module):
                found = _imported(module, attribute)
                if found is not None:
                    self._functions[name] = found
        return found

    def allows(self, module: str) -> bool:
        """Return whether functions of a module may be steps."""
        return any(module == one or module.startswith(f"{one}.") for one in self._modules)


def _imported(module: str, attribute: str) -> StepFunction | None:
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # noqa: BLE001 - whatever a module raises, its function is not there
        log.error("step.unloaded module=%s error=%a", module, str(error))
        return None
    return found if callable(found) else None


class StepExecutor:
    """Does steps by the functions of a registry."""

    def __init__(self, registry: StepRegistry) -> None:
        self._registry = registry

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        node = activity.node
        if node.type != "step":
            return failed("ACTIVITY_EXECUTOR_UNSUPPORTED_NODE", f"{node.id}: {node.type} is no step")
        name = node.config.get("handler") or node.config.get("code_ref")
        if not isinstance(name, str) or not name.strip():
            return failed("STEP_CONFIG_INVALID", f"{node.id}: a step names its function in handler")
        function = self._registry.find(name.strip())
        if function is None:
            return failed("HANDLER_NOT_FOUND", f"{node.id}: no function is registered as {name!r}")
        context = StepContext(
            activity.execution_id,
            node.id,
            dict(node.config),
            dict(activity.state),
            activity.attempt,
            activity.timeout_ms,
        )
        try:
            given = await _called(function, context)
        except Exception as error:  # noqa: BLE001 - it is told as the failure of the step
            return failed("HANDLER_ERROR", f"{node.id}: {type(error).__name__}: {error}"[:1000])
        return given if isinstance(given, Outcome) else Outcome(ok=True, output=output_of(given))


async def _called(function: StepFunction, context: StepContext) -> object:
    if inspect.iscoroutinefunction(function):
        return await function(context)
    given = await asyncio.to_thread(function, context)
    return await given if inspect.isawaitable(given) else given
