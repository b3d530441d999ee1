"""What is legal in a definition and most likely a mistake, or has no effect here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from trunkline.flow.definition.diagnostics import Diagnostic, broken
from trunkline.flow.definition.document import START
from trunkline.flow.definition.graph import Graph

# Types of nodes that are tried again, and that have a timeout.
_TRIED = {"step", "llm_call", "tool_call", "agent_delegate"}


def warnings(document: dict[str, Any]) -> list[Diagnostic]:
    """What a reader should know of a definition that breaks no rule."""
    graph = Graph.of(document)
    return [*_names(document, graph), *_unreached(graph), *_idle(document)]


def _names(document: dict[str, Any], graph: Graph) -> Iterator[Diagnostic]:
    counted = Counter(node["id"] for node in document["nodes"])
    for place, node in enumerate(document["nodes"]):
        if counted[node["id"]] > 1 and graph.places[node["id"]] != place:
            text = f"another node {node['id']!r} follows; it alone counts"
            yield _warned(("nodes", place, "id"), "unique", text)
        if node["type"] == "switch" and "default" not in node["config"]:
            text = "without a default the run fails where no case fits"
            yield _warned(("nodes", place, "config"), "default", text)


def _unreached(graph: Graph) -> Iterator[Diagnostic]:
    waiting = {*graph.edges.get(START, [])} & graph.nodes.keys()
    reached: set[str] = set()
    while waiting:
        node_id = waiting.pop()
        reached.add(node_id)
        waiting |= graph.ways[node_id] - reached
    for node_id, place in graph.places.items():
        if node_id not in reached:
            yield _warned(("nodes", place), "reached", f"no way leads to node {node_id!r}")


def _idle(document: dict[str, Any]) -> Iterator[Diagnostic]:
    """Members that are kept and shown, and change nothing."""
    for place, node in enumerate(document["nodes"]):
        config: dict[str, Any] = node.get("config", {})
        names = () if node["type"] in _TRIED else ("retry", "timeout")
        inert: list[tuple[str, ...]] = [(name,) for name in names if name in node]
        if node["type"] in {"interrupt", "parallel"} and "timeout" in config:
            inert.append(("config", "timeout"))
        for name in {"start": ("input_schema",), "end": ("output_schema",)}.get(node["type"], ()):
            if name in config:
                text = f"nothing is checked against {name}; state_schema is what counts"
                yield _warned(("nodes", place, "config", name), "effect", text)
        for path in inert:
            text = f"a {path[-1]} has no effect on a node of type {node['type']}"
            yield _warned(("nodes", place, *path), "effect", text)


def _warned(path: tuple[str | int, ...], rule: str, message: str) -> Diagnostic:
    return broken(path, "warning", rule, message)
