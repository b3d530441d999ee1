from __future__ import annotations

from tests.flow.workbench import RejectingActivities
from trunkline.flow.activities.base import Activity, Outcome
from trunkline.flow.activities.composite import CompositeActivities, StubActivities
from trunkline.flow.definition.document import Node

STEP = Activity("e1", Node("a", "step", {}), {})
TOOL = Activity("e1", Node("b", "tool_call", {}), {})


async def test_each_type_has_its_executor_and_the_rest_a_code() -> None:
    both = CompositeActivities({"step": StubActivities({"a": {"x": 1}})})
    assert await both.execute(STEP) == Outcome(ok=True, output={"x": 1})
    outcome = await both.execute(TOOL)
    assert outcome.code == "COMPOSITE_EXECUTOR_NOT_CONFIGURED"
    assert "tool_call" in outcome.error


async def test_a_fallback_takes_what_nobody_else_does() -> None:
    both = CompositeActivities({"step": RejectingActivities()}, StubActivities())
    assert (await both.execute(STEP)).code == "CONFORMANCE_ACTIVITY_PORT_INVOKED"
    assert await both.execute(TOOL) == Outcome(ok=True, output={})
