from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.activities.steps import StepContext, StepExecutor, StepRegistry
from trunkline.flow.definition.document import Node

URN = "urn:test:step"


def step(**config: Any) -> Activity:
    return Activity("e1", Node("greet", "step", config), {"name": "Ada"})


async def test_a_function_is_called_by_its_urn_with_the_state() -> None:
    async def greet(context: StepContext) -> dict[str, Any]:
        return {"text": f"{context.config['word']} {context.state['name']}", "node": context.node_id}

    executor = StepExecutor(StepRegistry({URN: greet}))
    outcome = await executor.execute(step(handler=URN, word="Hello"))
    assert outcome == Outcome(ok=True, output={"text": "Hello Ada", "node": "greet"})


async def test_a_plain_function_gives_any_value() -> None:
    executor = StepExecutor(StepRegistry({URN: lambda _: 7}))
    assert (await executor.execute(step(code_ref=URN))).output == {"value": 7}


async def test_a_function_may_say_the_whole_outcome() -> None:
    said = Outcome(ok=False, error="not today", code="TRANSIENT")
    executor = StepExecutor(StepRegistry({URN: lambda _: said}))
    assert await executor.execute(step(handler=URN)) == said


async def test_a_fixed_output_is_given_always() -> None:
    registry = StepRegistry()
    registry.fixed(URN, {"value": "x"})
    assert (await StepExecutor(registry).execute(step(handler=URN))).output == {"value": "x"}


async def test_module_and_function_are_imported_only_where_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("steps_of_mine")
    module.__dict__["double"] = double
    monkeypatch.setitem(sys.modules, "steps_of_mine", module)
    allowed = StepExecutor(StepRegistry(modules=["steps_of_mine"]))
    assert (await allowed.execute(step(handler="steps_of_mine:double", n=4))).output == {"n": 8}
    assert (await allowed.execute(step(handler="steps_of_mine:absent"))).code == "HANDLER_NOT_FOUND"
    assert (await allowed.execute(step(handler="os:getcwd"))).code == "HANDLER_NOT_FOUND"
    strict = StepExecutor(StepRegistry())
    assert (await strict.execute(step(handler="steps_of_mine:double", n=4))).code == "HANDLER_NOT_FOUND"


def double(context: StepContext) -> dict[str, Any]:
    return {"n": context.config["n"] * 2}


def broken(_: StepContext) -> None:
    raise ValueError("no such row")


@pytest.mark.parametrize(
    ("activity", "code", "text"),
    [
        (step(handler="urn:other"), "HANDLER_NOT_FOUND", "urn:other"),
        (step(handler="  "), "STEP_CONFIG_INVALID", "handler"),
        (step(handler=URN), "HANDLER_ERROR", "ValueError: no such row"),
        (Activity("e1", Node("a", "llm_call", {}), {}), "ACTIVITY_EXECUTOR_UNSUPPORTED_NODE", "llm_call"),
    ],
)
async def test_each_failure_has_its_code(activity: Activity, code: str, text: str) -> None:
    outcome = await StepExecutor(StepRegistry({URN: broken})).execute(activity)
    assert (outcome.ok, outcome.code) == (False, code)
    assert text in outcome.error
