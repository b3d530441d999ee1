"""Drawings show every node and every way."""

from __future__ import annotations

from tests.flow.definition.sample import graph, line, node
from trunkline.flow.definition.drawing import Branch, edges, mermaid, tree
from trunkline.flow.definition.read import read_definition

WHOLE = read_definition(
    graph(
        [
            node("start", "begin"),
            node("parallel", "fork", join="n_of_m", n=1, branches=[{"name": "l", "entry": "a"}, {"name": "r", "entry": "b"}]),
            node("llm_call", "a"),
            node("llm_call", "b"),
            node("switch", "turn", cases=[{"when": '.x == "<y>"', "target": "fork"}], default="nowhere"),
            node("end", "done"),
        ],
        ("begin", "fork"), ("fork", "turn"), ("a", "turn"), ("b", "turn"),
    )
)  # fmt: skip


def lines(branches: tuple[Branch, ...], depth: int = 0) -> list[str]:
    return [text for one in branches for text in [f"{'  ' * depth}{one.text}", *lines(one.below, depth + 1)]]


def test_a_tree() -> None:
    assert lines(tree(WHOLE)) == [
        "begin (start)",
        "fork (parallel, join 1 of 2)",
        "  l",
        "    a (llm_call)",
        "  r",
        "    b (llm_call)",
        "turn (switch)",
        '  .x == "<y>"',
        "    → fork",
        "  default",
        "    → nowhere (there is no such node)",
    ]


def test_a_tree_of_a_long_chain_of_switches_ends() -> None:
    turns = [
        node("switch", f"t{n}", cases=[{"when": ".", "target": f"t{n + 1}"}], default="done")
        for n in range(500)
    ]
    nodes = [node("start", "t"), *turns, node("switch", "t500", cases=[{"when": ".", "target": "done"}])]
    read = read_definition(graph([*nodes, node("end", "done")], ("t", "t0")))
    assert lines(tree(read))[-1].strip() == "→ done"


def test_a_chart() -> None:
    drawn = mermaid(WHOLE, {"a": "running"}).splitlines()
    assert drawn[0] == "flowchart TD"
    assert '    n1[["fork<br/>parallel"]]' in drawn
    assert '    n2["a<br/>llm_call<br/>running"]' in drawn
    assert '    n1 -->|"l"| n2' in drawn
    assert '    n1 -.->|"join 1 of 2"| n4' in drawn
    assert '    n4 -->|".x == #quot;#lt;y#gt;#quot;"| n1' in drawn
    assert len([one for one in drawn if "->" in one]) == len(list(edges(WHOLE))) - 2, (
        "without start and nowhere"
    )


def test_a_name_cannot_break_the_chart() -> None:
    drawn = mermaid(read_definition(line(node("llm_call", 'a"]\nclick b'))))
    assert '"a#quot;] click b<br/>llm_call"' in drawn
