"""What is legal and most likely a mistake."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.definition.sample import graph, line, node
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.warnings import warnings

BEGIN, DONE = node("start", "begin"), node("end", "done")
TIMED = {"resume_schema": {"type": "object"}, "prompt": "?", "timeout": "1h"}


def test_nothing_to_say() -> None:
    turn = node("switch", "turn", cases=[{"when": ".x", "target": "done"}], default="turn")
    assert warnings(graph([BEGIN, turn, DONE], ("begin", "turn"))) == []


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (graph([BEGIN, DONE], ("begin", "dnoe")), [("/nodes/1", "reached")]),
        (
            graph(
                [BEGIN, node("switch", "turn", cases=[{"when": "1", "target": "x"}], default="y"), DONE],
                ("begin", "turn"),
            ),
            [("/nodes/2", "reached")],
        ),
        (
            graph(
                [BEGIN, node("switch", "turn", cases=[{"when": "1", "target": "done"}]), DONE],
                ("begin", "turn"),
            ),
            [("/nodes/1/config", "default")],
        ),
        (line(node("interrupt", "ask", **TIMED)), [("/nodes/1/config/timeout", "effect")]),
        (
            line({**node("set_state", "put", assignments={"a": {"literal": 1}}), "timeout": "1s", "retry": {"max_attempts": 2}}),
            [("/nodes/1/retry", "effect"), ("/nodes/1/timeout", "effect")],
        ),
        (
            graph([node("start", "begin", input_schema={}), node("end", "done", output_schema={})], ("begin", "done")),
            [("/nodes/0/config/input_schema", "effect"), ("/nodes/1/config/output_schema", "effect")],
        ),
        (
            graph([BEGIN, node("llm_call", "x"), {**node("llm_call", "x", a=1)}, DONE], ("begin", "x"), ("x", "done")),
            [("/nodes/1/id", "unique")],
        ),
    ],
)  # fmt: skip
def test_doubts(document: dict[str, Any], where: list[tuple[str, str]]) -> None:
    """What is legal and has no effect is told (D13)."""
    read_definition(document)
    found = warnings(document)
    assert {(one.instance_path, one.schema_path.split("/")[-1]) for one in found} == set(where)
    assert {one.keyword for one in found} == {"warning"}
