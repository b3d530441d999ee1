"""Drawings of a definition: the ways between its nodes, a Mermaid chart of them, and a tree."""

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


class Way(Struct, frozen=True):
    """A way from one node to another; the label says when it is taken."""

    source: str
    target: str
    label: str = ""
    # From a fork to where its branches meet; nothing walks it.
    is_join: bool = False


class Branch(Struct, frozen=True):
    """A line of a tree with what hangs on it. `node` is empty where the line is the label of a way."""

    text: str
    node: str = ""
    below: tuple[Branch, ...] = ()


def ways(definition: Definition) -> Iterator[Way]:
    """All ways between the nodes, in the order of the nodes."""
    yield Way(START, definition.first)
    for node in definition.nodes.values():
        yield from _ways(definition, node)


def _ways(definition: Definition, node: Node) -> Iterator[Way]:
    if node.type == "switch":
        for case in node.config["cases"]:
            yield Way(node.id, case["target"], case["when"])
        if "default" in node.config:
            yield Way(node.id, node.config["default"], "default")
        return
    if node.type == "parallel":
        for branch in node.config["branches"]:
            yield Way(node.id, branch["entry"], branch["name"])
    if node.id in definition.next:
        yield Way(node.id, definition.next[node.id], _join(node), is_join=node.type == "parallel")


def mermaid(definition: Definition, states: Mapping[str, str] | None = None) -> str:
    """A flow chart in Mermaid; `states` says how each node of a run stands, such as `running`."""
    states = states or {}
    named = {node_id: f"n{place}" for place, node_id in enumerate(definition.nodes)}
    lines = ["flowchart TD"]
    for node_id, node in definition.nodes.items():
        before, after = _SHAPES.get(node.type, ("[", "]"))
        state = f"<br/>{_escaped(states[node_id])}" if node_id in states else ""
        lines.append(f'    {named[node_id]}{before}"{_escaped(node_id)}<br/>{node.type}{state}"{after}')
    for way in ways(definition):
        if way.source in named and way.target in named:
            label = f'|"{_escaped(_short(way.label))}"|' if way.label else ""
            arrow = "-.->" if way.is_join else "-->"
            lines.append(f"    {named[way.source]} {arrow}{label} {named[way.target]}")
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
        for way in _ways(definition, node) if node.type in {"switch", "parallel"} else ():
            if way.is_join:
                continue
            inner = tuple(_chain(definition, way.target, join, seen, depth + 1))
            below.append(Branch(_short(way.label), below=inner or (Branch(f"→ {way.target}"),)))
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
