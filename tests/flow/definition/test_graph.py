"""Names of nodes in edges, cases and branches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.definition.sample import graph, line, node
from trunkline.errors import FlowInvalid
from trunkline.flow.definition.graph import find_unknown_nodes
from trunkline.flow.definition.read import read_definition

BEGIN, DONE = node("start", "begin"), node("end", "done")


@pytest.mark.parametrize(
    ("document", "places"),
    [
        (line(), []),
        (graph([BEGIN, DONE], ("begin", "dnoe")), ["/edges/1/target"]),
        (graph([BEGIN, DONE], ("begin", "done"), ("gone", "done")), ["/edges/2/source"]),
        (
            graph(
                [BEGIN, node("switch", "turn", cases=[{"when": "1", "target": "x"}], default="y"), DONE],
                ("begin", "turn"),
            ),
            ["/nodes/1/config/cases/0/target", "/nodes/1/config/default"],
        ),
        (
            line(node("parallel", "fork", join="all", branches=[{"name": "a", "entry": "b"}])),
            ["/nodes/1/config/branches/0/entry"],
        ),
    ],
)
def test_a_name_that_no_node_has_is_found(document: dict[str, Any], places: list[str]) -> None:
    # Runs may start with such definitions: their hashes and logs are those of earlier versions.
    read_definition(document)
    assert [one.instance_path for one in find_unknown_nodes(document)] == places


def test_a_missing_edge_is_explained_by_the_unknown_name_first() -> None:
    document = graph([BEGIN, node("step", "keep", handler="f"), DONE], ("begin", "keep"), ("kep", "done"))
    with pytest.raises(
        FlowInvalid, match=r"^/edges/2/source: there is no node 'kep'; /nodes/1: node 'keep' nee"
    ):
        read_definition(document)
