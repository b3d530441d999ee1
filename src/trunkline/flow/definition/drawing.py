"""Drawings of a definition: the edges between its nodes, a Mermaid chart of them, and a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from trunkline.flow.definition.document import START, Definition, Node

# Trees that are deeper are of no use to anybody.
_DEPTH_LIMIT = 50
_LABEL_LIMIT = 60
# What stands before and after the name of a node, by its type.
_SHAPES = {
    "start": ("([", "])"),
    "end": ("([", "])"),
    "switch": ("{", "}"),
    "parallel": ("[[", "]]"),
    "subworkflow": ("[[", "]]"),
    "interrupt": ("[/", "/]"),
    "wait": ("((", "))"),
}
_ENTITIES = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;"}


class Edge(Struct, frozen=True):
    """An edge from one node to another; the label says when it is taken."""

    source: str
    target: str
    label: str = ""
    # From a fork to where its branches meet; nothing walks it.
    is_join: bool = False


class Branch(Struct, frozen=True):
    """A line of a tree with what hangs on it. `node` is empty where the line is the label of an edge."""

    text: str
    node: str = ""
    below: tuple[Branch, ...] = ()


def edges(definition: Definition) -> Iterator[Edge]:
    """All edges between the nodes, in the order of the nodes."""
    yield Edge(START, definition.first)
    for node in definition.nodes.values():
        yield from _edges(definition, node)


def _edges(definition: Definition, node: Node) -> Iterator[Edge]:
    if node.type == "switch":
        for case in node.config["cases"]:
            yield Edge(node.id, case["target"], case["when"])
        if "default" in node.config:
            yield Edge(node.id, node.config["default"], "default")
        return
    if node.type == "parallel":
        for branch in node.config["branches"]:
            yield Edge(node.id, branch["entry"], branch["name"])
    if node.id in definition.next:
        yield Edge(node.id, definition.next[node.id], _join(node), is_join=node.type == "parallel")


def mermaid(definition: Definition, states: Mapping[str, str] | None = None) -> str:
    """A flow chart in Mermaid; `states` says how each node of a run stands, such as `running`."""
    states = states or {}
    named = {node_id: f"n{place}" for place, node_id in enumerate(definition.nodes)}
    lines = ["flowchart TD"]
    for node_id, node in definition.nodes.items():
        before, after = _SHAPES.get(node.type, ("[", "]"))
        state = f"<br/>{_escaped(states[node_id])}" if node_id in states else ""
        lines.append(f'    {named[node_id]}{before}"{_escaped(node_id)}<br/>{node.type}{state}"{after}')
    for edge in edges(definition):
        if edge.source in named and edge.target in named:
            label = f'|"{_escaped(_short(edge.label))}"|' if edge.label else ""
            arrow = "-.->" if edge.is_join else "-->"
            lines.append(f"    {named[edge.source]} {arrow}{label} {named[edge.target]}")
    return "\n".join(lines) + "\n"


def tree(definition: Definition) -> tuple[Branch, ...]:
    """The nodes in the order of a walk: one line each, and an arrow where the walk comes back to one."""
    return tuple(_chain(definition, definition.first, "", set(), 0))


def _chain(definition: Definition, at: str, until: str, seen: set[str], depth: int) -> Iterator[Branch]:
    """The lines from a node on, up to the join of the branch that it is in."""
    while at and at != until:
        node = definition.nodes.get(at)
        if node is None or at in seen or depth > _DEPTH_LIMIT:
            yield Branch(f"→ {at}" if node else f"→ {at} (there is no such node)")
            return
        seen.add(at)
        join = definition.next.get(at, "") if node.type == "parallel" else until
        below: list[Branch] = []
        for edge in _edges(definition, node) if node.type in {"switch", "parallel"} else ():
            if edge.is_join:
                continue
            inner = tuple(_chain(definition, edge.target, join, seen, depth + 1))
            below.append(Branch(_short(edge.label), below=inner or (Branch(f"→ {edge.target}"),)))
        text = f"{at} ({node.type}{', ' + _join(node) if node.type == 'parallel' else ''})"
        yield Branch(text, at, tuple(below))
        at = definition.next.get(at, "")


def _join(node: Node) -> str:
    if node.type != "parallel":
        return ""
    config: dict[str, Any] = node.config
    if config["join"] == "n_of_m":
        return f"join {config['n']:g} of {len(config['branches'])}"
    return f"join {config['join']}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LABEL_LIMIT else f"{line[:_LABEL_LIMIT]}…"


def _escaped(text: str) -> str:
    return "".join(_ENTITIES.get(one, one) if one.isprintable() else " " for one in text)
