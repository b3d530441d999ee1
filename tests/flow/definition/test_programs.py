"""Every filter of a definition is found, and one that does not compile is told with its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.flow.definition.sample import graph, line, node
from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.definition.programs import mapped_program, program_rules, programs


def test_all_filters_are_found() -> None:
    mapping = {"a": "${ .a }", "b": {"jq": ".b"}, "c": {"literal": ".c"}, "d": "plain ${ .d }", "e": 1}
    document = graph(
        [
            node("start", "begin"),
            node("switch", "turn", cases=[{"when": ".x", "target": "put"}], default="put"),
            node("set_state", "put", assignments={"k/y": {"jq": ".y"}, "l": {"literal": ".no"}}),
            node("agent_delegate", "ask", agent_id="a", protocol="a2a", input_mapping=mapping),
            node("subworkflow", "sub", workflow_ref="w", input_mapping={"z": " ${.z} "}),
            node("end", "done", output_mapping="{x}"),
        ]
    )
    assert list(programs(document)) == [
        (("nodes", 1, "config", "cases", 0, "when"), ".x"),
        (("nodes", 2, "config", "assignments", "k/y", "jq"), ".y"),
        (("nodes", 3, "config", "input_mapping", "a"), " .a "),
        (("nodes", 3, "config", "input_mapping", "b"), ".b"),
        (("nodes", 4, "config", "input_mapping", "z"), ".z"),
        (("nodes", 5, "config", "output_mapping"), "{x}"),
    ]


@pytest.mark.parametrize(
    ("given", "program"),
    [
        ("${ .a }", " .a "),
        ({"jq": ".a"}, ".a"),
        ({"jq": ".a", "more": 1}, None),
        ({"jq": 3}, None),
        ({"literal": "${ .a }"}, None),
        ("a ${ .a }", None),
        ("${ .a", None),
        ([".a"], None),
        (None, None),
    ],
)
def test_values_that_are_filters(given: Any, program: str | None) -> None:
    assert mapped_program(given) == program


class Strict:
    async def wrong(self, program: str, tenant: str = "") -> str | None:
        return None if program == "." else "jq: error: no good at line 1:\n    x\njq: 1 compile error"


def test_filters_that_do_not_compile() -> None:
    document = line(
        node("set_state", "put", assignments={"a/b": {"jq": "x"}, "c": {"jq": " "}, "d": {"jq": "."}})
    )

    async def collect() -> list[Diagnostic]:
        return [one async for one in program_rules(document, Strict())]

    found = asyncio.run(collect())
    assert [(one.instance_path, one.message) for one in found] == [
        ("/nodes/1/config/assignments/a~1b/jq", "this filter does not compile: no good at line 1:"),
        ("/nodes/1/config/assignments/c/jq", "this filter does not compile: it is blank"),
    ]
